"""Values of signals: what they say of runs that are healthy in an odd way, and what they leave open."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from rlexporter.conditions.memory import Memory
from rlexporter.conditions.past import Past
from rlexporter.conditions.reward_signals import reward_functions_dead, reward_functions_silent
from rlexporter.conditions.sources import getter
from rlexporter.conditions.view import View
from rlexporter.model.condition import Read, Source
from rlexporter.model.snapshot import AnomalyCounts
from tests.conditions.planted import Planted, counted

ANSWER = "rl_reward_function_dist/answer"
GREEDY = {"rl_advantage_dist": [-1.0, 1.0], "rl_logprob_dist": [-0.2], "rl_entropy_per_token_dist": [1.0]}
STILL, MOVED = {"rl_weight_changed_fraction": [0.0]}, {"rl_weight_changed_fraction": [0.5]}
PUSH, REST = {"rl_grad_norm_dist": [0.3]}, {"rl_grad_norm_dist": [0.0]}


def _seen(steps: list[dict[str, Any]], lines: dict[str, Any] | None = None) -> Planted:
    """A run with these tensors, one dictionary a step."""
    run = Planted("grpo")
    for seen in steps:
        run.line(lines or {}, seen=seen)
    return run


class TestRewardOutlier:
    """A reward beyond all before."""

    def test_the_first_success_of_a_sparse_reward_is_none(self) -> None:
        """Though all rewards before it were within 0.05: rewards are of the order of 1."""
        run = _seen([{ANSWER: [0.0, 0.05] * 10}] * 20 + [{ANSWER: [0.0, 1.0] * 10}])

        assert run.signal("reward_outlier")[-1] == pytest.approx(0.95)
        assert run.began == {}

    def test_each_of_two_is_told(self) -> None:
        """The first one does not hide the second: it is not taken for a usual reward."""
        usual, far = {ANSWER: [0.0, 1.0] * 10}, {ANSWER: [0.0, -40.0] * 10}
        run = _seen([usual] * 5 + [far] + [usual] * 5 + [far])

        assert [round(found) for found in run.signal("reward_outlier")] == [0, 0, 40, 0, 0, 0, 0, 0, 40]

    def test_a_new_scale_is_told_three_times(self) -> None:
        """Then it is what the reward function gives."""
        run = _seen([{ANSWER: [0.0, 1.0] * 30}] * 2 + [{ANSWER: [0.0, 50.0] * 30}] * 5)

        assert [round(found) for found in run.signal("reward_outlier")] == [0, 49, 49, 49, 0, 0]

    def test_few_rewards_say_nothing(self) -> None:
        """Before there are 50."""
        assert _seen([{ANSWER: [0.0, 1.0]}] * 24 + [{ANSWER: [0.0, 99.0]}]).signal("reward_outlier") == []


class TestRewardFunctionDead:
    """A function that tells no completion from another any more."""

    @staticmethod
    def _dead(steps: list[list[float]]) -> int:
        """The first step in which it counts as dead; 0 for never."""
        run = _seen([{ANSWER: rewards} for rewards in steps])
        return run.began.get(("reward_function_dead", "warning"), 0)

    @pytest.mark.parametrize(("pause", "first", "last"), [(30, 0, 0), (100, 121, 160)])
    def test_a_sparse_one_is_not_but_after_a_long_pause(self, pause: int, first: int, last: int) -> None:
        """One step in ten has a success: a pause of 30 steps is chance, and 100 flat steps in a row are none."""
        sparse = ([[0.0, 0.0, 0.0, 1.0]] + [[0.0] * 4] * 9) * 6
        assert first <= self._dead(sparse + [[0.0] * 4] * pause) <= last

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

    @pytest.mark.parametrize(
        "still",
        [[{**STILL, **REST}] * 20, [{**STILL, **REST}, {**STILL, **PUSH}] * 10],
        ids=["in each step", "in one step in two"],
    )
    def test_without_a_gradient_they_may(self, still: list[dict[str, Any]]) -> None:
        """Rewards that do not differ give none; counts may arrive a step late, so that either step may be meant."""
        assert _seen([{**MOVED, **PUSH}] * 5 + still).signal("weights_still")[5:] == []

    def test_before_they_have_ever_moved(self) -> None:
        """In bf16 the updates of a warm-up are lost; after 20 looks they count as frozen all the same."""
        assert len(_seen([{**STILL, **PUSH}] * 30).signal("weights_still")) == 10

    @pytest.mark.parametrize(("rate", "judged"), [(1e-7, 0), (0.0, 12), (1e-5, 12)])
    def test_at_the_end_of_a_schedule(self, rate: float, judged: int) -> None:
        """Updates of a hundredth are lost in bf16; a learning rate of 0 is a fault."""
        run = _seen([{**MOVED, **PUSH}] * 5)
        for _ in range(12):
            run.line({"learning_rate": rate}, seen={**STILL, **PUSH})

        assert sum(run.signal("weights_still")) == judged


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
        """It is not judged."""
        run = Planted("grpo")
        run.begin(hyperparameters=settings)
        for _ in range(12):
            run.line({}, seen=GREEDY)

        assert (("sampler_differs", "warning") in run.began) is judged

    def test_updates_that_reuse_samples(self) -> None:
        """The policy has moved on since: only steps with a rollout count."""
        reused = {name: values for name, values in GREEDY.items() if name != "rl_advantage_dist"}

        assert _seen([reused] * 12).signal("sampler_gap") == []

    def test_few_tokens_are_noise(self) -> None:
        """An offset of 0.3 either way, with a mean of 0.05."""
        steps = [{**GREEDY, "rl_logprob_dist": [-1.0 + (0.35 if i % 2 else -0.25)]} for i in range(40)]

        assert max(_seen(steps).signal("sampler_gap")) == 0.0


@pytest.mark.parametrize("ranges", [[0.0, 0.0], [0.0, 1e-7]])
def test_advantages_may_be_alike_where_rewards_are(ranges: list[float]) -> None:
    """In each group."""
    run = _seen([{"rl_advantage_dist": [0.0, 0.0], "rl_reward_group_range_dist": ranges}] * 5)

    assert run.signal("advantage_dead") == [0.0] * 5


def test_groups_are_flat_by_their_rewards_not_by_what_trl_logs() -> None:
    """TRL takes the rounding of equal rewards for a spread, and logs 0."""
    run = _seen([{"rl_reward_group_range_dist": [0.0, 0.0, 0.0, 0.5]}] * 3, lines={"frac_reward_zero_std": 0.0})

    assert run.signal("flat_share") == [0.75] * 3


@pytest.mark.parametrize("extremes", [(inf, -inf), (0.0, -inf), (inf, 1.0), (nan, nan)], ids=str)
class TestSpreadWithoutExtremes:
    """Where the extremes of what was counted are unknown, the spread is, and is never taken for none."""

    @staticmethod
    def _view(extremes: tuple[float, float] | None) -> View:
        rewards = ("rl_reward_dist", "rl_reward_function_dist/accuracy", "rl_reward_function_dist/format")
        seen = counted({name: [0.25, 1.0] for name in rewards})
        if extremes is not None:
            seen = {each: replace(found, minimum=extremes[0], maximum=extremes[1]) for each, found in seen.items()}
        return View(1, True, None, 1, AnomalyCounts(), seen=seen)

    def test_reward_functions_are_not_flat(self, extremes: tuple[float, float]) -> None:
        """Nor is anything else said of them in such a step; the steps before and after count."""
        memory = Memory({"reward": Past()})
        results = []
        for i in range(60):
            memory.fresh = {"reward_functions_dead"}
            view = self._view(None if i in (0, 59) else extremes)
            results.append((reward_functions_dead(view, memory), reward_functions_silent(view, memory)))

        assert results == [(0.0, 0.0), *[(None, 0.0)] * 58, (0.0, 0.0)]
        assert [past.count for past in memory.functions.values()] == [2, 2]

    def test_the_judge_reads_the_next_source(self, extremes: tuple[float, float]) -> None:
        """This one gives nothing."""
        read = getter(Source("rl_reward_dist", Read.SPREAD), {})
        assert callable(read)
        memory = Memory({})

        assert read(self._view(extremes), memory) is None
        assert read(self._view(None), memory) == 0.75


def _legacy(coefficients: list[float], kl: list[float] | None = None) -> Planted:
    """A run of legacy PPO with these coefficients; the KL is per sequence of 20 tokens."""
    run = Planted("ppo-legacy")
    for i, coefficient in enumerate(coefficients):
        run.line({"objective/kl_coef": coefficient, "objective/kl": kl[i] if kl else 2.0})
    return run


RISING = [0.2 * 1.01**i for i in range(15)]
FALLING = [0.2 * 0.99**i for i in range(15)]


class TestCoefficientStuck:
    """A KL coefficient that does not move any more."""

    @pytest.mark.parametrize("values", [[0.2] * 60, [0.2] * 20 + [0.1] * 20 + [0.05] * 20], ids=["fixed", "by hand"])
    def test_one_without_a_controller_is_not_stuck(self, values: list[float]) -> None:
        """It never moved, or now and then."""
        assert set(_legacy(values).signal("kl_coef_stuck")) == {0.0}

    def test_at_its_upper_bound(self) -> None:
        """Counted from the first step that is like the one before; no matter where KL came down to nine tenths."""
        run = _legacy(RISING + RISING[-1:] * 6)
        assert run.signal("kl_coef_stuck")[-7:] == [0, 1, 2, 3, 4, 5, 6]

        run = _legacy(RISING + RISING[-1:] * 10, [4.0] * 15 + [2.0] * 10)
        assert run.signal("kl_coef_stuck")[-1] == 0.0
        assert run.began == {}

    @pytest.mark.parametrize(("kl", "stuck"), [(2.0, 0.0), (5.0, 10.0)])
    def test_at_its_lower_bound(self, kl: float, stuck: float) -> None:
        """Where it matters only if KL has doubled."""
        run = _legacy(FALLING + FALLING[-1:] * 10, [2.0] * 15 + [kl] * 10)
        assert run.signal("kl_coef_stuck")[-1] == stuck


class TestCoefficientLost:
    """A KL coefficient that became 0."""

    def test_one_that_decays_is_not_lost(self) -> None:
        """To a hundredth, as TRL's controller does in a long run whose KL is below its target."""
        run = _legacy([0.2 * 0.98**i for i in range(230)])

        assert ("kl_coef_lost", "warning") not in run.began

    def test_one_that_was_always_0_is_told_once(self) -> None:
        """It has no share of anything."""
        run = _legacy([0.0] * 30)

        assert run.signal("kl_coef_share") == []
        assert run.began == {("kl_coef_off", "info"): 1}

    def test_one_that_begins_at_0_was_not_off(self) -> None:
        """From the step on in which it is not 0."""
        assert _legacy([0.0, 0.0, 0.1, 0.0]).signal("kl_coef_off") == [1.0, 1.0, 0.0, 0.0]
