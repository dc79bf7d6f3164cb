"""Evidence: how improbable it is that something happens so often in a row."""

from __future__ import annotations

from math import log10

import pytest

from rlexporter.conditions.chance import Doubt, Streak
from tests.conditions.planted import Planted, wave


def test_a_streak_weighs_by_how_often_it_happened_before() -> None:
    """Three in a row say much where it never happened in 98 observations, and little where every other one was so."""
    rare, usual = Streak(), Streak()
    for i in range(98):
        rare.add(False)
        usual.add(bool(i % 2))
    before = usual.add(False)
    found = [(rare.add(True), usual.add(True)) for _ in range(3)]

    assert before == 0.0
    assert [each[0] for each in found] == pytest.approx([2.0, 4.0, 6.0])
    assert [each[1] for each in found] == pytest.approx([-n * log10(50 / 101) for n in (1, 2, 3)])


def test_without_a_past_the_number_of_groups_counts() -> None:
    """One group a step is one toss: ten steps without a spread say less than three steps of 19 groups."""
    one, many = Streak(), Streak(19)

    assert [one.add(True) for _ in range(10)][-1] == pytest.approx(10 * log10(2))
    assert [many.add(True) for _ in range(3)][-1] == pytest.approx(3 * log10(20))


def test_doubt_adds_up_until_the_event_fails_to_appear() -> None:
    """Each observation counts by its own probability, of which none is below a hundredth."""
    doubt = Doubt()

    assert [doubt.add(True, 0.1), doubt.add(True, 0.0), doubt.add(True, 1.0)] == pytest.approx([1.0, 3.0, 3.0])
    assert [doubt.add(False, 0.1), doubt.add(True, 0.1)] == pytest.approx([0.0, 1.0])


def test_flat_steps_of_one_group_are_no_alert_in_a_run_that_has_many_of_them() -> None:
    """Every other step is flat, later seven in a row; in a run that never had one, four in a row are an alert."""
    flat = {"reward_std": 0.0, "frac_reward_zero_std": 1.0}
    usual, rare = Planted("grpo"), Planted("grpo")
    for step in range(67):
        reward = {"reward": 1.0 + 0.05 * wave(step)}
        usual.line(reward | flat if step % 2 or step >= 60 else reward)
        rare.line(reward | flat if step >= 60 else reward)

    assert ("reward_flat", "warning") not in usual.began
    assert rare.began["reward_flat", "warning"] == 64
