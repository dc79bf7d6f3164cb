"""Healthy logs of large runs, among them such as look odd from the start, or for a while, and are not."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.large.curves import Curve, Every, around, level, minus, now_and_then, one_less, one_plus, share, still
from tests.large.frameworks import INDEPENDENT, RUNS, Changes
from tests.large.logs import agents


@dataclass(frozen=True)
class Twin:
    """A healthy log. ``own``: what its keys hold where that is not usual; ``scale``: of all noise."""

    framework: str
    name: str = "as usual"
    own: Changes = field(default_factory=dict)
    scale: float = 1.0

    @property
    def id(self) -> str:
        """The name of its test."""
        return f"{self.framework}: {self.name}"


_MOE = "routing differs in the sampler"
_OLD = "samples are 4 updates old"
_FEW = "3 % of 64 rollouts fail"
_LEVELLED = Every(10, share(0.25, 100, to=0.45, until=80))
_EVALUATED = "100 problems are evaluated"
_FEWER = "30 problems are evaluated"
_CHANCE = Every(10, share(0.35, 30, to=0.45))
_SPIKE, _AT = "a spike in one step", 100
_WARM_UP, _WARM = "a warm-up of 3 steps", 3
_WAITS = "waiting from the start"
_STALENESS = "training/off_policy/trajectory_staleness"
_IS = "rollout_corr/rollout_is"


def _warm(first: Curve, curve: Curve) -> Curve:
    """Another curve in the first steps."""
    return now_and_then(lambda step: step <= _WARM, first, curve)


def _spiking(spike: Curve, curve: Curve) -> Curve:
    """Another curve in one step."""
    return now_and_then(lambda step: step == _AT, spike, curve)


def _evaluating(longer: Curve, curve: Curve) -> Curve:
    """Another curve in the steps after evaluations, which keep the sampler busy."""
    return now_and_then(lambda step: step % 10 == 1, longer, curve)


USUAL = (
    *(Twin(framework) for framework in RUNS),
    *(Twin(framework, "twice the noise", scale=2.0) for framework in RUNS),
)

ODD = (
    Twin(
        "verl",
        _MOE,
        {
            "training/rollout_probs_diff_mean": level(0.03, 0.12, wander=0.05),
            "training/rollout_actor_probs_pearson_corr": one_less(level(0.04, 0.12, wander=0.05)),
            "rollout_corr/kl": around(0.015, 0.003),
            "rollout_corr/k3_kl": level(0.02, 0.2, wander=0.05),
            "rollout_corr/chi2_token": level(0.06, 0.25),
            f"{_IS}_std": level(0.25, 0.15),
            f"{_IS}_eff_sample_size": level(0.6, 0.05, most=1.0),
        },
    ),
    Twin("prime-rl", _MOE, {"mismatch_kl/all/mean": level(0.02, 0.2, wander=0.05)}),
    Twin(
        "nemo-rl",
        _MOE,
        {
            "train/token_mult_prob_error": one_plus(level(0.08, 0.15, wander=0.05)),
            "train/gen_kl_error": level(0.02, 0.2, wander=0.05),
            "train/policy_kl_error": level(0.02, 0.2, wander=0.05),
        },
    ),
    Twin("slime", _MOE, {"train/train_rollout_logprob_abs_diff": level(0.05, 0.06, wander=0.04)}),
    Twin(
        "miles",
        _MOE,
        {
            "train/train_rollout_logprob_abs_diff": level(0.05, 0.06, wander=0.04),
            "train/train_rollout_kl": level(0.02, 0.2, wander=0.05),
            "train/ess_ratio": level(0.6, 0.05, most=1.0),
        },
    ),
    Twin("openrlhf", _MOE, {"train/vllm_kl": around(0.015, 0.003)}),
    Twin("verl-v1", _OLD, {f"{_STALENESS}/mean": level(4.0, 0.1, most=8.0), f"{_STALENESS}/max": still(8.0)}),
    Twin("prime-rl", _OLD, {"off_policy/mean": level(4.0, 0.1, most=8.0), "off_policy/max": still(8.0)}),
    Twin("prime-rl", _FEW, {"train/agg/all/has_error/mean": share(0.03, 64)}),
    Twin("prime-rl v0.5", _FEW, {"errored_rollouts/all": share(0.03, 64)}),
    Twin("verl", _FEW, {"response/aborted_ratio": share(0.03, 64)}),
    Twin("trl", _FEW, {"tools/failure_frequency": share(0.03, 64)}),
    Twin("verl", _EVALUATED, {"val-core/gsm8k/acc/mean@1": _LEVELLED}),
    Twin("prime-rl", _EVALUATED, {"eval/aime/effective/agent/avg@16": _LEVELLED}),
    Twin("nemo-rl", _EVALUATED, {"validation/accuracy": _LEVELLED}),
    Twin("slime", _EVALUATED, {"eval/aime": _LEVELLED}),
    Twin("verl", _FEWER, {"val-core/gsm8k/acc/mean@1": _CHANCE}),
    Twin("prime-rl", _FEWER, {"eval/aime/effective/agent/avg@16": _CHANCE}),
    Twin("prime-rl", "one of two agents is done", agents(solver=still(1.0), coder=share(0.2, INDEPENDENT, to=0.6))),
    Twin("prime-rl", _WAITS, {"time/step": level(45, 0.05), "time/wait_for_batch": level(18, 0.12)}),
    Twin(
        "prime-rl",
        "waiting after evaluations",
        {
            "time/step": _evaluating(level(70, 0.1), level(30, 0.04)),
            "time/wait_for_batch": _evaluating(level(43, 0.1), level(3, 0.15)),
        },
    ),
    Twin("slime", _WAITS, {"perf/wait_time_ratio": level(0.4, 0.12, most=1.0)}),
    Twin(
        "prime-rl",
        _WARM_UP,
        {
            "off_policy/mean": _warm(still(0.0), level(1.0, 0.12)),
            "off_policy/max": _warm(still(0.0), still(2.0)),
            "mismatch_kl/all/mean": _warm(level(3e-5, 0.2), level(1e-4, 0.2, wander=0.05)),
        },
    ),
    Twin(
        "verl-v1",
        _WARM_UP,
        {
            f"{_STALENESS}/mean": _warm(still(0.0), level(1.0, 0.12)),
            f"{_STALENESS}/max": _warm(still(0.0), still(2.0)),
            "training/rollout_probs_diff_mean": _warm(level(0.002, 0.12), level(0.005, 0.12, wander=0.05)),
            "rollout_corr/k3_kl": _warm(level(0.0002, 0.2), level(0.0009, 0.2, wander=0.05)),
        },
    ),
    Twin("verl", _SPIKE, {"training/rollout_probs_diff_mean": _spiking(still(0.02), level(0.006, 0.12, wander=0.05))}),
    Twin("nemo-rl", _SPIKE, {"train/gen_kl_error": _spiking(still(0.003), level(0.0005, 0.2, wander=0.05))}),
    Twin("prime-rl", _SPIKE, {"mismatch_kl/all/mean": _spiking(still(0.0006), level(1e-4, 0.2, wander=0.05))}),
    Twin(
        "verl",
        "groups of 64",
        {"critic/advantages/max": level(7, 0.1, most=7.875), "critic/advantages/min": minus(level(7, 0.1, most=7.875))},
    ),
    Twin(
        "verl",
        "PPO",
        {
            "critic/advantages/max": level(8, 0.2),
            "critic/advantages/min": minus(level(8, 0.2)),
            "critic/values/mean": around(0.45, 0.03),
            "critic/vf_loss": level(0.08, 0.1, to=0.05),
            "critic/vf_explained_var": around(0.5, 0.05),
        },
    ),
)
"""What a number is from the start is a property of the set-up, such as mixtures of experts, or queues.

The spikes are three to six times the level, as in a public log of verl and in NeMo-RL issue 2260, whose runs learned.
"""

TWINS = (*USUAL, *ODD)
SEEDS = (1, 2, 3)
