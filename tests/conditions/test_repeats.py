"""Lines of a log that are no observation of their own: one a conversation, or one for each epoch on a batch."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.conditions.planted import LINES, Line, Planted

CRITICAL = "critical"


def _conversations(updates: int, flat: int, *, each: int) -> Planted:
    """Legacy PPO with ``each`` lines an update, the last ``flat`` of which have no spread of reward."""
    run, rng = Planted("ppo-legacy"), random.Random(3)
    for update in range(updates):
        stats = {key: rng.uniform(0.9, 1.1) * value for key, value in LINES["ppo-legacy"](update).items()}
        if update >= updates - flat:
            stats |= {"env/reward_mean": 0.0, "env/reward_std": 0.0}
        for _ in range(each):
            run.line(stats)
    return run


def test_statistics_that_are_logged_again_are_counted_once() -> None:
    """Two updates without a spread are two, in eight lines: not enough for anything. Twelve updates are."""
    assert ("reward_flat", CRITICAL) not in _conversations(20, 2, each=4).began
    assert ("reward_flat", CRITICAL) in _conversations(24, 12, each=1).began
    assert ("reward_flat", CRITICAL) in _conversations(24, 12, each=4).began


def test_what_is_served_is_the_line() -> None:
    """Only the judge leaves out what it has seen."""
    run = _conversations(20, 2, each=4)

    assert (run.snapshot.value("rl_reward_mean"), run.snapshot.value("rl_step")) == (0.0, 80)


def test_a_run_that_stands_still_is_judged() -> None:
    """Some lines that repeat each other are a log's way; more than 64 in a row are the run's."""
    run = Planted("ppo-legacy").healthy()
    flat = {"env/reward_mean": 0.834, "env/reward_std": 0.0, "objective/kl": 2.234, "ppo/loss/value": 0.1234}
    for _ in range(60):
        run.line(flat)
    assert ("reward_flat", CRITICAL) not in run.began
    for _ in range(40):
        run.line(flat)
    assert ("reward_flat", CRITICAL) in run.began


def test_one_number_that_stays_is_an_observation() -> None:
    """Such as a mean of few rewards of 0 or 1: the others of the line are new."""
    run = Planted("grpo").healthy()
    for _ in range(20):
        run.line({"reward": 0.85, "reward_std": 0.0, "frac_reward_zero_std": 1.0})

    assert ("reward_flat", CRITICAL) in run.began


def _epochs(batches: int, epochs: int, high: range) -> Iterator[Line]:
    """Value losses of PPO, which fall a little with each epoch on one batch; those of the batches ``high`` are high."""
    rng = random.Random(5)
    for batch in range(batches):
        value = rng.uniform(0.2, 1.0) if batch not in high else 8.0
        policy = rng.uniform(-0.05, 0.05)
        for epoch in range(epochs):
            yield {"loss/value_avg": value - 0.01 * epoch, "loss/policy_avg": policy - 0.002 * epoch}


@pytest.mark.parametrize("epochs", [2, 4, 8])
def test_epochs_on_one_batch_are_one_observation_of_its_losses(epochs: int) -> None:
    """A value loss that is high for one batch is a warning; for three batches in five it is critical."""
    began = []
    for high in (range(60, 61), range(60, 63)):
        run = Planted("ppo")
        for line in _epochs(70, epochs, high):
            run.line(line)
        began.append({severity for name, severity in run.began if name == "value_loss_spike"})

    assert [CRITICAL in each for each in began] == [False, True]


def test_epochs_are_not_seen_where_there_are_none() -> None:
    """Losses that wander, or alternate with the prompts, are observations, all of them."""
    run = Planted("ppo")
    rng = random.Random(7)
    for step in range(300):
        run.line({"loss/value_avg": rng.uniform(0.2, 1.0), "loss/policy_avg": 0.01 * (step % 2) + 0.001 * rng.random()})

    assert run.watch._judge.past("value_loss").count == 300
