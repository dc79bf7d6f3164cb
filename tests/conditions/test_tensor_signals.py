"""Signals that need tensors: what they say of runs that are healthy in an odd way, and what they leave open."""

from __future__ import annotations

from typing import Any

import pytest

from rlexporter.model.step import RunFacts
from tests.conditions.planted import Planted

ANSWER = "rl_reward_function_dist/answer"
GREEDY = {"rl_advantage_dist": [-1.0, 1.0], "rl_logprob_dist": [-0.2], "rl_entropy_per_token_dist": [1.0]}
STILL, MOVED = {"rl_weight_changed_fraction": [0.0]}, {"rl_weight_changed_fraction": [0.5]}
PUSH, REST = {"rl_grad_norm_dist": [0.3]}, {"rl_grad_norm_dist": [0.0]}


def _signal(run: Planted, name: str) -> list[float]:
    return list(run.watch._judge.past(name).values)


def _seen(steps: list[dict[str, Any]], algorithm: str = "grpo", lines: dict[str, Any] | None = None) -> Planted:
    """A run with these tensors, one dictionary a step."""
    run = Planted(algorithm)
    for seen in steps:
        run.line(lines or {}, seen=seen)
    return run


class TestRewardOutlier:
    """A reward beyond all before."""

    def test_the_first_success_of_a_sparse_reward_is_none(self) -> None:
        """Though all rewards before it were within 0.05: rewards are of the order of 1."""
        run = _seen([{ANSWER: [0.0, 0.05] * 10}] * 20 + [{ANSWER: [0.0, 1.0] * 10}])

        assert _signal(run, "reward_outlier")[-1] == pytest.approx(0.95)
        assert run.began == {}

    def test_each_of_two_is_told(self) -> None:
        """The first one does not hide the second: it is not taken for a usual reward."""
        usual, far = {ANSWER: [0.0, 1.0] * 10}, {ANSWER: [0.0, -40.0] * 10}
        run = _seen([usual] * 5 + [far] + [usual] * 5 + [far])

        assert [round(found) for found in _signal(run, "reward_outlier")] == [0, 0, 40, 0, 0, 0, 0, 0, 40]

    def test_a_new_scale_is_told_three_times(self) -> None:
        """Then it is what the reward function gives."""
        run = _seen([{ANSWER: [0.0, 1.0] * 30}] * 2 + [{ANSWER: [0.0, 50.0] * 30}] * 5)

        assert [round(found) for found in _signal(run, "reward_outlier")] == [0, 49, 49, 49, 0, 0]

    def test_few_rewards_say_nothing(self) -> None:
        """Before there are 50."""
        assert _signal(_seen([{ANSWER: [0.0, 1.0]}] * 24 + [{ANSWER: [0.0, 99.0]}]), "reward_outlier") == []


class TestRewardFunctionDead:
    """A function that tells no completion from another any more."""

    @staticmethod
    def _dead(steps: list[list[float]]) -> int:
        """The first step in which it counts as dead; 0 for never."""
        run = _seen([{ANSWER: rewards} for rewards in steps])
        return run.began.get(("reward_function_dead", "warning"), 0)

    def test_a_sparse_one_is_not(self) -> None:
        """One step in ten has a success: a pause of 30 steps is chance."""
        assert self._dead(([[0.0, 0.0, 0.0, 1.0]] + [[0.0] * 4] * 9) * 6 + [[0.0] * 4] * 30) == 0

    def test_but_after_a_long_pause(self) -> None:
        """At a rate of nearly one in ten, 100 flat steps in a row are no chance."""
        assert self._dead(([[0.0, 0.0, 0.0, 1.0]] + [[0.0] * 4] * 9) * 6 + [[0.0] * 4] * 100) > 120

    def test_one_that_differs_from_step_to_step_is_not(self) -> None:
        """Where all completions of a group are alike, it still tells one prompt from another."""
        assert self._dead([[0.0, 6.0], [1.0, 2.0]] * 10 + [[5.0 + i % 3] * 2 for i in range(30)]) == 0

    def test_a_solved_one_is_not(self) -> None:
        """It came to its best step by step."""
        learning = [[float(i > j) for i in range(8)] for j in (6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0)]
        assert self._dead(learning + [[1.0] * 8] * 60) == 0

    def test_one_that_jumped_to_its_best_is(self) -> None:
        """Learning takes steps."""
        assert self._dead([[0.0, 0.0, 0.0, 1.0]] * 12 + [[1.0] * 4] * 10) == 20


class TestWeights:
    """Weights that stay as they are."""

    def test_without_a_gradient_they_may(self) -> None:
        """Rewards that do not differ give none."""
        run = _seen([{**MOVED, **PUSH}] * 5 + [{**STILL, **REST}] * 20)

        assert _signal(run, "weights_still")[5:] == []

    def test_without_a_gradient_in_one_step_in_two(self) -> None:
        """Nor is it known then which of the two the weights are of: counts may arrive a step late."""
        pair = [{**STILL, **REST}, {**STILL, **PUSH}]

        assert _signal(_seen([{**MOVED, **PUSH}] * 5 + pair * 10), "weights_still")[5:] == []

    def test_before_they_have_ever_moved(self) -> None:
        """In bf16 the updates of a warm-up are lost; after 20 looks they count as frozen all the same."""
        assert len(_signal(_seen([{**STILL, **PUSH}] * 30), "weights_still")) == 10

    @pytest.mark.parametrize(("rate", "judged"), [(1e-7, 0), (0.0, 12), (1e-5, 12)])
    def test_at_the_end_of_a_schedule(self, rate: float, judged: int) -> None:
        """Updates of a hundredth are lost in bf16; a learning rate of 0 is a fault."""
        run = _seen([{**MOVED, **PUSH}] * 5)
        for _ in range(12):
            run.line({"learning_rate": rate}, seen={**STILL, **PUSH})

        assert sum(_signal(run, "weights_still")) == judged


class TestSampler:
    """The mean log-probability plus the mean entropy of what was just sampled."""

    @pytest.mark.parametrize(
        ("settings", "judged"),
        [
            ({}, True),
            ({"top_p": 1.0, "top_k": 0.0, "repetition_penalty": 1.0, "temperature": 0.7}, True),
            ({"top_p": 0.95}, False),
            ({"top_k": 20.0}, False),
            ({"min_p": 0.1}, False),
            ({"mask_truncated_completions": 1.0}, False),
        ],
    )
    def test_a_sampler_that_is_meant_to_differ(self, settings: dict[str, float], judged: bool) -> None:
        """Is not judged."""
        run = Planted("grpo")
        run.store.begin(RunFacts(algorithm="grpo", hyperparameters=settings), {})
        for _ in range(12):
            run.line({}, seen=GREEDY)

        assert (("sampler_differs", "warning") in run.began) is judged

    def test_updates_that_reuse_samples(self) -> None:
        """The policy has moved on since: only steps with a rollout count."""
        reused = {name: values for name, values in GREEDY.items() if name != "rl_advantage_dist"}

        assert _signal(_seen([reused] * 12), "sampler_gap") == []

    def test_few_tokens_are_noise(self) -> None:
        """An offset of 0.3 either way, with a mean of 0.05."""
        steps = [{**GREEDY, "rl_logprob_dist": [-1.0 + (0.35 if i % 2 else -0.25)]} for i in range(40)]

        assert max(_signal(_seen(steps), "sampler_gap")) == 0.0


@pytest.mark.parametrize("ranges", [[0.0, 0.0], [0.0, 1e-7]])
def test_advantages_may_be_alike_where_rewards_are(ranges: list[float]) -> None:
    """In each group."""
    run = _seen([{"rl_advantage_dist": [0.0, 0.0], "rl_reward_group_range_dist": ranges}] * 5)

    assert _signal(run, "advantage_dead") == [0.0] * 5


def test_groups_are_flat_by_their_rewards_not_by_what_trl_logs() -> None:
    """TRL takes the rounding of equal rewards for a spread, and logs 0."""
    run = _seen([{"rl_reward_group_range_dist": [0.0, 0.0, 0.0, 0.5]}] * 3, lines={"frac_reward_zero_std": 0.0})

    assert _signal(run, "flat_share") == [0.75] * 3
