"""The metrics of samples: prompts and completions, the mismatch of sampler and trainer, asynchronous rollouts.

What AsyncGRPO and AsyncDistillation spell out in their keys (`_mean`, `_max`, a part of a step) is a label here. Their
keys with `total` are sums over the logging window, hence gauges. As trl 1.16's sources compute them:
async_grpo_trainer.py and its rollout worker in trl/experimental.
"""

from __future__ import annotations

from functools import partial

from rlexporter.catalog.algorithms import GRPO, ONLINE_DPO, PPO, PPO_LEGACY
from rlexporter.catalog.entries import GROUPWISE, Entries, keys
from rlexporter.model.metric import Group, Level, Range, RankScope

_own = partial(keys, only=True)

_SAMPLED = "distillation sdft sdpo"
_BOTH = "async-grpo async-distillation"
_AGENT = "async-grpo"
_LENGTHS = tuple(float(2**n) for n in range(18))

_completion = Entries(Group.COMPLETION, level=Level.SEQUENCE, unit="tokens")
_completion_of_rank = Entries(Group.COMPLETION, level=Level.SEQUENCE, unit="tokens", scope=RankScope.RANK)
_sampling = Entries(Group.SAMPLING, level=Level.TOKEN)
_surprise = Entries(Group.SAMPLING, level=Level.TOKEN, unit="nats")
_sample = Entries(Group.SAMPLING, level=Level.SEQUENCE)
_rollout = Entries(Group.PIPELINE, level=Level.SEQUENCE)
_expert = Entries(Group.POLICY, level=Level.TOKEN)
_batch = Entries(Group.PIPELINE, level=Level.STEP)

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
    _completion_of_rank.fraction(
        "rl_eos_fraction",
        "Share of the completions of one rank that contain an end token.",
        keys=keys(ONLINE_DPO, "val/contain_eos_token"),
        reading="Falling: the model forgets to stop.",
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
    _completion.gauge(
        "rl_tool_call_frequency",
        "Tool calls per completion.",
        unit="calls per completion",
        keys=keys("grpo async-grpo distillation", "tools/call_frequency"),
        reading="Falling to 0: the policy has unlearned its tools.",
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
    *_completion.gauges(
        "rl_nonempty_completion_length_",
        "{} length of a completion that is not empty.",
        mean="Far above the mean of all: many completions were aborted.",
        min="Near 1: some completions end at once.",
        max="At the limit: some completions are cut off.",
    ),
    _completion.fraction(
        "rl_nonempty_completion_truncated_fraction",
        "Share of the completions that are not empty that are as long as completions can be.",
        reading="High: the limit is too short, or the model forgets to stop.",
    ),
    _completion.fraction(
        "rl_completion_empty_fraction",
        "Share of completions without a token: their generation was aborted.",
        healthy=Range(0.0, 0.0, "an aborted completion teaches nothing"),
        reading="Above 0: the sampler aborts requests; look at its log.",
    ),
    _completion.fraction(
        "rl_completion_longest_fraction",
        "Share of completions that are as long as the longest one of the step, be it cut off or not.",
        reading="Rising while the longest one is at the limit: completions are cut off.",
    ),
    _completion.gauge("rl_prompt_length_min", "Length of the shortest prompt.", reading="Watch for drift of the data."),
    _completion.gauge(
        "rl_prompt_length_max",
        "Length of the longest prompt.",
        reading="At the limit: prompts are cut off, or left out.",
    ),
    _completion.fraction(
        "rl_prompt_truncated_fraction",
        "Share of prompts that are as long as prompts can be.",
        healthy=Range(0.0, 0.0, "a prompt that is cut off asks for something else"),
        reading="Above 0: prompts are cut off; raise the limit, or filter them.",
    ),
    _completion.gauge(
        "rl_turns_mean", "Mean number of turns of a conversation.", unit="turns", reading="A fall: tools are unlearned."
    ),
    _completion.gauge("rl_turns_min", "Smallest number of turns.", unit="turns", reading="Watch for drift."),
    _completion.gauge("rl_turns_max", "Largest number of turns.", unit="turns", reading="At the limit: cut off."),
    _completion.gauge("rl_tool_calls_min", "Fewest tool calls of a completion.", unit="calls", reading="Usually 0."),
    _completion.gauge(
        "rl_tool_calls_max", "Most tool calls of a completion.", unit="calls", reading="At the limit: a loop of calls."
    ),
    *_completion.gauges(
        "rl_sequence_length_",
        "{} length of prompt and completion together, with all turns.",
        mean="Near the limit: sequences are cut off.",
        min="Watch for drift.",
        max="At the limit: sequences are cut off.",
    ),
    _completion.fraction(
        "rl_sequence_limit_fraction",
        "Share of completions that end at the limit for prompt and completion together.",
        reading="Above 0: the limit for whole sequences is too short.",
    ),
    _completion.gauge(
        "rl_completion_length_median",
        "Median length of the completions.",
        reading="Compare with the mean: a long tail.",
    ),
    _completion.gauge(
        "rl_response_length_mean",
        "Mean length of the completions with what tools and environments said in between.",
        reading="Growth alone: tools say more.",
    ),
    _completion.fraction(
        "rl_completion_repetitive_fraction",
        "Share of completions whose end repeats itself: more than 10,000 characters that compress to a tenth.",
        reading="Growth: the policy runs in circles until the limit.",
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
    _sampling.gauge(
        "rl_sampling_probability_difference_mean",
        "Mean absolute difference between the trainer's and the sampler's probability of a token, not its logarithm.",
        healthy=Range(0.0, 0.05, "[verl]: a few hundredths with bf16"),
        reading="Growth is a mismatch between the two engines.",
    ),
    *_sampling.gauges(
        "rl_sampling_probability_difference_",
        "{} absolute difference between the trainer's and the sampler's probability of a token.",
        max="Often near 1 in healthy runs: a single token.",
        std="Growth is a mismatch between the two engines.",
    ),
    _sampling.gauge(
        "rl_sampling_probability_correlation",
        "Correlation (Pearson) of the trainer's and the sampler's probabilities of the tokens.",
        healthy=Range(0.99, 1.0, "MiniMax-M1, arXiv 2506.13585: above 0.99 once it was repaired"),
        reading="Below 0.95: sampler and trainer do not compute the same model.",
    ),
    _sampling.gauge(
        "rl_sampling_probabilities_valid",
        "1 where the differences of probabilities could be computed, 0 in a step without a token.",
        level=Level.STEP,
        reading="0: the step had no completion token at all.",
    ),
    _surprise.gauge(
        "rl_sampling_kl_per_token",
        "KL divergence of the sampler from the trainer, mean over tokens: the k1 estimator, which can be negative.",
        reading="Near 0. Growth is a mismatch between the two engines, or old samples.",
    ),
    _sampling.gauge(
        "rl_trainer_perplexity",
        "Perplexity of the completions under the trainer.",
        reading="1 is certainty. Compare with that of the sampler.",
    ),
    _surprise.gauge(
        "rl_trainer_log_perplexity",
        "Logarithm of the perplexity under the trainer, mean over completions.",
        reading="The mean surprise of a token; falls with entropy.",
    ),
    _sampling.gauge(
        "rl_sampler_perplexity",
        "Perplexity of the completions under the sampler.",
        reading="1 is certainty. Compare with that of the trainer.",
    ),
    _surprise.gauge(
        "rl_sampler_log_perplexity",
        "Logarithm of the perplexity under the sampler, mean over completions.",
        reading="The mean surprise of a token; falls with entropy.",
    ),
    _sample.gauge(
        "rl_perplexity_ratio",
        "Perplexity under the trainer over that under the sampler, mean over completions.",
        reading="1. Above 1: the sampler is surer of what it said than the trainer.",
    ),
    *_sample.gauges(
        "rl_log_perplexity_difference_",
        "{} difference of a completion's log-perplexities: under the trainer minus under the sampler.",
        unit="nats",
        mean="Near 0.",
        min="Near 0.",
        max="Near 0. A large one: a completion that the trainer would not have written.",
    ),
    _surprise.gauge(
        "rl_log_perplexity_absolute_difference",
        "Absolute difference of the two log-perplexities, mean over completions.",
        level=Level.SEQUENCE,
        reading="Growth is a mismatch between the two engines.",
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
    *_sample.gauges(
        "rl_sampling_sequence_factor_",
        "{} over completions of their mean factor between the trainer's and the sampler's probability of a token.",
        mean="1 to 1.05. Growth is a mismatch between the two engines.",
        min="Close to 1.",
        max="Large: a completion that the trainer would not have written.",
    ),
    _surprise.gauge(
        "rl_trainer_kl_per_token",
        "KL divergence of the trainer from the sampler, mean over tokens: by default the k3 estimator.",
        reading="Near 0. Growth is a mismatch between the two engines, or old samples.",
    ),
    _surprise.gauge(
        "rl_sampling_js_per_token",
        "Jensen-Shannon divergence of trainer and sampler, mean over tokens.",
        reading="Near 0. Growth is a mismatch between the two engines, or old samples.",
    ),
    _sampling.fraction(
        "rl_sampling_filtered_fraction",
        "Share of the tokens, or of the completions where the correction is by completion, that are outside its "
        "limits and are cut or left out.",
        level=Level.STEP,
        reading="High: much is cut; the samples are too old, or the engines differ.",
    ),
    _sampling.gauge(
        "rl_sampling_weight_mean",
        "Mean weight (trainer over sampler) by which rollout correction multiplies the loss: per token, or that of "
        "the completion on each of its tokens.",
        healthy=Range(0.5, 2.0, "[verl], per token"),
        reading="1. Away from it: sampler and trainer are different policies.",
    ),
    _sampling.gauge(
        "rl_sampling_weight_std",
        "Standard deviation of the weight (trainer over sampler) by which rollout correction multiplies the loss.",
        reading="Growth is a mismatch.",
    ),
    *_sampling.gauges(
        "rl_sampling_weight_",
        "{} weight (trainer over sampler) by which rollout correction multiplies the loss.",
        min="Near 0: tokens that were not likely.",
        max="One large weight dominates the update.",
    ),
    _sampling.fraction(
        "rl_sampling_weight_high_fraction",
        "Share of the weights above the threshold of the correction.",
        reading="High: much is cut; the samples are too old, or the engines differ.",
    ),
    _sampling.fraction(
        "rl_sampling_weight_low_fraction",
        "Share of the weights below one over the threshold.",
        reading="High: much of what the sampler says the trainer would not.",
    ),
    _sampling.fraction(
        "rl_sampling_weight_outside_fraction",
        "Share of the tokens whose weight is outside both limits, and is set to 0.",
        reading="High: little is left to learn from.",
    ),
    _sampling.fraction(
        "rl_sampling_effective_sample_fraction",
        "Effective sample size of the weights, as a share of the samples: 1 where all weights are equal.",
        healthy=Range(0.5, 1.0, "[verl]: below 0.3 the update rests on few samples"),
        reading="Falling: a few samples dominate the update.",
    ),
    _sampling.gauge(
        "rl_sampling_weight_norm_factor",
        "Mean weight of the batch by which all weights were divided.",
        reading="1, or close to it.",
    ),
    *_sample.gauges(
        "rl_sampling_sequence_weight_",
        "{} weight of a completion: the mean over its tokens.",
        mean="1. Away from it: sampler and trainer are different policies.",
        std="Growth is a mismatch.",
        min="Near 0: a completion that the trainer would not have written.",
        max="One large weight dominates the update.",
    ),
    _sample.gauge(
        "rl_sampling_sequence_weight_deviation_max",
        "Largest distance of a completion's mean weight from 1.",
        reading="Near 0.",
    ),
    _sample.fraction(
        "rl_sampling_sequence_weight_high_fraction",
        "Share of completions whose mean weight is above the threshold.",
        reading="High: much is cut.",
    ),
    _sample.fraction(
        "rl_sampling_sequence_weight_low_fraction",
        "Share of completions whose mean weight is below one over the threshold.",
        reading="High: much of what the sampler says the trainer would not.",
    ),
    _sampling.fraction(
        "rl_sampling_rejected_token_fraction",
        "Share of completion tokens that rejection sampling has masked.",
        reading="High: little is left to learn from.",
    ),
    _sample.fraction(
        "rl_sampling_rejected_sequence_fraction",
        "Share of completions of which rejection sampling has masked at least a token.",
        reading="High: little is left to learn from.",
    ),
    _sampling.gauge(
        "rl_sampling_rejection",
        "A further statistic of rejection sampling, under the framework's own name.",
        level=Level.STEP,
        labels=("statistic",),
    ),
    *_sample.gauges(
        "rl_sample_staleness_",
        "{} age of the step's samples: how many updates the policy is ahead of the newest weights that wrote them.",
        unit="updates",
        mean="0 is on-policy. Growth: generation does not keep up.",
        min="0 is on-policy.",
        max="At its limit: samples are thrown away.",
    ),
    _sampling.gauge(
        "rl_evicted_samples",
        "Samples that were thrown away in the step, by the reason that the framework gives.",
        unit="samples",
        level=Level.STEP,
        labels=("reason",),
        reading="Many: generation that was for nothing.",
    ),
    _sample.fraction(
        "rl_sample_dropped_fraction",
        "Share of samples that were dropped because the weights that wrote them were too old.",
        reading="Growth: generation, or the queue before the trainer, takes too long for the age that is allowed.",
    ),
    _surprise.gauge(
        "rl_reference_log_perplexity",
        "Logarithm of the perplexity under the reference policy, mean over completions.",
        reading="Grows while the policy leaves the reference.",
    ),
    _sample.gauge(
        "rl_sampling_chi2_of_means",
        "Chi-squared divergence of trainer and sampler from each completion's geometric mean of ratios.",
        reading="Near 0, however long the completions are.",
        may_be_nonfinite=True,
    ),
    _sampling.gauge(
        "rl_sampling_ratio_mean",
        "Mean probability ratio of trainer over sampler, before the correction limits it.",
        healthy=Range(0.5, 2.0, "[verl], per token"),
        reading="1. Away from it: sampler and trainer are different policies.",
    ),
    _sampling.gauge(
        "rl_sampling_ratio_deviation_mean",
        "Mean absolute distance from 1 of the probability ratio of trainer over sampler, before the correction limits "
        "it.",
        reading="Growth is a mismatch between the two engines.",
    ),
    _sampling.fraction(
        "rl_sampling_weight_limited_fraction",
        "Share of the weights that the correction has limited or set to 0: of tokens, or of completions where it "
        "weighs these.",
        reading="High: much is cut; the samples are too old, or the engines differ.",
    ),
)

EXPERTS = (
    _expert.gauge(
        "rl_expert_load_imbalance",
        "Load of the busiest expert of a layer over the mean load of its experts, minus 1, mean over layers.",
        reading="0 is balanced. Growth: the router sends ever more tokens to ever fewer experts.",
    ),
    _expert.fraction(
        "rl_routing_confidence",
        "Share of the router's probability that the chosen experts hold, mean over tokens and layers.",
        reading="Near 1: the router is sure. Near the share of the experts that are chosen: it does not choose at all.",
    ),
)

PIPELINE = (
    _batch.gauge(
        "rl_tokens_per_second",
        "Tokens per second: forwarded or trained, over the time of forward and backward (fwd_bwd) or of the whole step "
        "(wall_clock).",
        unit="tokens per second",
        labels=("tokens", "clock"),
        keys=_own(_BOTH, "perf/{tokens}_tok_s_{clock}"),
        reading="wall_clock far below fwd_bwd: the trainer waits for rollouts.",
    ),
    _batch.fraction(
        "rl_model_flops_utilization",
        "Share of the GPUs' peak that training uses, over the time of forward and backward (fwd_bwd) or of the whole "
        "step (wall_clock); absent where the peak is not known.",
        labels=("clock",),
        keys=_own(_BOTH, "perf/mfu_{clock}"),
        reading="fwd_bwd says how good the kernels are, wall_clock what the run gets out of its GPUs.",
    ),
    _batch.gauge(
        "rl_generated_tokens_per_second",
        "Completion tokens per second that the sampler writes.",
        unit="tokens per second",
        keys=_own(_BOTH, "rollout/generated_tok_s"),
        reading="A fall: generation stalls.",
    ),
    _rollout.gauge(
        "rl_rollout_time_seconds",
        "Durations of a rollout's parts: the whole of it, scoring and waits before it, reset and reward of the "
        "environment, time in the queue.",
        unit="seconds",
        labels=("part",),
        keys=_own(_BOTH, "rollout/{part}_s", "sample/{part}_s") + _own(_AGENT, "env/{part}_s"),
        reading="backpressure: the trainer is the slow side. score_block: scoring is.",
    ),
    _rollout.gauge(
        "rl_sample_time_seconds",
        "Time that one completion takes in one part of its rollout, such as generation, tools and scoring, by the "
        "statistic over the completions of the step.",
        unit="seconds",
        labels=("part", "statistic"),
        reading="max far above mean: the step waits for a few slow ones.",
    ),
    _rollout.gauge(
        "rl_slowest_sample_time_seconds",
        "Time that the slowest completion of the step took in one part of its rollout.",
        unit="seconds",
        labels=("part",),
        reading="Nearly all of it in one part: that part is the bottleneck.",
    ),
    _rollout.gauge(
        "rl_slowest_sample_tokens",
        "Tokens of the slowest completion of the step, and of its prompt.",
        unit="tokens",
        labels=("tokens",),
        reading="Short and yet slow: it waits for a tool, or its engine is busy.",
    ),
    _rollout.gauge(
        "rl_sample_preemptions",
        "How often the engine put one completion aside to make room, by the statistic over completions; -1: unknown.",
        unit="preemptions",
        labels=("statistic",),
        reading="Above 0: the engine has too little memory for so many completions at once.",
    ),
    _rollout.gauge(
        "rl_rollout_queue_size",
        "How many wait: samples for the trainer (rollout), groups for scoring (score).",
        unit="entries",
        labels=("queue",),
        keys=_own(_BOTH, "sample/{queue}_queue_size") + _own(_AGENT, "rollout/{queue}_queue_size"),
        reading="0 for long: the trainer starves. Full for long: the samples grow old.",
    ),
    _rollout.gauge(
        "rl_rollouts_in_flight",
        "How many rollouts are under way.",
        unit="rollouts",
        keys=_own(_BOTH, "rollout/inflight"),
        reading="Below max_inflight_tasks for long: generation is held back.",
    ),
    _rollout.gauge(
        "rl_sample_staleness",
        "How many versions of the weights a sample is behind: mean, or max in the logging window.",
        unit="versions",
        labels=("statistic",),
        keys=_own(_BOTH, "sample/staleness_{statistic}"),
        reading="At max_staleness: samples are being dropped, and the rest is as off-policy as it may be.",
    ),
    _rollout.gauge(
        "rl_sample_tokens",
        "Tokens of a training row: forwarded, all of it, or trained, those that the loss is taken over.",
        unit="tokens",
        labels=("tokens", "statistic"),
        keys=_own(_BOTH, "sample/{tokens}_tokens_{statistic}"),
        reading="trained far below forwarded: most of the work earns no gradient.",
    ),
    _batch.gauge(
        "rl_packed_row_tokens",
        "Tokens of a packed row: mean, or max in the logging window.",
        unit="tokens",
        labels=("statistic",),
        keys=_own(_BOTH, "batch/row_tokens_{statistic}"),
        reading="max at token_budget: rows are full.",
    ),
    _batch.fraction(
        "rl_batch_token_fraction",
        "Shares of a batch: masked_token, forwarded tokens without loss; row_fill, of token_budget; pad, padding that "
        "is stripped before the forward pass.",
        labels=("part",),
        keys=_own(_BOTH, "batch/{part}_frac"),
        reading="masked_token high: long prompts or tool results. row_fill low: the budget is not used.",
    ),
    _batch.gauge(
        "rl_packing_ratio",
        "Tokens of the samples over tokens of their packed rows.",
        keys=_own(_AGENT, "batch/packing_ratio"),
        reading="Above 1: samples share their prompts in a row, and that work is done once.",
    ),
    _batch.gauge(
        "rl_row_imbalance",
        "Load of the heaviest row over the mean load of the rows.",
        keys=_own(_BOTH, "batch/row_imbalance"),
        reading="1 is balanced; above it the other ranks wait for one.",
    ),
    _batch.gauge(
        "rl_samples_per_row",
        "Samples in a packed row.",
        unit="samples per row",
        keys=_own(_BOTH, "batch/samples_per_row"),
        reading="Falls while the samples grow longer.",
    ),
    _batch.gauge(
        "rl_batch_per_step",
        "What an optimizer step takes: microbatches, samples, groups, forwarded_tokens, trained_tokens.",
        unit="per step",
        labels=("what",),
        keys=_own(_BOTH, "batch/{what}_per_step"),
        reading="Stable where batches have a fixed size; tokens grow with the length of the completions.",
    ),
    _batch.gauge(
        "rl_window_events",
        "Events of the logging window: samples that were dropped as too long (dropped_oversize) or too old "
        "(dropped_stale), requests to the sampler that were repeated (vllm_retry), calls of tools that do not exist "
        "(unknown_name).",
        unit="events",
        labels=("event",),
        keys=_own(_BOTH, "batch/{event}_total", "sample/{event}_total", "rollout/{event}_total")
        + _own(_AGENT, "tools/{event}_total"),
        reading="0 or absent. dropped_*: work that is thrown away.",
    ),
    _rollout.gauge(
        "rl_samples_per_rollout",
        "Training rows that a conversation gives: more than one where it was rewritten on the way.",
        unit="samples per rollout",
        keys=_own(_AGENT, "rollout/samples_per_rollout"),
        reading="Above 1: the chat template or the tools rewrite what was said.",
    ),
    _rollout.gauge(
        "rl_rollout_turns",
        "Turns of a conversation: mean, or max in the logging window.",
        unit="turns",
        labels=("statistic",),
        keys=_own(_AGENT, "rollout/turns_{statistic}"),
        reading="Falling to 1: the policy has unlearned its tools.",
    ),
    _rollout.gauge(
        "rl_retokenized_drift_tokens",
        "Tokens by which a conversation differs when it is tokenized anew: mean of a turn, or max.",
        unit="tokens",
        labels=("statistic",),
        keys=_own(_AGENT, "rollout/drift_tokens_{statistic}"),
        reading="0: what is trained is what was sampled.",
    ),
    _rollout.fraction(
        "rl_rollout_rewrite_fraction",
        "Share of turns after which the conversation no longer appends: a new row begins (fork), or its tail becomes "
        "context (realign).",
        labels=("change",),
        keys=_own(_AGENT, "rollout/{change}_frac"),
        reading="High: most turns are trained apart, or not at all.",
    ),
    _rollout.gauge(
        "rl_rollout_correctness_mean",
        "Mean correctness that the environment reports.",
        keys=_own(_AGENT, "rollout/correctness_mean"),
        reading="Rises while the policy learns; apart from the reward, the reward pays for something else.",
    ),
    _rollout.fraction(
        "rl_tool_loop_exhausted_fraction",
        "Share of rollouts that were cut off when they asked for one more tool call.",
        keys=_own(_AGENT, "tools/loop_exhausted_frac"),
        reading="High: max_tool_calling_iterations is too low; they are trained as if they had ended.",
    ),
    _rollout.gauge(
        "rl_tool_parallel_calls",
        "Tool calls in one turn that calls any.",
        unit="calls per turn",
        keys=_own(_AGENT, "tools/parallel_calls_mean"),
        reading="1: the policy asks for one thing at a time.",
    ),
    _rollout.gauge(
        "rl_tool_latency_seconds",
        "Duration of a tool call.",
        unit="seconds",
        keys=_own(_AGENT, "tools/latency_s"),
        reading="Growth: the tools hold the rollouts back.",
    ),
    _rollout.gauge(
        "rl_one_tool_latency_seconds",
        "Duration of a call of one tool.",
        unit="seconds",
        labels=("tool",),
        keys=_own(_AGENT, "tools/{tool}/latency_s"),
        reading="Tells which tool is slow.",
    ),
    _rollout.gauge(
        "rl_one_tool_events",
        "Calls and failures of one tool in the logging window, those of names that do not exist included.",
        unit="events",
        labels=("tool", "event"),
        keys=_own(_AGENT, "tools/{tool}/{event}_total"),
        reading="failure near call: the tool is down, or is called wrongly.",
    ),
)
