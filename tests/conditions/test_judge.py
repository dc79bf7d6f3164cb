"""How much a number says: by what it is of, and by how improbable it is that something happens so often in a row."""

from __future__ import annotations

from math import log10

import pytest

from rlexporter.conditions.chance import Doubt, Streak
from tests.conditions.planted import Line, Planted, wave


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


def _logged(every: int, lines: int, changes: Line) -> Planted:
    """A run whose log has each ``every``-th step, from the first window on."""
    run = Planted("grpo")
    for _ in range(lines):
        run.step += every - 1
        run.line(changes)
    return run


@pytest.mark.parametrize(("every", "begins"), [(1, True), (10, False)])
def test_a_first_line_of_ten_steps_is_not_the_first_step(every: int, begins: bool) -> None:
    """The policy has been updated by then."""
    run = _logged(every, 1, {"kl": 3.0})

    assert (("kl_at_start", "critical") in run.began) is begins


@pytest.mark.parametrize(("every", "size"), [(1, 15), (5, 5), (10, 5), (2, 8)])
def test_the_level_of_the_reward_is_a_median_over_as_many_steps(every: int, size: int) -> None:
    """Fifteen steps, but five lines at least: half of them have to be low."""
    run = _logged(every, 40, {})
    at = run.step
    while ("reward_drop", "critical") not in run.began:
        run.step += every - 1
        run.line({"reward": -5.0})

    assert (run.step - at) // every == (size + 1) // 2


def test_a_gradient_of_one_step_is_not_compared_with_the_rewards_of_ten() -> None:
    """A norm of 0 in each line is chance where a third of the groups has no spread; it is no chance where none has."""
    some = _logged(10, 8, {"grad_norm": 0.0, "frac_reward_zero_std": 0.3})
    none = _logged(10, 8, {"grad_norm": 0.0, "frac_reward_zero_std": 0.0})

    assert ("gradient_dead", "critical") not in some.began
    assert none.began["gradient_dead", "critical"] == 30
