"""A real training that is stopped, or saved, because something is critical; what is left of it trains on."""

from __future__ import annotations

import os
from collections.abc import Container
from datetime import timedelta
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

import rlexporter
from rlexporter import Exporter
from rlexporter.adapters.brake import Ranks, TrainerBrake
from rlexporter.model.sink import Orders
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.served import errors

pytestmark = REAL_TRAINERS

BAD_STEP = 5


class Ends(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Counts the ends that the trainer tells of."""

    def __init__(self) -> None:
        self.count = 0

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.count += 1


def _trainer(folder: Path, kind: str = "GRPO", bad: Container[int] = (BAD_STEP,), **options: Any) -> Any:
    """A trainer whose reward function returns one NaN in each of its calls ``bad``, one call a step."""
    calls = 0

    def reward(completions: list[str], **_: Any) -> list[float]:
        nonlocal calls
        calls += 1
        return [nan if calls in bad and place == 0 else float(len(text)) for place, text in enumerate(completions)]

    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 8, "callbacks": [Ends()], **options}
    return tiny.grpo(folder, kind=kind, rewards=[reward], **options)


def _trained(trainer: Any, **settings: Any) -> Exporter:
    exporter = rlexporter.attach(trainer, port=0, linger=0, **settings)
    trainer.train()
    assert errors(exporter) == 0
    exporter.close()
    return exporter


def _ends(trainer: Any) -> int:
    return sum(each.count for each in trainer.callback_handler.callbacks if isinstance(each, Ends))


def _checkpoints(trainer: Any) -> set[str]:
    return {name for name in os.listdir(trainer.args.output_dir) if "checkpoint" in name}


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
@pytest.mark.parametrize("words", ["stop", "save", "save,stop"])
def test_a_trainer_obeys_in_the_step_that_is_bad(tmp_path: Path, kind: str, words: str) -> None:
    """The end is the trainer's own: callbacks hear of it. The suspect checkpoint evicts none, and says why it is."""
    trainer = _trainer(tmp_path, kind, save_total_limit=2)
    exporter = _trained(trainer, on_critical=words)

    stopped, saved = "stop" in words, "save" in words
    assert trainer.state.global_step == (BAD_STEP if stopped else 8)
    assert exporter.state.value == ("stopped" if stopped else "finished")
    assert exporter.should_stop == stopped
    assert _ends(trainer) == 1
    own = {"checkpoint-2", "checkpoint-4"} if stopped else {"checkpoint-6", "checkpoint-8"}
    assert _checkpoints(trainer) == own | ({"suspect-checkpoint-5"} if saved else set())
    assert trainer.args.save_total_limit == 2
    if saved:
        told = Path(trainer.args.output_dir, "suspect-checkpoint-5/SUSPECT.txt").read_text()
        assert "saved in step 5, because of on_critical: A reward is NaN or infinite." in told


def test_what_is_left_trains_on(tmp_path: Path) -> None:
    """From the newest checkpoint that a trainer finds, which is not the suspect one; and from that one by its name."""
    trainer = _trainer(tmp_path)
    _trained(trainer, on_critical="save,stop")
    assert get_last_checkpoint(trainer.args.output_dir).endswith("checkpoint-4")
    for number, resumed in enumerate((True, f"{trainer.args.output_dir}/suspect-checkpoint-5")):
        again = _trainer(tmp_path, bad=(), max_steps=10 + number, save_strategy="no")
        exporter = rlexporter.attach(again, port=0, linger=0, on_critical="stop")
        again.train(resume_from_checkpoint=resumed)
        assert again.state.global_step == 10 + number
        assert exporter.state.value == "finished"
        exporter.close()


def test_a_checkpoint_that_the_trainer_writes_anyway_is_only_marked(tmp_path: Path) -> None:
    """It keeps its name, and is not the last good one."""
    trainer = _trainer(tmp_path, bad=(4,))
    exporter = _trained(trainer, on_critical="save,stop")
    assert _checkpoints(trainer) == {"checkpoint-2", "checkpoint-4"}
    assert Path(trainer.args.output_dir, "checkpoint-4/SUSPECT.txt").exists()
    assert exporter.snapshot.value("rl_last_checkpoint_step") == 4
    assert exporter.snapshot.value("rl_last_good_checkpoint_step") == 2


def test_a_step_without_a_log_line_stops_too(tmp_path: Path) -> None:
    """The tensors of it were seen; transformers logs every third step here, and never."""
    for steps in (3, 100):
        trainer = _trainer(tmp_path / str(steps), logging_steps=steps)
        _trained(trainer, on_critical="stop")
        assert trainer.state.global_step == BAD_STEP, steps


def test_a_healthy_training_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    """No step less, no other weight, no other checkpoint."""
    plain = _trainer(tmp_path / "plain", bad=())
    plain.train()
    asked = _trainer(tmp_path / "asked", bad=())
    _trained(asked, on_critical="save,stop")
    assert asked.state.global_step == 8
    for one, other in zip(plain.model.parameters(), asked.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert _checkpoints(asked) == _checkpoints(plain)


def test_the_last_good_checkpoint_is_kept(tmp_path: Path) -> None:
    """From `save_total_limit`, while a broken run goes on; it trains on, and there is never a second one."""
    seen: list[set[str]] = []

    class Watch(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.append({name for name in os.listdir(args.output_dir) if name.startswith("good-")})

    trainer = _trainer(tmp_path, bad=range(9, 99), max_steps=16, save_total_limit=1, callbacks=[Watch()])
    exporter = _trained(trainer, keep_good=True)
    assert exporter.snapshot.value("rl_last_good_checkpoint_step") == 8
    assert _checkpoints(trainer) == {"good-checkpoint-8", "checkpoint-16"}
    assert {len(each) for each in seen} == {0, 1}
    assert exporter.state.value == "finished"
    again = _trainer(tmp_path, bad=(), max_steps=9, save_strategy="no")
    again.train(resume_from_checkpoint=f"{trainer.args.output_dir}/good-checkpoint-8")
    assert again.state.global_step == 9


def test_an_error_of_ours_keeps_no_rank_from_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It agrees in every step, as the others wait for it; a rank that fails in this is counted."""
    agreed: list[Orders] = []

    def agree(self: Ranks, orders: Orders) -> Orders:
        agreed.append(orders)
        return orders

    monkeypatch.setattr(Ranks, "agree", agree)
    trainer = _trainer(tmp_path, bad=())
    exporter = rlexporter.attach(trainer, port=0, linger=0, on_critical="stop")
    monkeypatch.setattr(exporter.run.brake, "_new", lambda: 1 / 0)
    trainer.train()
    assert agreed == [Orders()] * 8
    assert exporter.snapshot.value("rlexporter_errors_total", where="on_critical") == 8
    exporter.close()


def test_ranks_wait_as_long_as_the_trainer_lets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own timeout holds for our group too."""
    made: list[Any] = []
    trainer = _trainer(tmp_path, ddp_timeout=77)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.new_group", lambda **how: made.append(how["timeout"]))
    TrainerBrake(trainer, lambda: None, asks=("stop",), caught=True, failed=made.append)
    assert made == [timedelta(seconds=77)]
