"""The spread of what was counted: unknown where its extremes are, and never taken for none."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from rlexporter.catalog import NAMED
from rlexporter.conditions.memory import Memory
from rlexporter.conditions.past import Past
from rlexporter.conditions.reward_signals import reward_functions_dead, reward_functions_silent
from rlexporter.conditions.sources import getter
from rlexporter.conditions.view import View
from rlexporter.model.condition import Read, Source
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import AnomalyCounts
from rlexporter.tensors import host

REWARDS = NAMED["rl_reward_function_dist"]
UNKNOWN = [(inf, -inf), (0.0, -inf), (inf, 1.0), (nan, nan)]


def _counted(extremes: tuple[float, float] | None) -> Histogram:
    counted = host.count([0.25, 1.0], REWARDS.bounds)
    return counted if extremes is None else replace(counted, minimum=extremes[0], maximum=extremes[1])


def _view(counted: Histogram) -> View:
    seen = {Series(REWARDS, (name,)): counted for name in ("accuracy", "format")}
    return View(1, True, None, 1, AnomalyCounts(), seen={**seen, Series(NAMED["rl_reward_dist"]): counted})


@pytest.mark.parametrize("extremes", UNKNOWN, ids=str)
def test_reward_functions_without_extremes_are_not_flat(extremes: tuple[float, float]) -> None:
    """Nor is anything else said of them in such a step; the steps before and after count."""
    memory = Memory({"reward": Past()})
    results = []
    for i in range(60):
        memory.fresh = {"reward_functions_dead"}
        view = _view(_counted(None if i in (0, 59) else extremes))
        results.append((reward_functions_dead(view, memory), reward_functions_silent(view, memory)))

    assert results == [(0.0, 0.0), *[(None, 0.0)] * 58, (0.0, 0.0)]
    assert [past.count for past in memory.functions.values()] == [2, 2]


@pytest.mark.parametrize("extremes", UNKNOWN, ids=str)
def test_a_spread_without_extremes_is_none(extremes: tuple[float, float]) -> None:
    """So that the judge reads the next source."""
    read = getter(Source("rl_reward_dist", Read.SPREAD), {})
    assert callable(read)
    memory = Memory({})

    assert read(_view(_counted(extremes)), memory) is None
    assert read(_view(_counted(None)), memory) == 0.75
