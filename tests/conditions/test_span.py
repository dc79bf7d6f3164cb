"""What a logged number is of: one step, or the mean of a window of them."""

from __future__ import annotations

import pytest

from rlexporter.model.step import RunFacts
from tests.conditions.planted import Line, Planted


def _logged(every: int, lines: int, changes: Line, *, resumed: int = 0) -> Planted:
    """A run whose log has each ``every``-th step, from the first window on."""
    run = Planted("grpo")
    if resumed:
        run.store.begin(RunFacts(algorithm="grpo", step=resumed), {"run": "planted", "rank": "0"})
    run.step = resumed
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

    assert not [each for each in some.began if each[0] == "gradient_dead" and each[1] == "critical"]
    assert none.began["gradient_dead", "critical"] == 30
