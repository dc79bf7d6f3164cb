"""Each detector: how seldom it is wrong on noise, how soon it sees what it is for, and what it says nothing of."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from rlexporter.conditions.detectors import (
    MOST_MEMBERS,
    SOME,
    Apart,
    Each,
    Gone,
    Own,
    Past,
    Ratio,
    Shift,
    Still,
    level,
    ratio,
    warning,
)
from rlexporter.conditions.table import CONDITIONS
from rlexporter.model.condition import Persistence

STEPS = 10_000
RUNS = 20
"""Of five hundred steps each: what is said of noise is a share of all of them."""


def noise(seed: int, steps: int = STEPS // RUNS) -> Iterator[float]:
    """Independent normal values."""
    chance = random.Random(seed)
    return (chance.gauss(0.0, 1.0) for _ in range(steps))


def _alarms(begin: Callable[[], Callable[[float], bool]], of: Callable[[float], float]) -> int:
    """In how many steps of noise a detector, made anew for each run, says that something is wrong."""
    wrong = 0
    for seed in range(RUNS):
        is_wrong = begin()
        wrong += sum(is_wrong(of(value)) for value in noise(seed))
    return wrong


def _beyond(detector: Ratio) -> Callable[[], Callable[[float], bool]]:
    def begin() -> Callable[[float], bool]:
        past = Past()

        def see(value: float) -> bool:
            past.add(value)
            own = detector.measure(past)
            return own is not None and value > detector.limits[0].value * own  # type: ignore[operator]

        return see

    return begin


@pytest.mark.parametrize("detector", [ratio(warning(4.0)), ratio(warning(4.0), of=Own.RECENT)])
def test_a_ratio_is_hardly_ever_wrong_on_noise(detector: Ratio) -> None:
    """Of log-normal noise with a spread of 0.3: in less than one of 10,000 steps; of one of 1.0 it often is."""
    assert _alarms(_beyond(detector), lambda value: 2.718 ** (0.3 * value)) <= 1
    assert _alarms(_beyond(detector), lambda value: 2.718**value) > 100


def test_what_a_ratio_is_measured_against() -> None:
    """The start stays; the recent past follows what lasts, behind its lag, and knows how high the highest tenth is."""
    past = Past()
    for value in [1.0] * 40 + [5.0] * 20 + [0.0] * 5:
        past.add(value)
    seldom = ratio(warning(5.0), of=Own.RECENT, quantile=0.9)

    assert ratio(warning(0.2)).measure(past) == 1.0
    assert ratio(warning(6.0), of=Own.RECENT).measure(past) == 5.0
    assert ratio(warning(6.0), of=Own.RECENT, lag=40).measure(past) == 1.0
    assert seldom.measure(past) == 5.0
    assert Ratio((), of=Own.RECENT).measure(Past()) is None


@pytest.mark.parametrize("persistence", Persistence)
def test_a_persistence_names_what_lasts_after_as_many_observations(persistence: Persistence) -> None:
    """And no pair of numbers is declared beside the four."""
    assert persistence.enough <= persistence.of < 2 * persistence.enough or persistence is Persistence.ONCE
    assert {limit.lasts for condition in CONDITIONS for limit in condition.limits} == set(Persistence)


def test_a_level_has_no_past() -> None:
    """A limit is what it is declared as, from the first value on."""
    found = level(warning(3.0, SOME))
    assert (found.measure(Past()), found.relative, found.settles, found.words) == (1.0, False, True, "")


def test_a_shift_is_hardly_ever_seen_in_noise() -> None:
    """In less than one of 1,000 steps, though its noise is measured on twenty values."""

    def begin() -> Callable[[float], bool]:
        shift = Shift()
        return lambda value: shift.add(value) != 0.0

    assert _alarms(begin, lambda value: value) < STEPS / 1000


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_shift_is_seen_on_either_side_and_soon(sign: float) -> None:
    """Three standard deviations in four or five values; its size is what it is."""
    delays = []
    for seed in range(50):
        shift = Shift()
        for value in noise(seed, 20):
            shift.add(value)
        after = [shift.add(3.0 * sign + value) for value in noise(1000 + seed, 12)]
        delays.append(next((place for place, found in enumerate(after, 1) if found), 99))
    assert sorted(delays)[25] <= 5
    assert sorted(delays)[45] <= 8


def test_a_row_that_is_usual_is_no_still() -> None:
    """A coin that falls: seven orders of magnitude in none of 10,000 tosses; a row that never was is soon sure."""

    def begin() -> Callable[[float], bool]:
        still = Still()
        return lambda value: still.add(value > 0.0) >= 7.0

    assert _alarms(begin, lambda value: value) == 0
    still = Still()
    for _ in range(50):
        still.add(False)
    assert [still.add(True) >= 7.0 for _ in range(6)].index(True) == 4


def test_a_row_of_another_kind_is_another_row() -> None:
    """What was the same until now came before it: it says how usual that is."""
    still = Still(tosses=0)
    for _ in range(10):
        still.add(False)
    first = [still.add(True) for _ in range(5)][-1]
    still.restart()

    assert still.length == 0
    assert [still.add(True) for _ in range(5)][-1] < first


def test_what_always_came_is_gone_at_once_and_what_did_not_never_is() -> None:
    """Since the step in which it was missing first, until it is back."""
    always, seldom = Gone(after=3), Gone(after=3)
    for step in range(5):
        assert not always.add(True, step)
        assert not seldom.add(step % 2 == 0, step)

    assert [always.add(False, step) for step in (5, 6)] == [True, True]
    since = [always.since]
    assert not always.add(True, 7)
    assert [*since, always.since] == [5, None]
    assert not any(seldom.add(False, step) for step in range(8, 30))


def test_two_numbers_of_noise_are_not_apart() -> None:
    """A factor of 5 in none of 10,000 steps; a KL that grows tenfold as the reward jumps is one of ten."""
    chance, wrong = random.Random(0), 0
    for _ in range(RUNS):
        kl, reward = Past(), Past()
        for step in range(STEPS // RUNS):
            kl.add(2.718 ** chance.gauss(0.0, 0.3))
            reward.add(chance.gauss(0.0, 1.0))
            wrong += step > 70 and Apart.factor(kl, reward) > 5.0
    assert wrong == 0
    kl, reward = Past(), Past()
    for step in range(100):
        kl.add(1.0 if step < 90 else 10.0)
        reward.add(0.1 * (step % 2) + (step >= 90))
    assert Apart.factor(kl, reward) == 10.0
    constant = Past()
    for _ in range(100):
        constant.add(1.0)
    assert Apart.factor(kl, kl) == 10.0
    assert Apart.factor(reward, constant) == 0.0


def test_the_members_of_a_series_are_bounded() -> None:
    """The first hundred names are followed, each with a past of its own; others are left out."""
    each = Each(Past)
    names = [f"f{i}" for i in range(2 * MOST_MEMBERS)]
    for _ in range(2):
        for _, past in each.of(names):
            past.add(1.0)

    assert [past.count for _, past in each.items()] == [2] * MOST_MEMBERS
    assert each.get("f0") is not None
    assert each.get("f150") is None
    each.forget("f0")
    assert each.get("f0") is None
