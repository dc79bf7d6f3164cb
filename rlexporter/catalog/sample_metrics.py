"""The metrics of samples: prompts and completions, the mismatch of sampler and trainer, asynchronous rollouts.

What AsyncGRPO and AsyncDistillation spell out in their keys (`_mean`, `_max`, a part of a step) is a label here. Their
keys with `total` are sums over the logging window, hence gauges. As trl 1.16's sources compute them:
async_grpo_trainer.py and its rollout worker in trl/experimental.
"""

from __future__ import annotations

from rlexporter.catalog.algorithms import GRPO, PPO, PPO_LEGACY
from rlexporter.catalog.entries import GROUPWISE, Entries, keys
from rlexporter.model.metric import Group, Level, Range, RankScope

_SAMPLED = "distillation sdft sdpo"
_LENGTHS = tuple(float(2**n) for n in range(18))

_completion = Entries(Group.COMPLETION, level=Level.SEQUENCE, unit="tokens")
_completion_of_rank = Entries(Group.COMPLETION, level=Level.SEQUENCE, unit="tokens", scope=RankScope.RANK)
_sampling = Entries(Group.SAMPLING, level=Level.TOKEN)
_surprise = Entries(Group.SAMPLING, level=Level.TOKEN, unit="nats")
_sample = Entries(Group.SAMPLING, level=Level.SEQUENCE)

COMPLETIONS = (
    _completion.gauge(
        "rl_completion_length_mean",
        "Mean length of the completions, truncated ones included. Legacy PPO: of one rank.",
        keys=keys(f"{GROUPWISE} {_SAMPLED} async-distillation", "completions/mean_length")
        + keys(GRPO, "completion_length")
        + keys(PPO_LEGACY, "tokens/responses_len_mean"),
        reading="No drift towards the limit, no collapse to a few tokens.",
    ),
    _completion.gauge(
        "rl_completion_length_std",
        "Spread of the completion lengths of one rank.",
        keys=keys(PPO_LEGACY, "tokens/responses_len_std"),
        reading="Not exploding [ranges]. 0: every answer has the same length.",
    ),
    *_completion.gauges(
        "rl_completion_length_",
        "{} length of a completion, mean over the logging window.",
        keys=keys(f"{GROUPWISE} {_SAMPLED} async-distillation", "completions/{}_length"),
        min="Near 0: some completions are empty.",
        max="At max_completion_length: some completions are cut off.",
    ),
    _completion.histogram(
        "rl_completion_length_dist",
        "Length of each completion.",
        _LENGTHS,
        keys=keys(PPO_LEGACY, "tokens/responses_dist"),
        reading="Mass at the limit: truncation. One bucket only: every answer has the same length.",
    ),
    *_completion.gauges(
        "rl_terminated_completion_length_",
        "{} length of a completion that ended by itself; TRL logs 0 when none did.",
        keys=keys(f"grpo rloo {_SAMPLED}", "completions/{}_terminated_length"),
        mean="Compare with the mean of all: far below it, the long ones are those cut off.",
        min="Near 0: some completions end at once.",
        max="Near the limit: the limit begins to bite.",
    ),
    _completion.fraction(
        "rl_completion_truncated_fraction",
        "Share of completions cut off at the length limit, without an end token.",
        keys=keys(f"{GROUPWISE} {_SAMPLED} async-distillation", "completions/clipped_ratio"),
        healthy=Range(0.0, 0.25, "no number published; 1 means that nothing ever terminates"),
        reading="High: the limit is too short, or the model forgets to stop.",
    ),
    _completion_of_rank.gauge(
        "rl_eos_tokens",
        "End tokens in the responses of one rank, end tokens used as padding included.",
        unit="tokens per batch",
        level=Level.STEP,
        keys=keys(PPO, "val/num_eos_tokens"),
        healthy=Range(1.0, None, "above 0 once the model stops by itself"),
        reading="Falling to 0: the model forgets to stop.",
    ),
    *_completion.gauges(
        "rl_prompt_length_",
        "{} length of the prompts of one rank.",
        keys=keys(PPO_LEGACY, "tokens/queries_len_{}"),
        mean="Watch for drift of the data [ranges].",
        std="A change of the data.",
    ),
    _completion.histogram(
        "rl_prompt_length_dist",
        "Length of each prompt.",
        _LENGTHS,
        keys=keys(PPO_LEGACY, "tokens/queries_dist"),
        reading="A change of its shape is a change of the data.",
    ),
    _completion_of_rank.fraction(
        "rl_completion_copied_fraction",
        "Share of the completions that another completion of the same prompt is equal to, token by token (GRPO, RLOO).",
        reading="As `rl_completion_copied_expected_fraction`. More: they are not drawn from the policy.",
    ),
    _completion_of_rank.fraction(
        "rl_completion_copied_expected_fraction",
        "Share of the completions that another one of the same prompt is to be expected to equal, where they are drawn "
        "one by one from the policy: mean of 1 - (1 - p)^(g - 1) over completions of probability p, g to a group.",
        reading="Near 0 for long completions. Near 1: the policy has one answer to each prompt.",
    ),
    _completion_of_rank.fraction(
        "rl_prompts_repeated_fraction",
        "Share of the different prompts of a rollout that were in the rollout before as well.",
        reading="Near 0 with a large data set. 1 in a row: the data loader is stuck.",
    ),
    _completion_of_rank.fraction(
        "rl_prompt_end_changed_fraction",
        "Share of the prompts that do not end with the token with which all prompts of the first rollouts ended, as a "
        "chat template leaves it; not served where there was none.",
        reading="0. More: prompts are made with another template, or cut at their end.",
    ),
    _completion.fraction(
        "rl_tool_failure_frequency",
        "Share of tool calls that failed; TRL logs 0 when there were none.",
        level=Level.STEP,
        keys=keys("grpo async-grpo distillation", "tools/failure_frequency"),
        reading="High: the tools are down, or are called wrongly.",
    ),
    _completion.fraction(
        "rl_rollout_error_fraction",
        "Share of rollouts that ended with an error of their environment, a tool or a verifier.",
        healthy=Range(0.0, 0.05, "prime-rl's guide to training: more for long is a fault"),
        reading="Growth: an environment is down. A reward of 0 then says nothing of the policy.",
    ),
    _completion.fraction(
        "rl_completion_empty_fraction",
        "Share of completions without a token: their generation was aborted.",
        healthy=Range(0.0, 0.0, "an aborted completion teaches nothing"),
        reading="Above 0: the sampler aborts requests; look at its log.",
    ),
)

SAMPLING = (
    _surprise.gauge(
        "rl_sampling_logp_difference_mean",
        "Mean absolute difference between the trainer's and the sampler's log-probability of a token; tokens "
        "without a score are left out. Modern PPO: in the first micro-batch of each step, before any update.",
        keys=keys(GRPO, "sampling/sampling_logp_difference/mean"),
        healthy=Range(0.0, 0.05, "TRL issue 6789, bf16"),
        reading="Growth is a mismatch between the two engines.",
    ),
    _surprise.gauge(
        "rl_sampling_logp_difference_max",
        "Largest absolute difference between the trainer's and the sampler's log-probability of a token.",
        keys=keys(GRPO, "sampling/sampling_logp_difference/max"),
        healthy=Range(0.0, 0.7, "TRL issue 6789: 0.4 to 0.7 in healthy bf16 runs"),
        reading="A single large value may be noise; one that stays is a mismatch.",
    ),
    _sampling.gauge(
        "rl_importance_sampling_ratio_min",
        "Smallest trainer/sampler probability ratio, after truncation or masking: 0 is a masked one.",
        keys=keys(GRPO, "sampling/importance_sampling_ratio/min"),
        healthy=Range(0.5, None, "[verl], per token"),
        reading="Near 0: tokens that the sampler liked and the trainer would not have said.",
    ),
    _sampling.gauge(
        "rl_importance_sampling_ratio_mean",
        "Mean trainer/sampler probability ratio, after truncation or masking.",
        keys=keys(GRPO, "sampling/importance_sampling_ratio/mean"),
        healthy=Range(0.5, 2.0, "[verl], per token; per sequence 0.4 to 0.7 is normal (TRL issue 5814)"),
        reading="Away from 1: sampler and trainer are different policies.",
    ),
    _sampling.gauge(
        "rl_importance_sampling_ratio_max",
        "Largest trainer/sampler probability ratio, after truncation: it cannot show more than the cap.",
        keys=keys(GRPO, "sampling/importance_sampling_ratio/max"),
        reading="At the cap: there are ratios above it.",
    ),
    _surprise.gauge(
        "rl_sampling_kl_per_token",
        "KL divergence of the sampler from the trainer, mean over tokens: the k1 estimator, which can be negative.",
        reading="Near 0. Growth is a mismatch between the two engines, or old samples.",
    ),
    _sampling.gauge(
        "rl_sampling_chi2_per_token",
        "Chi-squared divergence of trainer and sampler, from the ratios of tokens: mean of the squared ratio, minus 1.",
        reading="Near 0. Large: a few tokens dominate every correction.",
        may_be_nonfinite=True,
    ),
    _sample.gauge(
        "rl_sampling_chi2_per_sequence",
        "Chi-squared divergence of trainer and sampler, from the ratios of whole completions, which grow with their "
        "length.",
        reading="Large in healthy runs with long completions.",
        may_be_nonfinite=True,
    ),
    _sampling.gauge(
        "rl_sampling_probability_factor_mean",
        "Mean factor between the trainer's and the sampler's probability of a token: the exponential of the absolute "
        "difference of their logarithms.",
        reading="1 to 1.05. Growth is a mismatch between the two engines.",
    ),
    _surprise.gauge(
        "rl_trainer_kl_per_token",
        "KL divergence of the trainer from the sampler, mean over tokens: by default the k3 estimator.",
        reading="Near 0. Growth is a mismatch between the two engines, or old samples.",
    ),
    _sampling.gauge(
        "rl_sampling_weight_mean",
        "Mean weight (trainer over sampler) by which rollout correction multiplies the loss: per token, or that of "
        "the completion on each of its tokens.",
        healthy=Range(0.5, 2.0, "[verl], per token"),
        reading="1. Away from it: sampler and trainer are different policies.",
    ),
    _sampling.fraction(
        "rl_sampling_effective_sample_fraction",
        "Effective sample size of the weights, as a share of the samples: 1 where all weights are equal.",
        healthy=Range(0.5, 1.0, "[verl]: below 0.3 the update rests on few samples"),
        reading="Falling: a few samples dominate the update.",
    ),
    *_sample.gauges(
        "rl_sample_staleness_",
        "{} age of the step's samples: how many updates the policy is ahead of the newest weights that wrote them.",
        unit="updates",
        mean="0 is on-policy. Growth: generation does not keep up.",
    ),
    _sample.gauge(
        "rl_sampling_chi2_of_means",
        "Chi-squared divergence of trainer and sampler from each completion's geometric mean of ratios.",
        reading="Near 0, however long the completions are.",
        may_be_nonfinite=True,
    ),
)

EXPERTS = ()

PIPELINE = ()
