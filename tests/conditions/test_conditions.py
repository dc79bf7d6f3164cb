"""Every condition on a planted run: silent on healthy steps, and begins in the step in which it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import pytest

from rlexporter.catalog.metrics import NAMED
from rlexporter.catalog.runbooks import runbook
from rlexporter.conditions.table import CONDITION_NAMED, CONDITIONS, SETTLED
from rlexporter.model.metric import Series
from rlexporter.status.history import History
from tests.conditions.planted import HEALTHY, LINES, Line, Planted, wave

Fault = Line | Callable[[int], Line]
"""What differs from a healthy line: in each step of the fault, or in the i-th, from 1."""


@dataclass(frozen=True)
class Plant:
    """``begins``: by condition and severity, the step of the fault in which it begins; ``seen``: tensors, likewise."""

    algorithm: str
    begins: dict[str, int]
    fault: Fault = field(default_factory=dict)
    healthy: int = HEALTHY
    steps: int = 25
    seconds: float = 2.0
    seen: Fault = field(default_factory=dict)
    before: Line = field(default_factory=dict)
    """Tensors of the healthy steps."""


def _at(fault: Fault, i: int) -> Line:
    return fault(i) if callable(fault) else fault


def _once(**changes: Any) -> Fault:
    return lambda i: {key.replace("__", "/"): value for key, value in changes.items()} if i == 1 else {}


RATIOS = [1.0] * 980 + [0.95, 1.05] * 10
SAMPLED = {"rl_advantage_dist": [-1.0, 1.0], "rl_entropy_per_token_dist": [0.9]}
ANSWER_FLAT = {"rewards/answer/mean": 0.0, "rewards/answer/std": 0.0}
CORRELATION = "rl_advantage_reward_correlation"
EXPECTED = {"rl_completion_copied_expected_fraction": [0.1]}
ANSWERS = {"rl_reward_function_dist/answer": [0.0, 1.0]}
CHANGED = {"rl_weight_changed_fraction": [1.0]}
PLANTS = {
    "nan gradient": Plant("grpo", {"nonfinite/critical": 1}, _once(grad_norm=nan)),
    "nan loss": Plant("grpo", {"nonfinite/critical": 1}, _once(loss=nan)),
    "infinite reward": Plant("grpo", {"nonfinite_reward/critical": 1}, _once(reward=inf)),
    "nan kl": Plant("ppo", {"nonfinite/critical": 1}, _once(objective__kl=nan)),
    "nan ratio": Plant("ppo", {"nonfinite/critical": 1}, _once(val__ratio=nan)),
    "nan value loss": Plant("ppo", {"nonfinite_value_loss/critical": 1}, _once(loss__value_avg=nan)),
    "nan policy loss": Plant("ppo", {"nonfinite/critical": 1}, _once(loss__policy_avg=-inf)),
    "nan advantage": Plant("ppo-legacy", {"nonfinite/critical": 1}, _once(ppo__policy__advantages_mean=nan)),
    "nan elsewhere": Plant("grpo", {"nonfinite/critical": 1}, _once(entropy=nan)),
    "nan weight": Plant("grpo", {"nonfinite/critical": 3}, seen=lambda i: {"rl_weight_norm": [nan if i == 3 else 7.0]}),
    "nan reward in an evaluation": Plant(
        "grpo",
        {"nonfinite_eval_reward/warning": 3},
        seen=lambda i: {"rl_eval_reward_function_unfiltered_mean/math/answer": [nan, 1.0]} if i == 3 else {},
    ),
    "rewards all None": Plant(
        "grpo",
        {"reward_lost/critical": 1, "reward_function_lost/critical": 1},
        dict.fromkeys(("reward", "reward_std", "rewards/format/mean", "rewards/answer/mean")),
    ),
    "one reward function None": Plant("grpo", {"reward_function_lost/critical": 1}, {"rewards/answer/mean": None}),
    "gradient 0 while rewards differ": Plant(
        "grpo", {"gradient_dead/warning": 2, "gradient_dead/critical": 3}, {"grad_norm": 0.0}
    ),
    "gradient 0 while half of the groups differ": Plant(
        "grpo",
        {"gradient_dead/warning": 7, "gradient_dead/critical": 16},
        {"grad_norm": 0.0, "frac_reward_zero_std": 0.45},
    ),
    "learning rate 0": Plant("grpo", {"learning_rate_zero/warning": 8}, {"learning_rate": 0.0}),
    "learning rate jumps": Plant("ppo", {"learning_rate_jump/warning": 1}, {"lr": 1e-4}),
    "one gradient spike": Plant("grpo", {"grad_spike/warning": 1}, _once(grad_norm=200.0)),
    "gradients explode": Plant("grpo", {"grad_explosion/critical": 2}, {"grad_norm": 10.0}),
    "ratio 3": Plant("ppo", {"ratio_high/warning": 2}, {"val/ratio": 3.0}),
    "ratio 20 once": Plant("ppo", {"ratio_high/critical": 1}, _once(val__ratio=20.0)),
    "ratio 0.5": Plant("ppo", {"ratio_low/warning": 2}, {"val/ratio": 0.5}),
    "a tail of ratios": Plant(
        "grpo",
        {"ratio_tail/warning": 2, "ratio_tail/critical": 6},
        seen=lambda i: {"rl_policy_ratio_dist": RATIOS + ([0.05] * 300 + [300.0] if i in (6, 7) else [0.05] * 30)},
        before={"rl_policy_ratio_dist": RATIOS},
    ),
    "approxkl 3 once": Plant("ppo", {"approxkl_spike/warning": 1}, _once(policy__approxkl_avg=3.0)),
    "approxkl 0.3": Plant("ppo-legacy", {"approxkl_high/warning": 4}, {"ppo/policy/approxkl": 0.3}),
    "approxkl 2": Plant(
        "ppo-legacy",
        {"approxkl_spike/warning": 1, "approxkl_high/warning": 4, "approxkl_high/critical": 2},
        {"ppo/policy/approxkl": 2.0},
    ),
    "clipping, in four steps of five": Plant(
        "grpo", {"clipfrac_high/warning": 4}, lambda i: {"clip_ratio/region_mean": 0.4 * (i % 5 > 0)}
    ),
    "clipping of sequences": Plant("rloo", {"clipfrac_high/warning": 4}, {"clip_ratio/region_mean": 0.6}),
    "sampler differs much": Plant(
        "grpo",
        {"sampling_ratio_low/warning": 4},
        {"sampling/sampling_logp_difference/mean": 0.7, "sampling/importance_sampling_ratio/mean": 0.1},
    ),
    "another reference": Plant("grpo", {"kl_at_start/info": 1, "kl_at_start/critical": 1}, {"kl": 2.5}, healthy=0),
    "another kernel": Plant("grpo", {"kl_at_start/info": 1}, {"kl": 0.5}, healthy=0),
    "kl high": Plant(
        "grpo", {"kl_high/warning": 4, "kl_jump/warning": 4, "kl_jump/critical": 8}, {"kl": 3.5}, healthy=SETTLED
    ),
    "kl very high, k1": Plant(
        "rloo",
        {"kl_high/warning": 4, "kl_jump/warning": 4, "kl_high/critical": 4, "kl_jump/critical": 8},
        {"kl": 4.5},
        healthy=SETTLED,
    ),
    "kl a sequence": Plant(
        "ppo",
        {"kl_high/warning": 4, "kl_jump/warning": 4, "kl_jump/critical": 8},
        {"objective/kl": 20.0},
        healthy=SETTLED,
    ),
    "kl a sequence, for no reward": Plant(
        "ppo",
        {"kl_high/warning": 4, "kl_jump/warning": 4, "kl_jump/critical": 8},
        {"objective/kl": 40.0},
        healthy=SETTLED,
    ),
    "kl runs away with the reward": Plant(
        "rloo",
        {"reward_hacking/critical": 12, "kl_jump/warning": 9, "kl_high/warning": 13, "kl_jump/critical": 15},
        lambda i: {"kl": 0.1 + 0.111 * i, "reward": 1.2 + 0.03 * i},
        healthy=SETTLED,
    ),
    "kl below 0": Plant("ppo-legacy", {"kl_negative/warning": 2, "kl_negative/critical": 4}, {"objective/kl": -2.0}),
    "coefficient runs away": Plant(
        "ppo-legacy",
        {"kl_coef_runaway/warning": 5, "kl_coef_runaway/critical": 13},
        lambda i: {"objective/kl_coef": 0.2 * 1.3**i},
    ),
    "entropy falls": Plant("grpo", {"entropy_low/warning": 4}, {"entropy": 0.15}),
    "entropy collapses": Plant(
        "ppo", {"entropy_low/warning": 4, "entropy_collapsed/critical": 4}, {"policy/entropy_avg": 0.01}
    ),
    "entropy grows": Plant(
        "ppo-legacy", {"entropy_high/warning": 4, "entropy_exploded/critical": 8}, {"ppo/policy/entropy": 4.0}
    ),
    "the policy collapses": Plant(
        "grpo",
        {"collapsed/critical": 10, "length_low/warning": 4},
        {"entropy": 0.25, "completions/mean_length": 20.0, "frac_reward_zero_std": 0.85, "reward": 1.15},
    ),
    "value loss spikes": Plant("ppo", {"value_loss_spike/warning": 1}, _once(loss__value_avg=5.0)),
    "value loss explodes": Plant("ppo-legacy", {"value_loss_spike/critical": 2}, {"ppo/loss/value": 1.0}),
    "advantages off center": Plant(
        "ppo-legacy", {"advantage_off_centre/warning": 4}, {"ppo/policy/advantages_mean": -0.5}
    ),
    "reward flat": Plant(
        "grpo",
        {"reward_flat/warning": 4, "reward_flat/critical": 6},
        {"reward": 1.15, "reward_std": 0.0, "frac_reward_zero_std": 1.0},
    ),
    "reward solved": Plant(
        "grpo",
        {"solved/info": 8},
        {"reward": 1.6, "reward_std": 0.0, "frac_reward_zero_std": 1.0},
    ),
    "a reward function dies": Plant("grpo", {"reward_function_dead/warning": 8}, ANSWER_FLAT),
    "a reward function gives the middle": Plant(
        "grpo", {"reward_function_dead/warning": 8}, {**ANSWER_FLAT, "rewards/answer/mean": 0.55}
    ),
    "one reward far off": Plant(
        "grpo",
        {"reward_outlier/warning": 1},
        seen=lambda i: {"rl_reward_function_dist/answer": [0.0, 40.0 if i == 1 else 1.0]},
        before={"rl_reward_function_dist/answer": [0.0, 1.0]},
    ),
    "advantages all 0": Plant(
        "rloo",
        {"advantage_dead/warning": 1, "advantage_dead/critical": 2},
        seen={"rl_advantage_dist": [0.0, 0.0], "rl_reward_group_range_dist": [0.0, 0.5]},
        before={"rl_advantage_dist": [-0.25, 0.25], "rl_reward_group_range_dist": [0.0, 0.5]},
    ),
    "advantages permuted": Plant(
        "grpo", {"advantage_wrong/warning": 2}, seen={CORRELATION: [0.1]}, before={CORRELATION: [1.0]}
    ),
    "advantages of the wrong sign": Plant(
        "rloo",
        {"advantage_wrong/warning": 2, "advantage_wrong/critical": 4},
        seen={CORRELATION: [-1.0]},
        before={CORRELATION: [1.0]},
    ),
    "a loss mask of other tokens": Plant(
        "grpo",
        {"loss_mask_wrong/warning": 2, "loss_mask_wrong/critical": 2},
        seen={"rl_loss_mask_wrong_fraction": [1.0]},
        before={"rl_loss_mask_wrong_fraction": [0.0]},
    ),
    "stale log-probabilities": Plant(
        "grpo",
        {"old_logprobs_stale/warning": 2},
        seen={"rl_first_use_log_ratio": [0.03]},
        before={"rl_first_use_log_ratio": [0.0]},
    ),
    "the reference moves": Plant(
        "grpo",
        {"reference_moved/warning": 1},
        seen={"rl_ref_weight_changed_fraction": [1.0]},
        before={"rl_ref_weight_changed_fraction": [0.0]},
    ),
    "the same prompts": Plant(
        "grpo",
        {"prompts_stuck/warning": 4},
        seen={"rl_prompts_repeated_fraction": [1.0]},
        before={"rl_prompts_repeated_fraction": [0.1]},
    ),
    "prompts without content": Plant(
        "grpo",
        {"prompts_short/warning": 2},
        seen={"rl_prompt_length_dist": [20.0]},
        before={"rl_prompt_length_dist": [100.0]},
    ),
    "another chat template": Plant(
        "grpo",
        {"prompt_end_changed/warning": 2},
        seen={"rl_prompt_end_changed_fraction": [1.0]},
        before={"rl_prompt_end_changed_fraction": [0.0]},
    ),
    "a layer is frozen": Plant(
        "grpo", {"weight_norm_jump/warning": 1}, seen={"rl_weight_norm": [16.0]}, before={"rl_weight_norm": [19.0]}
    ),
    "another checkpoint is loaded": Plant(
        "grpo",
        {"weights_moved/warning": 1},
        seen=lambda i: {**CHANGED, "rl_weight_update_size": [1e-3 if i == 1 else 1e-5]},
        before={**CHANGED, "rl_weight_update_size": [1e-5]},
    ),
    "the optimizer forgets": Plant(
        "grpo",
        {"optimizer_restarted/warning": 31},
        seen=lambda i: {"rl_optimizer_updates": [4.0 * (i if i < 31 else i - 30)]},
        healthy=0,
        steps=40,
    ),
    "a part of the model is cut off from the loss": Plant(
        "grpo",
        {"gradients_lost/warning": 2},
        seen={"rl_gradient_zero_fraction": [0.25]},
        before={"rl_gradient_zero_fraction": [0.0]},
    ),
    "experts without a token, as many as ever": Plant(
        "grpo",
        {},
        seen=lambda i: {"rl_gradient_zero_fraction": [0.2 if i % 3 else 0.4]},
        before={"rl_gradient_zero_fraction": [0.3]},
    ),
    "weights stay": Plant(
        "grpo",
        {"weights_frozen/warning": 2, "weights_frozen/critical": 8},
        seen={"rl_weight_changed_fraction": [0.0], "rl_grad_norm_dist": [1.0]},
        before={"rl_weight_changed_fraction": [1.0], "rl_grad_norm_dist": [1.0]},
    ),
    "the optimizer loses a layer": Plant(
        "ppo",
        {"optimizer_incomplete/warning": 2},
        seen={"rl_optimizer_missing_fraction": [0.25]},
        before={"rl_optimizer_missing_fraction": [0.0]},
    ),
    "the optimizer has nothing": Plant(
        "grpo",
        {"optimizer_incomplete/warning": 2, "optimizer_incomplete/critical": 2},
        {"learning_rate": 1e-5},
        seen={"rl_optimizer_missing_fraction": [1.0], "rl_weight_changed_fraction": [0.0]},
        healthy=0,
    ),
    "an optimizer with copies": Plant(
        "grpo",
        {},
        {"learning_rate": 1e-5},
        seen={"rl_optimizer_missing_fraction": [1.0], "rl_weight_changed_fraction": [0.9]},
        healthy=0,
    ),
    "weights that are rounded": Plant(
        "grpo", {"weights_barely_change/info": 4}, seen={"rl_weight_changed_fraction": [0.001]}, healthy=0
    ),
    "one completion for the whole group": Plant(
        "grpo",
        {"completions_copied/warning": 2},
        seen={**EXPECTED, "rl_completion_copied_fraction": [1.0]},
        before={**EXPECTED, "rl_completion_copied_fraction": [0.1]},
    ),
    "a policy with one answer": Plant(
        "rloo",
        {},
        seen={"rl_completion_copied_expected_fraction": [0.9], "rl_completion_copied_fraction": [1.0]},
        before={**EXPECTED, "rl_completion_copied_fraction": [0.1]},
    ),
    "a reward function reads the prompt": Plant(
        "grpo",
        {"reward_function_blind/warning": 3},
        seen={**ANSWERS, "rl_reward_function_flat_fraction/answer": [1.0, 1.0]},
        before={**ANSWERS, "rl_reward_function_flat_fraction/answer": [0.0, 0.5]},
    ),
    "a policy that becomes certain": Plant(
        "grpo",
        {},
        seen={**ANSWERS, "rl_reward_function_flat_fraction/answer": [1.0, 1.0]},
        before={**ANSWERS, "rl_reward_function_flat_fraction/answer": [0.0, 1.0, 1.0, 1.0]},
    ),
    "a reward is 0 for every fifth completion": Plant(
        "ppo-legacy",
        {"reward_zeroed/warning": 2},
        seen={"rl_reward_zero_fraction": [1.0, 0.0, 0.0, 0.0, 0.0], "rl_reward_dist": [0.0, 1.0]},
        before={"rl_reward_zero_fraction": [0.0], "rl_reward_dist": [0.5, 1.0]},
    ),
    "a penalty of 0 is no fault": Plant(
        "grpo",
        {},
        seen={"rl_reward_zero_fraction": [1.0, 0.0], "rl_reward_dist": [-1.0, 0.0]},
        before={"rl_reward_zero_fraction": [0.0], "rl_reward_dist": [-1.0, -0.5]},
    ),
    "the sign of all rewards": Plant(
        "grpo",
        {"reward_below_range/warning": 2},
        seen={"rl_reward_dist": [-1.0, -1.5, -2.0, -1.5]},
        before={"rl_reward_dist": [1.0, 1.5, 2.0, 1.5]},
    ),
    "a reward weight becomes 0": Plant(
        "grpo",
        {"reward_weight_lost/info": 1},
        seen={"rl_reward_function_weight/answer": [0.0]},
        before={"rl_reward_function_weight/answer": [1.0]},
    ),
    "a reward weight that came late becomes 0": Plant(
        "grpo",
        {"reward_weight_lost/info": 6},
        seen=lambda i: {"rl_reward_function_weight/answer": [float(i <= 5)]},
        before={"rl_reward_function_weight/answer": [0.0]},
    ),
    "a curriculum that makes the reward another one": Plant(
        "grpo",
        {},
        {"reward": 50.0, "reward_std": 12.0},
        seen=lambda i: {"rl_reward_function_weight/answer": [20.0]},
        before={"rl_reward_function_weight/answer": [1.0]},
    ),
    "another checkpoint is the reference": Plant(
        "grpo", {"reference_differs/info": 1}, seen=lambda i: {"rl_kl_per_token_dist": [0.04]}, healthy=0
    ),
    "a greedy sampler": Plant(
        "ppo",
        {"sampler_differs/warning": 1},
        seen={**SAMPLED, "rl_logprob_dist": [-0.5, -0.5]},
        before={**SAMPLED, "rl_logprob_dist": [-1.0, -0.8]},
    ),
    "the KL coefficient is lost": Plant(
        "ppo", {"kl_coef_lost/warning": 1}, seen={"rl_kl_coef": [0.0]}, before={"rl_kl_coef": [0.05]}
    ),
    "the KL penalty pays": Plant(
        "grpo",
        {"kl_coef_lost/warning": 1, "kl_coef_lost/critical": 1},
        seen={"rl_kl_coef": [-0.04]},
        before={"rl_kl_coef": [0.04]},
    ),
    "the KL penalty pays from the start": Plant(
        "rloo", {"kl_coef_lost/warning": 1, "kl_coef_lost/critical": 1}, healthy=0, seen={"rl_kl_coef": [-0.04]}
    ),
    "the KL coefficient is at its bound": Plant(
        "ppo-legacy",
        {"kl_coef_stuck/warning": 20},
        lambda i: {"objective/kl_coef": 0.2 * 1.01 ** min(i, 15)},
        healthy=0,
    ),
    "whitening leaves nothing": Plant(
        "ppo",
        {"advantage_flat/warning": 1, "advantage_flat/critical": 2},
        seen={"rl_advantage_dist": [0.0, 0.001]},
        before={"rl_advantage_dist": [-1.0, 1.0]},
    ),
    "sampler and trainer part": Plant(
        "ppo",
        {"sampling_jump/warning": 2},
        seen={"rl_sampling_logp_difference_mean": [0.08]},
        before={"rl_sampling_logp_difference_mean": [0.01]},
    ),
    "dropout in the reference of PPO": Plant(
        "ppo", {"reference_dropout/warning": 1}, seen={"rl_ref_dropout": [0.1]}, before={"rl_ref_dropout": [0.0]}
    ),
    "a reference with dropout": Plant(
        "grpo",
        {"reference_noisy/warning": 2},
        seen={"rl_ref_logprob_noise": [0.1]},
        before={"rl_ref_logprob_noise": [0.0]},
    ),
    "reward falls": Plant(
        "ppo",
        {"reward_drop/warning": 8, "reward_drop/critical": 8},
        lambda i: {"objective/scores": 0.3 + 0.02 * wave(i)},
    ),
    "reward falls somewhat": Plant(
        "ppo", {"reward_drop/warning": 14}, lambda i: {"objective/scores": 1.05 + 0.05 * wave(i)}
    ),
    "reward does not rise": Plant(
        "grpo",
        {"reward_plateau/warning": 177},  # 169 rewards are too few, and 8 have to say the same
        lambda i: {"reward": 1.0 + 0.05 * (i % 3 - 1)},
        healthy=0,
        steps=200,
    ),
    "reward rose once and falls back, which is no plateau": Plant(
        "grpo",
        {"reward_drop/warning": 138, "reward_drop/critical": 138},
        lambda i: {"reward": (2.0 if 60 < i <= 130 else 1.0) + 0.05 * wave(i - 1)},
        healthy=0,
        steps=260,
    ),
    "policy frozen": Plant("grpo", {"policy_frozen/warning": 8}, {"kl": 0.0}),
    "truncation": Plant("grpo", {"truncation/warning": 8}, {"completions/clipped_ratio": 0.4}),
    "all truncated": Plant(
        "grpo",
        {"truncation/warning": 8, "truncation/critical": 8},
        {"completions/clipped_ratio": 1.0},
    ),
    "no end token": Plant("ppo", {"eos_missing/warning": 2, "eos_missing/critical": 4}, {"val/num_eos_tokens": 3}),
    "answers shrink": Plant("grpo", {"length_low/warning": 4}, {"completions/mean_length": 15.0}),
    "answers vanish": Plant(
        "grpo", {"length_low/warning": 4, "length_low/critical": 4}, {"completions/mean_length": 5.0}
    ),
    "answers grow": Plant("grpo", {"length_high/warning": 4}, {"completions/mean_length": 500.0}),
    "answers alike": Plant("ppo-legacy", {"same_length/warning": 8}, {"tokens/responses_len_std": 0.0}),
    "steps five times slower": Plant("grpo", {"step_slow/warning": 8}, seconds=10.0),
    "one step takes ten minutes": Plant("grpo", {"step_stalled/warning": 1}, seconds=600.0, steps=1),
}


def _assert_drawn(run: Planted, history: History) -> None:
    """The number with which a condition begins is served in that step, beyond its limit, and is a point of a curve."""
    for (name, _), (step, begun) in run.watch.first.items():
        if step != run.step:
            continue
        if CONDITION_NAMED[name].finding:  # it has no number
            assert run.value("rl_threshold", name) is None
            continue
        signal = CONDITION_NAMED[name].signal
        assert run.snapshot.value("rl_signal", signal=signal) == begun.value
        assert history.curve(Series(NAMED["rl_signal"], (signal,)))[-1] == (step, begun.value)
        assert (begun.value < begun.threshold) is begun.condition.below


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
def test_a_planted_fault_is_named(plant: Plant) -> None:
    """What should begin begins in the right step, and nothing else does, nor anything before the fault."""
    run, history = Planted(plant.algorithm), History()
    for _ in range(plant.healthy):
        run.line({}, seen=plant.before or None)
    assert run.began == {}
    for i in range(1, plant.steps + 1):
        run.line(_at(plant.fault, i), seconds=plant.seconds, seen=_at(plant.seen, i) or None)
        history.see(run.snapshot)
        _assert_drawn(run, history)
    begins = {f"{condition}/{severity}": step - plant.healthy for (condition, severity), step in run.began.items()}

    assert begins == plant.begins


def test_every_limit_is_planted() -> None:
    """No condition that was never seen to fire: a rule that cannot fire is the worst failure of monitoring."""
    planted = {each for plant in PLANTS.values() for each in plant.begins}
    declared = {f"{condition.name}/{limit.severity.value}" for condition in CONDITIONS for limit in condition.limits}

    assert planted == declared


def test_a_healthy_run_raises_nothing() -> None:
    """For 300 steps of each algorithm."""
    assert [algorithm for algorithm in LINES if Planted(algorithm).healthy(300).began] == []


def test_the_text_of_a_plateau_says_after_how_many_rewards_it_is_judged() -> None:
    """As many as `reward does not rise` above needs, but for the 8 that have to say the same."""
    assert PLANTS["reward does not rise"].begins == {"reward_plateau/warning": 170 + 8 - 1}
    assert runbook("RLRewardPlateau").meaning["reward_plateau"].startswith("In 170 rewards or more, ")


ENTROPY = {"grpo": "entropy", "ppo": "policy/entropy_avg", "ppo-legacy": "ppo/policy/entropy"}
NORMAL = [
    *(("ppo", "val/ratio_var"), ("ppo-legacy", "ppo/val/var_explained"), ("grpo", "vespo/phi_seq_mean")),
    *(("grpo", "clip_ratio"), ("grpo", "cispo_clip_ratio"), ("grpo", "clip_ratio/region_mean")),
    *(("grpo", f"clip_ratio/{side}") for side in ("low_mean", "low_min", "high_mean", "high_max")),
]


@pytest.mark.parametrize(("algorithm", "key"), NORMAL)
def test_a_metric_says_whether_nan_is_normal_in_it(algorithm: str, key: str) -> None:
    """It is counted, and raises nothing; for any other metric it is critical."""
    run = Planted(algorithm).healthy(10)
    run.line({key: nan})
    counted = [value for series, value in run.snapshot.samples.items() if "nan" in series.labels and value]

    assert counted == [1.0]
    assert run.began == {}
    run.line({ENTROPY[algorithm]: nan})
    assert run.began == {("nonfinite", "critical"): 12}
