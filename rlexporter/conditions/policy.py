"""The policy: its distance from the reference, its entropy, the size of its updates, and the penalty's coefficient."""

from __future__ import annotations

from itertools import islice, pairwise, takewhile
from statistics import median

from rlexporter.conditions.declare import PPO, TRAINERS, condition, derived, mean, read, signal, source
from rlexporter.conditions.detectors import (
    LASTING,
    MOSTLY,
    SOME,
    Apart,
    Own,
    critical,
    info,
    level,
    ratio,
    warning,
)
from rlexporter.conditions.learning import found
from rlexporter.conditions.past import START, Past
from rlexporter.conditions.view import Context, Reading, View
from rlexporter.model.condition import Family, Read, Source

_K3 = ("grpo",)
_NOT_K3 = ("rloo", "ppo", "ppo-legacy")
KL_FLOOR = {"k1": 0.25, "k3": 0.25, "sequence": 3.0}
"""Up to this KL, by variant, a policy is near its reference, however fast it got there."""
_AT_START = 0.3
"""The first KL a token that another kernel or precision may make."""
_COEF_LOST = 1e-4
"""The share of its highest value below which a coefficient holds nothing."""
SETTLED = 70
"""In so many steps KL may grow from 0 by any factor, as the policy leaves its reference."""
_MOVING = 10
"""The number of changes in a row that make a coefficient an adaptive one."""
_LITTLE_KL = {"k1": 0.05, "k3": 0.05, "sequence": 1.0}
"""The KL, by variant, below which its growth means nothing."""

read(
    "kl",
    "nats",
    mean("rl_kl_per_token_dist", "k3", _K3),
    mean("rl_kl_per_token_dist", "k1", _NOT_K3),
    Source("rl_kl_per_token", variant="k3", algorithms=_K3),
    Source("rl_kl_per_token", variant="k1"),
    Source("rl_kl_penalty_per_token", variant="k1"),
    Source("rl_kl_k1_per_token", variant="k1"),
    derived("kl", "rl_kl_per_sequence", variant="k1"),
    Source("rl_kl_per_sequence", variant="sequence"),
)
read(
    "kl_signed",
    "nats",
    Source("rl_kl_per_sequence", variant="sequence"),
    mean("rl_kl_per_token_dist", "k1", _NOT_K3),
    Source("rl_kl_per_token", variant="k1", algorithms=_NOT_K3),
)
read("kl_coef", "", "rl_kl_coef", mean("rl_kl_coef"))
read(
    "entropy",
    "nats per token",
    mean("rl_entropy_per_token_dist"),
    "rl_entropy_per_token",
    "rl_update_entropy_per_token",
    "rl_sampled_entropy_per_token",
    Source("rl_logprob_dist", Read.MINUS_MEAN),
)
read("approxkl", "nats per token", "rl_policy_approxkl")
read("ratio", "", mean("rl_policy_ratio_dist"), "rl_policy_ratio_mean")
read("ratio_tail", "fraction", Source("rl_policy_ratio_dist", Read.SHARE, outside=(0.1, 10.0)))
read(
    "clipfrac",
    "fraction",
    Source("rl_policy_clipfrac", variant="token"),
    Source("rl_clip_ratio_region_mean", variant="sequence", algorithms=("rloo",)),
    Source("rl_clip_ratio_region_mean", variant="token"),
    Source("rl_clip_ratio", variant="token"),
)


@source("kl")
def kl(view: View, run: Context) -> Reading | None:
    """Return the KL per token, computed from that per sequence and the mean length."""
    total, length = view.numbers.get("rl_kl_per_sequence"), view.numbers.get("rl_completion_length_mean")
    return Reading(total / length, "rl_kl_per_sequence") if total is not None and length else None


@signal("hacking", of="kl", after=("reward", "flat_share"), window=20)
def hacking(view: View, run: Context) -> float | Reading | None:
    """Return by what factor KL has grown in 20 steps, if the reward has jumped meanwhile; else 0. See `Apart`."""
    kl, reward = run.past["kl"], run.past["reward"]
    if "kl" not in run.fresh or min(kl.count, reward.count) <= SETTLED:
        return None
    if median(kl.values[-5:]) <= KL_FLOOR.get(run.variant["kl"], 0.0) or found(run):
        return 0.0
    factor = Apart.factor(kl, reward)
    return Reading(factor, subject=dict.fromkeys(_risen(run), 0)) if factor else 0.0


def _risen(run: Context) -> list[str]:
    """Return the reward function of several that has risen most in 20 steps, as its weight counts it."""
    rises = {
        name: (past.median(10) - past.median(10, 20)) * run.weights.get(name, 1.0)
        for name, past in run.functions.items()
        if past.count > SETTLED
    }
    name = max(rises, key=rises.__getitem__, default="")
    return [name] if len(run.functions) > 1 and name and rises[name] > 0.0 else []


@signal("kl_distance", "nats", of="kl", after=("ref_changed",))
def kl_distance(view: View, run: Context) -> float | None:
    """Return the absolute KL, since a noisy estimate can be negative; None where the reference follows the policy."""
    value, reference = run.new("kl"), run.past["ref_changed"]
    return None if value is None or (reference.count and reference.newest > 0.0) else abs(value)


@signal("kl_first", "nats", of="kl")
def kl_first(view: View, run: Context) -> float | None:
    """Return the very first KL of a run: before any update the policy is the reference. None in a later step."""
    first = view.step <= 1 and run.past["kl"].count == 1 and not run.resumed
    return run.new("kl") if first else None


@signal("kl_first_seen", "nats", of="kl", after=("kl_first",), reads=("rl_kl_per_token_dist",))
def kl_first_seen(view: View, run: Context) -> float | None:
    """Return the very first KL where it was seen at the tensor, which is exact; None for one that is large anyway."""
    first = run.new("kl_first")
    if first is None or "rl_kl_per_token_dist" not in view.counted:
        return None
    return abs(first) if abs(first) <= _AT_START else None


@signal(
    "collapse_signs", "signs", of="entropy", after=("length", "grad_norm", "flat_share", "reward_gained"), window=10
)
def collapse_signs(view: View, run: Context) -> float | None:
    """Count what has collapsed without a gain: entropy, and beside it lengths, gradients and spreads of groups."""
    entropy = run.past["entropy"]
    if "entropy" not in run.fresh or entropy.count <= START:
        return None
    if median(entropy.values[-5:]) >= 0.35 * entropy.start(START) or run.new("reward_gained"):
        return 0.0
    lengths, shares = run.past["length"], run.past["flat_share"]
    # The first length alone: a policy that has collapsed within its first lines has no later one to compare with.
    short = lengths.count > 0 and median(lengths.values[-5:]) < 0.3 * lengths.first[0]
    dead = run.past["grad_norm"].values[-10:].count(0.0) > 5
    flat = shares.count > 0 and median(shares.values[-5:]) >= 0.8
    return 1.0 + short + dead + flat


@signal("kl_coef_share", "fraction", of="kl_coef")
def kl_coef_share(view: View, run: Context) -> float | None:
    """Return the coefficient over its highest value so far; -1 if it has always been negative, None if always 0."""
    coefficient, highest = run.new("kl_coef"), run.past["kl_coef"].high
    if coefficient is None or (highest <= 0.0 and coefficient == 0.0):
        return None
    return coefficient / highest if highest > 0.0 else -1.0


@signal("kl_coef_stuck", "steps", of="kl_coef", after=("kl", "kl_coef_share"))
def kl_coef_stuck(view: View, run: Context) -> float | None:
    """Return for how many steps a coefficient that used to adapt has not changed while KL asks for it, else 0.

    KL asks for it where the coefficient was rising, so that KL was above its target, and KL has not come down; and
    where KL has doubled.
    """
    if run.new("kl_coef") is None:
        return None
    if (run.new("kl_coef_share") or 0.0) < _COEF_LOST:  # it is lost, and stays so
        return 0.0
    coefficient, kl = run.past["kl_coef"], run.past["kl"]
    still = _still_for(coefficient)
    before = coefficient.last(_MOVING + 1, still)
    if not still or len(before) <= _MOVING or any(a == b for a, b in pairwise(before)):
        return 0.0
    if "kl" not in run.fresh or kl.count < coefficient.count:
        return 0.0
    then = max(median(kl.last(_MOVING, still)), _LITTLE_KL[run.variant["kl"]])
    now = median(kl.values[-min(still, 5) :])
    return float(still) if now > (0.9 if before[-1] > before[0] else 2.0) * then else 0.0


def _still_for(past: Past) -> int:
    """Return for how many observations the newest value has been the same as the one before; 0 if it never changed."""
    if past.low == past.high or past.count < 2:
        return 0
    return sum(1 for _ in takewhile(past.newest.__eq__, islice(reversed(past.values), 1, None)))


UPDATES = (
    condition("ratio_high", "RLRatio", Family.POLICY_STEP, "ratio").when(
        level(warning(2.0, SOME), critical(10.0)),
        "The probability ratio of new and old policy is far above 1.",
        stops=False,
        related=("rl_policy_ratio_dist", "rl_policy_approxkl", "rl_clip_ratio_region_mean"),
    ),
    condition("ratio_tail", "RLRatio", Family.POLICY_STEP, "ratio_tail").when(
        level(warning(0.02, SOME), critical(0.2)),
        "Many tokens have a probability ratio below 0.1 or above 10.",
        related=("rl_policy_ratio_dist",),
    ),
    condition("ratio_low", "RLRatio", Family.POLICY_STEP, "ratio").when(
        ratio(warning(0.6, SOME), below=True),
        "The probability ratio of new and old policy is far below its own level.",
        related=("rl_policy_ratio_dist", "rl_policy_approxkl"),
    ),
    condition("approxkl_spike", "RLUpdateTooLarge", Family.POLICY_STEP, "approxkl", PPO).when(
        level(warning(1.0)),
        "One update has moved the policy very far.",
        related=("rl_policy_approxkl", "rl_policy_clipfrac"),
    ),
    condition("approxkl_high", "RLUpdateTooLarge", Family.POLICY_STEP, "approxkl", PPO).when(
        level(warning(0.2, LASTING), critical(1.0, SOME)),
        "Updates move the policy too far.",
        stops=False,
        related=("rl_policy_approxkl", "rl_policy_clipfrac", "rl_policy_ratio_dist"),
    ),
    condition("clipfrac_high", "RLUpdateTooLarge", Family.POLICY_STEP, "clipfrac").when(
        level(warning({"token": 0.3, "sequence": 0.5}, SOME)),
        "Too much of the updates is clipped.",
        related=("rl_policy_clipfrac", "rl_clip_ratio_region_mean"),
    ),
)
AT_START = (
    condition("kl_at_start", "RLReference", Family.KL_HIGH, "kl_first").when(
        level(
            info({"k1": _AT_START, "k3": _AT_START, "sequence": 5.0}),
            critical({"k1": 2.0, "k3": 2.0, "sequence": 20.0}),
        ),
        "The policy differs from the reference before any update.",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_ref_logprob_dist"),
    ),
    condition("reference_differs", "RLReference", Family.KL_HIGH, "kl_first_seen", TRAINERS).when(
        level(info(0.02)),
        "The reference is not quite the policy that training began with.",
        related=("rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
)
DISTANCE = (
    condition("kl_high", "RLKL", Family.KL_HIGH, "kl").when(
        level(
            warning({"k1": 1.2, "k3": 3.0, "sequence": 10.0}, LASTING, learning=True),
            critical({"k1": 4.0, "k3": 5.0, "sequence": 50.0}, LASTING),
        ),
        "The policy is far from the reference.",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_kl_per_token_dist", "rl_reward_mean"),
    ),
    condition("kl_jump", "RLKL", Family.KL_HIGH, "kl").when(
        ratio(warning(6.0, LASTING), critical(10.0, MOSTLY), of=Own.RECENT, lag=20, floor=KL_FLOOR, after=SETTLED),
        "The KL divergence to the reference has jumped.",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_grad_norm"),
    ),
    condition("reward_hacking", "RLRewardHacking", Family.KL_HIGH, "hacking").when(
        level(critical(5.0)),
        "The reward rises while KL runs away.",
        about="{subject} rises while KL runs away.",
        foretold_by=("kl_high", "kl_jump"),
        level="kl",
        related=("rl_reward_mean", "rl_kl_per_token", "rl_kl_per_sequence", "rl_completion_length_mean"),
    ),
    condition("kl_negative", "RLSamplerMismatch", Family.KL_NEGATIVE, "kl_signed", _NOT_K3).when(
        level(
            warning({"sequence": -1.0, "k1": -0.05}, SOME),
            critical({"sequence": -1.0, "k1": -0.05}, LASTING),
            below=True,
        ),
        "The KL divergence is clearly below zero.",
        stops=False,
        related=("rl_kl_per_sequence", "rl_kl_per_token", "rl_policy_ratio_dist"),
    ),
    condition("kl_coef_runaway", "RLKLCoefficient", Family.KL_COEF, "kl_coef", ("ppo-legacy", "online-dpo")).when(
        ratio(warning(3.0), critical(30.0)),
        "The adaptive KL coefficient runs away.",
        stops=False,
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_non_score_reward_per_token"),
    ),
    condition(
        "kl_coef_lost", "RLKLCoefficient", Family.OBJECTIVE, "kl_coef_share", (*PPO, "grpo", "rloo", "online-dpo")
    ).when(
        level(warning(_COEF_LOST), critical(-_COEF_LOST), below=True),
        "The coefficient of the KL penalty is 0 or negative.",
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_kl_per_token"),
    ),
    condition("kl_coef_stuck", "RLKLCoefficient", Family.KL_COEF, "kl_coef_stuck", ("ppo-legacy",)).when(
        level(warning(4.5)),
        "The adaptive KL coefficient no longer adapts.",
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_kl_per_token"),
    ),
)
ENTROPY = (
    condition("entropy_low", "RLEntropy", Family.ENTROPY_LOW, "entropy").when(
        ratio(warning(0.2, LASTING), below=True),
        "Entropy has fallen far below its start.",
        related=("rl_entropy_per_token", "rl_logprob_dist", "rl_reward_std"),
    ),
    condition("entropy_collapsed", "RLEntropy", Family.ENTROPY_LOW, "entropy").when(
        ratio(critical(0.04, LASTING), below=True),
        "Entropy has collapsed: the policy is deterministic.",
        related=("rl_entropy_per_token", "rl_entropy_per_token_dist", "rl_reward_zero_std_fraction"),
    ),
    condition("entropy_high", "RLEntropy", Family.ENTROPY_HIGH, "entropy").when(
        ratio(warning(4.0, LASTING), floor=0.6),
        "Entropy grows.",
        related=("rl_entropy_per_token", "rl_reward_mean", "rl_completion_length_mean"),
    ),
    condition("entropy_exploded", "RLEntropy", Family.ENTROPY_HIGH, "entropy").when(
        ratio(critical(4.0, MOSTLY), floor=1.5),
        "Entropy has exploded: the policy writes noise.",
        related=("rl_entropy_per_token", "rl_reward_mean", "rl_completion_length_mean"),
    ),
    condition("collapsed", "RLEntropy", Family.ENTROPY_LOW, "collapse_signs").when(
        level(critical(2.0, MOSTLY)),
        "The policy has collapsed: entropy fell, and other signals with it, without any gain in reward.",
        related=("rl_entropy_per_token", "rl_completion_length_mean", "rl_grad_norm", "rl_reward_zero_std_fraction"),
    ),
)
FROZEN = (
    condition("policy_frozen", "RLPolicyFrozen", Family.PLATEAU, "kl_distance").when(
        level(warning(1e-06, MOSTLY), below=True),
        "The policy does not move.",
        related=("rl_kl_per_token", "rl_learning_rate", "rl_grad_norm"),
    ),
)
