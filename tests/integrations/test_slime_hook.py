"""slime and miles: their one way out, by stand-ins, since they are not on PyPI and need Megatron and SGLang.

The stand-ins have the functions of slime 624b824 (slime/observability/logging_utils.py) and of miles 31f1ca9
(miles/utils/tracking_utils/tracking.py), with their parameters as they stand there.
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

from rlexporter.frameworks import slime
from rlexporter.integrations import registry
from rlexporter.integrations.logged_run import Sources
from tests.loggers.watched import package

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


MODULES = {"slime": "slime.observability.logging_utils", "miles": "miles.utils.tracking_utils.tracking"}
"""The modules that they are in."""
_STAND_IN = """
logged = []


def log(args, metrics, step_key: str):
    logged.append(dict(metrics))


def finish_tracking({parameters}):
    logged.append("finished")
"""
STAND_INS = {"slime": _STAND_IN.format(parameters="args"), "miles": _STAND_IN.format(parameters="")}


def _module(name: str) -> Any:
    module = ModuleType(MODULES[name])
    exec(STAND_INS[name], vars(module))
    return module


@pytest.fixture(params=["slime", "miles"])
def run(request: pytest.FixtureRequest, any_port: None, no_callbacks: None) -> Iterator[tuple[str, Any, Sources]]:
    module, sources = _module(request.param), Sources((request.param,))
    slime.watch(module, sources.feed(request.param))
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
    facts = exporter._run._facts
    assert (facts.framework, facts.algorithm, facts.family) == (name, "gspo", "grpo")
    assert (facts.info["model"], facts.steps_planned, facts.groups) == ("Qwen3-4B", 200, 16)
    assert (facts.hyperparameters["beta"], facts.hyperparameters["epsilon_high"]) == (0.01, 0.28)
    shown = exporter.snapshot
    assert (shown.value("rl_reward_mean"), shown.value("rl_loss"), shown.value("rl_step")) == (0.25, 0.25, 2.0)

    module.log(ARGS, {"rollout/raw_reward": 0.75, "rollout/step": 1}, step_key="rollout/step")
    module.log(ARGS, {"train/loss": 0.125, "train/grad_norm": NAN, "train/step": 2}, step_key="train/step")
    shown = exporter.snapshot
    assert (shown.value("rl_reward_mean"), shown.value("rl_loss"), shown.value("rl_step")) == (0.75, 0.125, 3.0)
    assert shown.value("rl_condition", condition="nonfinite", severity="critical") == 1.0

    module.finish_tracking(*([ARGS] if name == "slime" else []))
    assert len(module.logged) == 6, "what they log themselves is untouched"
    assert vars(sources)["run"] is None
    exporter.close()


def test_they_come_before_the_loggers_that_they_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, "wandb")

    assert registry._order(("slime", "miles")) == ("slime", "miles", "wandb")


PARTS = """
import os, sys
from argparse import Namespace
from {package} import {name}

part, rank, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
args = Namespace(wandb_group="mine")
if part != "rollout":
    import torch.distributed

    # As in their `TrainRayActor`: only the process itself knows its rank.
    size = 2 if part == "trainer" else 1
    os.environ |= {{"RANK": str(rank), "WORLD_SIZE": str(size)}}
    torch.distributed.init_process_group("gloo", f"file://{{folder}}/{{part}}.group", world_size=size, rank=rank)
    torch.distributed.barrier()
if part == "rollout":
    {name}.log(args, {{"rollout/response_len/mean": 200.0, "rollout/step": 0}}, step_key="rollout/step")
elif part == "critic":
    {name}.log(args, {{"train/critic-value_loss": 0.5, "train/step": 0}}, step_key="train/step")
elif rank == 1:  # the last stage of a pipeline of two
    {name}.log(args, {{"rollout/raw_reward": 0.25, "rollout/step": 0}}, step_key="rollout/step")
    {name}.log(args, {{"train/loss": 0.75, "train/step": 0}}, step_key="train/step")
    {name}.log(args, {{"train/loss": 0.5, "train/step": 1}}, step_key="train/step")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "named"), [("slime", True), ("miles", False)])
def test_each_process_that_logs_is_a_run_of_rank_0(tmp_path: Path, framework: str, named: bool) -> None:
    """Sampler, trainer and critic each have a name: of several processes with one, alerts judge the newest alone.

    Nothing of the script is changed; the hook waits for the module, which nothing else imports.
    Of two processes that train, the one that does not log serves nothing. ``named``: False if a variable names the run.
    The file of a recording has a rank above 0 in its name.
    """
    package(tmp_path, MODULES[framework], STAND_INS[framework])
    parent, _, name = MODULES[framework].rpartition(".")
    (tmp_path / "part.py").write_text(PARTS.format(package=parent, name=name))
    parts = [("rollout", 0), ("trainer", 0), ("trainer", 1), ("critic", 0)]
    environ = os.environ | {"RLEXPORTER_LISTEN_PORT": "0", "RLEXPORTER_LINGER_SECONDS": "0", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "rlexporter", "run", "part.py", part, str(rank), str(tmp_path)],
            cwd=tmp_path,
            env=environ | {"RLEXPORTER_RECORD": f"{part}{rank}.jsonl"} | ({} if named else {"RLEXPORTER_RUN": "mine"}),
            stderr=subprocess.PIPE,
            text=True,
        )
        for part, rank in parts
    ]
    said = [process.communicate(timeout=600)[1] for process in processes]

    assert [process.returncode for process in processes] == [0] * 4, said
    assert not (tmp_path / "trainer0.jsonl").exists()
    assert ["rlexporter: serving" in each for each in said] == [True, False, True, True]
    runs: dict[str, tuple[str, str]] = {}
    logged: dict[str, list[tuple[int, float]]] = {}
    for file in tmp_path.glob("*.jsonl"):
        first, *rest = [json.loads(line) for line in file.read_text().splitlines()]
        runs[file.stem] = first["framework"], first["run"]
        for line in rest:
            for key, value in line.get("logs", {}).items():
                logged.setdefault(f"{file.stem}: {key}", []).append((line["global_step"], value))
    assert runs == {f"{part}{rank}": (framework, f"mine {part}") for part, rank in parts if (part, rank) != parts[1]}
    assert logged == {
        "rollout0: rollout/response_len/mean": [(1, 200.0)],
        "trainer1: rollout/raw_reward": [(1, 0.25)],
        "trainer1: train/loss": [(1, 0.75), (2, 0.5)],
        "critic0: train/critic-value_loss": [(1, 0.5)],
    }
