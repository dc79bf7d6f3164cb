"""Real trainers, by their log lines and events."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerCallback

import rlexporter
from rlexporter import Exporter, RLExporterCallback, SetupError
from rlexporter.integrations.callback import DefaultCallback
from rlexporter.run import shutdown
from rlexporter.run.identity import RUN_FILE
from tests import tiny
from tests.adapters import broken
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import state
from tests.adapters.twice import Lines
from tests.conftest import fetch
from tests.served import errors

pytestmark = REAL_TRAINERS


def _feeds(trainer: Any) -> list[Exporter]:
    found = [each.exporter for each in trainer.callback_handler.callbacks if isinstance(each, RLExporterCallback)]
    return [feed for feed in found if isinstance(feed, Exporter)]


def test_attach(tmp_path: Path) -> None:
    """One line: every number that the trainer logs is served, as it was logged."""
    lines = Lines()
    trainer = tiny.grpo(tmp_path, eval_strategy="steps", eval_steps=2, num_iterations=2, callbacks=[lines])
    exporter = rlexporter.attach(trainer)
    assert rlexporter.attach(trainer) is exporter
    assert state(exporter) == "starting"
    trainer.train()
    last: dict[str, Any] = {}
    for line in lines.logs:
        last |= line

    _, text, _ = fetch(f"{exporter.url}/metrics")
    served = {float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"}
    assert {key: value for key, value in last.items() if value is not None and value not in served} == {}
    assert exporter.snapshot.value("rl_step") == 4
    assert exporter.snapshot.value("rl_steps_total") == 4
    assert exporter.snapshot.value("rl_steps_planned") == 4
    assert exporter.snapshot.value("rlexporter_unmapped_keys") == 0
    assert exporter.snapshot.value("rl_eval_step", dataset="default") == 4
    assert exporter.snapshot.value("rl_hyperparameter", name="beta") == 0.04
    assert exporter.snapshot.value("rl_hyperparameter", name="num_iterations") == 2
    assert exporter.snapshot.value("rl_gpus") == (0 if trainer.args.device.type == "cpu" else 1)
    info = next(series for series in exporter.snapshot.samples if series.metric.series == "rl_run_info")
    labels = dict(zip(info.metric.labels, info.labels, strict=True))
    assert {name: labels[name] for name in ("algorithm", "trainer", "model", "attempt", "world_size", "loss_type")} == {
        "algorithm": "grpo",
        "trainer": "GRPOTrainer",
        "model": "tiny-llama",
        "attempt": "1",
        "world_size": "1",
        "loss_type": "dapo",
    }
    assert labels["trl"]
    assert labels["transformers"]
    assert state(exporter) == "finished"
    assert errors(exporter) == 0


@pytest.mark.parametrize("how", ["report_to", "callback", "both"])
def test_without_attach(tmp_path: Path, how: str) -> None:
    """`report_to` and callbacks; twice is once."""
    trainer = tiny.grpo(
        tmp_path,
        max_steps=2,
        report_to=["rlexporter"] if how in ("report_to", "both") else [],
        callbacks={"callback": [RLExporterCallback(run="given")], "both": [RLExporterCallback()]}.get(how),
    )
    assert list(shutdown.live()) == []
    trainer.train()

    (exporter,) = _feeds(trainer)
    assert exporter.snapshot.value("rl_steps_total") == 2
    assert state(exporter) == "finished"
    assert (exporter.name == "given") is (how == "callback")
    assert exporter.name == "given" or exporter.name.startswith("trainer_output-")


def test_a_mistake_in_a_setting_is_loud() -> None:
    """Before anything is trained."""
    with pytest.raises(SetupError, match="did you mean 'port'"):
        RLExporterCallback(prot=1)  # type: ignore[call-arg]
    with pytest.raises(SetupError, match="does not know what a dict logs"):
        rlexporter.attach({})


class Conductor:
    """Has what a Trainer has, and builds others."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self.built = build()

    def train(self) -> Any:
        """Trains what it has built."""
        return self.built.train()

    def get_train_dataloader(self) -> None:
        """As a Trainer."""


def _attached(trainer: Any) -> Any:
    rlexporter.attach(trainer)
    return trainer


WATCHED: dict[str, Callable[..., Any]] = {
    "attached": lambda grpo: _attached(grpo()),
    "a callback": lambda grpo: grpo(callbacks=[RLExporterCallback()]),
    "the class of a callback": lambda grpo: grpo(callbacks=[RLExporterCallback]),
    "the default callback": lambda grpo: grpo(callbacks=[DefaultCallback()]),
    "the class of the default callback": lambda grpo: grpo(callbacks=[DefaultCallback]),
}


@pytest.mark.parametrize(
    "attributes",
    [
        {"callback_handler": None},
        {"callback_handler": SimpleNamespace(callbacks=None)},
        {"callback_handler": SimpleNamespace(callbacks=[]), "args": None},
        {"callback_handler": SimpleNamespace(callbacks=[]), "args": SimpleNamespace(world_size=1)},
        {"step": len, "log_stats": len, "config": None, "accelerator": None},
        {"step": len, "log_stats": len, "config": None, "accelerator": SimpleNamespace(num_processes=1)},
    ],
)
def test_half_a_trainer(attributes: dict[str, Any]) -> None:
    """Is said to be none, with what it lacks; nothing is left open."""
    with pytest.raises(SetupError, match=r"takes a whole trainer, and this Half is none: .*(attribute|iterable)"):
        rlexporter.attach(type("Half", (), attributes)(), port=0)
    assert not [each for each in threading.enumerate() if each.name.startswith("rlexporter")]


@pytest.mark.parametrize("how", WATCHED)
def test_the_trainer_that_was_meant_is_watched(tmp_path: Path, how: str) -> None:
    """And not the one whose method attaches, or makes a callback for one that is not yet there."""
    outer = Conductor(lambda: WATCHED[how](partial(tiny.grpo, tmp_path, max_steps=1)))
    assert "train" not in vars(outer)
    assert "train" in vars(outer.built)
    outer.built.train()

    (exporter,) = _feeds(outer.built)
    assert exporter.snapshot.value("rl_steps_total") == 1
    assert state(exporter) == "finished"
    assert exporter.name.startswith("trainer_output-")


def test_a_start_that_fails_leaves_the_trainer_as_it_was(tmp_path: Path) -> None:
    """Attaching again with the mended setting works."""
    trainer = tiny.plain(tmp_path)
    with pytest.raises(SetupError, match="token_file"):
        rlexporter.attach(trainer, token_file=str(tmp_path / "missing"))

    assert "train" not in vars(trainer)
    exporter = rlexporter.attach(trainer)
    assert exporter.url
    trainer.train()
    assert exporter.snapshot.value("rl_steps_total") == 3


def test_evaluations_before_and_after_train(tmp_path: Path) -> None:
    """They are served, each set as a label, and no step was done."""
    trainer = tiny.grpo(tmp_path, max_steps=1, report_to=["rlexporter"])
    trainer.eval_dataset = {"math": trainer.eval_dataset, "code": trainer.eval_dataset}
    trainer.evaluate()

    (exporter,) = _feeds(trainer)
    for name in ("math", "code"):
        value = partial(exporter.snapshot.value, dataset=name)
        assert value("rl_eval_loss") is not None
        assert value("rl_eval_reward_mean") is not None
        assert value("rl_eval_reward_function_mean", reward_function="letters") is not None
    assert exporter.snapshot.value("rlexporter_unmapped_keys") == 0
    assert exporter.snapshot.value("rl_steps_total") == 0
    assert state(exporter) == "starting"
    trainer.train()
    assert state(exporter) == "finished"
    trainer.evaluate()
    assert state(exporter) == "finished"


@pytest.mark.parametrize(
    ("how", "raised", "expected"),
    [
        ("attach", RuntimeError("boom"), "failed"),
        ("report_to", KeyboardInterrupt(), "stopped"),
        ("attach", SystemExit(1), "stopped"),
    ],
)
def test_a_training_that_raises(tmp_path: Path, how: str, raised: BaseException, expected: str) -> None:
    """No event tells of it; the exception goes on, and a second `train()` revives the run."""
    faulty = [raised]

    def reward(completions: list[str], **_: Any) -> list[float]:
        if faulty and trainer.state.global_step == 2:
            raise faulty.pop()
        return tiny.letters(completions)

    trainer = tiny.grpo(tmp_path, rewards=[reward], report_to=["rlexporter"] if how == "report_to" else [])
    if how == "attach":
        rlexporter.attach(trainer)
    with pytest.raises(type(raised)):
        trainer.train()
    (exporter,) = _feeds(trainer)

    assert state(exporter) == expected
    assert exporter.snapshot.value("rl_run_exception_info", exception=type(raised).__name__) == 1
    assert exporter.snapshot.value("rl_step") == 2
    assert exporter.snapshot.value("rl_reward_function_mean", reward_function="reward") is not None

    trainer.train()
    assert state(exporter) == "finished"
    assert exporter.snapshot.value("rl_run_exception_info", exception=type(raised).__name__) is None
    assert exporter.snapshot.value("rl_steps_total") == 2 + 4


def test_a_resumed_run(tmp_path: Path) -> None:
    """Keeps its name, counts an attempt, and no counter starts from what the checkpoint brought."""
    first = tiny.grpo(tmp_path, save_strategy="steps", save_steps=2)
    before = rlexporter.attach(first)
    first.train()
    before.close()
    again = tiny.grpo(tmp_path, save_strategy="steps", save_steps=2, max_steps=6)
    after = rlexporter.attach(again)
    again.train(resume_from_checkpoint=str(tmp_path / "trainer_output" / "checkpoint-2"))

    assert after.name == before.name
    assert (tmp_path / "trainer_output" / RUN_FILE).exists()
    assert before.snapshot.value("rl_last_checkpoint_step") == 4
    assert before.snapshot.value("rl_last_good_checkpoint_step") == 4
    assert after.snapshot.value("rl_last_good_checkpoint_step") == 6
    assert after.snapshot.value("rl_step") == 6
    assert after.snapshot.value("rl_steps_total") == 4
    seen, counted = after.snapshot.value("rl_tokens_seen"), after.snapshot.value("rl_tokens_total")
    assert seen
    assert counted
    assert 0 < counted < seen
    after.close()

    anew = rlexporter.attach(tiny.grpo(tmp_path))
    assert anew.name == before.name
    anew.close()
    trainer = tiny.grpo(tmp_path, max_steps=1)
    anew = rlexporter.attach(trainer)
    trainer.train()
    assert anew.name != before.name


def test_a_second_train_counts_on_and_the_trainer_is_not_kept_alive(tmp_path: Path) -> None:
    """In one process, under one name; the step begins anew, the counters go on.

    The final state still is served without the trainer: in a notebook the memory of a model is wanted back.
    """
    trainer = tiny.grpo(tmp_path, max_steps=2)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    name, tokens = exporter.name, exporter.snapshot.value("rl_tokens_total")
    trainer.train()

    assert exporter.name == name
    assert exporter.snapshot.value("rl_step") == 2
    assert exporter.snapshot.value("rl_steps_total") == 4
    seen = exporter.snapshot.value("rl_tokens_seen")
    assert tokens
    assert seen
    assert exporter.snapshot.value("rl_tokens_total") == tokens + seen
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None
    assert fetch(f"{exporter.url}/metrics")[0] == 200


def test_close_takes_everything_back(tmp_path: Path) -> None:
    """The trainer is as it was, and trains on."""
    trainer = tiny.grpo(tmp_path, max_steps=2)
    exporter = rlexporter.attach(trainer)
    assert "train" in vars(trainer)
    exporter.close()

    assert "train" not in vars(trainer)
    assert trainer.reward_funcs == [tiny.letters, tiny.shortness]
    trainer.train()
    assert trainer.state.global_step == 2
    assert list(shutdown.live()) == []
    assert exporter.url is None

    again = rlexporter.attach(trainer)
    assert again is not exporter
    trainer.train()
    assert again.snapshot.value("rl_steps_total") == 2
    again.close()
    assert not {"train", "training_step", "_compute_loss", "_generate"} & set(vars(trainer))


def test_copies_report_nothing(tmp_path: Path) -> None:
    """What reports is the trainer that was attached: its copy trains in silence, a pickle needs no exporter."""
    trainer = tiny.plain(tmp_path)
    exporter = rlexporter.attach(trainer)
    twin = copy.deepcopy(trainer)
    twin.train()

    assert twin.state.global_step == 3
    assert trainer.state.global_step == 0
    assert state(exporter) == "starting"
    assert not _feeds(twin)
    restored = pickle.loads(pickle.dumps(trainer.callback_handler.callbacks))
    assert [type(each).__name__ for each in restored][-1] == "TrainerCallback"
    trainer.train()
    assert state(exporter) == "finished"


def test_other_trainers_work_by_their_log_lines(tmp_path: Path) -> None:
    """A plain Trainer: what is known under its name, the rest in the fallback."""
    trainer = tiny.plain(tmp_path, eval_strategy="steps", eval_steps=1)
    exporter = rlexporter.attach(trainer)
    trainer.log({"custom/metric": 3.0})
    trainer.train()

    assert exporter.snapshot.value("rl_loss") is not None
    assert exporter.snapshot.value("rl_eval_loss", dataset="default") is not None
    assert exporter.snapshot.value("rl_logged_value", key="custom/metric") == 3.0
    assert 'algorithm="custom"' in fetch(f"{exporter.url}/metrics")[1]


def test_a_step_is_served_when_it_ends(tmp_path: Path) -> None:
    """At once where no log line follows; with the line where one does, so that no scrape sees half a step."""
    seen: list[tuple[int, float | None, float | None]] = []

    class Peek(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.append((state.global_step, value("rl_step"), value("rl_last_log_step")))

    trainer = tiny.plain(tmp_path, logging_steps=2, max_steps=4)
    exporter = rlexporter.attach(trainer)

    def value(name: str) -> float | None:
        return exporter.snapshot.value(name)

    trainer.add_callback(Peek())
    trainer.train()

    assert seen == [(1, 1, None), (2, 1, None), (3, 3, 2), (4, 3, 2)]
    assert value("rl_step") == 4
    assert value("rl_steps_total") == 4


@pytest.mark.parametrize("place", ["on_log", "on_step_end", "on_train_begin", "on_train_end"])
def test_an_error_of_ours_leaves_training_alone(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted in each event."""
    trainer = tiny.plain(tmp_path, logging_steps=2)
    exporter = rlexporter.attach(trainer)
    run, sink = exporter.run, exporter.run.sink
    owner, name = {
        "on_log": (sink, "log"),
        "on_step_end": (sink, "advance"),
        "on_train_begin": (run, "begin"),
        "on_train_end": (run, "end"),
    }[place]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, broken.fail)
        trainer.train()

    assert trainer.state.global_step == 3
    assert "ZeroDivisionError: planted" in caplog.text


def test_a_rank_that_does_not_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rank 0 has an exporter; the others train on."""
    trainer = tiny.plain(tmp_path, report_to=["rlexporter"])
    monkeypatch.setattr(type(trainer.args), "process_index", property(lambda self: 1))
    trainer.train()

    assert trainer.state.global_step == 3
    assert _feeds(trainer) == []
    assert list(shutdown.live()) == []


def test_a_taken_port_inside_a_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`report_to` moves on; `attach`, which a person calls, says what is wrong."""
    with Exporter(port=0) as other:
        monkeypatch.setenv("RLEXPORTER_LISTEN_PORT", str(other.port))
        monkeypatch.setattr(other.run, "training", True)
        trainer = tiny.plain(tmp_path, report_to=["rlexporter"])
        trainer.train()
        (exporter,) = _feeds(trainer)

        assert exporter.port not in (None, other.port)
        with pytest.raises(SetupError, match="is taken by the exporter of run"):
            rlexporter.attach(tiny.plain(tmp_path))
        exporter.close()
