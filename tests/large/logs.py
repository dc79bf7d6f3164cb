"""The table of faults in logs of large runs: in which framework, from which step on, and which conditions name them.

Sizes are those of public reports: verl issue 7495 (weights that never arrive), vime issue 64 (a slow drift), MiniMax-M1
(correlation 0.9 is broken), NeMo-RL issue 4158 (an advantage of -2075); the others are as large as a person would page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.large.curves import STEPS, Curve, Every, level, one_less, one_plus, share, still, times
from tests.large.frameworks import INDEPENDENT, SAMPLES, VERL, Changes

AT = 80
"""The first step of most faults. Evaluations come every ten steps, in this one too."""
WITHIN = 10
"""The steps after that of its fault in which a condition must begin, unless the table says more: two evaluations."""


@dataclass(frozen=True)
class Log:
    """A log with a fault. ``named_by``: the conditions of which any one names it."""

    framework: str
    fault: str
    named_by: tuple[str, ...]
    faulty: Changes
    """What keys hold from step ``at`` on."""
    at: int = AT
    within: int = WITHIN
    own: Changes = field(default_factory=dict)
    """What keys hold before it, where that is not usual."""

    @property
    def id(self) -> str:
        """The name of its test."""
        return f"{self.framework}: {self.fault}"


_MISMATCH = ("sampling_mismatch", "sampling_drift")
_DRIFTS = ("sampling_drift",)
_STALE = ("samples_stale",)
_DROPPED = ("samples_dropped",)
_FAILING = ("rollouts_failing",)
_SLOWLY = 60
_GROWTH = 1.03
_CORRELATION = "training/rollout_actor_probs_pearson_corr"
_IS = "rollout_corr/rollout_is"
_STALENESS = "training/off_policy/trajectory_staleness"
_TOOLS, _ROLLOUT = "timing_s/agent_loop/tool_calls", "train/agg/all/agent/timing/total"
_VALIDATION, _EVALUATION = "val-core/gsm8k/acc/mean@1", "eval/aime/effective/agent/avg@16"
ENVIRONMENT = "train/{}/all/agent/reward/mean"
_REWARD, AGENT = "train/agg/all/agent/reward/mean", "train/agg/all/{}/reward/mean"


def agents(**rewards: Curve) -> Changes:
    """Several agents in place of the one: there is no mean over them."""
    of_each = {AGENT.format(name): curve for name, curve in rewards.items()}
    return dict.fromkeys(("train/agg/all/agent/solved_none", _REWARD)) | of_each


def _without(prefix: str) -> Changes:
    """No keys of verl below ``prefix``: with a correction of the mismatch it may log one kind of them alone."""
    return {key: None for key in VERL if key.startswith(prefix)}


def _never_delivered() -> Mapping[str, Curve]:
    """What verl logs if the sampler keeps its first weights: distance grows with each update."""
    return {
        "rollout_corr/kl": level(0.0005, 0.1, to=0.018),
        "rollout_corr/k3_kl": level(0.0005, 0.1, to=0.02),
        "rollout_corr/chi2_token": level(0.02, 0.2, to=3.0),
        f"{_IS}_std": level(0.15, 0.1, to=2.1),
        f"{_IS}_eff_sample_size": level(0.98, 0.03, to=0.02, most=1.0),
    }


OF_SAMPLERS = (
    Log("prime-rl", "mismatch x 200", _MISMATCH, {"mismatch_kl/all/mean": level(0.02, 0.2)}),
    Log(
        "prime-rl",
        "mismatch grows by 3 % a step",
        _DRIFTS,
        {"mismatch_kl/all/mean": level(1.15e-4, 0.2, to=1.15e-4 * _GROWTH ** (STEPS - AT), since=AT)},
        within=_SLOWLY,
    ),
    Log(
        "nemo-rl",
        "probabilities differ by half",
        _MISMATCH,
        {"train/token_mult_prob_error": one_plus(level(0.5, 0.15)), "train/gen_kl_error": level(0.2, 0.2)},
    ),
    Log(
        "verl",
        "probabilities differ by 0.16",
        ("sampling_probabilities", "sampling_uncorrelated"),
        {"training/rollout_probs_diff_mean": level(0.16, 0.12), _CORRELATION: one_less(level(0.3, 0.1))},
        own=_without("rollout_corr/"),
    ),
    Log(
        "verl",
        "weights never reach the sampler",
        (*_MISMATCH, "samples_ineffective"),
        _never_delivered(),
        at=1,
        within=_SLOWLY - 1,
        own=_without("training/rollout_"),
    ),
    *(
        Log(
            framework,
            "log-probabilities drift apart",
            _DRIFTS,
            {
                "train/train_rollout_logprob_abs_diff": level(
                    0.011, 0.06, to=0.036, since=AT, until=AT + _SLOWLY, wander=0.04
                )
            },
            within=_SLOWLY,
        )
        for framework in ("slime", "miles")
    ),
    Log("openrlhf", "KL to the sampler x 150", _MISMATCH, {"train/vllm_kl": level(0.15, 0.15)}),
)

OF_SAMPLES = (
    Log(
        "verl-v1",
        "samples are 7.5 updates old",
        _STALE,
        {f"{_STALENESS}/mean": level(7.5, 0.02, most=8.0), f"{_STALENESS}/max": still(8.0)},
    ),
    Log(
        "prime-rl",
        "samples are 7.5 updates old",
        _STALE,
        {"off_policy/mean": level(7.5, 0.02, most=8.0), "off_policy/max": still(8.0)},
    ),
    Log(
        "prime-rl",
        "half of the samples are dropped",
        _DROPPED,
        {"off_policy/dropped": times(SAMPLES, share(0.5, 64)), "train/agg/all/cancelled/mean": share(0.5, 64)},
    ),
    Log("prime-rl", "half of the rollouts fail", _FAILING, {"train/agg/all/has_error/mean": share(0.45, 64)}),
    Log("prime-rl v0.5", "half of the rollouts fail", _FAILING, {"errored_rollouts/all": share(0.45, 64)}),
    Log("trl", "tools fail", _FAILING, {"tools/failure_frequency": share(0.85, SAMPLES)}),
    Log("verl", "responses are aborted", _FAILING, {"response/aborted_ratio": share(0.3, SAMPLES)}),
    Log(
        "verl",
        "half of the tokens are masked",
        ("samples_masked",),
        {"rollout_corr/rollout_rs_masked_fraction": share(0.5, SAMPLES)},
        own={"rollout_corr/rollout_rs_masked_fraction": share(0.02, SAMPLES)},
    ),
    Log("slime", "completions loop", ("completions_repetitive",), {"rollout/repetition_frac": share(0.4, SAMPLES)}),
)

OF_EXPERTS = (
    Log(
        "prime-rl",
        "one expert gets most tokens",
        ("experts_unbalanced",),
        {"max_vio/mean": level(4.0, 0.1)},
        own={"max_vio/mean": level(0.6, 0.1)},
    ),
    Log(
        "prime-rl",
        "the router does not choose",
        ("routing_uncertain",),
        {"routing_confidence/mean": level(0.13, 0.05)},
        own={"routing_confidence/mean": level(0.45, 0.05)},
    ),
)

OF_LEARNING = (
    Log(
        "verl",
        "validation falls, reward rises",
        ("evaluation_diverges", "evaluation_fell"),
        {_VALIDATION: Every(10, share(0.05, 1319))},
        own={_VALIDATION: Every(10, share(0.20, 1319, to=0.35, until=AT))},
    ),
    Log(
        "prime-rl",
        "evaluation falls, reward is flat",
        ("evaluation_fell",),
        {_EVALUATION: Every(10, share(0.10, 480))},
        own={_EVALUATION: Every(10, share(0.40, 480)), _REWARD: share(0.5, INDEPENDENT)},
    ),
    Log(
        "prime-rl",
        "one of three agents gets nothing",
        ("agent_reward_drop",),
        {AGENT.format("coder"): still(0.0)},
        own=agents(
            solver=share(0.35, INDEPENDENT, to=0.7),
            coder=share(0.45, INDEPENDENT, to=0.55),
            searcher=share(0.3, INDEPENDENT, to=0.65),
        ),
    ),
    Log(
        "prime-rl",
        "one of two environments gets nothing",
        ("agent_reward_drop",),
        {ENVIRONMENT.format("code"): still(0.0), _REWARD: share(0.3, INDEPENDENT)},
        own={
            ENVIRONMENT.format("code"): share(0.45, INDEPENDENT),
            ENVIRONMENT.format("math"): share(0.35, INDEPENDENT, to=0.7),
            _REWARD: share(0.4, INDEPENDENT),
        },
    ),
    Log("verl", "an advantage of 900", ("advantage_impossible",), {"critic/advantages/max": level(900, 0.3)}),
)

OF_TIME = (
    Log(
        "prime-rl",
        "the trainer waits",
        ("waiting_more",),
        {"time/step": level(90, 0.04), "time/wait_for_batch": level(63, 0.06)},
    ),
    Log(
        "verl",
        "some tools answer late",
        ("rollout_tail",),
        {f"{_TOOLS}/max": level(120, 0.25), f"{_TOOLS}/mean": level(1.5, 0.2)},
    ),
    Log("prime-rl", "a few rollouts hang", ("rollout_tail",), {f"{_ROLLOUT}/max": level(360, 0.15)}),
    Log("slime", "the trainer waits", ("waiting_more",), {"perf/wait_time_ratio": level(0.7, 0.05, most=1.0)}),
)

LOGS = (*OF_SAMPLERS, *OF_SAMPLES, *OF_EXPERTS, *OF_LEARNING, *OF_TIME)
