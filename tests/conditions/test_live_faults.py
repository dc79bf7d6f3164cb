"""Faults in live GRPO and RLOO trainers: named with their step, however often it is logged; silence without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

import rlexporter
from rlexporter import Exporter
from rlexporter.catalog import CONDITION_NAMED
from rlexporter.conditions import from_catalog
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.conditions.watch import Watch
from rlexporter.demo import tiny as demo
from rlexporter.model.condition import Family
from tests import tiny
from tests.conditions.began import began
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
    """A model that has learnt to write words: an untaught one is as good as uniform at any temperature."""
    folder = tmp_path_factory.mktemp("taught") / "tiny-llama"
    demo.model(folder, 0, lambda done, of: None)
    return folder


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> list[Watch]:
    """The watches of the runs of a test."""
    made: list[Watch] = []
    watch = from_catalog.watch

    def keep(*args: Any) -> Watch:
        made.append(watch(*args))
        return made[-1]

    monkeypatch.setattr(from_catalog, "watch", keep)
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


@pytest.mark.parametrize(("kind", "every"), [("GRPO", 10), pytest.param("RLOO", 1, marks=pytest.mark.slow)])
def test_without_a_fault(tmp_path: Path, taught: Path, watches: list[Watch], kind: str, every: int) -> None:
    """Nothing is said."""
    _train(tmp_path, taught, kind, logging_steps=every)
    assert _found(watches) == {}


EACH = [
    pytest.param(kind, every, run, marks=() if kind == "GRPO" and place < 2 else pytest.mark.slow)
    for kind, every in (("GRPO", 10), ("RLOO", 1))
    for place, run in enumerate(RUNS)
]


@pytest.mark.parametrize(("kind", "every", "run"), EACH)
def test_a_fault_is_named(tmp_path: Path, taught: Path, watches: list[Watch], kind: str, every: int, run: str) -> None:
    """By its condition, within its steps, with a log line for each step or for ten; nothing is said before them."""
    faults = RUNS[run]
    _train(tmp_path, taught, kind, *(fault.plant for fault in faults), logging_steps=every)
    found = _found(watches)
    steps = {fault: found.get((fault.condition, "warning"), 0) for fault in faults}

    assert [(fault, step) for fault, step in steps.items() if not fault.first <= step <= fault.last] == []
    early = {fault.condition for fault in faults if fault.first < AT}
    assert {name for (name, _), step in found.items() if step < AT} == early


def test_groups_that_are_flat_but_for_rounding(tmp_path: Path, taught: Path, watches: list[Watch]) -> None:
    """The standard deviation of eight rewards of 0.3 is 3e-8: TRL logs a group of them as one with a spread."""

    def by_prompt(prompts: list[str], **_: Any) -> list[float]:
        return [0.3 if prompt[0] in "aeio" else 0.7 for prompt in prompts]

    options: dict[str, Any] = {"max_steps": 4, "logging_steps": 1, "num_generations": 8}
    _train(tmp_path, taught, "GRPO", rewards=[by_prompt], **options)
    past = watches[-1]._judge.past

    assert list(past("zero_std_fraction").values) == [0.0] * 4
    assert max(past("reward_std").values) > 0.1
    assert list(past("flat_share").values) == [1.0] * 4


@pytest.mark.slow
def test_how_often_it_is_logged_changes_nothing(tmp_path: Path, watches: list[Watch]) -> None:
    """Each signal has the same values, and the same conditions begin, among them those that name the faults.

    Tensors and steps are seen all the same. Only the first of the runs has a line of its own for its last step.
    """
    of_time = (Family.SLOW, Family.STALL, Family.KEYS)
    began_in, signals = [], []
    for every in (1, 10, 50):
        settings = {"max_steps": 51, "learning_rate": 1e-3, "beta": 0.04, "logging_steps": every}
        sizes = {"per_device_train_batch_size": 8, "num_generations": 2, "max_completion_length": 8}
        exporter = _train(tmp_path / str(every), None, "GRPO", shown, **settings, **sizes)
        found = {name: step for name, step in began(exporter).items() if CONDITION_NAMED[name[0]].family not in of_time}
        past = watches[-1]._judge.past
        began_in.append(found)
        signals.append({name: [*past(name).values] for name in SIGNAL_NAMED if name not in ("step_time", "keys_gone")})
    first = began_in[0]

    assert first["nonfinite_reward", "critical"] == NAN
    assert first["grad_explosion", "critical"] == STEEP + 2
    assert FLAT < first["reward_function_dead", "warning"] < 51
    assert first["learning_rate_zero", "warning"] == STILL + 9
    assert began_in == [first] * 3
    assert [name for name in signals[0] if any(each[name] != signals[0][name] for each in signals)] == []
