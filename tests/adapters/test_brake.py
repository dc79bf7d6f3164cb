"""A real training that is stopped, or saved, because something is critical; what is left of it trains on."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Container
from datetime import timedelta
from functools import partial
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

import rlexporter
from rlexporter import Exporter
from rlexporter.adapters import folders
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


@pytest.mark.slow
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
        assert "saved in step 5, because of on_critical: reward returned NaN or infinity." in told


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("words", ["stop", "save", "save,stop"])
def test_no_checkpoint_of_the_trainers_is_written_in_the_step_that_is_bad(tmp_path: Path, words: str) -> None:
    """It would be the one that the next attempt resumes from by itself: ours takes its place."""
    trainer = _trainer(tmp_path, bad=(4,))
    exporter = _trained(trainer, on_critical=words)
    later = set() if "stop" in words else {"checkpoint-6", "checkpoint-8"}
    assert _checkpoints(trainer) == {"checkpoint-2", "suspect-checkpoint-4"} | later
    assert Path(trainer.args.output_dir, "suspect-checkpoint-4/trainer_state.json").exists()
    good = 2 if "stop" in words else 8  # a single NaN is over with the next step
    assert exporter.snapshot.value("rl_last_good_checkpoint_step") == good
    assert exporter.snapshot.good_folder == f"checkpoint-{good}"


@pytest.mark.parametrize("words", ["stop", "save,stop"])
def test_the_end_of_an_epoch_that_stopping_brings_saves_nothing_else(tmp_path: Path, words: str) -> None:
    """transformers ends the epoch when it is stopped, and would save then: a checkpoint that is resumed from."""
    trainer = _trainer(tmp_path, save_strategy="epoch")
    _trained(trainer, on_critical=words)
    assert trainer.state.global_step == BAD_STEP
    assert _checkpoints(trainer) == {f"suspect-checkpoint-{BAD_STEP}"}


def test_the_end_of_an_epoch_of_a_training_that_goes_on_is_the_trainers(tmp_path: Path) -> None:
    """Its own checkpoint is written there, and none of ours."""
    trainer = _trainer(tmp_path, bad=(), save_strategy="epoch")
    _trained(trainer, on_critical="save,stop")
    assert trainer.state.global_step == 8
    assert _checkpoints(trainer) == {"checkpoint-8"}


def test_what_is_suspect_says_what_the_verdict_says(tmp_path: Path) -> None:
    """The cause, since when, and the checkpoint to resume from by its folder, as page and messages name it."""
    trainer = _trainer(tmp_path)
    _trained(trainer, on_critical="save,stop")
    first, second = Path(trainer.args.output_dir, "suspect-checkpoint-5/SUSPECT.txt").read_text().splitlines()
    assert first.startswith(
        "rlexporter had this checkpoint saved in step 5, because of on_critical: reward returned NaN"
    )
    assert first.endswith("It began in step 5.")
    assert second == "Stop the run. Resume from `checkpoint-4`, which was written before this began."
    page = Path(trainer.args.output_dir, "rlexporter.html").read_text()
    assert "Resume from `checkpoint-4`, which was written before this began." in page


class Uploads(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Reads each checkpoint that it hears of, as W&B's, MLflow's and users' callbacks do."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        assert {"model.safetensors", "optimizer.pt", "trainer_state.json"} <= {path.name for path in folder.iterdir()}
        self.read.append(folder.name)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("bad", [4, 5])
def test_callbacks_around_ours_find_every_checkpoint_that_they_hear_of(tmp_path: Path, when: str, bad: int) -> None:
    """Nothing is renamed under them: they hear of the trainer's own checkpoints, and of no suspect one."""
    uploads = Uploads()
    trainer = _trainer(tmp_path, bad=(bad,), callbacks=[uploads] if when == "before" else [])
    exporter = rlexporter.attach(trainer, port=0, linger=0, on_critical="save", keep_good=True)
    if when == "after":
        trainer.add_callback(uploads)
    trainer.train()
    assert (trainer.state.global_step, exporter.state.value, errors(exporter)) == (8, "finished", 0)
    assert uploads.read == [f"checkpoint-{step}" for step in (2, 4, 6, 8) if step != bad]
    assert f"suspect-checkpoint-{bad}" in _checkpoints(trainer)
    exporter.close()


def _disk_is_full(trainer: Any, name: str, after: int) -> None:
    """The method ``name`` of the trainer writes a little into a suspect checkpoint, and then there is no room."""
    method = getattr(trainer, name)

    def fail(folder: str, *args: Any, **kwargs: Any) -> Any:
        if "suspect" not in str(folder):
            return method(folder, *args, **kwargs)
        if after:
            method(folder, *args, **kwargs)
        raise OSError(errno.ENOSPC, "No space left on device")

    setattr(trainer, name, fail)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "after"), [("save_model", 0), ("save_model", 1), ("_save_rng_state", 0)])
@pytest.mark.parametrize("words", ["save", "save,stop"])
def test_a_save_that_fails_ends_no_training_and_leaves_nothing(
    tmp_path: Path, name: str, after: int, words: str
) -> None:
    """It is counted and said once; a training that goes on saves as it would."""
    trainer = _trainer(tmp_path)
    _disk_is_full(trainer, name, after)
    exporter = rlexporter.attach(trainer, port=0, linger=0, on_critical=words)
    trainer.train()
    stopped = "stop" in words
    assert trainer.state.global_step == (BAD_STEP if stopped else 8)
    assert _checkpoints(trainer) == {f"checkpoint-{step}" for step in ((2, 4) if stopped else (2, 4, 6, 8))}
    assert exporter.snapshot.value("rlexporter_errors_total", where="on_critical") == 1
    assert errors(exporter) == 1
    exporter.close()


@pytest.mark.parametrize(("words", "own"), [("save", {2, 4, 6, 8}), ("save,stop", {2})])
def test_where_ours_fails_the_trainers_own_is_written_only_if_it_goes_on(
    tmp_path: Path, words: str, own: set[int]
) -> None:
    """In the step in which it was due. The next attempt of one that was stopped would resume from it."""
    trainer = _trainer(tmp_path, bad=(4,))
    _disk_is_full(trainer, "save_model", 0)
    exporter = rlexporter.attach(trainer, port=0, linger=0, on_critical=words)
    trainer.train()
    assert _checkpoints(trainer) == {f"checkpoint-{step}" for step in own}
    assert errors(exporter) == 1
    exporter.close()


def test_a_checkpoint_that_cannot_be_marked_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could tell whose it is."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    trainer = _trainer(tmp_path)
    monkeypatch.setattr(folders.Mark, "write", refuse)
    exporter = rlexporter.attach(trainer, port=0, linger=0, on_critical="save")
    trainer.train()
    assert _checkpoints(trainer) == {f"checkpoint-{step}" for step in (2, 4, 6, 8)}
    assert errors(exporter) == 1
    exporter.close()


def test_without_room_for_another_checkpoint_none_of_ours_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The trainer's own next one would not fit: it would die of ours. One that is being stopped needs no other."""
    cases = (("save", 1.5, False), ("save,stop", 1.5, True), ("save", 2.5, True), ("save,stop", 1.0, False))
    for words, room, expected in cases:
        trainer = _trainer(tmp_path / f"{words}{room}")
        real = shutil.disk_usage
        trainer.add_callback(_Measures(partial(_leave, monkeypatch, room)))
        exporter = rlexporter.attach(trainer, port=0, linger=0, on_critical=words)
        trainer.train()
        monkeypatch.setattr(shutil, "disk_usage", real)
        assert (f"suspect-checkpoint-{BAD_STEP}" in _checkpoints(trainer)) == expected, (words, room)
        assert errors(exporter) == (0 if expected else 1)
        exporter.close()
    assert "GB are needed" in caplog.text


def _leave(monkeypatch: pytest.MonkeyPatch, times: float, size: int) -> None:
    """Leave room for so many checkpoints of this ``size``."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=times * size + 2**20))


class _Measures(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Hands over the size of each checkpoint."""

    def __init__(self, use: Callable[[int], None]) -> None:
        self._use = use

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        self._use(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def test_what_flaps_fills_no_disk(tmp_path: Path) -> None:
    """There are at most three suspect checkpoints of a run, whichever attempt wrote them."""
    for attempt in range(2):
        trainer = _trainer(tmp_path, bad=(3, 5), run_name="mine", save_strategy="no", max_steps=6)
        exporter = rlexporter.attach(trainer, port=0, linger=0, on_critical="save")
        trainer.train()
        exporter.close()
        assert errors(exporter) == attempt
    assert _checkpoints(trainer) == {"suspect-checkpoint-3", "suspect-checkpoint-5", "suspect-checkpoint-3-2"}


def test_a_name_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    """By a user's folder, or by a link."""
    trainer = _trainer(tmp_path)
    out = Path(trainer.args.output_dir)
    (out / "suspect-checkpoint-5").mkdir(parents=True)
    (out / "suspect-checkpoint-5/mine").write_text("mine")
    (out / "suspect-checkpoint-5-2").symlink_to("/nonexistent")
    _trained(trainer, on_critical="save,stop")
    assert [path.name for path in (out / "suspect-checkpoint-5").iterdir()] == ["mine"]
    assert (out / "suspect-checkpoint-5-3/trainer_state.json").exists()


def test_a_name_that_is_taken_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes it between our look and our write: nothing is written into it, and nothing removed."""
    trainer = _trainer(tmp_path)
    theirs = Path(trainer.args.output_dir, "suspect-checkpoint-5")
    theirs.mkdir(parents=True)
    (theirs / "mine").write_text("mine")
    monkeypatch.setattr(folders, "free_number", lambda *_: 1)
    exporter = rlexporter.attach(trainer, port=0, linger=0, on_critical="save")
    trainer.train()
    assert [(path.name, path.read_text()) for path in theirs.iterdir()] == [("mine", "mine")]
    assert errors(exporter) == 1
    exporter.close()


@pytest.mark.parametrize("options", [{}, {"save_total_limit": 1}])
def test_the_best_model_is_found_at_the_end(tmp_path: Path, options: dict[str, Any]) -> None:
    """With `load_best_model_at_end`, also where the best step is the one that is bad."""
    options = {
        **options,
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "eval_strategy": "steps",
    }
    for bad in (4, 5):
        trainer = _trainer(tmp_path / f"{bad}{len(options)}", bad=(bad,), eval_steps=2, **options)
        best: list[str] = []
        trainer.add_callback(_Best(best))
        exporter = rlexporter.attach(trainer, port=0, linger=0, on_critical="save", keep_good=True)
        trainer.train()
        assert (exporter.state.value, errors(exporter)) == ("finished", 0)
        assert Path(best[-1]).is_dir()
        exporter.close()


class _Best(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Notes the best checkpoint."""

    def __init__(self, best: list[str]) -> None:
        self._best = best

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._best.append(str(state.best_model_checkpoint))


def test_nothing_of_ours_goes_to_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the hub, which lists what transformers would upload; it leaves out what begins with `_`."""
    uploaded: set[str] = set()

    def upload_folder(self: Any, *, folder_path: str, ignore_patterns: Any = None, **_: Any) -> Any:
        files = [path.relative_to(folder_path).as_posix() for path in Path(folder_path).rglob("*") if path.is_file()]
        uploaded.update(filter_repo_objects(files, ignore_patterns=ignore_patterns))
        return SimpleNamespace(done=lambda: True, result=lambda: None, is_done=lambda: True)

    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda *_, **__: SimpleNamespace(repo_id="me/mine"))
    for name in ("upload_folder", "create_repo"):
        monkeypatch.setattr(huggingface_hub, name, getattr(huggingface_hub.HfApi(), name))
    trainer = _trainer(tmp_path, push_to_hub=True, hub_model_id="me/mine", hub_strategy="every_save")
    exporter = rlexporter.attach(trainer, port=0, linger=0, on_critical="save", keep_good=True)
    trainer.train()
    assert (exporter.state.value, errors(exporter)) == ("finished", 0)
    assert exporter.snapshot.good_folder.startswith(("_rlexporter/good-checkpoint-", "checkpoint-"))
    exporter.close()
    ours = Path(trainer.args.output_dir, "_rlexporter")
    names = {path.name for path in ours.iterdir()}
    assert "suspect-checkpoint-5" in names
    assert any(name.startswith("good-checkpoint-") for name in names)
    assert [
        path.name for path in Path(trainer.args.output_dir).iterdir() if path.name.startswith(("sus", "good"))
    ] == []
    assert "model.safetensors" in uploaded
    assert [name for name in uploaded if "suspect" in name or "good-" in name] == []


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


def test_the_last_good_checkpoints_are_kept(tmp_path: Path) -> None:
    """From `save_total_limit`, while a broken run goes on; they train on, and there are never three."""
    seen: list[set[str]] = []

    class Watch(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.append({name for name in os.listdir(args.output_dir) if name.startswith("good-")})

    trainer = _trainer(tmp_path, bad=range(9, 99), max_steps=16, save_total_limit=1, callbacks=[Watch()])
    exporter = _trained(trainer, keep_good=True)
    assert _checkpoints(trainer) == {"good-checkpoint-2", "good-checkpoint-4", "checkpoint-16"}
    assert max(map(len, seen)) == 2
    assert exporter.snapshot.value("rl_last_good_checkpoint_step") == 4, "that of step 8 is gone"
    assert exporter.snapshot.good_folder == "good-checkpoint-4"
    assert exporter.state.value == "finished"
    again = _trainer(tmp_path, bad=(), max_steps=6, save_strategy="no")
    again.train(resume_from_checkpoint=f"{trainer.args.output_dir}/good-checkpoint-4")
    assert again.state.global_step == 6


def test_a_second_run_in_the_same_folder_spoils_nothing(tmp_path: Path) -> None:
    """It writes its own `checkpoint-4` in place: no file of the copy is one of its files."""
    first = _trainer(tmp_path, bad=(), max_steps=5)
    _trained(first, keep_good=True, run="first")
    kept = Path(first.args.output_dir, "good-checkpoint-4")
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    _trained(_trainer(tmp_path, bad=(), max_steps=5, seed=7, learning_rate=1e-3), keep_good=True, run="second")
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
    assert (kept / "optimizer.pt").read_bytes() != Path(first.args.output_dir, "checkpoint-4/optimizer.pt").read_bytes()


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
