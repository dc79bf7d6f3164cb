"""Faults in live GRPO and RLOO trainers: named with their step, however often it is logged; silence without one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, TrainerCallback

import rlexporter
from rlexporter import Exporter
from rlexporter.conditions.table import CONDITION_NAMED, SIGNAL_NAMED
from rlexporter.conditions.watch import Watch, watch
from rlexporter.demo import tiny as demo
from rlexporter.model.condition import Family
from rlexporter.run import run
from tests import tiny
from tests.conditions.began import began, is_over
from tests.conditions.live_faults import AT, FLAT, NAN, RUNS, STEEP, STILL, Plant, shown

STEPS = 32

pytestmark = [
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned to write words: an untaught one is as good as uniform at any temperature."""
    folder = tmp_path_factory.mktemp("taught") / "tiny-llama"
    demo.model(folder, 0, lambda done, of: None)
    return folder


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> list[Watch]:
    """The watches of the runs of a test."""
    made: list[Watch] = []

    def keep(*args: Any) -> Watch:
        made.append(watch(*args))
        return made[-1]

    monkeypatch.setattr(run, "watch", keep)
    return made


def _train(folder: Path, taught: Path | None, kind: str, *plants: Plant, **options: Any) -> Exporter:
    """Train a model that was taught, or an untaught one; no tap fails."""
    settings = {
        "max_steps": STEPS,
        "learning_rate": 2e-4,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_completion_length": demo.MAX_COMPLETION,
        "beta": 0.1,
        **options,
    }
    model = LlamaForCausalLM.from_pretrained(taught) if taught else None
    torch.manual_seed(0)
    trainer = tiny.grpo(folder, kind=kind, model=model, **settings)
    for plant in plants:
        plant(trainer)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    assert exporter.snapshot.value("rlexporter_errors_total", where="tap") is None
    exporter.close()
    return exporter


def _found(watches: list[Watch]) -> dict[tuple[str, str], int]:
    """The step in which each warning and each critical condition of the last run began first."""
    return {name: step for name, (step, _) in watches[-1].first.items() if name[1] != "info"}


EACH = [
    pytest.param(kind, every, run, marks=() if kind == "GRPO" and place < 3 else pytest.mark.slow)
    for kind, every in (("GRPO", 10), ("RLOO", 1))
    for place, run in enumerate(RUNS)
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "every", "run"), EACH)
def test_a_fault_is_named(tmp_path: Path, taught: Path, watches: list[Watch], kind: str, every: int, run: str) -> None:
    """By its condition, within its steps, with a log line for each step or for ten; nothing is said before."""
    faults = RUNS[run]
    _train(tmp_path, taught, kind, *(fault.plant for fault in faults), logging_steps=every)
    found = _found(watches)
    steps = {fault: found.get((fault.condition, "warning"), 0) for fault in faults}

    assert [(fault, step) for fault, step in steps.items() if not fault.first <= step <= fault.last] == []
    early = {fault.condition for fault in faults if fault.first < AT}
    assert {name for (name, _), step in found.items() if step < AT or not faults} == early


@pytest.mark.slow
def test_how_often_it_is_logged_changes_nothing(tmp_path: Path, watches: list[Watch]) -> None:
    """Each signal has the same values, and the same conditions begin, among them those that name the faults.

    Tensors and steps are seen all the same. Only the first of the runs has a line of its own for its last step.
    """
    of_time = (Family.SLOW, Family.STALL)
    began_in, signals = [], []
    for every in (1, 10, 50):
        settings = {"max_steps": 51, "learning_rate": 1e-3, "beta": 0.04, "logging_steps": every}
        sizes = {"per_device_train_batch_size": 8, "num_generations": 2, "max_completion_length": 8}
        exporter = _train(tmp_path / str(every), None, "GRPO", shown, **settings, **sizes)
        found = {name: step for name, step in began(exporter).items() if CONDITION_NAMED[name[0]].family not in of_time}
        past = watches[-1]._judge.past
        began_in.append(found)
        changing = ("step_time", "longest_pause")
        signals.append({name: [*past(name).values] for name in SIGNAL_NAMED if name not in changing})
    first = began_in[0]

    assert first["nonfinite_reward", "critical"] == NAN
    assert first["grad_explosion", "critical"] == STEEP + 1
    assert FLAT < first["reward_function_dead", "warning"] < 51
    assert first["learning_rate_zero", "warning"] == STILL + 7
    assert began_in == [first] * 3
    assert [name for name in signals[0] if any(each[name] != signals[0][name] for each in signals)] == []


# What no log line shows

REWARD, BURST, THROWN, LOST = 3, 5, 8, 14
"""The steps of the faults. Odd ones have a rollout, even ones a second update on it: a ratio that is not 1."""
LINE, END = 10, 20
"""The step of the only log line, which covers all faults but the last; and when the run would end."""


def letters(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
    """A reward function that gives NaN for one sample in ten of one step: for two of twenty."""
    rewards = tiny.letters(completions)
    if trainer_state.global_step + 1 == REWARD:
        rewards[::10] = [math.nan] * len(rewards[::10])
    return rewards


class Weights(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Between the updates on a rollout the policy is thrown far away, and back after them; later a weight is lost."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        weight = model.lm_head.weight
        with torch.no_grad():
            if state.global_step == THROWN - 1:
                self._kept = weight.clone()
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
            elif state.global_step == THROWN:
                weight.copy_(self._kept)
            elif state.global_step == LOST:
                next(model.parameters()).view(-1)[0] = math.nan


def _burst(trainer: Any) -> Callable[..., Any]:
    """NaN losses for two steps."""
    training_step = trainer.training_step

    def burst(*args: Any, **kwargs: Any) -> Any:
        loss = training_step(*args, **kwargs)
        return loss * math.nan if trainer.state.global_step + 1 in (BURST, BURST + 1) else loss

    return burst


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_what_no_log_line_shows_is_named_with_its_step(tmp_path: Path, kind: str) -> None:
    """In one run, whose only log line is of numbers: neither it nor the rollout that dies of a weight says what was.

    Nothing else that is critical begins, so that the run was healthy until each fault.
    """
    trainer = tiny.grpo(
        tmp_path,
        kind=kind,
        rewards=[letters, tiny.shortness],
        max_steps=END,
        logging_steps=LINE,
        num_iterations=2,
        per_device_train_batch_size=20,
        callbacks=[Weights()],
    )
    trainer.training_step = _burst(trainer)
    exporter = rlexporter.attach(trainer)
    with pytest.raises(RuntimeError, match="probability tensor"):
        trainer.train()
    value = exporter.snapshot.value
    faults = {"nonfinite_reward": REWARD, "nonfinite": LOST}
    if kind == "GRPO":  # RLOO has one ratio a sequence: no tail is asked of it
        faults["ratio_tail"] = THROWN

    (line,) = trainer.state.log_history
    assert line["step"] == LINE
    assert "grad_norm" in line
    assert all(math.isfinite(each) for each in line.values())
    assert value("rl_run_state", state="failed") == 1
    assert {name: step for (name, severity), step in began(exporter).items() if severity == "critical"} == faults
    assert set(began(exporter, Family.POLICY_STEP).values()) <= {THROWN}
    assert value("rl_condition_events_total", condition="nonfinite", severity="critical") == 2, "at the burst too"
    assert value("rl_condition_last_event_value", condition="nonfinite_reward", severity="critical") == 2
    assert [name for name in faults if not is_over(exporter, name, "critical")] == ["nonfinite"]
    exporter.close()
