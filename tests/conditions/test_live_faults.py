"""Faults in live GRPO and RLOO trainers that log lines do not show: named with their step, and silence without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

import rlexporter
from rlexporter.conditions import from_catalog
from rlexporter.conditions.watch import Watch
from rlexporter.demo import tiny as demo
from tests import tiny
from tests.conditions.live_faults import AT, RUNS, Plant

STEPS = 32

pytestmark = [
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

Found = dict[tuple[str, str], int]


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


def _train(folder: Path, taught: Path, watches: list[Watch], kind: str, *plants: Plant, **options: Any) -> Found:
    """Train, and return the step in which each warning and each critical condition began first."""
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
    torch.manual_seed(0)
    trainer = tiny.grpo(folder, kind=kind, model=LlamaForCausalLM.from_pretrained(taught), **settings)
    for plant in plants:
        plant(trainer)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    assert exporter.snapshot.value("rlexporter_errors_total", where="tap") is None
    exporter.close()
    return {name: step for name, (step, _) in watches[-1].first.items() if name[1] != "info"}


@pytest.mark.parametrize(("kind", "every"), [("GRPO", 10), pytest.param("RLOO", 1, marks=pytest.mark.slow)])
def test_without_a_fault(tmp_path: Path, taught: Path, watches: list[Watch], kind: str, every: int) -> None:
    """Nothing is said."""
    assert _train(tmp_path, taught, watches, kind, logging_steps=every) == {}


EACH = [
    pytest.param(kind, every, run, marks=() if kind == "GRPO" and place < 2 else pytest.mark.slow)
    for kind, every in (("GRPO", 10), ("RLOO", 1))
    for place, run in enumerate(RUNS)
]


@pytest.mark.parametrize(("kind", "every", "run"), EACH)
def test_a_fault_is_named(tmp_path: Path, taught: Path, watches: list[Watch], kind: str, every: int, run: str) -> None:
    """By its condition, within its steps, with a log line for each step or for ten; nothing is said before the first.

    That it is the same step, however often it is logged, is seen in `test_logging_steps.py`.
    """
    faults = RUNS[run]
    found = _train(tmp_path, taught, watches, kind, *(fault.plant for fault in faults), logging_steps=every)
    began = {fault.condition: found.get((fault.condition, "warning"), 0) for fault in faults}

    assert [fault for fault in faults if not fault.first <= began[fault.condition] <= fault.last] == [], began
    early = {fault.condition for fault in faults if fault.first < AT}
    assert {name for (name, _), step in found.items() if step < AT} == early


def test_groups_that_are_flat_but_for_rounding(tmp_path: Path, taught: Path, watches: list[Watch]) -> None:
    """The standard deviation of eight rewards of 0.3 is 3e-8: TRL logs a group of them as one with a spread."""

    def by_prompt(prompts: list[str], **_: Any) -> list[float]:
        return [0.3 if prompt[0] in "aeio" else 0.7 for prompt in prompts]

    options: dict[str, Any] = {"max_steps": 4, "logging_steps": 1, "num_generations": 8}
    _train(tmp_path, taught, watches, "GRPO", rewards=[by_prompt], **options)
    past = watches[-1]._judge.past

    assert list(past("zero_std_fraction").values) == [0.0] * 4
    assert max(past("reward_std").values) > 0.1
    assert list(past("flat_share").values) == [1.0] * 4
