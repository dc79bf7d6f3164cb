"""Every condition on a planted run: silent on healthy steps, and begins in the step in which it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import pytest

from rlexporter.catalog import CONDITION_NAMED, CONDITIONS, SETTLED
from tests.conditions.planted import HEALTHY, LINES, Line, Planted, wave

Fault = Callable[[int], Line]
"""What differs from a healthy line in the i-th step of the fault, from 1."""


@dataclass(frozen=True)
class Plant:
    """``begins``: by condition and severity, the step of the fault in which it begins."""

    algorithm: str
    fault: Fault
    begins: dict[str, int]
    healthy: int = HEALTHY
    steps: int = 25
    seconds: float = 2.0
    seen: Callable[[int], dict[str, Any]] | None = None
    before: dict[str, Any] = field(default_factory=dict)


def _always(**changes: Any) -> Fault:
    return lambda i: {key.replace("__", "/"): value for key, value in changes.items()}


def _once(**changes: Any) -> Fault:
    return lambda i: {key.replace("__", "/"): value for key, value in changes.items()} if i == 1 else {}


RATIOS = [1.0] * 980 + [0.95, 1.05] * 10
SAMPLED = {"rl_advantage_dist": [-1.0, 1.0], "rl_entropy_per_token_dist": [0.9]}
PLANTS = {
    "nan gradient": Plant("grpo", _once(grad_norm=nan), {"nonfinite_grad/critical": 1}),
    "nan loss": Plant("grpo", _once(loss=nan), {"nonfinite_loss/critical": 1}),
    "infinite reward": Plant("grpo", _once(reward=inf), {"nonfinite_reward/critical": 1}),
    "nan kl": Plant("ppo", _once(objective__kl=nan), {"nonfinite_kl/critical": 1}),
    "nan ratio": Plant("ppo", _once(val__ratio=nan), {"nonfinite_ratio/critical": 1}),
    "nan value loss": Plant("ppo", _once(loss__value_avg=nan), {"nonfinite_value_loss/critical": 1}),
    "nan policy loss": Plant("ppo", _once(loss__policy_avg=-inf), {"nonfinite_policy_loss/critical": 1}),
    "nan advantage": Plant("ppo-legacy", _once(ppo__policy__advantages_mean=nan), {"nonfinite_advantage/critical": 1}),
    "nan elsewhere": Plant("grpo", _once(entropy=nan), {"nonfinite_other/critical": 1}),
    "nan weight": Plant(
        "grpo",
        _always(),
        {"nonfinite_weights/critical": 3},
        seen=lambda i: {"rl_weight_norm": [nan if i == 3 else 7.0]},
    ),
    "rewards all None": Plant(
        "grpo",
        _always(reward=None, reward_std=None, rewards__format__mean=None, rewards__answer__mean=None),
        {"reward_lost/critical": 1, "reward_function_lost/critical": 1},
    ),
    "one reward function None": Plant(
        "grpo", _always(rewards__answer__mean=None), {"reward_function_lost/critical": 1}
    ),
    "gradient 0 while rewards differ": Plant(
        "grpo", _always(grad_norm=0.0), {"gradient_dead/warning": 3, "gradient_dead/critical": 3}
    ),
    "gradient 0 while half of the groups differ": Plant(
        "grpo",
        _always(grad_norm=0.0, frac_reward_zero_std=0.45),
        {"gradient_dead/warning": 8, "gradient_dead/critical": 16},
    ),
    "learning rate 0": Plant("grpo", _always(learning_rate=0.0), {"learning_rate_zero/warning": 10}),
    "learning rate jumps": Plant("ppo", _always(lr=1e-4), {"learning_rate_jump/warning": 1}),
    "one gradient spike": Plant("grpo", _once(grad_norm=100.0), {"grad_spike/warning": 1}),
    "gradients explode": Plant(
        "grpo", lambda i: {"grad_norm": 10.0}, {"grad_explosion/critical": 3, "grad_growth/warning": 15}
    ),
    "ratio 3": Plant("ppo", _always(val__ratio=3.0), {"ratio_high/warning": 2}),
    "ratio 20 once": Plant("ppo", _once(val__ratio=20.0), {"ratio_high/critical": 1}),
    "ratio 0.5": Plant("ppo", _always(val__ratio=0.5), {"ratio_low/warning": 2}),
    "a tail of ratios": Plant(
        "grpo",
        _always(),
        {"ratio_tail/warning": 2, "ratio_tail/critical": 6, "ratio_extreme/warning": 7},
        seen=lambda i: {"rl_policy_ratio_dist": RATIOS + ([0.05] * 300 + [300.0] if i in (6, 7) else [0.05] * 30)},
        before={"rl_policy_ratio_dist": RATIOS},
    ),
    "approxkl 3 once": Plant("ppo", _once(policy__approxkl_avg=3.0), {"approxkl_spike/warning": 1}),
    "approxkl 0.3": Plant("ppo-legacy", _always(ppo__policy__approxkl=0.3), {"approxkl_high/warning": 3}),
    "approxkl 2": Plant(
        "ppo-legacy",
        _always(ppo__policy__approxkl=2.0),
        {"approxkl_spike/warning": 1, "approxkl_high/warning": 3, "approxkl_high/critical": 3},
    ),
    "clipping, every other step": Plant(
        "grpo", lambda i: {"clip_ratio/region_mean": 0.4 * (i % 2)}, {"clipfrac_high/warning": 9}
    ),
    "clipping of sequences": Plant("rloo", _always(**{"clip_ratio/region_mean": 0.6}), {"clipfrac_high/warning": 5}),
    "sampler differs": Plant(
        "grpo",
        _always(**{"sampling/sampling_logp_difference/mean": 0.2}),
        {"sampling_mismatch/warning": 5},
    ),
    "sampler differs much": Plant(
        "grpo",
        _always(
            **{"sampling/sampling_logp_difference/mean": 0.7, "sampling/importance_sampling_ratio/mean": 0.1},
        ),
        {"sampling_mismatch/warning": 5, "sampling_mismatch/critical": 5, "sampling_ratio_low/warning": 5},
    ),
    "another reference": Plant("grpo", _always(kl=2.5), {"kl_at_start/info": 1, "kl_at_start/critical": 1}, healthy=0),
    "another kernel": Plant("grpo", _always(kl=0.5), {"kl_at_start/info": 1}, healthy=0),
    "kl high": Plant("grpo", _always(kl=3.5), {"kl_high/warning": 3, "kl_jump/warning": 4}, healthy=SETTLED),
    "kl very high, k1": Plant(
        "rloo",
        _always(kl=4.5),
        {"kl_high/warning": 3, "kl_jump/warning": 4, "kl_high/critical": 6},
        healthy=SETTLED,
    ),
    "kl a sequence": Plant(
        "ppo",
        _always(objective__kl=20.0),
        {"kl_high/warning": 3, "kl_jump/warning": 4},
        healthy=SETTLED,
    ),
    "kl runs away with the reward": Plant(
        "rloo",
        lambda i: {"kl": 0.1 + 0.1 * i, "reward": 1.2 + 0.03 * i},
        {"kl_jump/warning": 8, "reward_hacking/critical": 12, "kl_high/warning": 13},
        healthy=SETTLED,
    ),
    "reference disagrees ever more": Plant(
        "grpo",
        _always(),
        {"logprob_shift/warning": 5},
        seen=lambda i: {"rl_ref_logprob_dist": [-5.0, -4.5]},
        before={"rl_ref_logprob_dist": [-1.0, -0.5]},
    ),
    "kl below 0": Plant(
        "ppo-legacy", _always(objective__kl=-2.0), {"kl_negative/warning": 2, "kl_negative/critical": 5}
    ),
    "coefficient runs away": Plant(
        "ppo-legacy",
        lambda i: {"objective/kl_coef": 0.2 * 1.3**i},
        {"kl_coef_runaway/warning": 5, "kl_coef_runaway/critical": 13},
    ),
    "entropy falls": Plant("grpo", _always(entropy=0.15), {"entropy_low/warning": 3}),
    "entropy collapses": Plant(
        "ppo", _always(policy__entropy_avg=0.01), {"entropy_low/warning": 3, "entropy_collapsed/critical": 5}
    ),
    "entropy grows": Plant("ppo-legacy", _always(ppo__policy__entropy=4.0), {"entropy_high/warning": 5}),
    "value loss spikes": Plant("ppo", _once(loss__value_avg=5.0), {"value_loss_spike/warning": 1}),
    "value loss explodes": Plant("ppo-legacy", _always(ppo__loss__value=1.0), {"value_loss_spike/critical": 3}),
    "critic clipped": Plant("ppo", _always(val__clipfrac_avg=0.7), {"value_clipfrac_high/warning": 15}),
    "critic explains less": Plant(
        "ppo-legacy", _always(ppo__val__var_explained=-9.0), {"explained_variance_fall/info": 8}
    ),
    "advantages off centre": Plant(
        "ppo-legacy", _always(ppo__policy__advantages_mean=-0.5), {"advantage_off_centre/warning": 5}
    ),
    "reward flat": Plant(
        "grpo",
        _always(reward=1.15, reward_std=0.0, frac_reward_zero_std=1.0),
        {"reward_flat/warning": 4, "zero_variance_groups/info": 8, "reward_flat/critical": 6},
    ),
    "reward solved": Plant(
        "grpo",
        _always(reward=1.6, reward_std=0.0, frac_reward_zero_std=1.0),
        {"solved/info": 8, "zero_variance_groups/info": 8},
    ),
    "half of the groups flat": Plant("grpo", _always(frac_reward_zero_std=0.6), {"zero_variance_groups/info": 8}),
    "a reward function dies": Plant(
        "grpo", _always(rewards__answer__mean=0.0, rewards__answer__std=0.0), {"reward_function_dead/warning": 8}
    ),
    "a reward function gives the middle": Plant(
        "grpo", _always(rewards__answer__mean=0.55, rewards__answer__std=0.0), {"reward_function_dead/warning": 8}
    ),
    "one reward far off": Plant(
        "grpo",
        _always(),
        {"reward_outlier/warning": 1},
        seen=lambda i: {"rl_reward_function_dist/answer": [0.0, 40.0] if i == 1 else [0.0, 1.0]},
        before={"rl_reward_function_dist/answer": [0.0, 1.0]},
    ),
    "advantages all 0": Plant(
        "rloo",
        _always(),
        {"advantage_dead/warning": 1, "advantage_dead/critical": 3},
        seen=lambda i: {"rl_advantage_dist": [0.0, 0.0], "rl_reward_group_range_dist": [0.0, 0.5]},
        before={"rl_advantage_dist": [-0.25, 0.25], "rl_reward_group_range_dist": [0.0, 0.5]},
    ),
    "weights stay": Plant(
        "grpo",
        _always(),
        {"weights_frozen/warning": 3, "weights_frozen/critical": 8},
        seen=lambda i: {"rl_weight_changed_fraction": [0.0], "rl_grad_norm_dist": [1.0]},
        before={"rl_weight_changed_fraction": [1.0], "rl_grad_norm_dist": [1.0]},
    ),
    "a greedy sampler": Plant(
        "ppo",
        _always(),
        {"sampler_differs/warning": 10},
        seen=lambda i: {**SAMPLED, "rl_logprob_dist": [-0.5, -0.5]},
        before={**SAMPLED, "rl_logprob_dist": [-1.0, -0.8]},
    ),
    "no KL penalty from the start": Plant(
        "ppo",
        _always(),
        {"kl_coef_off/info": 1},
        healthy=0,
        seen=lambda i: {"rl_kl_coef": [0.0]},
    ),
    "the KL coefficient is lost": Plant(
        "ppo",
        _always(),
        {"kl_coef_lost/warning": 1},
        seen=lambda i: {"rl_kl_coef": [0.0]},
        before={"rl_kl_coef": [0.05]},
    ),
    "the KL coefficient is at its bound": Plant(
        "ppo-legacy",
        lambda i: {"objective/kl_coef": 0.2 * 1.01 ** min(i, 15)},
        {"kl_coef_stuck/warning": 20},
        healthy=0,
    ),
    "whitening leaves nothing": Plant(
        "ppo",
        _always(),
        {"advantage_flat/warning": 1, "advantage_flat/critical": 3},
        seen=lambda i: {"rl_advantage_dist": [0.0, 0.001]},
        before={"rl_advantage_dist": [-1.0, 1.0]},
    ),
    "sampler and trainer part": Plant(
        "ppo",
        _always(),
        {"sampling_jump/warning": 2},
        seen=lambda i: {"rl_sampling_logp_difference_mean": [0.08]},
        before={"rl_sampling_logp_difference_mean": [0.01]},
    ),
    "dropout in the reference of PPO": Plant(
        "ppo",
        _always(),
        {"reference_dropout/warning": 1},
        seen=lambda i: {"rl_ref_dropout": [0.1]},
        before={"rl_ref_dropout": [0.0]},
    ),
    "a reference with dropout": Plant(
        "grpo",
        _always(),
        {"reference_noisy/warning": 3},
        seen=lambda i: {"rl_ref_logprob_noise": [0.1]},
        before={"rl_ref_logprob_noise": [0.0]},
    ),
    "a reward function that never spoke": Plant(
        "grpo",
        _always(rewards__answer__mean=0.0, rewards__answer__std=0.0),
        {"reward_function_silent/info": 50},
        healthy=0,
        steps=60,
    ),
    "reward spread explodes": Plant("grpo", _always(reward_std=5.0), {"reward_std_high/warning": 3}),
    "reward jumps": Plant("grpo", _always(reward=50.0), {"reward_jump/warning": 2}),
    "reward falls": Plant(
        "ppo",
        lambda i: {"objective/scores": 0.3 + 0.02 * wave(i)},
        {"reward_drop/warning": 8, "reward_drop/critical": 8},
    ),
    "reward falls somewhat": Plant(
        "ppo", lambda i: {"objective/scores": 1.05 + 0.05 * wave(i)}, {"reward_drop/warning": 14}
    ),
    "reward does not rise": Plant(
        "grpo",
        lambda i: {"reward": 1.0 + 0.05 * (i % 3 - 1)},
        {"reward_plateau/warning": 189},
        healthy=0,
        steps=200,
    ),
    "policy frozen": Plant("grpo", _always(kl=0.0), {"policy_frozen/warning": 10}),
    "truncation": Plant(
        "grpo", _always(**{"completions/clipped_ratio": 0.4}), {"truncation/warning": 8, "truncation_usual/info": 8}
    ),
    "truncated from the start": Plant(
        "grpo", _always(**{"completions/clipped_ratio": 1.0}), {"truncation_usual/info": 8}, healthy=0
    ),
    "all truncated": Plant(
        "grpo",
        _always(**{"completions/clipped_ratio": 1.0}),
        {"truncation/warning": 8, "truncation/critical": 8, "truncation_usual/info": 8},
    ),
    "no end token": Plant(
        "ppo", _always(**{"val/num_eos_tokens": 3}), {"eos_missing/warning": 3, "eos_missing/critical": 5}
    ),
    "answers shrink": Plant("grpo", _always(**{"completions/mean_length": 10.0}), {"length_low/warning": 5}),
    "answers grow": Plant("grpo", _always(**{"completions/mean_length": 400.0}), {"length_high/warning": 5}),
    "answers alike": Plant("ppo-legacy", _always(**{"tokens/responses_len_std": 0.0}), {"same_length/warning": 5}),
    "a key goes": Plant("grpo", _always(entropy=...), {"keys_gone/warning": 16}),
    "steps five times slower": Plant("grpo", _always(), {"step_slow/warning": 8}, seconds=10.0),
    "one step takes ten minutes": Plant("grpo", _always(), {"step_stalled/warning": 1}, seconds=600.0, steps=1),
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
def test_a_planted_fault_is_named(plant: Plant) -> None:
    """What should begin begins in the right step, and nothing else does, nor anything before the fault."""
    run = Planted(plant.algorithm)
    for _ in range(plant.healthy):
        run.line({}, seen=plant.before or ({} if plant.seen else None))
    assert run.began == {}
    for i in range(1, plant.steps + 1):
        run.line(plant.fault(i), seconds=plant.seconds, seen=plant.seen(i) if plant.seen else None)
    begins = {f"{condition}/{severity}": step - plant.healthy for (condition, severity), step in run.began.items()}

    assert begins == plant.begins


def test_every_limit_is_planted() -> None:
    """No condition that was never seen to fire: a rule that cannot fire is the worst failure of monitoring."""
    planted = {each for plant in PLANTS.values() for each in plant.begins}
    declared = {f"{condition.name}/{limit.severity.value}" for condition in CONDITIONS for limit in condition.limits}

    assert planted == declared


@pytest.mark.parametrize("algorithm", LINES)
def test_a_healthy_run_raises_nothing(algorithm: str) -> None:
    """For 300 steps."""
    assert Planted(algorithm).healthy(300).began == {}


def test_a_plateau_is_judged_after_as_many_rewards_as_its_text_says() -> None:
    """Of a reward that never rises, the first 169 are too few, and 20 in a row have to say the same."""
    run = Planted("grpo")
    for _ in range(200):
        run.line({"reward": 1.0 + 0.05 * wave(run.step)})

    assert run.began["reward_plateau", "warning"] == 189
    assert CONDITION_NAMED["reward_plateau"].meaning.startswith("After 170 rewards or more ")


def test_a_reward_that_rose_once_is_no_plateau() -> None:
    """Where it falls back later, that is a fall."""
    run = Planted("grpo")
    for step in range(260):
        run.line({"reward": (2.0 if 60 <= step < 130 else 1.0) + 0.05 * wave(step)})

    assert ("reward_plateau", "warning") not in run.began
    assert run.began["reward_drop", "critical"] == 138


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
    assert run.began == {("nonfinite_other", "critical"): 12}
