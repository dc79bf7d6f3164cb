"""What learning explains: a reward that is found late, and what the policy was like before it was."""

from __future__ import annotations

from math import exp
from typing import Any

import pytest

from rlexporter.catalog.conditions import CONDITION_NAMED
from rlexporter.conditions.signals import ALLOWANCES
from tests.conditions.planted import Line, Planted, wave

FOUND = 75
"""The step in which half of the completions are rewarded."""
DISTANT = {"kl_high", "kl_jump", "reward_hacking"}
NO_PARTS = dict.fromkeys(
    ("rewards/format/mean", "rewards/format/std", "rewards/answer/mean", "rewards/answer/std"), ...
)


def _risen(step: int) -> float:
    """How much has been learned, from 0 to 1."""
    return 1 / (1 + exp((FOUND - step) / 6))


def _reward(share: float, step: int) -> Line:
    """A reward of 0 or 1, of four groups of eight completions."""
    mean = min(1.0, max(0.0, 0.03 + 0.93 * share + 0.03 * wave(step)))
    flat = mean**8 + (1 - mean) ** 8
    return {"reward": mean, "reward_std": (mean * (1 - mean)) ** 0.5, "frac_reward_zero_std": flat, **NO_PARTS}


def _distance(share: float) -> tuple[Line, dict[str, Any]]:
    """What KL is then, and what the reference thinks of the completions."""
    return {"kl": 0.02 + 2.2 * share}, {"rl_ref_logprob_dist": [-0.9 - 2.2 * share]}


def _run(limits: object = None, *, rewarded: int = 200, steps: int = 140) -> Planted:
    """A run whose policy leaves its reference as it learns; ``rewarded``: the last step with the reward of it."""
    run = Planted("rloo", limits)
    for step in range(1, steps + 1):
        line, seen = _distance(_risen(step))
        run.line(line | _reward(_risen(step) if step <= rewarded else 0.0, step), seen=seen)
    return run


def _warned(run: Planted) -> dict[str, int]:
    return {name: step for (name, severity), step in run.began.items() if severity != "info" and name in DISTANT}


def test_a_reward_that_is_found_late_pays_for_its_distance() -> None:
    """KL grows from nothing to 2.2 nats a token, the reference is surprised three times as much, and nobody is told."""
    run = _run()

    assert run.signal("kl")[-1] > CONDITION_NAMED["kl_high"].limits[0].value["k1"]  # type: ignore[index]
    assert _warned(run) == {}


def test_the_same_distance_without_a_reward_is_told() -> None:
    """Nothing is gained by it."""
    assert _warned(_run(rewarded=0)).keys() == {"kl_high", "kl_jump"}


def test_a_distance_is_told_once_its_reward_is_lost() -> None:
    """The reward paid for it until then."""
    warned = _warned(_run(rewarded=110))

    assert {name: 110 < step <= 120 for name, step in warned.items()} == {"kl_high": True}


def test_a_distance_that_outgrows_the_gain_is_told() -> None:
    """A KL that grows tenfold while the reward stays at its best is not the price of the reward."""
    run = _run()
    for step in range(141, 150):
        run.line({"kl": 3.9 if step < 145 else 12.0} | _reward(1.0, step))

    assert _warned(run)["kl_high"] == 147


def test_a_limit_that_a_person_has_set_is_a_limit() -> None:
    """Nothing explains what is beyond it."""
    assert "kl_high" in _warned(_run({"kl_high": 1.0}))


@pytest.mark.parametrize(("flat", "told"), [(1.0, False), (0.5, True)])
def test_steps_without_a_reward_are_no_past_of_gradients(flat: float, told: bool) -> None:
    """The penalty alone has a gradient in them: the first reward is no explosion."""
    run = Planted("grpo")
    same = {"reward_std": 0.0} if flat == 1.0 else {}
    for _ in range(40):
        run.line({"frac_reward_zero_std": flat, "grad_norm": 0.005, **NO_PARTS, **same})
    for _ in range(20):
        run.line({"grad_norm": 1.0, **NO_PARTS})

    begun = {name for name, _ in run.began} & {"grad_spike", "grad_explosion"}
    assert begun == ({"grad_spike", "grad_explosion"} if told else set())


def test_updates_are_compared_with_those_that_had_something_to_learn() -> None:
    """A step in which most groups have no spread moves the weights by what is left of the steps before."""
    run = Planted("grpo")
    sizes = {"rl_weight_update_size": [0.1], "rl_weight_changed_fraction": [1.0]}
    for step in range(60):
        run.line({"frac_reward_zero_std": 0.75 if step % 2 else 0.0, "learning_rate": 1e-3}, seen=sizes)

    assert 0 < len(run.signal("update_per_rate")) < len(run.signal("update_size"))


def test_every_allowance_is_declared_and_used() -> None:
    """A limit names what there is, and what there is is named."""
    used = {limit.learning for condition in CONDITION_NAMED.values() for limit in condition.limits}

    assert used == {"", *ALLOWANCES}
