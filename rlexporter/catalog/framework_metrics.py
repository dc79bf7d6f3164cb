"""What other frameworks log and TRL does not; `rlexporter.frameworks` says which key feeds which."""

from __future__ import annotations

from rlexporter.catalog.entries import Entries
from rlexporter.model.metric import Group, Level, Range, RankScope

_reward = Entries(Group.REWARD, level=Level.SEQUENCE, unit="reward")
_kl = Entries(Group.KL, level=Level.TOKEN, unit="nats")
_entropy = Entries(Group.ENTROPY, level=Level.TOKEN, unit="nats")
_policy = Entries(Group.POLICY, level=Level.TOKEN, unit="fraction")
_advantage = Entries(Group.ADVANTAGE, level=Level.TOKEN)
_value = Entries(Group.VALUE, level=Level.TOKEN, unit="reward")
_completion = Entries(Group.COMPLETION, level=Level.SEQUENCE, unit="tokens")
_sampling = Entries(Group.SAMPLING, level=Level.TOKEN)
_speed = Entries(Group.SPEED, level=Level.STEP)
_evaluation = Entries(Group.EVALUATION, level=Level.RUN)

_LEARNING = (
    _reward.gauge(
        "rl_reward_min",
        "Smallest reward of a completion in the step.",
        reading="Compare with the smallest reward that is possible.",
    ),
    _reward.gauge(
        "rl_reward_max",
        "Largest reward of a completion in the step.",
        reading="Below the largest reward that is possible for long: nothing is solved.",
    ),
    _reward.gauge(
        "rl_rlhf_reward_min",
        "Smallest sum of score and KL penalty of a completion in the step.",
        reading="Far below the smallest score: the penalty of one completion is large.",
    ),
    _reward.gauge(
        "rl_rlhf_reward_max",
        "Largest sum of score and KL penalty of a completion in the step.",
        reading="Above the largest score: a negative KL pays.",
    ),
    _kl.gauge(
        "rl_kl_loss_per_token",
        "KL divergence to the reference policy that is added to the loss, where another one may be in the reward, by "
        "the estimator that is set: in verl k3 by default, in slime and miles k1.",
        reading="Grows slowly; a jump means the policy leaves the reference.",
    ),
    _kl.gauge(
        "rl_kl_penalty_per_token",
        "KL divergence to the reference policy that is subtracted from the reward, where another one may be in the "
        "loss: the mean of each completion's mean, by default the k1 estimator.",
        reading="Grows slowly; clearly below 0 the sampler is not the policy.",
    ),
    _entropy.gauge(
        "rl_update_entropy_per_token",
        "Entropy of the policy's next-token distribution, mean over completion tokens and over the updates of a step.",
        reading="As rl_entropy_per_token, which is measured before the updates.",
    ),
    _policy.gauge(
        "rl_policy_dual_clipfrac",
        "Share of completion tokens with a negative advantage whose loss is limited by the second clip of dual-clip "
        "PPO, at a ratio far above 1.",
        may_be_nonfinite=True,
        reading="0, or close to it. More: the policy has moved far from the one that sampled.",
    ),
    _advantage.gauge(
        "rl_token_advantage_mean",
        "Mean advantage over completion tokens that are not whitened: a long completion counts more than a short one.",
        reading="Below 0: the worse completions are the longer ones. Above 0: the better ones are.",
    ),
    _advantage.gauge(
        "rl_advantage_min",
        "Smallest advantage of a completion token.",
        reading="Growing without end: one completion dominates the update.",
    ),
    _advantage.gauge(
        "rl_advantage_max",
        "Largest advantage of a completion token.",
        reading="Growing without end: one completion dominates the update.",
    ),
)

_REWARDS = (
    _reward.gauge(
        "rl_reward_group_std",
        "Spread of the reward among the completions of one prompt, mean over completions.",
        reading="Falling to 0: the completions of a prompt are all right or all wrong, and teach nothing.",
    ),
    _reward.gauge(
        "rl_shaped_reward_mean",
        "Sum of the rewards of a completion's tokens after the baseline of its prompt and the KL penalty, mean over "
        "completions.",
        reading="Near 0 without a KL penalty: it is an advantage, and does not say how good completions are.",
    ),
    _reward.gauge(
        "rl_kept_reward_mean",
        "Mean reward of the completions that are trained on, after filters.",
        reading="Far from the mean of all: the filters choose what is learnt.",
    ),
    _reward.gauge(
        "rl_agent_reward",
        "Reward of one agent's completions, by the statistic over them.",
        labels=("agent", "statistic"),
        reading="Rises while that agent learns.",
    ),
    _reward.gauge(
        "rl_solved_fraction",
        "Share of an agent's prompts of which no completion, some or all are right, if rewards are 0 and 1.",
        unit="fraction",
        labels=("agent", "outcome"),
        reading="Only some teach: none and all have no spread of reward.",
    ),
    _reward.gauge(
        "rl_baseline_reward_fraction",
        "Share of the baselines, the mean rewards of a prompt's completions, that are 0, 1 or in between.",
        unit="fraction",
        labels=("baseline",),
        reading="Only those in between teach.",
    ),
)

_DISTANCE = (
    _kl.gauge(
        "rl_kl_k1_per_token",
        "KL divergence to the reference policy by the k1 estimator, whatever the settings use: the log-probability "
        "under the policy minus that under the reference, mean over tokens or over the means of completions.",
        reading="Grows slowly; clearly below 0 the sampler is not the policy.",
    ),
    _kl.gauge(
        "rl_kl_estimate_per_token",
        "KL divergence to the reference policy by the estimator that the settings name (k1, k2 or k3), of the reward "
        "or of the loss, wherever the penalty is.",
        reading="Grows slowly; compare runs of the same settings only.",
    ),
    _entropy.gauge(
        "rl_sampled_entropy_per_token",
        "Entropy of the policy, estimated from the sampled tokens: minus their log-probability, weighted by the ratio "
        "of policy and sampler.",
        reading="As rl_entropy_per_token, with more noise.",
    ),
    _policy.gauge(
        "rl_policy_ratio_min",
        "Smallest probability ratio new/old policy of a token.",
        unit="",
        reading="Near 0: the update has made a sampled token unlikely.",
    ),
    _policy.gauge(
        "rl_policy_ratio_max",
        "Largest probability ratio new/old policy of a token.",
        unit="",
        reading="Large: one token dominates an update that is not clipped.",
    ),
    _policy.gauge(
        "rl_policy_clipped_ratio_mean",
        "Mean probability ratio new/old policy after clipping.",
        unit="",
        reading="Away from the mean before clipping: the clip is at work.",
    ),
    _policy.gauge(
        "rl_trust_region_masked_fraction",
        "Share of a completion's tokens that the trust region leaves out of the loss, mean over completions.",
        reading="High: much of the batch is too far from the sampler.",
    ),
    _policy.gauge(
        "rl_trust_region_side_fraction",
        "The same by side: high is a better token that is too likely already, low a worse one too unlikely.",
        labels=("side",),
        reading="One side far above the other: the policy drifts that way.",
    ),
    _policy.gauge(
        "rl_micro_batch_loss_mean",
        "Mean over micro-batches and ranks of their parts of the loss, each over the tokens of the whole batch.",
        unit="",
        level=Level.STEP,
        reading="Compare within a run only. NaN: the weights are lost with the next step.",
    ),
)

_CRITIC = (
    _value.gauge(
        "rl_value_min",
        "Smallest value of a completion token, before the update.",
        reading="Far outside the returns: a critic that diverges.",
    ),
    _value.gauge(
        "rl_value_max",
        "Largest value of a completion token, before the update.",
        reading="Far outside the returns: a critic that diverges.",
    ),
    _value.gauge("rl_return_min", "Smallest return of a completion token.", reading="On the scale of the rewards."),
    _value.gauge("rl_return_max", "Largest return of a completion token.", reading="On the scale of the rewards."),
    _value.gauge(
        "rl_value_grad_norm",
        "Norm of the gradient of a value model of its own, before clipping.",
        unit="",
        level=Level.STEP,
        reading="Falls while the critic fits. NaN: its weights are lost with the next step.",
    ),
    _value.gauge(
        "rl_value_learning_rate",
        "Learning rate of a value model of its own.",
        unit="",
        level=Level.STEP,
        reading="Follows its schedule.",
    ),
)

_LENGTHS = (
    _completion.gauge(
        "rl_nonempty_completion_length_mean",
        "Mean length of the completions that are not empty.",
        reading="Far above the mean of all: many completions were aborted.",
    ),
    _completion.gauge(
        "rl_nonempty_completion_length_min",
        "Length of the shortest completion that is not empty.",
        reading="Near 1: some completions end at once.",
    ),
    _completion.gauge(
        "rl_nonempty_completion_length_max",
        "Length of the longest completion that is not empty.",
        reading="At the limit: some completions are cut off.",
    ),
    _completion.gauge(
        "rl_nonempty_completion_truncated_fraction",
        "Share of the completions that are not empty that are as long as completions can be.",
        unit="fraction",
        reading="High: the limit is too short, or the model forgets to stop.",
    ),
    _completion.gauge(
        "rl_completion_empty_fraction",
        "Share of completions without a token: their generation was aborted.",
        unit="fraction",
        healthy=Range(0.0, 0.0, "an aborted completion teaches nothing"),
        reading="Above 0: the sampler aborts requests; look at its log.",
    ),
    _completion.gauge(
        "rl_completion_longest_fraction",
        "Share of completions that are as long as the longest one of the step, be it cut off or not.",
        unit="fraction",
        reading="Rising while the longest one is at the limit: completions are cut off.",
    ),
    _completion.gauge("rl_prompt_length_min", "Length of the shortest prompt.", reading="Watch for drift of the data."),
    _completion.gauge(
        "rl_prompt_length_max",
        "Length of the longest prompt.",
        reading="At the limit: prompts are cut off, or left out.",
    ),
    _completion.gauge(
        "rl_prompt_truncated_fraction",
        "Share of prompts that are as long as prompts can be.",
        unit="fraction",
        healthy=Range(0.0, 0.0, "a prompt that is cut off asks for something else"),
        reading="Above 0: prompts are cut off; raise the limit, or filter them.",
    ),
    _completion.gauge(
        "rl_turns_mean", "Mean number of turns of a conversation.", unit="turns", reading="A fall: tools are unlearnt."
    ),
    _completion.gauge("rl_turns_min", "Smallest number of turns.", unit="turns", reading="Watch for drift."),
    _completion.gauge("rl_turns_max", "Largest number of turns.", unit="turns", reading="At the limit: cut off."),
    _completion.gauge("rl_tool_calls_min", "Fewest tool calls of a completion.", unit="calls", reading="Usually 0."),
    _completion.gauge(
        "rl_tool_calls_max", "Most tool calls of a completion.", unit="calls", reading="At the limit: a loop of calls."
    ),
)

_SEQUENCES = (
    _completion.gauge(
        "rl_sequence_length_mean",
        "Mean length of prompt and completion together, with all turns.",
        reading="Near the limit: sequences are cut off.",
    ),
    _completion.gauge(
        "rl_sequence_length_min", "Length of the shortest prompt with its completion.", reading="Watch for drift."
    ),
    _completion.gauge(
        "rl_sequence_length_max",
        "Length of the longest prompt with its completion.",
        reading="At the limit: sequences are cut off.",
    ),
    _completion.gauge(
        "rl_sequence_limit_fraction",
        "Share of completions that end at the limit for prompt and completion together.",
        unit="fraction",
        reading="Above 0: the limit for whole sequences is too short.",
    ),
)

_ENGINES = (
    _sampling.gauge(
        "rl_sampling_probability_factor_mean",
        "Mean factor between the trainer's and the sampler's probability of a token: the exponential of the absolute "
        "difference of their logarithms.",
        reading="1 to 1.05. Growth is a mismatch between the two engines.",
    ),
    _sampling.gauge(
        "rl_sampling_sequence_factor_mean",
        "Mean over completions of that factor's mean over their tokens.",
        level=Level.SEQUENCE,
        reading="1 to 1.05. Growth is a mismatch between the two engines.",
    ),
    _sampling.gauge(
        "rl_sampling_sequence_factor_min",
        "Smallest mean factor of a completion.",
        level=Level.SEQUENCE,
        reading="Close to 1.",
    ),
    _sampling.gauge(
        "rl_sampling_sequence_factor_max",
        "Largest mean factor of a completion.",
        level=Level.SEQUENCE,
        reading="Large: a completion that the trainer would not have written.",
    ),
    _sampling.gauge(
        "rl_trainer_kl_per_token",
        "KL divergence of the trainer from the sampler, mean over tokens: by default the k3 estimator.",
        unit="nats",
        reading="Near 0. Growth is a mismatch between the two engines, or old samples.",
    ),
    _sampling.gauge(
        "rl_sampling_js_per_token",
        "Jensen-Shannon divergence of trainer and sampler, mean over tokens.",
        unit="nats",
        reading="Near 0. Growth is a mismatch between the two engines, or old samples.",
    ),
    _sampling.gauge(
        "rl_sampling_filtered_fraction",
        "Share of the tokens, or of the completions where the correction is by completion, that are outside its "
        "limits and are cut or left out.",
        unit="fraction",
        level=Level.STEP,
        reading="High: much is cut; the samples are too old, or the engines differ.",
    ),
)

_PROBABILITY = (
    _sampling.gauge(
        "rl_sampling_probability_difference_mean",
        "Mean absolute difference between the trainer's and the sampler's probability of a token, not its logarithm.",
        healthy=Range(0.0, 0.05, "[verl]: a few hundredths with bf16"),
        reading="Growth is a mismatch between the two engines.",
    ),
    _sampling.gauge(
        "rl_sampling_probability_difference_max",
        "Largest such difference of a token.",
        reading="Often near 1 in healthy runs: a single token.",
    ),
    _sampling.gauge(
        "rl_sampling_probability_difference_std",
        "Spread of that difference over tokens.",
        reading="Growth is a mismatch between the two engines.",
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
    _sampling.gauge(
        "rl_sampling_kl_per_token",
        "KL divergence of the sampler from the trainer, mean over tokens: the k1 estimator, which can be negative.",
        unit="nats",
        reading="Near 0. Growth is a mismatch between the two engines, or old samples.",
    ),
    _sampling.gauge(
        "rl_trainer_perplexity",
        "Perplexity of the completions under the trainer.",
        reading="1 is certainty. Compare with that of the sampler.",
    ),
    _sampling.gauge(
        "rl_trainer_log_perplexity",
        "Logarithm of the perplexity under the trainer, mean over completions.",
        unit="nats",
        reading="The mean surprise of a token; falls with entropy.",
    ),
    _sampling.gauge(
        "rl_sampler_perplexity",
        "Perplexity of the completions under the sampler.",
        reading="1 is certainty. Compare with that of the trainer.",
    ),
    _sampling.gauge(
        "rl_sampler_log_perplexity",
        "Logarithm of the perplexity under the sampler, mean over completions.",
        unit="nats",
        reading="The mean surprise of a token; falls with entropy.",
    ),
    _sampling.gauge(
        "rl_perplexity_ratio",
        "Perplexity under the trainer over that under the sampler, mean over completions.",
        level=Level.SEQUENCE,
        reading="1. Above 1: the sampler is surer of what it said than the trainer.",
    ),
    _sampling.gauge(
        "rl_log_perplexity_difference_mean",
        "Log-perplexity under the trainer minus that under the sampler, mean over completions.",
        unit="nats",
        level=Level.SEQUENCE,
        reading="Near 0.",
    ),
    _sampling.gauge(
        "rl_log_perplexity_difference_min",
        "Smallest such difference of a completion.",
        unit="nats",
        level=Level.SEQUENCE,
        reading="Near 0.",
    ),
    _sampling.gauge(
        "rl_log_perplexity_difference_max",
        "Largest such difference of a completion.",
        unit="nats",
        level=Level.SEQUENCE,
        reading="Near 0. A large one: a completion that the trainer would not have written.",
    ),
    _sampling.gauge(
        "rl_log_perplexity_absolute_difference",
        "Absolute difference of the two log-perplexities, mean over completions.",
        unit="nats",
        level=Level.SEQUENCE,
        reading="Growth is a mismatch between the two engines.",
    ),
    _sampling.gauge(
        "rl_sampling_chi2_per_token",
        "Chi-squared divergence of trainer and sampler, from the ratios of tokens: mean of the squared ratio, minus 1.",
        reading="Near 0. Large: a few tokens dominate every correction.",
        may_be_nonfinite=True,
    ),
    _sampling.gauge(
        "rl_sampling_chi2_per_sequence",
        "The same from the ratios of whole completions, which grow with their length.",
        level=Level.SEQUENCE,
        reading="Large in healthy runs with long completions.",
        may_be_nonfinite=True,
    ),
)

_WEIGHTS = (
    _sampling.gauge(
        "rl_sampling_weight_mean",
        "Mean weight (trainer over sampler) by which rollout correction multiplies the loss: per token, or that of "
        "the completion on each of its tokens.",
        healthy=Range(0.5, 2.0, "[verl], per token"),
        reading="1. Away from it: sampler and trainer are different policies.",
    ),
    _sampling.gauge("rl_sampling_weight_std", "Spread of that weight.", reading="Growth is a mismatch."),
    _sampling.gauge("rl_sampling_weight_min", "Smallest such weight.", reading="Near 0: tokens that were not likely."),
    _sampling.gauge("rl_sampling_weight_max", "Largest such weight.", reading="One large weight dominates the update."),
    _sampling.gauge(
        "rl_sampling_weight_high_fraction",
        "Share of the weights above the threshold of the correction.",
        unit="fraction",
        reading="High: much is cut; the samples are too old, or the engines differ.",
    ),
    _sampling.gauge(
        "rl_sampling_weight_low_fraction",
        "Share of the weights below one over the threshold.",
        unit="fraction",
        reading="High: much of what the sampler says the trainer would not.",
    ),
    _sampling.gauge(
        "rl_sampling_weight_outside_fraction",
        "Share of the tokens whose weight is outside both limits, and is set to 0.",
        unit="fraction",
        reading="High: little is left to learn from.",
    ),
    _sampling.gauge(
        "rl_sampling_effective_sample_fraction",
        "Effective sample size of the weights, as a share of the samples: 1 where all weights are equal.",
        unit="fraction",
        healthy=Range(0.5, 1.0, "[verl]: below 0.3 the update rests on few samples"),
        reading="Falling: a few samples dominate the update.",
    ),
    _sampling.gauge(
        "rl_sampling_weight_norm_factor",
        "Mean weight of the batch by which all weights were divided.",
        reading="1, or close to it.",
    ),
    _sampling.gauge(
        "rl_sampling_sequence_weight_mean",
        "Mean over completions of their mean weight.",
        level=Level.SEQUENCE,
        reading="1. Away from it: sampler and trainer are different policies.",
    ),
    _sampling.gauge(
        "rl_sampling_sequence_weight_std",
        "Spread of the completions' mean weights.",
        level=Level.SEQUENCE,
        reading="Growth is a mismatch.",
    ),
    _sampling.gauge(
        "rl_sampling_sequence_weight_min",
        "Smallest mean weight of a completion.",
        level=Level.SEQUENCE,
        reading="Near 0: a completion that the trainer would not have written.",
    ),
    _sampling.gauge(
        "rl_sampling_sequence_weight_max",
        "Largest mean weight of a completion.",
        level=Level.SEQUENCE,
        reading="One large weight dominates the update.",
    ),
    _sampling.gauge(
        "rl_sampling_sequence_weight_deviation_max",
        "Largest distance of a completion's mean weight from 1.",
        level=Level.SEQUENCE,
        reading="Near 0.",
    ),
    _sampling.gauge(
        "rl_sampling_sequence_weight_high_fraction",
        "Share of completions whose mean weight is above the threshold.",
        unit="fraction",
        level=Level.SEQUENCE,
        reading="High: much is cut.",
    ),
    _sampling.gauge(
        "rl_sampling_sequence_weight_low_fraction",
        "Share of completions whose mean weight is below one over the threshold.",
        unit="fraction",
        level=Level.SEQUENCE,
        reading="High: much of what the sampler says the trainer would not.",
    ),
    _sampling.gauge(
        "rl_sampling_rejected_token_fraction",
        "Share of completion tokens that rejection sampling has masked.",
        unit="fraction",
        reading="High: little is left to learn from.",
    ),
    _sampling.gauge(
        "rl_sampling_rejected_sequence_fraction",
        "Share of completions of which rejection sampling has masked at least a token.",
        unit="fraction",
        level=Level.SEQUENCE,
        reading="High: little is left to learn from.",
    ),
    _sampling.gauge(
        "rl_sampling_rejection",
        "A further statistic of rejection sampling, under the framework's own name.",
        level=Level.STEP,
        labels=("statistic",),
    ),
    _sampling.gauge(
        "rl_sample_staleness_mean",
        "Mean age of the step's samples: how many updates the policy is ahead of the newest weights that wrote them.",
        unit="updates",
        level=Level.SEQUENCE,
        reading="0 is on-policy. Growth: generation does not keep up.",
    ),
    _sampling.gauge(
        "rl_sample_staleness_min",
        "Age of the youngest sample of the step.",
        unit="updates",
        level=Level.SEQUENCE,
        reading="0 is on-policy.",
    ),
    _sampling.gauge(
        "rl_sample_staleness_max",
        "Age of the oldest sample of the step.",
        unit="updates",
        level=Level.SEQUENCE,
        reading="At its limit: samples are thrown away.",
    ),
    _sampling.gauge(
        "rl_evicted_samples",
        "Samples that were thrown away in the step, by the reason that the framework gives.",
        unit="samples",
        level=Level.STEP,
        labels=("reason",),
        reading="Many: generation that was for nothing.",
    ),
)

_COST = (
    _speed.gauge(
        "rl_phase_time_per_token_seconds",
        "Duration of one part of the last step, over its tokens.",
        unit="seconds per token",
        labels=("phase",),
        reading="Growth: this part becomes slower for the same work.",
    ),
    _speed.gauge(
        "rl_tokens_per_second_per_gpu",
        "Prompt and completion tokens of the step, over its time and the number of GPUs.",
        unit="tokens per second",
        reading="Stable; a fall is a slow worker or longer waits.",
    ),
    _speed.gauge(
        "rl_step_tokens", "Prompt and completion tokens of the step.", unit="tokens", reading="Grows with the lengths."
    ),
    _speed.gauge(
        "rl_role_flops_utilization",
        "Share of the GPUs' peak operations that a part of the step reaches (MFU).",
        unit="fraction",
        labels=("role",),
        reading="0.3 to 0.5 is usual in training; a fall is waiting.",
    ),
    _speed.gauge(
        "rl_gpu_memory_allocated_max_bytes",
        "Largest GPU memory that torch has allocated, of the worker that reports.",
        unit="bytes",
        scope=RankScope.RANK,
        reading="Near the memory of the GPU: it will run out with longer completions.",
    ),
    _speed.gauge(
        "rl_gpu_memory_reserved_max_bytes",
        "Largest GPU memory that torch has reserved, of the worker that reports.",
        unit="bytes",
        scope=RankScope.RANK,
        reading="Far above what is allocated: memory is fragmented.",
    ),
    _speed.gauge(
        "rl_host_memory_used_bytes",
        "Memory in use on the machine of the worker that reports.",
        unit="bytes",
        scope=RankScope.RANK,
        reading="Growing without end: a leak.",
    ),
    _speed.gauge(
        "rl_rank_tokens_mean", "Mean tokens of a data-parallel rank.", unit="tokens", reading="Grows with the lengths."
    ),
    _speed.gauge(
        "rl_rank_tokens_min",
        "Tokens of the data-parallel rank that has the fewest, before they are balanced.",
        unit="tokens",
        reading="Far below the most: unequal work.",
    ),
    _speed.gauge(
        "rl_rank_tokens_max",
        "Tokens of the data-parallel rank that has the most, before they are balanced.",
        unit="tokens",
        reading="Far above the fewest: unequal work.",
    ),
    _speed.gauge(
        "rl_rank_tokens_range",
        "Most minus fewest tokens of a data-parallel rank, before they are balanced.",
        unit="tokens",
        reading="Large: unequal work.",
    ),
    _speed.gauge(
        "rl_rank_tokens_balanced_min",
        "Tokens of the data-parallel rank that has the fewest, after they were balanced.",
        unit="tokens",
        reading="Close to the most.",
    ),
    _speed.gauge(
        "rl_rank_tokens_balanced_max",
        "Tokens of the data-parallel rank that has the most, after they were balanced.",
        unit="tokens",
        reading="Close to the fewest.",
    ),
    _evaluation.gauge(
        "rl_eval_score",
        "A score of the last validation: the data set, what was scored, and the statistic over samples, as the "
        "framework names them (mean@8, best@8/mean).",
        labels=("dataset", "score", "statistic"),
        reading="Rises while the policy learns. Falls while the training reward rises: it is being hacked.",
    ),
)

_WORK = (
    _speed.gauge("rl_step_samples", "Completions of the step.", unit="samples", reading="The size of the batch."),
    _speed.gauge(
        "rl_training_tokens_per_second_per_gpu",
        "Tokens of the step over the time of the update alone, and the number of GPUs that train.",
        unit="tokens per second",
        reading="Stable; a fall is a slower update.",
    ),
    _speed.gauge(
        "rl_trained_tokens_per_second_per_gpu",
        "Completion tokens that are trained on, over the time of the whole step and the number of GPUs.",
        unit="tokens per second",
        reading="Stable; a fall is a slow worker or longer waits.",
    ),
)

_SIGNAL = (
    _reward.gauge(
        "rl_normalized_reward_mean",
        "Mean reward of a completion after the framework normalised it within its group.",
        reading="0 where the group's mean is subtracted.",
    ),
    _reward.gauge(
        "rl_zero_std_groups",
        "Groups of the step in which every completion got the same reward, by that reward, rounded.",
        unit="groups",
        level=Level.STEP,
        labels=("reward",),
        reading="Many at the lowest reward: too hard. Many at the highest: solved.",
    ),
    _reward.gauge(
        "rl_zero_std_excluded_fraction",
        "Share of groups without spread of reward that are left out of the loss, and of what it is divided by.",
        unit="fraction",
        level=Level.STEP,
        reading="0 where none is left out.",
    ),
    _reward.gauge(
        "rl_groups_all_zero_fraction",
        "Share of groups in which every completion got a reward of 0, rounded.",
        unit="fraction",
        level=Level.STEP,
        reading="High: too hard, or the reward is broken.",
    ),
    _reward.gauge(
        "rl_groups_all_one_fraction",
        "Share of groups in which every completion got a reward of 1, rounded.",
        unit="fraction",
        level=Level.STEP,
        reading="High: solved.",
    ),
    _reward.gauge(
        "rl_pass_rate",
        "Share of prompts of which at least one of k completions gets a reward of 1, estimated from all of its group.",
        unit="fraction",
        labels=("k",),
        reading="Rises while the policy learns. Rises for 1 and falls for many: it explores less.",
    ),
    _advantage.gauge(
        "rl_sequence_advantage_mean",
        "Mean over completions of the mean advantage of their tokens.",
        level=Level.SEQUENCE,
        reading="Near 0 where advantages are relative to a group.",
    ),
    _entropy.gauge(
        "rl_completion_entropy_min",
        "Smallest mean entropy of a completion's tokens.",
        level=Level.SEQUENCE,
        reading="Near 0: a completion that was certain throughout.",
    ),
    _entropy.gauge(
        "rl_completion_entropy_max",
        "Largest mean entropy of a completion's tokens.",
        level=Level.SEQUENCE,
        reading="Far above the mean: a completion that is noise.",
    ),
    _entropy.gauge(
        "rl_entropy_threshold",
        "Entropy from which on a token counts in the loss, where only the most uncertain ones do.",
        reading="Falls with the entropy.",
    ),
    _policy.gauge(
        "rl_off_policy_masked_fraction",
        "Share of completion tokens that are left out of the loss: the policy has left them, and their advantage is "
        "negative.",
        reading="High: the samples are too old.",
    ),
    _policy.gauge(
        "rl_update_effective_sample_fraction",
        "Effective sample size of the ratios of a completion's tokens (policy over the one before the update), as a "
        "share of the tokens, mean over completions.",
        reading="1 at the first update. Falling: a few tokens dominate it.",
    ),
    _policy.gauge(
        "rl_fipo",
        "A statistic of FIPO, which weighs tokens by what follows them, under the framework's own name.",
        unit="",
        labels=("statistic",),
    ),
)

_TEACHER = (
    _kl.gauge(
        "rl_teacher_kl_per_token",
        "KL divergence of the policy from its teacher, mean over completion tokens: the k3 estimator.",
        reading="Falls while the policy learns from its teacher.",
    ),
    _kl.gauge(
        "rl_teacher_reverse_kl_per_token",
        "KL divergence of the policy from its teacher, log-probability of the policy minus that of the teacher: the k1 "
        "estimator.",
        reading="Falls while the policy learns from its teacher.",
    ),
    _policy.gauge(
        "rl_sdar",
        "A statistic of the distillation loss of SDAR, under the framework's own name.",
        unit="",
        labels=("statistic",),
    ),
    _policy.gauge(
        "rl_self_distillation_weight",
        "Weight of the self-distilled advantages of RLSD.",
        unit="",
        level=Level.STEP,
        reading="Follows its schedule.",
    ),
)

_MORE_LENGTHS = (
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
    _completion.gauge(
        "rl_completion_repetitive_fraction",
        "Share of completions whose end repeats itself: more than 10,000 characters that compress to a tenth.",
        unit="fraction",
        reading="Growth: the policy runs in circles until the limit.",
    ),
)

_MISMATCH = (
    _kl.gauge(
        "rl_rollout_kl_max",
        "Largest k3 estimate, at one token, of the KL divergence between the policy that sampled and the trainer's.",
        reading="A single large value may be noise; one that stays is a mismatch.",
        may_be_nonfinite=True,
    ),
    _sampling.gauge(
        "rl_reference_log_perplexity",
        "Logarithm of the perplexity under the reference policy, mean over completions.",
        unit="nats",
        reading="Grows while the policy leaves the reference.",
    ),
    _sampling.gauge(
        "rl_sampling_chi2_of_means",
        "Chi-squared divergence of trainer and sampler from each completion's geometric mean of ratios.",
        level=Level.SEQUENCE,
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
        "Mean absolute distance of that ratio from 1.",
        reading="Growth is a mismatch between the two engines.",
    ),
    _sampling.gauge(
        "rl_sampling_weight_limited_fraction",
        "Share of the weights that the correction has limited or set to 0: of tokens, or of completions where it "
        "weighs these.",
        unit="fraction",
        reading="High: much is cut; the samples are too old, or the engines differ.",
    ),
)

_PACE = (
    _speed.gauge(
        "rl_mean_step_time_seconds",
        "Mean time of a step since the training began or was resumed.",
        unit="seconds",
        reading="Follows rl_step_time_seconds slowly.",
    ),
    _speed.gauge(
        "rl_mean_steps_per_second",
        "Mean number of steps a second since the training began or was resumed.",
        unit="steps per second",
        reading="Stable.",
    ),
    _speed.gauge(
        "rl_waiting_fraction",
        "Share of the step in which the trainer waits for samples.",
        unit="fraction",
        reading="High: generation does not keep up.",
    ),
    _speed.gauge(
        "rl_generated_tokens_per_second_per_gpu",
        "Generated tokens over the time of the rollout and the number of its GPUs.",
        unit="tokens per second",
        reading="A fall is a slow engine, or a long tail of completions.",
    ),
    _speed.gauge(
        "rl_longest_sample_waiting_seconds",
        "Time that the longest completions of the step spent on anything but generation: tools, environments.",
        unit="seconds",
        reading="Near the time of the rollout: tools are the bottleneck.",
    ),
    _speed.gauge(
        "rl_phase_tflops",
        "Operations of one part of the step over its time, of one GPU, in 10^12 a second.",
        unit="TFLOP/s",
        labels=("phase",),
        reading="A fall is shorter sequences, or waiting.",
    ),
)

_VALIDATION = (
    _evaluation.gauge(
        "rl_eval_best_reward",
        "Best reward of so many attempts at one prompt of a data set, mean over prompts of the last validation.",
        unit="reward",
        labels=("dataset", "attempts"),
        reading="Rises while the policy learns; only that of many attempts: it explores.",
    ),
    _evaluation.gauge(
        "rl_validation_reward_mean",
        "Mean reward of the last validation.",
        unit="reward",
        reading="Rises while the policy learns. Falls while the training reward rises: it is being hacked.",
    ),
    _evaluation.gauge(
        "rl_validation_length_mean",
        "Mean length of the completions of the last validation.",
        unit="tokens",
        reading="As in training, or nearly so.",
    ),
    _evaluation.gauge(
        "rl_validation_truncated_fraction",
        "Share of completions of the last validation that were cut off.",
        unit="fraction",
        reading="Above 0: scores are too low, since answers are missing.",
    ),
    _evaluation.gauge(
        "rl_eval_reward",
        "Mean reward of the last validation on a data set.",
        unit="reward",
        labels=("dataset",),
        reading="Rises while the policy learns. Falls while the training reward rises: it is being hacked.",
    ),
    _evaluation.gauge(
        "rl_eval_truncated_fraction",
        "Share of the completions of the last validation that were cut off at the length limit.",
        unit="fraction",
        labels=("dataset",),
        reading="High: the limit is too short.",
    ),
    _evaluation.gauge(
        "rl_eval_pass_at_k",
        "Share of prompts of the last validation of which at least one of k completions gets a reward of 1.",
        unit="fraction",
        labels=("dataset", "k"),
        reading="Rises while the policy learns.",
    ),
    _evaluation.gauge(
        "rl_eval_unscored_fraction",
        "Share of the completions of the last validation without a reward, which count as 0.",
        unit="fraction",
        labels=("dataset",),
        reading="Above 0: the environment fails, and the mean reward is too low.",
    ),
    _evaluation.gauge(
        "rl_eval_skipped",
        "1 at a validation that was skipped, by the reason that the framework gives.",
        unit="",
        labels=("reason",),
        reading="A gap in the curves.",
    ),
)

FRAMEWORK_METRICS = (
    *(*_LEARNING, *_REWARDS, *_DISTANCE, *_CRITIC, *_LENGTHS, *_SEQUENCES, *_PROBABILITY, *_ENGINES, *_WEIGHTS),
    *(*_COST, *_WORK, *_VALIDATION),
    *(*_SIGNAL, *_TEACHER, *_MORE_LENGTHS, *_MISMATCH, *_PACE),
)
