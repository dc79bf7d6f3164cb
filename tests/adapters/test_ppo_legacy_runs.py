"""Runs of legacy PPO: how they begin and end, what is known of them, their phases, and the tracker."""

from __future__ import annotations

import gc
import json
import math
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import trl

import rlexporter
from rlexporter import Exporter
from rlexporter.run import shutdown
from tests.adapters import legacy
from tests.adapters.broken import Clock
from tests.adapters.legacy import ACCELERATOR_TAPS, BATCH, TRAINER_TAPS, Loop, make, run
from tests.adapters.seen import histogram, phases, state
from tests.conftest import fetch
from tests.served import errors, nonfinite
from tests.tools import ROOT, launched

pytestmark = pytest.mark.usefixtures("any_port")


def _wrapped(trainer: Any) -> set[str]:
    """The methods of a trainer and of its accelerator that we have wrapped."""
    return {*TRAINER_TAPS} & {*vars(trainer)} | {*ACCELERATOR_TAPS} & {*vars(trainer.accelerator)}


def test_twice_is_once_and_anew_after_close() -> None:
    """Nothing is left on the trainer by then; what it had before is."""
    trainer = make()
    first = rlexporter.attach(trainer)
    assert rlexporter.attach(trainer, run="another") is first
    Loop(trainer).run(1)
    assert first.snapshot.value("rl_steps_total") == 1
    assert histogram(first, "rl_reward_dist").count == BATCH
    assert _wrapped(trainer) == {*TRAINER_TAPS, *ACCELERATOR_TAPS}
    first.close()
    assert _wrapped(trainer) == set()

    second = rlexporter.attach(trainer)
    assert second is not first
    Loop(trainer).run(2)
    assert (first.snapshot.value("rl_steps_total"), second.snapshot.value("rl_steps_total")) == (1, 2)
    assert errors(first) == errors(second) == 0


def test_the_exporter_does_not_keep_the_trainer_alive() -> None:
    """Its closing after that is no error."""
    trainer = make()
    exporter, loop = run(trainer, 1)
    gone = weakref.ref(trainer)
    del trainer, loop
    gc.collect()

    assert gone() is None
    exporter.close()
    assert errors(exporter) == 0


def test_a_rank_that_is_not_the_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an exporter that serves nothing, and no taps."""
    trainer = make()
    monkeypatch.setattr(type(trainer.accelerator), "process_index", property(lambda self: 1))
    exporter = rlexporter.attach(trainer)

    assert rlexporter.attach(trainer) is exporter
    assert exporter.port is None
    assert list(shutdown.live()) == []
    assert _wrapped(trainer) == set()


def test_a_step_that_raises_is_the_users() -> None:
    """The error is the trainer's own; the run goes on, and nothing is under way that is not; it ends well."""
    trainer = make()
    exporter, loop = run(trainer, 1)
    with pytest.raises(ValueError, match="number of examples"):
        trainer.step([torch.tensor([2])], [torch.tensor([3])], [torch.tensor(1.0)])
    with pytest.raises(ValueError, match="must be a list of tensors"):
        trainer.step(None, None, None)

    assert state(exporter) == "running"
    assert phases(exporter) == {"rollout"}
    assert exporter.snapshot.value("rl_steps_total") == 1
    loop.run(1)
    assert exporter.snapshot.value("rl_steps_total") == 2
    exporter._run.exit(None)
    assert state(exporter) == "finished"


def test_what_is_known_of_the_run() -> None:
    """Its facts, and its name where a person gave one."""
    assert rlexporter.attach(make()).name not in ("trl", trl.PPOConfig().exp_name)
    assert rlexporter.attach(make(tracker_project_name="reviews")).name == "reviews"
    exporter, _ = run(make(exp_name="sentiment", learning_rate=3e-4, target=5), 1)
    (info,) = [s for s in exporter.snapshot.samples if s.metric.series == "rl_run_info"]
    known = dict(zip(info.metric.labels, info.labels, strict=True))
    value = exporter.snapshot.value

    assert exporter.name == "sentiment"
    assert known["algorithm"] == "ppo-legacy"
    assert known["trainer"] == "PPOTrainer"
    assert known["model"] == "LlamaForCausalLM"
    assert (known["trl"], known["world_size"], known["rank_scope"]) == (trl.__version__, "1", "all")
    assert value("rl_gpus") == 0
    assert value("rl_hyperparameter", name="learning_rate") == 3e-4
    assert value("rl_hyperparameter", name="target") == 5
    assert value("rl_hyperparameter", name="ratio_threshold") == 10


def test_phases_add_up_to_the_step(clock: Clock) -> None:
    """What comes between two steps is the rollout."""
    during: list[set[str]] = []

    def slow(step: int, responses: list[Any]) -> list[Any]:
        during.append(phases(exporter))
        clock.wait(2)
        return legacy.letters(step, responses)

    trainer = make()
    exporter = rlexporter.attach(trainer)
    run(trainer, 2, rewards=slow)
    value = exporter.snapshot.value

    assert during == [{"rollout"}, {"rollout"}]
    rollout, update = (value("rl_phase_time_seconds", phase=each) or 0 for each in ("rollout", "update"))
    durations = histogram(exporter, "rl_step_duration_seconds")
    assert rollout == pytest.approx(2, abs=1e-3)
    assert update > 0
    assert rollout + update == pytest.approx(durations.maximum, abs=1e-3)  # the two ends are read one after the other
    assert durations.count == 2
    assert durations.minimum >= 2


def test_the_tracker_serves_each_line_as_a_step() -> None:
    """`PPOConfig(log_with=[tracker])`, without attaching: what is logged, with the settings of the run."""
    exporter = Exporter(run="tracked", port=0)
    trainer = make(log_with=[rlexporter.RLExporterTracker(exporter)])
    loop = Loop(trainer).run(3)
    value = exporter.snapshot.value
    _, text, _ = fetch(f"{exporter.url}/metrics")

    assert trainer.accelerator.get_tracker("rlexporter", unwrap=True) is exporter
    assert (value("rl_step"), value("rl_steps_total")) == (3, 3)
    assert value("rl_kl_per_sequence") == loop.stats[-1]["objective/kl"]
    assert value("rl_hyperparameter", name="mini_batch_size") == 4
    assert 'algorithm="ppo-legacy"' in text
    assert value("rl_reward_mean") is not None
    assert histogram(exporter, "rl_reward_dist").count == 3 * BATCH
    assert value("rl_run_state", state="running") == 1
    trainer.accelerator.end_training()
    assert exporter.snapshot.value("rl_run_state", state="finished") == 1
    assert errors(exporter) == 0


def test_a_tracker_of_any_other_loop() -> None:
    """With steps of its own; without settings; an error of ours is ours."""
    from accelerate import Accelerator  # type: ignore[import-untyped]

    exporter = Exporter(run="tracked", port=0)
    accelerator = Accelerator(log_with=[rlexporter.RLExporterTracker(exporter)], cpu=True)
    accelerator.init_trackers("project")
    accelerator.log({"loss": 1.5}, step=10)
    accelerator.log({"loss": math.nan}, step=20)

    assert exporter.snapshot.value("rl_step") == 20
    assert nonfinite(exporter) == {"rl_loss": 1}
    exporter._run.exit(None)
    assert state(exporter) == "finished"


def test_a_loop_that_asks_ends_in_the_step_that_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is written beside, with why, and loads."""
    monkeypatch.chdir(tmp_path)
    trainer = make()
    exporter = rlexporter.attach(trainer, on_critical="save,stop", linger=0)

    def plant(trainer: Any, step: int) -> None:
        if len(asked) == 2:
            with torch.no_grad():
                trainer.model.v_head.summary.bias.fill_(math.nan)

    loop, asked = Loop(trainer, plant=plant), [False]
    while not asked[-1] and len(asked) < 6:
        loop.run(1)
        asked.append(exporter.should_stop)
    exporter.end()

    assert asked == [False, False, True]
    assert (state(exporter), errors(exporter)) == ("stopped", 0)
    assert "saved in step 2, because of on_critical: " in Path("suspect-checkpoint-2/SUSPECT.txt").read_text()
    assert trl.AutoModelForCausalLMWithValueHead.from_pretrained("suspect-checkpoint-2")
    exporter.close()
    assert _wrapped(trainer) == set()


def test_a_save_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, and the loop goes on; what else is in the folder stays."""
    monkeypatch.chdir(tmp_path)
    trainer = make()
    exporter = rlexporter.attach(trainer, on_critical="save", linger=0)

    def full(folder: Any) -> None:
        (Path(folder) / "half").write_text("half")
        raise OSError("no space left on device")

    def plant(trainer: Any, step: int) -> None:
        if step == 2:
            trainer.tokenizer.save_pretrained = full
            with torch.no_grad():
                trainer.model.v_head.summary.bias.fill_(math.nan)

    (tmp_path / "mine").write_text("mine")
    Loop(trainer, plant=plant).run(2)
    exporter.end()
    assert [path.name for path in tmp_path.iterdir() if path.name != "rlexporter.html"] == ["mine"]
    assert errors(exporter) == 1
    exporter.close()


def test_what_one_rank_sees_stops_all(tmp_path: Path) -> None:
    """Each rank is told after the same step, and rank 0 saves, once."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command += ["-m", "tests.adapters.legacy_ranks", str(tmp_path), "1"]
    with launched(command, tmp_path, PYTHONPATH=str(ROOT)) as launcher:
        assert launcher.wait(300) == 0, (tmp_path / "err").read_text()[-3000:]
    had = [json.loads((tmp_path / f"had-{rank}.json").read_text()) for rank in range(2)]

    assert [each["asked"] for each in had] == [[False, True]] * 2
    assert (had[0]["state"], [each["errors"] for each in had]) == ("stopped", [0, 0])
    assert [path.name for path in tmp_path.glob("*checkpoint*")] == ["suspect-checkpoint-2"]
    assert trl.AutoModelForCausalLMWithValueHead.from_pretrained(str(tmp_path / "suspect-checkpoint-2"))
