"""The history of a run: what it keeps, and how much of it."""

from __future__ import annotations

import tracemalloc

import pytest

from rlexporter.catalog.metrics import NAMED
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import Snapshot
from rlexporter.status import history
from rlexporter.status.history import RECENT_STEPS, History, since
from tests.conftest import observe
from tests.status.runs import judged

REWARD, RATIO = Series(NAMED["rl_reward_mean"]), Series(NAMED["rl_policy_ratio_dist"])
CHECKPOINT = Series(NAMED["rl_last_checkpoint_step"])
EVALUATED = Series(NAMED["rl_eval_timestamp_seconds"], ("default",))
STEP, TIME = Series(NAMED["rl_step"]), Series(NAMED["rl_last_step_timestamp_seconds"])


def _snapshot(step: int, time: float, values: dict[Series, float]) -> Snapshot:
    return Snapshot(samples={**values, STEP: float(step), TIME: time}, steps=dict.fromkeys(values, step))


def test_each_gauge_has_a_curve_by_its_own_steps() -> None:
    """A key that is logged every other step has half the points; a step without any number has none."""
    feed, found = judged(), History()
    for step in range(1, 11):
        feed.record({"reward": float(step), **({"kl": 0.1 * step} if step % 2 == 0 else {})}, step)
        found.see(feed.snapshot)
        found.see(feed.snapshot)
    assert found.curve(REWARD) == [(float(step), float(step)) for step in range(1, 11)]
    assert found.curve(Series(NAMED["rl_kl_per_token"])) == [(float(step), 0.1 * step) for step in range(2, 11, 2)]
    assert found.series("rl_reward_mean") == [REWARD]
    assert found.curve(Series(NAMED["rl_loss"])) == []


def test_a_histogram_has_the_curve_of_what_was_new() -> None:
    """The mean since the point before; none where nothing came; NaN where one was."""
    feed, found = judged(), History()
    for step, values in enumerate(([1.0, 3.0], [], [5.0], [float("nan"), 1.0]), 1):
        feed.record({"reward": 1.0}, step)
        observe(feed, RATIO, values)
        found.see(feed.snapshot)
    points = found.curve(RATIO)
    assert points[:2] == [(1.0, 2.0), (3.0, 5.0)]
    assert [(step, str(value)) for step, value in points[2:]] == [(4.0, "nan")]


def test_a_histogram_of_a_gauge_has_the_curve_that_the_gauge_has_not() -> None:
    """PPO logs no gradient norm: that of the tensors is drawn, with its NaN. GRPO logs one, and that is drawn."""
    gauge, counted = Series(NAMED["rl_grad_norm"]), Series(NAMED["rl_grad_norm_dist"])
    for logged in (False, True):
        feed, found = judged(), History()
        for step, norm in enumerate((0.5, float("nan")), 1):
            feed.record({"grad_norm": norm} if logged else {"reward": 1.0}, step)
            observe(feed, counted, [norm])
            found.see(feed.snapshot)
        curves = {series: [str(value) for _, value in found.curve(series)] for series in (gauge, counted)}
        assert curves == {gauge: ["0.5", "nan"] * logged, counted: ["0.5", "nan"] * (not logged)}


def test_checkpoints_and_evaluations_are_marks() -> None:
    """Each once, a checkpoint with its own step; the newest 500; a run that begins again begins them anew."""
    found = History()
    saved = {10: 9.0, 20: 19.0}
    for step in range(1, 31):
        done = {at: which for at, which in saved.items() if at <= step}
        values = {CHECKPOINT: max(done.values())} if done else {}
        evaluated = {EVALUATED: 100.0 * (step // 15)} if step >= 15 else {}
        found.see(_snapshot(step, float(step), {**values, **evaluated}))
    assert found.marks() == [("checkpoint", 9), ("evaluation", 15), ("checkpoint", 19), ("evaluation", 30)]

    for step in range(31, 700):
        found.see(_snapshot(step, float(step), {EVALUATED: float(step)}))
    assert [mark.step for mark in found.marks()] == [*range(200, 700)]
    found.see(_snapshot(5, 701.0, {EVALUATED: 701.0}))
    assert found.marks() == [("evaluation", 5)]


def test_the_last_steps_of_a_histogram() -> None:
    """All of it in a young run, then about 50 steps, however long the run is."""
    feed, found = judged(), History()
    for step in range(1, 301):
        feed.record({"reward": 1.0}, step)
        observe(feed, RATIO, [1.0])
        found.see(feed.snapshot)
        past = found.past(step)
        assert past.steps is not None
        assert past.steps == step or RECENT_STEPS <= past.steps < RECENT_STEPS + 10
        assert since(feed.snapshot.buckets[RATIO], past.buckets.get(RATIO)).count == past.steps


def test_a_run_that_begins_again_begins_a_new_history() -> None:
    """A second train() of a process, or an older checkpoint."""
    feed, found = judged(), History()
    for step in (1, 2, 3, 2, 3):
        feed.record({"reward": float(step)}, step)
        observe(feed, RATIO, [1.0])
        found.see(feed.snapshot)
    assert found.curve(REWARD) == [(2.0, 2.0), (3.0, 3.0)]
    past = found.past(3)
    assert (past.steps, past.buckets[RATIO].count) == (1, 4)
    assert found.curve(RATIO) == [(2.0, 1.0), (3.0, 1.0)]


def test_the_pace_is_that_of_the_last_minute() -> None:
    """Of the last steps where one takes longer than that."""
    found = History()
    assert found.steps_per_second() is None
    for step in range(100):
        found.see(_snapshot(step, step * 2.0, {REWARD: 1.0}))
    assert found.steps_per_second() == 0.5
    for step in range(100, 400):
        found.see(_snapshot(step, 200.0 + (step - 100) * 0.25, {REWARD: 1.0}))
    assert found.steps_per_second() == 4.0
    found.see(_snapshot(400, 874.75, {REWARD: 1.0}))
    assert found.steps_per_second() == 1 / 600


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many series as a run may have: under 20 MB; here a twentieth of all that."""
    monkeypatch.setattr(history, "_MOST_POINTS", history._MOST_POINTS // 20)
    series = [Series(NAMED["rl_logged_value"], (str(number),)) for number in range(175)]
    tracemalloc.start()
    found = History()
    for step in range(1, 401):
        found.see(_snapshot(step, float(step), dict.fromkeys(series, float(step % 7))))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    lengths = [len(found.curve(each)) for each in series]

    assert max(lengths) < 400  # all have been thinned, so that further steps add nothing
    assert 175 * 100 < sum(lengths) < 1_100_000 / 20
    assert size < 20e6 / 20
    assert all(found.curve(each)[-1][0] == 400.0 for each in series)


def test_heat_maps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns of each, and how many there are: 1.7 MB for all; here an eighth of them."""
    monkeypatch.setattr(history, "_MOST_HEAT_MAPS", 8)
    bounds = tuple(float(bound) for bound in range(24))
    series = [Series(NAMED["rl_reward_function_dist"], (str(number),)) for number in range(10)]
    found, counted = History(), Histogram.empty(bounds)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for step in range(1, 1001):
        counted = counted.including(step % 25)
        buckets = dict.fromkeys(series, counted)
        found.see(Snapshot(samples={STEP: float(step)}, buckets=buckets))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    maps = found.heat_maps()

    assert len(maps) == 8
    assert {each.every for _, each in maps} == {16}
    assert {sum(map(sum, each.columns().values())) for _, each in maps} == {1000}
    assert size - before < 1.5e6  # with the curves


def test_a_heat_map_of_other_buckets_begins_anew() -> None:
    """As after a resume with other bounds."""
    found, ratio = History(), Series(NAMED["rl_policy_ratio_dist"])
    for step, bounds in enumerate([(1.0, 2.0)] * 3 + [(1.0, 2.0, 3.0)] * 2, 1):
        counted = Histogram(bounds, (step, *[0] * len(bounds)))
        found.see(Snapshot(samples={STEP: float(step)}, buckets={ratio: counted}))
    ((_, heat_map),) = found.heat_maps()
    assert heat_map.bounds == (1.0, 2.0, 3.0)
    assert [(step, list(counts)) for step, counts in heat_map.columns().items()] == [
        (4, [4, 0, 0, 0]),
        (5, [1, 0, 0, 0]),
    ]


def test_as_many_keys_as_a_user_allows_are_bounded_too() -> None:
    """No curve for what is beyond; the others go on."""
    found = History()
    for step in (1, 2):
        many = {Series(NAMED["rl_logged_value"], (str(number),)): 1.0 for number in range(5000)}
        found.see(_snapshot(step, float(step), many))
    curves = found.series("rl_logged_value")
    assert len(curves) == history._MOST_CURVES
    assert {len(found.curve(each)) for each in curves} == {2}
