"""The metrics of learning: rewards, the distance to the reference, updates of the policy and of the value function."""

from __future__ import annotations

from rlexporter.catalog.algorithms import ASYNC_GRPO, GRPO, ONLINE_DPO, PPO, PPO_LEGACY
from rlexporter.catalog.entries import GROUPWISE, TRAINERS, Entries, keys
from rlexporter.model.metric import Group, Level, Metric, Range, RankScope


def _both_signs(*positive: float) -> tuple[float, ...]:
    """Return bounds around zero: -x ... 0 ... x."""
    return (*(-x for x in reversed(positive)), 0.0, *positive)


_KL_TOKEN = _both_signs(0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
_KL_SEQUENCE = _both_signs(0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
_REWARD = _both_signs(0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 100.0, 1000.0)
_SCORE = (  # a tenth is in the middle of its bucket: in float32 some tenths are a little more than they say
    *(-100.0, -10.0, -2.0, -1.0, -0.5, -0.1, 0.0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0),
    *(1.25, 1.5, 2.0, 3.0, 10.0, 100.0),
)
_LOSS = _both_signs(0.0001, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 100.0, 1000.0)
_ADVANTAGE = _both_signs(0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0)
_LOGPROB = (
    *(-100.0, -50.0, -20.0, -15.0, -10.0, -8.0, -6.0, -5.0, -4.0, -3.0, -2.5, -2.0, -1.5, -1.0, -0.7, -0.5),
    *(-0.3, -0.2, -0.1, -0.05, -0.01, -0.001, 0.0),
)
_RATIO = (
    *(0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0),
    *(1.001, 1.01, 1.05, 1.1, 1.2, 1.28, 1.5, 2.0, 5.0, 10.0, 200.0, 1000.0),
)
_CLIP_SOURCE = "[ranges], per token; per sequence (RLOO, GSPO) far higher values are normal"

_reward = Entries(Group.REWARD, level=Level.SEQUENCE, unit="reward")
_reward_function = Entries(Group.REWARD, level=Level.SEQUENCE, unit="reward", labels=("reward_function",))
_kl = Entries(Group.KL, level=Level.TOKEN, unit="nats")
_entropy = Entries(Group.ENTROPY, level=Level.TOKEN, unit="nats")
_policy = Entries(Group.POLICY, level=Level.TOKEN)
_log_ratio = Entries(Group.POLICY, level=Level.TOKEN, unit="nats")
_update = Entries(Group.POLICY, level=Level.STEP)
_clip = Entries(Group.POLICY, level=Level.TOKEN, unit="fraction", may_be_nonfinite=True)
_advantage = Entries(Group.ADVANTAGE, level=Level.TOKEN)
_optimal = Entries(Group.ADVANTAGE, level=Level.SEQUENCE, unit="reward", scope=RankScope.RANK)
_loss = Entries(Group.LOSS, level=Level.STEP)
_value = Entries(Group.VALUE, level=Level.TOKEN, unit="reward")
_critic = Entries(Group.VALUE, level=Level.STEP)
_optimizer = Entries(Group.OPTIMIZER, level=Level.STEP)
_weights = Entries(Group.OPTIMIZER, level=Level.STEP, scope=RankScope.RANK)
_logprob = Entries(Group.LOGPROB, level=Level.TOKEN, unit="nats")
_reference = Entries(Group.LOGPROB, level=Level.STEP, scope=RankScope.RANK)


def _unmasked(entries: Entries, stem: str, bounds: tuple[float, ...], key: str, unit: str) -> Metric:
    """Make the metric for a distribution as legacy PPO logs it, without its mask; for a run without taps."""
    return entries.histogram(
        f"{stem}unmasked_dist",
        f"{stem}dist as legacy PPO logs it: with prompt and padding positions, and averaged over ranks element by "
        "element. Only where no taps see the tokens themselves.",
        bounds,
        unit=unit,
        scope=RankScope.GLOBAL,
        keys=keys(PPO_LEGACY, key),
        reading="Its bulk is padding. Attach to the trainer instead: rlexporter.attach(ppo_trainer).",
        of=f"{stem}dist",
    )


LEARNING = (
    _reward.gauge(
        "rl_reward_mean",
        "Mean reward per completion. GRPO, RLOO: the weighted sum of the reward functions, raw (unweighted in trl 0.27 "
        "to 0.29). Modern PPO: the score after the missing-EOS penalty. Legacy PPO: the rewards given to log_stats().",
        keys=keys(f"{GROUPWISE} a2po", "reward")
        + keys("sdpo", "self_distillation/reward_mean")
        + keys(PPO_LEGACY, "env/reward_mean")
        + keys(PPO_LEGACY, "rewards/mean", only=True)
        + keys("ppo online-dpo", "objective/scores"),
        reading="Rises while the policy learns. Flat from the start: nothing is learned. A jump beyond its own spread, "
        "or a rise while KL runs away: the reward is being hacked.",
    ),
    _reward.gauge(
        "rl_reward_std",
        "Spread of the reward: over the whole generation batch (GRPO from trl 0.27, RLOO), the mean over groups "
        "(GRPO up to 0.26), over the gathered rewards (legacy PPO).",
        keys=keys(GROUPWISE, "reward_std")
        + keys("sdpo", "self_distillation/reward_std")
        + keys(PPO_LEGACY, "env/reward_std"),
        healthy=Range(0.0, None, "[ranges]: moderate, not exploding"),
        reading="0 means no difference between completions, hence no policy gradient: either solved or the reward is "
        "constant.",
    ),
    _reward.histogram(
        "rl_reward_dist",
        "Reward of each completion.",
        _SCORE,
        keys=keys(PPO_LEGACY, "env/reward_dist"),
        reading="Balanced, without long tails; two humps are two kinds of answers.",
    ),
    _reward.histogram(
        "rl_reward_group_range_dist",
        "Largest minus smallest reward of each group of completions to one prompt: of all ranks, exact where "
        "frac_reward_zero_std takes rounding for a spread.",
        (1e-6, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 100.0, 1000.0),
        scope=RankScope.GLOBAL,
        reading='le="1e-06": groups in which all rewards are equal, which teach nothing.',
    ),
    _reward.fraction(
        "rl_reward_zero_fraction",
        "Share of the completions whose reward is exactly 0, and not that of their whole group (GRPO, RLOO).",
        scope=RankScope.RANK,
        reading="Steady. A rise where it was 0: a reward model or service that fails gives 0.",
    ),
    _reward_function.gauge(
        "rl_reward_function_mean",
        "Mean of one reward function over the samples for which it returned a number.",
        keys=keys("grpo rloo", "rewards/{reward_function}/mean")
        + keys("grpo async-grpo", "rewards/{reward_function}")
        + keys("sdpo", "self_distillation/rewards/{reward_function}"),
        reading="One falling while another rises: they conflict. One stuck at its lowest value is dead.",
    ),
    _reward_function.gauge(
        "rl_reward_function_std",
        "Spread of one reward function over the generation batch, NaN left out.",
        keys=keys("grpo rloo", "rewards/{reward_function}/std"),
        healthy=Range(0.0, None, "0 is no signal from this function"),
        reading="0: this function tells no completion from another, so it teaches nothing.",
    ),
    _reward_function.histogram(
        "rl_reward_function_dist",
        "Reward of each completion by one reward function, where it returned a number.",
        _SCORE,
        reading="All in one bucket: this function tells no completion from another.",
    ),
    _reward_function.gauge(
        "rl_reward_function_time_seconds",
        "Duration of the last call of one reward function, which scored the completions of a rollout.",
        unit="seconds",
        level=Level.STEP,
        scope=RankScope.RANK,
        reading="A rise: a judge, service or sandbox that answers late.",
    ),
    _reward_function.fraction(
        "rl_reward_function_zero_fraction",
        "Share of the completions to which a reward function gave exactly 0, and not to their whole group.",
        scope=RankScope.RANK,
        reading="Steady, or falling. A rise where it was 0: the function gives 0 where it fails.",
    ),
    _reward_function.fraction(
        "rl_reward_function_flat_fraction",
        "Share of the groups in which a reward function gave all completions the same, over all ranks.",
        reading="1 from one step on: the function reads the prompt, or an old completion.",
    ),
    _reward_function.gauge(
        "rl_reward_function_weight",
        "Weight of a reward function in the reward of this step (`reward_weights`).",
        reading="Constant, unless a curriculum changes it: then the reward is another one.",
    ),
    _reward.fraction(
        "rl_reward_zero_std_fraction",
        "Share of completions whose group has no spread of reward, so that their advantage is 0.",
        keys=keys("grpo rloo", "frac_reward_zero_std"),
        healthy=Range(0.0, 0.9, "no number published; 1 is no policy gradient at all"),
        reading="Near 1 with a high reward: solved. Near 1 with a low one: too hard, or the reward is broken.",
    ),
    _reward.gauge(
        "rl_scores_mean",
        "Mean score after score scaling and clipping; equals the reward where neither is used.",
        keys=keys(PPO_LEGACY, "ppo/mean_scores"),
        reading="Rises while the policy learns; away from the reward, score clipping is at work.",
    ),
    _reward.gauge(
        "rl_scores_std",
        "Spread of the scores; over several ranks the mean of the ranks' own.",
        keys=keys(PPO_LEGACY, "ppo/std_scores"),
        reading="Near 0: no learning signal. Growing without end: the reward model is off its ground.",
    ),
    _reward.gauge(
        "rl_rlhf_reward",
        "Score plus the (negative) KL penalty: what PPO maximizes.",
        keys=keys("ppo online-dpo", "objective/rlhf_reward"),
        reading="Rises [trl]. Falls while the score rises: the penalty is winning.",
    ),
    _reward.gauge(
        "rl_non_score_reward_per_sequence",
        "The KL penalty: minus kl_coef times the KL summed over a sequence.",
        keys=keys("ppo online-dpo", "objective/non_score_reward"),
        reading="Small against the score; should not dominate it [ranges].",
    ),
    _reward.gauge(
        "rl_non_score_reward_per_token",
        "The KL penalty as a mean over response tokens: negative while KL is positive.",
        level=Level.TOKEN,
        keys=keys(PPO_LEGACY, "ppo/mean_non_score_reward"),
        reading="Should not dominate the reward [ranges].",
    ),
    _reward.gauge(
        "rl_agent_reward",
        "Reward of one agent's completions, by the statistic over them.",
        labels=("agent", "statistic"),
        reading="Rises while that agent learns.",
    ),
    _kl.gauge(
        "rl_kl_per_sequence",
        "KL divergence to the reference policy, summed over the tokens of a response, mean over the batch. "
        "Usually the k1 estimator, which can be negative.",
        level=Level.SEQUENCE,
        keys=keys("ppo ppo-legacy online-dpo", "objective/kl"),
        healthy=Range(0.0, 10.0, "[trl]; the adaptive controller aims at 6"),
        reading="Near 0 at the first step, then grows slowly. Too high: over-optimisation. Clearly below 0: the "
        "sampler is not the policy, or generation is constrained.",
    ),
    _kl.histogram(
        "rl_kl_per_sequence_dist",
        "KL divergence to the reference policy of each response, summed over its tokens.",
        _KL_SEQUENCE,
        level=Level.SEQUENCE,
        keys=keys(PPO_LEGACY, "objective/kl_dist"),
        reading="A long upper tail: a few responses have left the reference although the mean looks well.",
    ),
    _kl.gauge(
        "rl_kl_per_token",
        "KL divergence to the reference policy, mean over completion tokens; only with beta above 0. GRPO: the k3 "
        "estimator, never negative. RLOO: k1, signed.",
        keys=keys("grpo rloo", "kl"),
        healthy=Range(0.0, 0.1, "[ranges] on this scale; limits depend on beta, estimator and length of the run"),
        reading="Near 0 at the first step, then grows slowly; a jump means the policy leaves the reference.",
    ),
    _kl.histogram(
        "rl_kl_per_token_dist",
        "KL divergence to the reference policy of each completion token.",
        _KL_TOKEN,
        reading="A long upper tail: a few tokens have left the reference although the mean looks well.",
    ),
    _kl.gauge(
        "rl_rollout_kl_per_token",
        "KL divergence between the policy that sampled and the current one (k3), not to a reference model.",
        keys=keys(ASYNC_GRPO, "kl"),
        reading="Grows with the age of the samples: the policy has moved on since they were drawn.",
    ),
    _kl.gauge(
        "rl_kl_coef",
        "Coefficient of the KL penalty in force. Modern PPO, GRPO and RLOO do not log it: it is their setting kl_coef "
        "or beta in each step.",
        unit="",
        level=Level.STEP,
        keys=keys(PPO_LEGACY, "objective/kl_coef") + keys(ONLINE_DPO, "beta"),
        reading="A steady climb of the adaptive coefficient often comes before an instability [trl].",
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
    _kl.gauge(
        "rl_rollout_kl_max",
        "Largest k3 estimate, at one token, of the KL divergence between the policy that sampled and the trainer's.",
        reading="A single large value may be noise; one that stays is a mismatch.",
        may_be_nonfinite=True,
    ),
    _entropy.gauge(
        "rl_entropy_per_token",
        "Entropy of the policy's next-token distribution, mean over completion tokens (modern PPO: over padding too).",
        keys=keys(GROUPWISE, "entropy") + keys(PPO, "policy/entropy_avg") + keys(PPO_LEGACY, "ppo/policy/entropy"),
        reading="High early, declines slowly [ranges]. Near 0: collapse, nothing is explored any more. A lasting "
        "rise: the policy falls apart into noise.",
        corrected=True,
    ),
    _entropy.histogram(
        "rl_entropy_per_token_dist",
        "Entropy of the policy's next-token distribution at each completion token.",
        (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0),
        reading="Mass moving to 0: the policy decides ever more tokens outright.",
    ),
    _entropy.gauge(
        "rl_entropy_per_sequence",
        "Minus the sampled log-probabilities summed over a response: a one-sample estimate. Modern PPO up to trl "
        "1.9 subtracts 1 for every padding token, so that it can be negative.",
        level=Level.SEQUENCE,
        keys=keys("ppo ppo-legacy online-dpo", "objective/entropy"),
        reading="High early, declines slowly [ranges]. For collapse watch the entropy per token.",
    ),
    _entropy.gauge(
        "rl_update_entropy_per_token",
        "Entropy of the policy's next-token distribution, mean over completion tokens and over the updates of a step.",
        reading="As rl_entropy_per_token, which is measured before the updates.",
    ),
    _entropy.gauge(
        "rl_sampled_entropy_per_token",
        "Entropy of the policy, estimated from the sampled tokens: minus their log-probability, weighted by the ratio "
        "of policy and sampler.",
        reading="As rl_entropy_per_token, with more noise.",
    ),
    _policy.gauge(
        "rl_policy_ratio_mean",
        "Mean probability ratio new/old policy. Modern PPO: over padding too, and from trl 0.17 too small where "
        "mini-batches have fewer micro-batches than gradient_accumulation_steps.",
        keys=keys(PPO, "val/ratio") + keys(ASYNC_GRPO, "ratio"),
        healthy=Range(0.5, 2.0, "[trl]: about 1; 2, 1000 or 0.1 are too drastic"),
        reading="1 is no change. Far from 1: the updates are too large for the data they were sampled from.",
        corrected=True,
    ),
    _update.gauge(
        "rl_corrected_mean",
        "A mean of modern PPO as it would be logged without a fault of trl 0.17 and later: statistics slots that "
        "are never written count as 0 where a mini-batch has fewer micro-batches than gradient_accumulation_steps. "
        "The metric that is corrected is the label.",
        labels=("metric",),
        reading="Equal to the metric that it corrects in most configurations; else use this one for thresholds.",
        may_be_nonfinite=True,
    ),
    _update.gauge(
        "rl_policy_ratio_var",
        "Variance of the micro-batches' mean ratios, not of the ratio; NaN where there is one micro-batch.",
        keys=keys(PPO, "val/ratio_var"),
        reading="Near 0.",
        may_be_nonfinite=True,
    ),
    _policy.histogram(
        "rl_policy_ratio_dist",
        "Probability ratio new/old policy of each token, over all updates.",
        _RATIO,
        healthy=Range(0.1, 200.0, "[ranges], [trl]: about 1; above 200 is over-optimisation"),
        reading="Narrow around 1. The clip edges 0.8 and 1.2 are bounds, and so are 0.1, 2, 10 and 200.",
    ),
    _log_ratio.gauge(
        "rl_first_use_log_ratio",
        "Mean distance from 0 of the log-ratio new/old policy in the first step that uses a rollout. The policy is "
        "then the one that the old log-probabilities are of.",
        scope=RankScope.RANK,
        reading="0, or rounding. More: the old log-probabilities are stale, or dropout is on in the policy.",
    ),
    _policy.histogram(
        "rl_sequence_ratio_dist",
        "Probability ratio new/old policy of each sequence: the product over its tokens (RLOO), or its geometric "
        "mean (GSPO).",
        (
            *(0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.99, 0.999, 0.9997, 1.0),
            *(1.0003, 1.0004, 1.001, 1.01, 1.1, 1.2, 1.5, 2.0, 5.0, 10.0, 200.0, 1000.0),
        ),
        level=Level.SEQUENCE,
        reading="Narrow around 1; long responses spread it without any fault.",
    ),
    _log_ratio.gauge(
        "rl_policy_approxkl",
        "How far an update moved the policy: the k2 estimate, half the mean squared log-ratio (modern PPO: over "
        "padding too). Not the KL to the reference.",
        keys=keys(PPO, "policy/approxkl_avg") + keys(PPO_LEGACY, "ppo/policy/approxkl"),
        healthy=Range(0.0, 0.05, "[ranges] 0.01 to 0.05; [37] below 0.02"),
        reading="High with a high clip fraction: updates too aggressive.",
        corrected=True,
    ),
    _log_ratio.histogram(
        "rl_policy_approxkl_dist",
        "rl_policy_approxkl, one observation a step: a spike between two scrapes stays visible.",
        (0.0, 0.00001, 0.0001, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0),
        scope=RankScope.GLOBAL,
        reading="Counts above 0.1: updates that went too far.",
        of="rl_policy_approxkl",
    ),
    _log_ratio.gauge(
        "rl_policy_policykl",
        "How far an update moved the policy: the k1 estimate, the mean of old minus new log-probability. Drives "
        "early stopping.",
        keys=keys(PPO_LEGACY, "ppo/policy/policykl"),
        healthy=Range(None, 1.5, "legacy PPO stops the epoch at 1.5 times target_kl"),
        reading="Near 0; growth within a step is the policy moving away from its samples.",
    ),
    _policy.fraction(
        "rl_policy_clipfrac",
        "Share of response tokens for which the clipped branch of the loss is the active one. A NaN counts as not "
        "clipped.",
        keys=keys(PPO, "policy/clipfrac_avg") + keys(PPO_LEGACY, "ppo/policy/clipfrac"),
        healthy=Range(0.0, 0.2, "[ranges]"),
        reading="High: aggressive updates. Exactly 0 with several updates a batch: the policy does not move, or is "
        "NaN.",
        corrected=True,
    ),
    _clip.gauge(
        "rl_clip_ratio_region_mean",
        "Share clipped on either side: of tokens, or of sequences where rl_run_info says so "
        "(RLOO, importance_sampling_level=sequence).",
        keys=keys(GROUPWISE, "clip_ratio/region_mean"),
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="Exactly 0 while every update is on-policy. High: learning rate or number of iterations too high, or "
        "the clip range too narrow.",
    ),
    _clip.gauge(
        "rl_clip_ratio_low_mean",
        "Share below 1 - epsilon with a negative advantage.",
        keys=keys(GROUPWISE, "clip_ratio/low_mean"),
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="High: completions worse than their group are pushed down harder than the clip range allows.",
    ),
    _clip.gauge(
        "rl_clip_ratio_low_min",
        "Smallest share of tokens below 1 - epsilon_low with a negative advantage: over ranks up to trl 1.8, over "
        "completions from 1.9.",
        keys=keys(GROUPWISE, "clip_ratio/low_min"),
        reading="Above 0: even the least clipped rank or completion is clipped.",
    ),
    _clip.gauge(
        "rl_clip_ratio_high_mean",
        "Share above 1 + epsilon_high with a positive advantage.",
        keys=keys(GROUPWISE, "clip_ratio/high_mean"),
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="High: completions better than their group are pushed up harder than the clip range allows.",
    ),
    _clip.gauge(
        "rl_clip_ratio_high_max",
        "Largest share of tokens above 1 + epsilon_high with a positive advantage: over ranks up to trl 1.8, over "
        "completions from 1.9.",
        keys=keys(GROUPWISE, "clip_ratio/high_max"),
        reading="Near 1: one rank or completion is clipped almost as a whole.",
    ),
    _clip.gauge(
        "rl_clip_ratio",
        "Share of clipped tokens as trl 0.16 and the Liger loss (up to 1.13) log it: the two sides together.",
        keys=keys(GRPO, "clip_ratio"),
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="Exactly 0 while every update is on-policy. High: updates too aggressive.",
    ),
    _clip.gauge(
        "rl_cispo_clip_ratio",
        "Share of tokens with a ratio above epsilon_high and a positive advantage (loss_type=cispo).",
        keys=keys(GRPO, "cispo_clip_ratio"),
        reading="High: many weights are cut; updates too aggressive for the samples.",
    ),
    _policy.gauge(
        "rl_vespo_phi_seq_mean",
        "Mean weight of a sequence (loss_type=vespo).",
        level=Level.SEQUENCE,
        keys=keys(GRPO, "vespo/phi_seq_mean"),
        reading="About 1 when on-policy.",
        may_be_nonfinite=True,
    ),
    _clip.gauge(
        "rl_policy_dual_clipfrac",
        "Share of completion tokens with a negative advantage whose loss is limited by the second clip of dual-clip "
        "PPO, at a ratio far above 1.",
        reading="0, or close to it. More: the policy has moved far from the one that sampled.",
    ),
    _unmasked(_policy, "rl_policy_ratio_", _RATIO, "ppo/policy/ratio", unit=""),
    _update.gauge(
        "rl_micro_batch_loss_mean",
        "Mean over micro-batches and ranks of their parts of the loss, each over the tokens of the whole batch.",
        reading="Compare within a run only. NaN: the weights are lost with the next step.",
    ),
    _policy.fraction(
        "rl_update_effective_sample_fraction",
        "Effective sample size of the ratios of a completion's tokens (policy over the one before the update), as a "
        "share of the tokens, mean over completions.",
        reading="1 at the first update. Falling: a few tokens dominate it.",
    ),
    _advantage.gauge(
        "rl_advantage_mean",
        "Mean advantage over response tokens, whitened.",
        keys=keys(PPO_LEGACY, "ppo/policy/advantages_mean"),
        healthy=Range(-0.1, 0.1, "[ranges]: centered near 0; it is whitened over the batch"),
        reading="Away from 0: advantages are not centered, every action looks good (or bad).",
    ),
    _advantage.histogram(
        "rl_advantage_dist",
        "Advantage of each token (PPO) or completion (GRPO, RLOO). Arrays that legacy PPO logs hold masked "
        "positions as well, and -1 where the advantage was NaN.",
        _ADVANTAGE,
        unit="advantage",
        reading="Balanced, not skewed [ranges]. All at 0: no learning signal.",
    ),
    _unmasked(_advantage, "rl_advantage_", _ADVANTAGE, "ppo/policy/advantages", unit="advantage"),
    _advantage.gauge(
        "rl_advantage_reward_correlation",
        "Correlation of advantages with what they are made of: the rewards within each group of this rank that has a "
        "spread (GRPO, RLOO), or returns minus values (PPO).",
        level=Level.SEQUENCE,
        scope=RankScope.RANK,
        reading="1, or near it. Near 0: the advantages belong to other completions. Below 0: their sign is wrong.",
    ),
    _optimal.gauge(
        "rl_optimal_advantage_mean",
        "Reward minus optimal value of the prompt, which A2PO's implicit reward is fitted to.",
        keys=keys("a2po", "advantage", only=True),
        reading="Rises while the policy learns; near 0 it does as well as the optimum that was estimated.",
    ),
    _advantage.gauge(
        "rl_token_advantage_mean",
        "Mean advantage over completion tokens that are not whitened: a long completion counts more than a short one.",
        reading="Below 0: the worse completions are the longer ones. Above 0: the better ones are.",
    ),
    _loss.gauge(
        "rl_loss",
        "Training loss, mean over the logging window. transformers replaces NaN and infinity by a running mean "
        "before it logs.",
        keys=keys(TRAINERS, "loss"),
        reading="No measure of success in GRPO and RLOO (about beta times KL while on-policy). Exactly 0 for ever can "
        "be a hidden NaN.",
    ),
    _loss.histogram(
        "rl_loss_dist",
        "rl_loss, one observation a step: a spike between two scrapes stays visible.",
        _LOSS,
        reading="Counts in the outer buckets: spikes.",
        of="rl_loss",
    ),
    _loss.fraction(
        "rl_loss_mask_wrong_fraction",
        "Share of the completions whose loss mask does not fit their tokens: it leaves tokens out, or counts padding "
        "(GRPO, RLOO without tools).",
        scope=RankScope.RANK,
        reading="0. More: the loss is computed of other tokens than the policy has sampled.",
    ),
    _loss.gauge(
        "rl_policy_loss",
        "Clipped policy loss, mean over the updates of a step; GRPO logs it only with the entropy bonus. Legacy "
        "PPO logs 0 for updates that ratio_threshold skipped.",
        keys=keys(PPO, "loss/policy_avg")
        + keys(PPO_LEGACY, "ppo/loss/policy")
        + keys(GRPO, "policy_loss")
        + keys("sdpo", "self_distillation/policy_loss"),
        reading="Small oscillations around 0 [ranges].",
        corrected=True,
    ),
    _loss.histogram(
        "rl_policy_loss_dist",
        "rl_policy_loss, one observation a step.",
        _LOSS,
        reading="Counts in the outer buckets: spikes.",
        of="rl_policy_loss",
    ),
    _loss.gauge(
        "rl_value_loss",
        "Half the mean squared error of the value function, the larger of clipped and unclipped, before vf_coef.",
        unit="squared reward",
        keys=keys(PPO, "loss/value_avg") + keys(PPO_LEGACY, "ppo/loss/value"),
        reading="Falls, then stays level. Spikes or turns NaN when training goes wrong [trl].",
        corrected=True,
    ),
    _loss.histogram(
        "rl_value_loss_dist",
        "rl_value_loss, one observation a step.",
        (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 1000.0, 10000.0, 1000000.0),
        unit="squared reward",
        reading="Counts in the upper buckets: spikes.",
        of="rl_value_loss",
    ),
    _loss.gauge(
        "rl_total_loss",
        "Policy loss plus vf_coef times value loss.",
        keys=keys(PPO_LEGACY, "ppo/loss/total"),
        reading="Declines gradually [ranges].",
    ),
    _value.gauge(
        "rl_value_mean",
        "Mean of the value function over response tokens, before the update.",
        keys=keys(PPO_LEGACY, "ppo/val/mean"),
        reading="On the scale of the returns.",
    ),
    _value.histogram(
        "rl_value_dist",
        "Value function at each response token, before the update.",
        _REWARD,
        reading="On the scale of the returns. Counts in the outer buckets: a critic that diverges.",
    ),
    _value.gauge(
        "rl_value_var",
        "Variance of the value function over response tokens, before the update.",
        unit="squared reward",
        keys=keys(PPO_LEGACY, "ppo/val/var"),
        reading="Stable [ranges].",
    ),
    _value.gauge(
        "rl_value_prediction",
        "Mean of the value function over response tokens, during the update.",
        keys=keys(PPO_LEGACY, "ppo/val/vpred"),
        reading="On the scale of the returns; drifting away from them is a critic that diverges.",
    ),
    _value.gauge(
        "rl_value_error",
        "Mean squared error between value predictions and returns.",
        unit="squared reward",
        keys=keys(PPO_LEGACY, "ppo/val/error"),
        reading="Falls smoothly [ranges].",
    ),
    _value.fraction(
        "rl_value_explained_variance",
        "1 - error / variance of the returns; minus infinity where the returns do not vary.",
        keys=keys(PPO_LEGACY, "ppo/val/var_explained"),
        healthy=Range(0.8, 1.0, "[ranges]; negative through whole healthy runs has been seen"),
        reading="1 is a perfect critic, 0 one that might as well predict the mean, below 0 a worse one. Compare with "
        "the run's own level.",
        may_be_nonfinite=True,
    ),
    _value.fraction(
        "rl_value_clipfrac",
        "Share of tokens for which the clipped value loss is the larger one.",
        keys=keys(PPO, "val/clipfrac_avg") + keys(PPO_LEGACY, "ppo/val/clipfrac"),
        healthy=Range(0.0, 0.2, "[ranges]: low"),
        reading="High early while the critic fits; lasting: the value function moves too fast.",
        corrected=True,
    ),
    _value.gauge(
        "rl_return_mean",
        "Mean of the TD(lambda) returns: advantage plus value.",
        keys=keys(PPO_LEGACY, "ppo/returns/mean"),
        reading="Rises with the reward.",
    ),
    _value.histogram(
        "rl_return_dist",
        "TD(lambda) return at each response token: advantage plus value.",
        _REWARD,
        reading="What the value function is fitted to: compare the two.",
    ),
    _value.gauge(
        "rl_return_var",
        "Variance of the TD(lambda) returns.",
        unit="squared reward",
        keys=keys(PPO_LEGACY, "ppo/returns/var"),
        reading="Consistent with the scale of the reward [ranges].",
    ),
    _critic.gauge(
        "rl_value_grad_norm",
        "Norm of the gradient of a value model of its own, before clipping.",
        reading="Falls while the critic fits. NaN: its weights are lost with the next step.",
    ),
    _optimizer.gauge(
        "rl_learning_rate",
        "Learning rate in force (of the first parameter group).",
        keys=keys(TRAINERS, "learning_rate") + keys(PPO, "lr") + keys(PPO_LEGACY, "ppo/learning_rate"),
        reading="Follows its schedule; 0 in the middle of a run means that nothing is learned any more.",
    ),
    _optimizer.gauge(
        "rl_grad_norm",
        "Norm of the gradient before clipping, of the last optimizer step of the logging window.",
        keys=keys(TRAINERS, "grad_norm"),
        healthy=Range(0.0, None, "finite; max_grad_norm clips at 1 by default"),
        reading="Lasting growth: trainer and sampler disagree [verl]. NaN: the weights are lost with the next step. "
        "Exactly 0 while rewards differ: a hidden NaN.",
    ),
    _optimizer.histogram(
        "rl_grad_norm_dist",
        "rl_grad_norm, one observation a step: a spike between two scrapes stays visible.",
        (
            *(0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0),
            *(10000.0, 1000000.0),
        ),
        scope=RankScope.GLOBAL,
        reading='Counts in the upper buckets: spikes; in le="0.0": steps without any gradient.',
        of="rl_grad_norm",
    ),
    _weights.gauge(
        "rl_weight_norm",
        "Norm of the trained weights that this rank holds, measured before each rollout; in PPO after the updates "
        "of each step, and NaN is looked for before them too.",
        reading="Drifts slowly. NaN: weights are lost, and the rollout that follows will fail.",
    ),
    _weights.fraction(
        "rl_optimizer_missing_fraction",
        "Share of the trained tensors that the optimizer does not have; not served for DeepSpeed, which has copies.",
        reading="0. More: they are in the model and require a gradient, and nothing will ever change them.",
    ),
    _weights.fraction(
        "rl_gradient_zero_fraction",
        "Share of the trained tensors, of 32 at most that are spread over the model, whose gradient is missing, or "
        "exactly 0 in all of 64 places; nothing new while all are, as where no group has a spread of reward.",
        reading="0, or as at the start (experts without a token). More: a part of the model is cut off from the loss.",
    ),
    _weights.gauge(
        "rl_optimizer_updates",
        "Updates that the optimizer has made by its own count, which Adam and its like keep, and save, with the "
        "moments; measured before each rollout.",
        unit="updates",
        reading="Grows with each step, also after a resume. A fall: the moments of the gradients were lost.",
    ),
    _weights.fraction(
        "rl_weight_changed_fraction",
        "Share of the trained weights (of some 30,000 that are compared, bit for bit) that have changed since the "
        "rollout before.",
        reading="1 in fp32; a few percent in bf16 at a low learning rate, whose updates are lost in rounding. 0: the "
        "policy is frozen.",
    ),
    _weights.gauge(
        "rl_weight_update_size",
        "Root mean square of the change of the trained weights since the rollout before, over the roughly 30,000 that "
        "are compared.",
        reading="In proportion to the learning rate. A jump: weights were loaded.",
    ),
)

LOGPROBS = (
    _logprob.histogram(
        "rl_logprob_dist",
        "Log-probability of each sampled token under the policy.",
        _LOGPROB,
        reading="Inspect for shifts [ranges]: everything moving to 0 is a collapse of entropy.",
    ),
    _logprob.histogram(
        "rl_ref_logprob_dist",
        "Log-probability of each sampled token under the reference model.",
        _LOGPROB,
        reading="Falling while the policy's own rise: the policy says what the reference would not.",
    ),
    _reference.fraction(
        "rl_ref_dropout",
        "Highest probability of dropout that is on in the reference of modern PPO: read from its modules.",
        reading="0. More: the reference is in training mode, and KL is partly noise.",
    ),
    _logprob.gauge(
        "rl_ref_logprob_noise",
        "Mean difference between the reference's log-probabilities of one token after one prompt: the first tokens of "
        "completions of a group, where they are the same.",
        scope=RankScope.RANK,
        reading="0, or rounding: the reference is deterministic. More: dropout is on in it, and KL is noise.",
    ),
    _reference.fraction(
        "rl_ref_weight_changed_fraction",
        "Share of the reference's weights (of some 30,000 that are compared) that have changed in the last four "
        "rollouts; not served where `sync_ref_model` asks for that.",
        reading="0. More: the reference is trained, loaded or synchronized, and KL to it means nothing.",
    ),
    _unmasked(_logprob, "rl_logprob_", _LOGPROB, "objective/logprobs", unit="nats"),
    _unmasked(_logprob, "rl_ref_logprob_", _LOGPROB, "objective/ref_logprobs", unit="nats"),
)
