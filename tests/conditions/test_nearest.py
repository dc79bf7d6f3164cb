"""What is nearest to an alert: a number that moves towards its limit, or is beyond it, and no constant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from rlexporter.conditions.declare import COMPUTED
from rlexporter.conditions.detectors import SOME, Own, level, ratio, warning
from rlexporter.conditions.judge import Judge
from rlexporter.conditions.table import CONDITIONS, SIGNALS
from rlexporter.conditions.view import View
from rlexporter.config.settings import Settings
from rlexporter.logs import playback, reader
from rlexporter.model.condition import Condition, Family, Signal, Source
from rlexporter.model.snapshot import AnomalyCounts
from rlexporter.model.step import RunFacts
from rlexporter.run.run import Run
from tests.conftest import DATA

_KL, _WEIGHTS = "rl_kl_per_token", "rl_loss"
"""Where two signals are read; the second one stands for any number whose healthy value is fixed."""


def _condition(name: str, signal: str, limit: float, *, below: bool = False, of: Own | None = None) -> Condition:
    limits = warning(limit, SOME)
    detector = ratio(limits, of=of, below=below) if of else level(limits, below=below)
    return Condition(name=name, alert=name, family=Family.DATA, signal=signal, detector=detector, summary="")


def _nearest(
    kl: Sequence[float],
    fixed: Sequence[float],
    limit: float,
    *,
    below: bool = True,
    of: Own | None = None,
) -> list[tuple[str, float] | None]:
    """What is nearest after each step: KL has the limit 0.5, and the other number this one."""
    signals = [Signal("kl", "nats", (Source(_KL),)), Signal("fixed", "fraction", (Source(_WEIGHTS),))]
    conditions = [
        _condition("kl_high", "kl", 0.5),
        _condition("fixed_wrong", "fixed", limit, below=below, of=of),
    ]
    judge = Judge(conditions, signals, {})
    judge.begin(RunFacts(algorithm="grpo", step=0))
    found = []
    for step, (one, other) in enumerate(zip(kl, fixed, strict=True), 1):
        judge.step(View(step, True, 1.0, 1, AnomalyCounts(), {_KL: one, _WEIGHTS: other}, {}, {}))
        nearest = judge.nearest()
        found.append((nearest[0], round(nearest[1], 6)) if nearest else None)
    return found


_RISING = [0.001 * step for step in range(1, 41)]
"""A KL that grows to 0.04, a twelfth of its limit."""


@pytest.mark.parametrize(
    ("value", "limit", "below", "of"),
    [
        pytest.param(1.0, 0.75, True, None, id="all weights change"),
        pytest.param(1.0, 0.9, True, None, id="a correlation of 1"),
        pytest.param(1.0, 0.6, True, Own.START, id="a ratio that is where it was at the start"),
        pytest.param(0.5, 0.8, False, None, id="half of all are cut off, as it was from the first step"),
        pytest.param(1.0, 1.5, False, None, id="yes"),
        pytest.param(20.0, 5.0, False, Own.RECENT, id="a length that never changes"),
    ],
)
def test_a_constant_is_not_near_its_limit(value: float, limit: float, below: bool, of: Own | None) -> None:
    """However large its share of it is; nor one that trembles. What grows is nearest instead."""
    for fixed in ([value] * 40, [value * (1 + 0.001 * (step % 2)) for step in range(40)]):
        found = _nearest(_RISING, fixed, limit, below=below, of=of)
        assert {each[0] for each in found if each} == {"kl"}
        assert found[-1] == ("kl", 0.08)


def test_what_leaves_its_healthy_value_is_near() -> None:
    """By the share of its limit, as it comes nearer and when it is beyond; once it is back, and still, no more."""
    falling = [1.0] * 10 + [0.95, 0.9, 0.8, 0.6, 0.6] + [1.0] * 25
    found = _nearest(_RISING, falling, 0.75)

    assert found[9] == ("kl", 0.02)
    assert [each[0] for each in found[11:15] if each] == ["fixed"] * 4
    assert [each[1] for each in found[11:14] if each] == [0.833333, 0.9375, 1.25]
    assert found[-1] == ("kl", 0.08)


def test_what_is_beyond_its_limit_is_told_though_it_stands_still() -> None:
    """From its first step on: it is no constant of a healthy run."""
    found = _nearest(_RISING, [0.5] * 40, 0.75)

    assert found == [("fixed", 1.5)] * 40


def test_nothing_is_near_where_everything_stands_still() -> None:
    """Nor in the first steps of a run, of which nobody knows how they go on."""
    assert _nearest([0.02] * 40, [1.0] * 40, 0.75) == [None] * 40
    assert _nearest(_RISING, [1.0] * 40, 0.75)[:4] == [None] * 4


def test_a_share_that_ended_is_not_served() -> None:
    """The series is gone while nothing is near, and there is one at a time; a run that begins anew has none."""
    run = Run(Settings.load({"run": "r"}))
    run.begin(RunFacts(algorithm="grpo", step=0))
    seen = []
    for step in range(1, 61):
        kl = 0.005 * step if step <= 30 else 0.15  # it stands still then
        run.log({"kl": kl}, step)
        seen.append(_served(run))
    assert ["kl"] in [[*each] for each in seen[:31]]
    assert "kl" not in seen[-1]
    assert max(map(len, seen)) == 1
    for step in range(61, 70):
        run.log({"kl": 0.003 * step}, step)
    assert _served(run)
    run.begin(RunFacts(algorithm="grpo", step=0))
    assert _served(run) == {}


def _served(run: Run) -> dict[str, float]:
    """The share of each number that is served as the nearest."""
    samples = run.feed.snapshot.samples
    return {each.labels[0]: value for each, value in samples.items() if "nearest_limit" in each.metric.series}


def _shown(name: str) -> list[tuple[str, float]]:
    """What was nearest in a recorded run, step by step."""
    found: list[tuple[str, float]] = []

    def see(run: Run) -> None:
        found.extend(_served(run).items())

    playback.played(reader.read(str(DATA / f"runs/{name}.jsonl"), ""), {}, see)
    return found


@pytest.mark.parametrize("name", ["grpo-healthy_multi-0", "rloo-healthy_multi-0", "ppo-healthy_accum-0"])
def test_in_a_healthy_run_it_is_no_constant(name: str) -> None:
    """No number is shown for long at nearly the same share, as the ratio of PPO was, at 60 %."""
    found = [share for _, share in _shown(name)]

    assert len(found) > 5
    longest = max(_level(found[start:]) for start in range(len(found)))
    assert longest < max(8, len(found) / 2)


def _level(shares: Iterable[float]) -> int:
    """How many shares, from the first one on, lie within a hundredth of it."""
    count, first = 0, None
    for share in shares:
        first = share if first is None else first
        if abs(share - first) > 0.01 * first:
            break
        count += 1
    return count


def test_the_weights_of_a_healthy_run_are_not_near_an_alert() -> None:
    """The number that this was seen with, by the catalog's own limit: 1 in each step, while the KL grows."""
    judge = Judge(CONDITIONS, SIGNALS, COMPUTED)
    judge.begin(RunFacts(algorithm="grpo", step=0))
    for step in range(1, 41):
        numbers = {_KL: 0.002 * step, "rl_weight_changed_fraction": 1.0, "rl_learning_rate": 1e-6}
        judge.step(View(step, True, 1.0, 1, AnomalyCounts(), numbers, {}, {}))
        assert (judge.nearest() or ("",))[0] != "weights_changing"
