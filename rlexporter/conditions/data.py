"""What training begins with: prompts, completions and their sampler, the loss mask, advantages and the reference."""

from __future__ import annotations

from math import log, sqrt

from rlexporter.conditions.declare import (
    GROUP,
    GROUPS,
    PPO,
    TRAINERS,
    condition,
    derived,
    mean,
    read,
    signal,
    source,
)
from rlexporter.conditions.detectors import (
    LASTING,
    SOME,
    Own,
    Shift,
    critical,
    found,
    level,
    ratio,
    warning,
)
from rlexporter.conditions.past import START, deviation
from rlexporter.conditions.view import ROUNDING, Context, Found, Reading, View
from rlexporter.model.condition import Family, Read, Source

COPIES_EXCESS = 0.3
"""By so much the share of copies may be larger than the policy would give."""
_ADVANTAGES, _LOGPROBS, _ENTROPIES = "rl_advantage_dist", "rl_logprob_dist", "rl_entropy_per_token_dist"
_STEPS_OF_PROMPTS = 20
"""The number of steps whose prompts say how short they are by themselves."""
_ROLLOUTS = 10
"""The number of rollouts before sampler and policy are compared."""
_LEAST_NOISE = 0.05
"""The smallest noise of their offset: precision and kernels of a sampler make so many nats a token."""
_SURE = 3.0
"""The number of standard errors that are left out of a mean."""
_TRUNCATING = {
    "top_p": (1.0,),
    "top_k": (0.0, -1.0),
    "min_p": (0.0,),
    "repetition_penalty": (1.0,),
    "num_beams": (1.0,),
}
"""Settings of the sampler, each with the values that leave the policy's distribution as it is."""

read("advantage", "", mean(_ADVANTAGES), "rl_advantage_mean")
read("advantage_spread", "", Source(_ADVANTAGES, Read.SPREAD, algorithms=PPO))
read("advantage_reward", "", mean("rl_advantage_reward_correlation"))
read("first_use", "nats", mean("rl_first_use_log_ratio"))
read("loss_mask_wrong", "fraction", mean("rl_loss_mask_wrong_fraction"))
read("prompts_repeated", "fraction", mean("rl_prompts_repeated_fraction"))
read("prompt_end_changed", "fraction", mean("rl_prompt_end_changed_fraction"))
read("prompt_length", "tokens", mean("rl_prompt_length_dist"))
read("copied", "fraction", mean("rl_completion_copied_fraction"))
read("copied_expected", "fraction", mean("rl_completion_copied_expected_fraction"))
read("ref_changed", "fraction", mean("rl_ref_weight_changed_fraction"))
read("ref_dropout", "fraction", mean("rl_ref_dropout"))
read("ref_noise", "nats", mean("rl_ref_logprob_noise"))
read(
    "sampling_difference",
    "nats",
    Source("rl_sampling_logp_difference_mean", variant="logp"),
    mean("rl_sampling_logp_difference_mean", "logp"),
    Source("rl_rollout_kl_per_token", variant="kl"),
    Source("rl_trainer_kl_per_token", variant="kl"),
    derived("log_factor", "rl_sampling_probability_factor_mean", variant="logp"),
    derived("sampler_k1", "rl_sampling_kl_per_token", variant="kl"),
)
read("sampling_ratio", "", "rl_importance_sampling_ratio_mean", "rl_sampling_weight_mean")


@source("log_factor")
def log_factor(view: View, run: Context) -> Reading | None:
    """Return the logarithm of the mean factor between both probabilities of a token: nats, as their difference."""
    series = "rl_sampling_probability_factor_mean"
    factor = view.numbers.get(series)
    return Reading(log(factor), series) if factor is not None and factor > 0.0 else None


@source("sampler_k1")
def sampler_k1(view: View, run: Context) -> Reading | None:
    """Return the absolute k1 estimate of the KL divergence of sampler and trainer, which noise can make negative."""
    series = "rl_sampling_kl_per_token"
    value = view.numbers.get(series)
    return None if value is None else Reading(abs(value), series)


@signal("prompts_stuck", "fraction", of="prompts_repeated")
def prompts_stuck(view: View, run: Context) -> float | None:
    """Return the share of repeated prompts; None where the run began like that, with a small data set."""
    share, past = run.new("prompts_repeated"), run.past["prompts_repeated"]
    return share if share is not None and past.count > START and past.start(START) < 0.5 else None


@signal("prompt_shortness", "fraction", of="prompt_length")
class PromptShortness:
    """The longest prompt of the step over the lowest mean length of a step before: 1 or more in any mixture."""

    def __init__(self) -> None:
        self._shortest = float("inf")

    def __call__(self, view: View, run: Context) -> float | None:
        """Return the share; None before prompts are known."""
        counted, length = view.counted.get("rl_prompt_length_dist"), run.new("prompt_length")
        if counted is None or length is None:
            return None
        known = run.past["prompt_length"].count > _STEPS_OF_PROMPTS and self._shortest > 0.0
        share = counted.maximum / self._shortest if known else None
        if share is None or share >= 1.0:
            self._shortest = min(self._shortest, length)
        return share


@signal("advantage_offset", of="advantage")
def advantage_offset(view: View, run: Context) -> float | None:
    """Return how far the mean advantage is from 0."""
    value = run.new("advantage")
    return None if value is None else abs(value)


@signal("advantage_dead", reads=(_ADVANTAGES,))
def advantage_dead(view: View, run: Context) -> Found | None:
    """Find out that all advantages are the same although rewards differ within a group."""
    advantages, ranges = view.counted.get(_ADVANTAGES), view.counted.get("rl_reward_group_range_dist")
    if advantages is None or ranges is None or not advantages.count or not ranges.count:
        return None
    spread = advantages.maximum - advantages.minimum
    dead = ranges.maximum > ROUNDING and spread <= ROUNDING * min(1.0, ranges.maximum)
    return {"": 0} if dead else {}


@signal("reference_dropout", of="ref_dropout")
def reference_dropout(view: View, run: Context) -> Found | None:
    """Find out that some of the reference's layers drop out."""
    share = run.new("ref_dropout")
    return None if share is None else {"": 0} if share > 0.0 else {}


@signal("copies_excess", "fraction", of="copied", after=("copied_expected",))
def copies_excess(view: View, run: Context) -> float | None:
    """Return how much larger the share of copies is than the policy would give."""
    copied, expected = run.new("copied"), run.new("copied_expected")
    return copied - expected if copied is not None and expected is not None and _faithful(run) else None


@signal("sampler_gap", "nats per token", reads=(_LOGPROBS,), window=20)
class SamplerGap:
    """How far sampler and policy are apart for sure.

    That is the mean of 20 rollouts, less three standard errors; or, sooner, what a `Shift` from 0 says.
    """

    def __init__(self) -> None:
        self._shift = Shift(least=_LEAST_NOISE)

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the distance; None in a step without a rollout, and before enough of them are known."""
        offset = _offset(view, run)
        if offset is None:
            return None
        sudden = self._shift.add(offset)
        if _ENTROPIES not in view.counted:  # a mean of means: lengths that change move it, and no sampler
            sudden = 0.0
        own = self._shift.values
        count = len(own)
        if count >= _ROLLOUTS:
            return Reading(max(sudden, abs(sum(own) / count) - _SURE * deviation(own) / sqrt(count - 1)), _LOGPROBS)
        return Reading(sudden, _LOGPROBS) if sudden else None


def _offset(view: View, run: Context) -> float | None:
    """Return the mean log-probability of tokens that were just sampled plus the mean entropy: 0 but for noise.

    That holds where tokens are drawn from the policy that is scored; with a greedier sampler it is above 0. None where
    the settings say that tokens are drawn from something else, or that some are left out.
    """
    logprobs, rollout = view.counted.get(_LOGPROBS), view.counted.get(_ADVANTAGES)
    if logprobs is None or not logprobs.count or rollout is None or not rollout.count or not _faithful(run):
        return None
    entropies = view.counted.get(_ENTROPIES)
    entropy = entropies.finite_mean if entropies and entropies.count else view.numbers.get("rl_entropy_per_token")
    return None if entropy is None else logprobs.finite_mean + entropy


def _faithful(run: Context) -> bool:
    settings = run.settings
    plain = all(name not in settings or settings[name] in values for name, values in _TRUNCATING.items())
    return plain and not settings.get("mask_truncated_completions")


CONDITIONS = (
    condition("prompts_stuck", "RLPromptsChanged", Family.DATA, "prompts_stuck", TRAINERS).when(
        level(warning(0.9, LASTING)),
        "Every step trains on the same prompts.",
        related=("rl_prompts_repeated_fraction", "rl_prompt_length_dist"),
    ),
    condition("prompts_short", "RLPromptsChanged", Family.DATA, "prompt_shortness", TRAINERS).when(
        level(warning(0.7, SOME), below=True),
        "Prompts have become much shorter.",
        related=("rl_prompt_length_dist", "rl_prompt_end_changed_fraction"),
    ),
    condition("prompt_end_changed", "RLPromptsChanged", Family.DATA, "prompt_end_changed", GROUPS).when(
        level(warning(0.5, SOME)),
        "Prompts end with another token than before.",
        related=("rl_prompt_end_changed_fraction", "rl_prompt_length_dist"),
    ),
    condition("loss_mask_wrong", "RLLossInputsWrong", Family.OBJECTIVE, "loss_mask_wrong", GROUPS).when(
        level(warning(0.25, SOME), critical(0.75, SOME)),
        "The loss mask does not fit the completions.",
        related=("rl_loss_mask_wrong_fraction", "rl_completion_length_dist"),
    ),
    condition("advantage_wrong", "RLLossInputsWrong", Family.OBJECTIVE, "advantage_reward", TRAINERS).when(
        level(warning(0.5, SOME), critical(0.0, LASTING), below=True),
        "Advantages do not follow the rewards they are computed from.",
        related=("rl_advantage_reward_correlation", "rl_advantage_dist", "rl_reward_dist"),
    ),
    condition("old_logprobs_stale", "RLLossInputsWrong", Family.OBJECTIVE, "first_use", GROUPS).when(
        ratio(warning(3.0, SOME), floor=0.01),
        "The old log-probabilities are not those of the policy that sampled.",
        related=("rl_first_use_log_ratio", "rl_policy_ratio_dist"),
    ),
    condition("reference_moved", "RLReference", Family.OBJECTIVE, "ref_changed", TRAINERS).when(
        level(warning(0.001)),
        "The reference model changes although nothing asked for it.",
        related=("rl_ref_weight_changed_fraction", "rl_kl_per_token", "rl_ref_logprob_dist"),
    ),
)
SAMPLER = (
    condition("sampling_jump", "RLSamplerMismatch", Family.KL_NEGATIVE, "sampling_difference", (*GROUP, "ppo")).when(
        ratio(warning({"logp": 5.0, "kl": 20.0}, SOME), of=Own.RECENT, floor={"logp": 0.03, "kl": 0.01}),
        "Sampler and trainer disagree far more than they did.",
        related=("rl_sampling_logp_difference_mean", "rl_policy_ratio_dist", "rl_policy_approxkl"),
    ),
    condition("sampler_differs", "RLSamplerMismatch", Family.KL_NEGATIVE, "sampler_gap").when(
        level(warning(0.05)),
        "Completions are not drawn from the policy being trained.",
        related=("rl_logprob_dist", "rl_entropy_per_token_dist", "rl_policy_ratio_dist"),
    ),
    condition("completions_copied", "RLSamplerMismatch", Family.KL_NEGATIVE, "copies_excess", GROUPS).when(
        level(warning(COPIES_EXCESS, SOME)),
        "Completions are copies of each other far more often than the policy would draw them.",
        foretold_by=("reward_function_blind",),
        related=("rl_completion_copied_fraction", "rl_completion_copied_expected_fraction", "rl_logprob_dist"),
    ),
    condition("sampling_ratio_low", "RLSamplerMismatch", Family.KL_NEGATIVE, "sampling_ratio", GROUP).when(
        level(warning(0.3, LASTING), below=True),
        "Importance sampling throws most of the samples away.",
        related=("rl_importance_sampling_ratio_mean",),
    ),
)
REFERENCE = (
    condition("reference_dropout", "RLReference", Family.KL_HIGH, "reference_dropout", ("ppo",)).when(
        found(warning()),
        "Dropout is on in the reference.",
        related=("rl_ref_dropout", "rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
    condition("reference_noisy", "RLReference", Family.KL_HIGH, "ref_noise", GROUP).when(
        level(warning(0.02, SOME)),
        "The reference contradicts itself: dropout is on in it.",
        related=("rl_ref_logprob_noise", "rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
)
ADVANTAGES = (
    condition("advantage_flat", "RLNoSignal", Family.ADVANTAGE, "advantage_spread", PPO).when(
        level(warning(0.01), critical(0.01, SOME), below=True),
        "Advantages do not differ: there is nothing to learn from.",
        related=("rl_advantage_dist", "rl_reward_std", "rl_value_dist", "rl_return_dist"),
    ),
    condition("advantage_dead", "RLNoSignal", Family.ADVANTAGE, "advantage_dead", GROUP).when(
        found(warning(), critical(lasts=SOME)),
        "Advantages are all the same although rewards differ.",
        related=("rl_advantage_dist", "rl_reward_group_range_dist", "rl_reward_std", "rl_kl_per_token"),
    ),
    condition("advantage_off_centre", "RLLossInputsWrong", Family.ADVANTAGE, "advantage_offset", TRAINERS).when(
        level(warning(0.2, LASTING)),
        "Advantages are not centered.",
        related=("rl_advantage_dist", "rl_advantage_mean"),
    ),
)
