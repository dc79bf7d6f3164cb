"""Derived signals: each is a decorated function, and is evaluated after those that it reads."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

from rlexporter.catalog import CONDITIONS, MAY_BE_NONFINITE, NAMED, NONFINITE, SERIES_SIGNALS
from rlexporter.catalog.entries import above, condition, warning
from rlexporter.conditions import reward_signals, signals
from rlexporter.conditions.declare import Declared, ordered
from rlexporter.conditions.from_catalog import FUNCTIONS, SIGNAL_NAMED, SIGNALS
from rlexporter.conditions.judge import Judge
from rlexporter.conditions.memory import Memory
from rlexporter.conditions.view import View
from rlexporter.model.condition import Family, Signal, Source
from rlexporter.model.snapshot import AnomalyCounts


def test_a_decorated_function_and_an_entry_are_a_condition_on_a_new_signal() -> None:
    """Nothing else is needed: it is evaluated on what it is computed from, and the condition begins with its number."""
    declared = Declared()

    @declared.signal("double", unit="nats", of="kl", after=("reward",))
    def anything(view: View, memory: Memory) -> float | None:
        found = memory.new("kl")
        return None if found is None else 2 * found + (memory.new("reward") or 0.0)

    entry = condition("double_high", "RLDoubleHigh", Family.KL_HIGH).when(
        above("double", warning(10.0)), summary="", meaning="", causes=(), remedies=(), source=""
    )
    judge = Judge([entry], ordered((*SERIES_SIGNALS, *declared.signals)), {**FUNCTIONS, **declared.functions})

    first = judge.step(View(1, True, None, 1, AnomalyCounts(), numbers={"rl_kl_per_token": 3.0, "rl_reward_mean": 0.5}))
    second = judge.step(
        View(2, True, None, 1, AnomalyCounts(), numbers={"rl_kl_per_token": 7.0, "rl_reward_mean": 0.25})
    )

    assert declared.signals[0].unit == "nats"
    assert [(each.began, each.value) for each in first] == [(False, 6.5)]
    assert [(each.began, each.value, each.series) for each in second] == [(True, 14.25, "rl_kl_per_token")]


def _signal(name: str, of: str = "", after: tuple[str, ...] = ()) -> Signal:
    return Signal(name, "", (Source("rl_loss"),), of, after)


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        ((_signal("b", of="a"), _signal("a")), "declare the signal b after a"),
        ((_signal("a"), _signal("b", of="a", after=("c", "d")), _signal("c")), "declare the signal b after c and d"),
        ((_signal("a", after=("a",)),), "declare the signal a after a"),
        ((_signal("a"), _signal("a")), "the signal a is declared twice"),
    ],
)
def test_a_signal_comes_after_what_it_is_computed_from(signals: tuple[Signal, ...], message: str) -> None:
    """Before it, it would read the step before, and nobody would notice."""
    with pytest.raises(ValueError, match=message):
        ordered(signals)


def _read(module: ModuleType, function: str) -> set[str]:
    """The signals that a function names: ``memory.new("kl")``, ``memory.past["kl"]``, ``"kl" in memory.fresh``."""
    tree = ast.parse(inspect.getsource(module))
    body = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    body.decorator_list = []
    texts = {node.value for node in ast.walk(body) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts & set(SIGNAL_NAMED)


@pytest.mark.parametrize("module", [signals, reward_signals], ids=lambda module: module.__name__)
def test_what_a_signal_reads_is_declared(module: ModuleType) -> None:
    """So that the order of evaluation is checked for all of it."""
    read = {}
    for signal in module.declared.signals:
        read[signal.name] = _read(module, module.declared.functions[signal.name].__name__)
        assert read[signal.name] <= {signal.name, signal.of, *signal.after}, signal.name

    assert len(read) >= 9
    assert any(read.values())


def test_every_condition_has_its_signal() -> None:
    """And no signal is evaluated for nothing."""
    judged = {condition.signal for condition in CONDITIONS}
    used = judged.union(*((signal.of, *signal.after) for signal in SIGNALS)) - {""}

    assert judged <= set(SIGNAL_NAMED)
    assert used == set(SIGNAL_NAMED)


def test_each_metric_is_counted_by_one_signal() -> None:
    """Of what is no number: or by none, where that is normal."""
    counted = [name for names in NONFINITE.values() for name in names]

    assert len(counted) == len(set(counted))
    assert set(counted) <= set(NAMED)
    assert not set(counted) & MAY_BE_NONFINITE
