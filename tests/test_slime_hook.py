"""slime and miles: their one way out, by a stand-in module of the same shape.

`log(args, metrics, step_key)` and `finish_tracking` are those of slime 624b824 (slime/observability/logging_utils.py)
and miles 31f1ca9 (miles/utils/tracking_utils/tracking.py), which are not on PyPI and need Megatron and SGLang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlexporter.integrations.log_sources import Sources
from rlexporter.integrations.loggers import registry, slime

NAN = float("nan")
ARGS = Namespace(
    use_wandb=False,
    use_tensorboard=False,
    wandb_group="qwen3-4B",
    advantage_estimator="gspo",
    hf_checkpoint="/models/Qwen3-4B/",
    rollout_batch_size=32,
    n_samples_per_prompt=8,
    global_batch_size=128,
    num_rollout=100,
    lr=1e-6,
    eps_clip=0.2,
    eps_clip_high=0.28,
    use_kl_loss=True,
    kl_loss_coef=0.01,
)


def _module() -> Any:
    module: Any = ModuleType("logging_utils")

    def log(args: Namespace, metrics: dict[str, Any], step_key: str) -> None:
        module.logged.append(dict(metrics))

    def finish_tracking(args: Any = None) -> None:
        module.logged.append("finished")

    module.logged, module.log, module.finish_tracking = [], log, finish_tracking
    return module


@pytest.fixture(params=["slime", "miles"])
def run(request: pytest.FixtureRequest, any_port: None, no_callbacks: None) -> Iterator[tuple[str, Any, Sources]]:
    module, sources = _module(), Sources((request.param,))
    getattr(slime, f"watch_{request.param}")(module, sources)
    yield request.param, module, sources
    sources.leave()


def test_both_parts_of_a_step(run: tuple[str, Any, Sources]) -> None:
    """A rollout is used for two steps, so that its line belongs to the first of them; a NaN raises its condition."""
    name, module, sources = run
    module.log(ARGS, {"rollout/raw_reward": 0.25, "rollout/step": 0}, step_key="rollout/step")
    module.log(ARGS, {"train/loss": 0.5, "train/grad_norm": 1.5, "train/step": 0}, step_key="train/step")
    module.log(ARGS, {"train/loss": 0.25, "train/grad_norm": 2.5, "train/step": 1}, step_key="train/step")
    assert sources.run is not None
    exporter = sources.run.exporter
    facts = exporter.run._facts
    assert (facts.framework, facts.algorithm, facts.family) == (name, "gspo", "grpo")
    assert (facts.info["model"], facts.steps_planned, facts.groups) == ("Qwen3-4B", 200, 16)
    assert (facts.hyperparameters["beta"], facts.hyperparameters["epsilon_high"]) == (0.01, 0.28)
    shown = exporter.snapshot
    assert (shown.value("rl_reward_mean"), shown.value("rl_loss"), shown.value("rl_step")) == (0.25, 0.25, 2.0)

    module.log(ARGS, {"rollout/raw_reward": 0.75, "rollout/step": 1}, step_key="rollout/step")
    module.log(ARGS, {"train/loss": 0.125, "train/grad_norm": NAN, "train/step": 2}, step_key="train/step")
    shown = exporter.snapshot
    assert (shown.value("rl_reward_mean"), shown.value("rl_loss"), shown.value("rl_step")) == (0.75, 0.125, 3.0)
    assert shown.value("rl_condition", condition="nonfinite_grad", severity="critical") == 1.0

    module.finish_tracking(ARGS)
    assert len(module.logged) == 6, "what they log themselves is untouched"
    assert vars(sources)["run"] is None
    exporter.close()


def test_whichever_rank_logs(run: tuple[str, Any, Sources], monkeypatch: pytest.MonkeyPatch) -> None:
    """The last pipeline stage logs, whose rank is not 0: it is the one process that does."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    _, module, sources = run
    module.log(ARGS, {"train/loss": 0.5, "train/step": 0}, step_key="train/step")

    assert sources.run is not None
    assert (sources.run.exporter.run.rank, sources.run.exporter.snapshot.value("rl_loss")) == (0, 0.5)


def test_they_come_before_the_loggers_that_they_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, "wandb")

    assert registry._order(("slime", "miles")) == ("slime", "miles", "wandb")


@pytest.mark.parametrize("module", ["slime.observability.logging_utils", "miles.utils.tracking_utils.tracking"])
def test_a_script_under_rlexporter_run(tmp_path: Path, module: str) -> None:
    """Nothing of the script is changed; the hook waits for the module, which nothing else imports."""
    package, _, name = module.rpartition(".")
    folder = tmp_path.joinpath(*package.split("."))
    folder.mkdir(parents=True)
    (folder / f"{name}.py").write_text("def log(args, metrics, step_key): ...\ndef finish_tracking(*args): ...\n")
    (tmp_path / "train.py").write_text(
        f"from argparse import Namespace\nfrom {package} import {name}\nargs = Namespace(wandb_group='mine')\n"
        f"for i in (0, 1):\n    {name}.log(args, {{'train/loss': 0.5 + i, 'train/step': i}}, step_key='train/step')\n"
    )
    record = tmp_path / "record.jsonl"
    environ = {**os.environ, "RLEXPORTER_RECORD": str(record), "RLEXPORTER_LISTEN_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "rlexporter", "run", "train.py"],
        cwd=tmp_path,
        env={**environ, "RLEXPORTER_LINGER_SECONDS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert (lines[0]["framework"], lines[0]["run"]) == (module.partition(".")[0], "mine")
    assert [(line["global_step"], line["logs"]["train/loss"]) for line in lines if line["event"] == "log"] == [
        *((1, 0.5), (2, 1.5))
    ]
