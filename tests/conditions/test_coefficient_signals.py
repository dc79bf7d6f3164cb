"""Signals of the KL coefficient: what a controller does, and what it does no more."""

from __future__ import annotations

from tests.conditions.planted import Planted


def _signal(run: Planted, name: str) -> list[float]:
    return list(run.watch._judge.past(name).values)


def _legacy(coefficients: list[float], kl: list[float] | None = None) -> Planted:
    """A run of legacy PPO with these coefficients; the KL is per sequence of 20 tokens."""
    run = Planted("ppo-legacy")
    for i, coefficient in enumerate(coefficients):
        run.line({"objective/kl_coef": coefficient, "objective/kl": kl[i] if kl else 2.0})
    return run


RISING = [0.2 * 1.01**i for i in range(15)]
FALLING = [0.2 * 0.99**i for i in range(15)]


class TestStuck:
    """A coefficient that does not move any more."""

    def test_a_fixed_one_is_not_stuck(self) -> None:
        """It never moved."""
        assert set(_signal(_legacy([0.2] * 60), "kl_coef_stuck")) == {0.0}

    def test_one_that_was_set_by_hand_is_not_stuck(self) -> None:
        """It moved once, or now and then."""
        assert set(_signal(_legacy([0.2] * 20 + [0.1] * 20 + [0.05] * 20), "kl_coef_stuck")) == {0.0}

    def test_at_its_upper_bound(self) -> None:
        """Counted from the first step that is like the one before."""
        assert _signal(_legacy(RISING + RISING[-1:] * 6), "kl_coef_stuck")[-7:] == [0, 1, 2, 3, 4, 5, 6]

    def test_it_is_no_matter_where_kl_came_down(self) -> None:
        """To less than nine tenths."""
        run = _legacy(RISING + RISING[-1:] * 10, [4.0] * 15 + [2.0] * 10)

        assert _signal(run, "kl_coef_stuck")[-1] == 0.0
        assert run.began == {}

    def test_at_its_lower_bound(self) -> None:
        """Where it matters only if KL has doubled."""
        bound = FALLING[-1:] * 10

        assert _signal(_legacy(FALLING + bound, [2.0] * 25), "kl_coef_stuck")[-1] == 0.0
        assert _signal(_legacy(FALLING + bound, [2.0] * 15 + [5.0] * 10), "kl_coef_stuck")[-1] == 10.0


class TestLost:
    """A coefficient that became 0."""

    def test_one_that_decays_is_not_lost(self) -> None:
        """To a hundredth, as TRL's controller does in a long run whose KL is below its target."""
        run = _legacy([0.2 * 0.98**i for i in range(230)])

        assert ("kl_coef_lost", "warning") not in run.began

    def test_one_that_was_always_0_is_told_once(self) -> None:
        """It has no share of anything."""
        run = _legacy([0.0] * 30)

        assert _signal(run, "kl_coef_share") == []
        assert run.began == {("kl_coef_off", "info"): 1}

    def test_one_that_begins_at_0_was_not_off(self) -> None:
        """From the step on in which it is not 0."""
        assert _signal(_legacy([0.0, 0.0, 0.1, 0.0]), "kl_coef_off") == [1.0, 1.0, 0.0, 0.0]
