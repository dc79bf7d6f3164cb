"""The table of metrics, each declared once. Registration, outputs, docs, dashboards and rules derive from it.

The order is the order of docs and panels. Names are those of Prometheus, from which those of OTLP derive; keys are
TRL's own. To add a metric is to add one entry here; those of trainers that learn from data or a teacher are in
`offline`, those of asynchronous rollouts in `pipeline`.

Sources of the healthy ranges:
  [ranges]    PPO healthy-ranges cheat sheet (tests/data/seeds/ppo-healthy-ranges.md)
  [trl]       TRL's logging guide and FAQ
  [37]        Huang et al., The 37 Implementation Details of Proximal Policy Optimization
  [verl]      verl, rollout correction and FAQ pages
Absolute numbers exist for few quantities; where none was published the range is left open, and the reading says
what to compare with.
"""

from __future__ import annotations

from dataclasses import replace

from rlexporter.catalog import offline, pipeline
from rlexporter.catalog.algorithms import ASYNC_GRPO, GRPO, ONLINE_DPO, PPO, PPO_LEGACY
from rlexporter.catalog.entries import Entries
from rlexporter.catalog.entries import keys as _keys
from rlexporter.catalog.framework_metrics import FRAMEWORK_METRICS
from rlexporter.model.metric import Group, Level, Metric, Range, RankScope
from rlexporter.model.snapshot import RunState

ERROR_PLACES = (
    *("log", "observe", "step", "tap", "event", "identity", "exit"),
    *("scrape", "auth", "otlp", "discovery", "state", "record", "card"),
)
"""The parts of the exporter that can have an error: `rlexporter_errors_total{where}`."""

PHASES = ("rollout", "reward", "update", "eval", "save")
"""The parts of a run's time that `rl_phase{phase}` and `rl_phase_time_seconds{phase}` tell apart."""

TENSOR_SIGNALS = (
    *("reward", "advantage", "ratio", "kl", "logprob", "entropy", "completion_length", "prompt_length"),
    *("loss", "grad_norm", "weights", "value"),
)
"""The signals that may be measured at the tensor: `rl_signal_available{signal}`."""

HYPERPARAMETERS = tuple(
    """
    learning_rate max_steps num_train_epochs total_episodes warmup_steps warmup_ratio weight_decay
    max_grad_norm per_device_train_batch_size gradient_accumulation_steps logging_steps save_steps eval_steps
    num_generations num_iterations steps_per_generation generation_batch_size max_prompt_length
    max_completion_length response_length temperature top_p top_k min_p repetition_penalty beta epsilon
    epsilon_high delta scale_rewards mask_truncated_completions vllm_importance_sampling_correction
    vllm_importance_sampling_cap vllm_importance_sampling_clip_max use_vllm use_liger_loss entropy_coef
    sync_ref_model ref_model_sync_steps ref_model_mixup_alpha num_ppo_epochs ppo_epochs num_mini_batches
    batch_size mini_batch_size kl_coef init_kl_coef adap_kl_ctrl target horizon target_kl early_stopping
    cliprange cliprange_value vf_coef gamma lam whiten_rewards missing_eos_penalty ratio_threshold score_clip
    use_score_scaling
    """.split()
)
"""The settings served as `rl_hyperparameter{name}` if they are numbers in the trainer's configuration."""

INFO_LABELS = (
    *("algorithm", "trainer", "model", "attempt", "world_size", "rank_scope", "loss_type", "importance_sampling_level"),
    *("trl", "transformers", "torch", "rlexporter"),
)


def _both_signs(*positive: float) -> tuple[float, ...]:
    """Return bounds around zero: -x ... 0 ... x."""
    return (*(-x for x in reversed(positive)), 0.0, *positive)


def _each(values: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple((value,) for value in values)


_GROUPWISE = "grpo rloo async-grpo"
_OFFLINE = "dpo kto cpo orpo tpo sft reward"
_TEACHERS = "distillation async-distillation gkd gold iw-opd sdft sdpo a2po"
_TRAINERS = f"grpo rloo async-grpo online-dpo {_OFFLINE} {_TEACHERS}"
_COUNTED = "grpo rloo dpo kto tpo sft reward distillation"
_SAMPLED = "distillation sdft sdpo"

_LENGTHS = tuple(float(2**n) for n in range(18))
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_KL_TOKEN = _both_signs(0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
_KL_SEQUENCE = _both_signs(0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
_REWARD = _both_signs(0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 100.0, 1000.0)
_LOSS = _both_signs(0.0001, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 100.0, 1000.0)
_LOGPROB = (
    *(-100.0, -50.0, -20.0, -15.0, -10.0, -8.0, -6.0, -5.0, -4.0, -3.0, -2.5, -2.0, -1.5, -1.0, -0.7, -0.5),
    *(-0.3, -0.2, -0.1, -0.05, -0.01, -0.001, 0.0),
)

_run = Entries(Group.RUN, level=Level.RUN)
_progress = Entries(Group.PROGRESS, level=Level.RUN)
_reward = Entries(Group.REWARD, level=Level.SEQUENCE, unit="reward")
_kl = Entries(Group.KL, level=Level.TOKEN, unit="nats")
_entropy = Entries(Group.ENTROPY, level=Level.TOKEN, unit="nats")
_policy = Entries(Group.POLICY, level=Level.TOKEN)
_clip = Entries(Group.POLICY, level=Level.TOKEN, unit="fraction", may_be_nonfinite=True)
_advantage = Entries(Group.ADVANTAGE, level=Level.TOKEN)
_loss = Entries(Group.LOSS, level=Level.STEP)
_value = Entries(Group.VALUE, level=Level.TOKEN, unit="reward")
_optimizer = Entries(Group.OPTIMIZER, level=Level.STEP)
_completion = Entries(Group.COMPLETION, level=Level.SEQUENCE, unit="tokens")
_logprob = Entries(Group.LOGPROB, level=Level.TOKEN, unit="nats")
_sampling = Entries(Group.SAMPLING, level=Level.TOKEN)
_speed = Entries(Group.SPEED, level=Level.RUN, unit="seconds")
_evaluation = Entries(Group.EVALUATION, level=Level.RUN, labels=("dataset",))
_preference = Entries(Group.PREFERENCE, level=Level.SEQUENCE, unit="reward")
_condition = Entries(Group.CONDITION, level=Level.RUN)
_truth = Entries(Group.TRUTH, level=Level.RUN)
_exporter = Entries(Group.EXPORTER, level=Level.RUN, scope=RankScope.RANK)

_RUN = (
    _run.info(
        "rl_run_info",
        "What is running: algorithm, trainer class, model, attempt (how often a run of this name was started), number "
        "of ranks, versions. Always 1. rank_scope says whose tensors the distributions hold: one rank's, or all.",
        labels=INFO_LABELS,
    ),
    _run.gauge(
        "rl_run_state",
        "1 for the state the run is in, 0 for the others. failed: train() raised; preempted: SIGTERM; "
        "stopped: Ctrl-C or sys.exit.",
        scope=RankScope.RANK,
        labels=("state",),
        initial=_each(tuple(state.value for state in RunState)),
    ),
    _run.info(
        "rl_run_exception_info",
        "Class of the exception that ended the last train(); absent while there is none.",
        scope=RankScope.RANK,
        labels=("exception",),
    ),
    _run.gauge(
        "rl_run_start_timestamp_seconds",
        "When this process began the run.",
        unit="seconds since the epoch",
        scope=RankScope.RANK,
    ),
    _run.gauge("rl_world_size", "How many ranks the run has.", unit="ranks"),
    _run.gauge(
        "rl_gpus",
        "How many GPUs, or other accelerators, the run trains on: one a rank, 0 on a CPU; absent where no adapter "
        "knows the trainer's device. Those of a separate generation server are not among them.",
        unit="GPUs",
        reading="Its sum over time is what the run has cost: GPU hours.",
    ),
    _run.gauge(
        "rl_ranks_covered",
        "How many ranks the local metrics of this endpoint cover: 1, its own.",
        unit="ranks",
        scope=RankScope.RANK,
        reading="The sum over the endpoints of a run is below rl_world_size where some ranks are not seen: a NaN that "
        "only they have is not counted. RLEXPORTER_RANKS=all lets each rank serve its own.",
    ),
    _run.gauge(
        "rl_hyperparameter",
        "A numeric setting of the trainer's configuration, under its own name; booleans as 0 and 1.",
        labels=("name",),
    ),
    _progress.gauge(
        "rl_step",
        "The step the run is at: an optimizer step in GRPO, RLOO and other Trainer loops, an update in modern "
        "PPO, one step() call in legacy PPO. A resumed checkpoint continues it.",
        unit="steps",
        scope=RankScope.RANK,
        reading="Grows. Falls back only when an older checkpoint is resumed.",
    ),
    _progress.counter("rl_steps_total", "Steps done by this process, from 0.", unit="steps", initial=((),)),
    _progress.gauge("rl_steps_planned", "The step at which training is to end.", unit="steps"),
    _progress.gauge(
        "rl_epoch",
        "Passes over the training data so far.",
        unit="epochs",
        keys=_keys("ppo " + _TRAINERS, "epoch"),
        reading="Grows. Several passes over few prompts: expect the policy to learn them by heart.",
    ),
    _progress.gauge(
        "rl_episode",
        "Prompts consumed so far by all ranks, as the trainer counts them: 0 again with every train().",
        unit="episodes",
        keys=_keys(PPO, "episode"),
        reading="Grows within one train().",
    ),
    _progress.counter(
        "rl_episodes_total",
        "Prompts consumed by all ranks since this process began.",
        unit="episodes",
        keys=_keys(PPO, "episode"),
        reading="Its rate is the throughput in prompts.",
    ),
    _speed.gauge(
        "rl_episodes_per_second",
        "Episodes so far over seconds since train(), truncated to an integer by TRL: 0 in slow runs.",
        unit="episodes per second",
        keys=_keys(PPO, "eps"),
        reading="A run average: it recovers only slowly after a pause.",
    ),
    _progress.gauge(
        "rl_tokens_seen",
        "Prompt and completion tokens processed by all ranks; restored with a checkpoint, so it can fall back.",
        unit="tokens",
        keys=_keys(_COUNTED, "num_tokens"),
        reading="Grows. A fall is a resumed checkpoint.",
    ),
    _progress.counter(
        "rl_tokens_total",
        "Prompt and completion tokens processed by all ranks since this process began.",
        unit="tokens",
        keys=_keys(_COUNTED, "num_tokens"),
        reading="Its rate is the throughput in tokens.",
    ),
    _progress.gauge(
        "rl_last_step_timestamp_seconds",
        "When the last step ended; the start of the run before the first one.",
        unit="seconds since the epoch",
        scope=RankScope.RANK,
        reading="`time() - rl_last_step_timestamp_seconds` is the age of the last step: its growth is a stall.",
    ),
    _progress.gauge(
        "rl_stall_after_seconds",
        "How old the last step may be before the run hangs: ten times the run's own pace, at least 600 seconds; "
        "longer before the first step, and while an evaluation or a checkpoint is under way.",
        unit="seconds",
        reading="Below `time() - rl_last_step_timestamp_seconds`: the run is stalled.",
    ),
    _progress.gauge("rl_last_log_timestamp_seconds", "When the trainer last logged.", unit="seconds since the epoch"),
    _progress.gauge(
        "rl_last_log_step",
        "The step at which the trainer last logged: behind rl_step by up to logging_steps.",
        unit="steps",
    ),
    _progress.gauge(
        "rl_last_checkpoint_timestamp_seconds", "When the last checkpoint was written.", unit="seconds since the epoch"
    ),
    _progress.gauge(
        "rl_last_checkpoint_step",
        "The step of the last checkpoint: what is after it is lost with the process.",
        unit="steps",
    ),
    _progress.gauge(
        "rl_last_good_checkpoint_step",
        "The step of the newest checkpoint that was written before anything critical: no critical condition held that "
        "had begun in its step or before, and after a NaN the weights were seen to be numbers again. It is known with "
        "the next step, or with the end of the run; a resumed run starts with the checkpoint that it continues, unless "
        "its first step is bad. Absent while there is none. As rank 0 sees it.",
        unit="steps",
        reading="Behind rl_last_checkpoint_step after a fault: resume from this one, if it was not deleted since "
        "(save_total_limit).",
    ),
)

_REWARDS = (
    _reward.gauge(
        "rl_reward_mean",
        "Mean reward per completion. GRPO, RLOO: the weighted sum of the reward functions, raw (unweighted in trl 0.27 "
        "to 0.29). Modern PPO: the score after the missing-EOS penalty. Legacy PPO: the rewards given to log_stats().",
        keys=_keys(f"{_GROUPWISE} a2po", "reward")
        + _keys("sdpo", "self_distillation/reward_mean")
        + _keys(PPO_LEGACY, "env/reward_mean")
        + _keys("ppo online-dpo", "objective/scores"),
        reading="Rises while the policy learns. Flat from the start: nothing is learnt. A jump beyond its own spread, "
        "or a rise while KL runs away: the reward is being hacked.",
    ),
    _reward.gauge(
        "rl_reward_std",
        "Spread of the reward: over the whole generation batch (GRPO from trl 0.27, RLOO), the mean over groups "
        "(GRPO up to 0.26), over the gathered rewards (legacy PPO).",
        keys=_keys(_GROUPWISE, "reward_std")
        + _keys("sdpo", "self_distillation/reward_std")
        + _keys(PPO_LEGACY, "env/reward_std"),
        healthy=Range(0.0, None, "[ranges]: moderate, not exploding"),
        reading="0 means no difference between completions, hence no policy gradient: either solved or the reward is "
        "constant.",
    ),
    _reward.histogram(
        "rl_reward_dist",
        "Reward of each completion.",
        _REWARD,
        keys=_keys(PPO_LEGACY, "env/reward_dist"),
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
    _reward.gauge(
        "rl_reward_function_mean",
        "Mean of one reward function over the samples for which it returned a number.",
        labels=("reward_function",),
        keys=_keys("grpo rloo", "rewards/{reward_function}/mean")
        + _keys("grpo async-grpo", "rewards/{reward_function}")
        + _keys("sdpo", "self_distillation/rewards/{reward_function}"),
        reading="One falling while another rises: they conflict. One stuck at its lowest value is dead.",
    ),
    _reward.gauge(
        "rl_reward_function_std",
        "Spread of one reward function over the generation batch, NaN left out.",
        labels=("reward_function",),
        keys=_keys("grpo rloo", "rewards/{reward_function}/std"),
        healthy=Range(0.0, None, "0 is no signal from this function"),
        reading="0: this function tells no completion from another, so it teaches nothing.",
    ),
    _reward.histogram(
        "rl_reward_function_dist",
        "Reward of each completion by one reward function, where it returned a number.",
        _REWARD,
        labels=("reward_function",),
        reading="All in one bucket: this function tells no completion from another.",
    ),
    _reward.gauge(
        "rl_reward_zero_std_fraction",
        "Share of completions whose group has no spread of reward, so that their advantage is 0.",
        unit="fraction",
        keys=_keys("grpo rloo", "frac_reward_zero_std"),
        healthy=Range(0.0, 0.9, "no number published; 1 is no policy gradient at all"),
        reading="Near 1 with a high reward: solved. Near 1 with a low one: too hard, or the reward is broken.",
    ),
    _reward.gauge(
        "rl_scores_mean",
        "Mean score after score scaling and clipping; equals the reward where neither is used.",
        keys=_keys(PPO_LEGACY, "ppo/mean_scores"),
        reading="Rises while the policy learns; away from the reward, score clipping is at work.",
    ),
    _reward.gauge(
        "rl_scores_std",
        "Spread of the scores; over several ranks the mean of the ranks' own.",
        keys=_keys(PPO_LEGACY, "ppo/std_scores"),
        reading="Near 0: no learning signal. Growing without end: the reward model is off its ground.",
    ),
    _reward.gauge(
        "rl_scores_margin",
        "Mean reward of the better completion minus that of the worse one.",
        keys=_keys(ONLINE_DPO, "objective/scores_margin"),
        reading="Rises while the better completion is easier to tell.",
    ),
    _reward.gauge(
        "rl_rlhf_reward",
        "Score plus the (negative) KL penalty: what PPO maximises.",
        keys=_keys("ppo online-dpo", "objective/rlhf_reward"),
        reading="Rises [trl]. Falls while the score rises: the penalty is winning.",
    ),
    _reward.gauge(
        "rl_non_score_reward_per_sequence",
        "The KL penalty: minus kl_coef times the KL summed over a sequence.",
        keys=_keys("ppo online-dpo", "objective/non_score_reward"),
        reading="Small against the score; should not dominate it [ranges].",
    ),
    _reward.gauge(
        "rl_non_score_reward_per_token",
        "The KL penalty as a mean over response tokens: negative while KL is positive.",
        level=Level.TOKEN,
        keys=_keys(PPO_LEGACY, "ppo/mean_non_score_reward"),
        reading="Should not dominate the reward [ranges].",
    ),
)

_KL = (
    _kl.gauge(
        "rl_kl_per_sequence",
        "KL divergence to the reference policy, summed over the tokens of a response, mean over the batch. "
        "Usually the k1 estimator, which can be negative.",
        level=Level.SEQUENCE,
        keys=_keys("ppo ppo-legacy online-dpo", "objective/kl"),
        healthy=Range(0.0, 10.0, "[trl]; the adaptive controller aims at 6"),
        reading="Near 0 at the first step, then grows slowly. Too high: over-optimisation. Clearly below 0: the "
        "sampler is not the policy, or generation is constrained.",
    ),
    _kl.histogram(
        "rl_kl_per_sequence_dist",
        "KL divergence to the reference policy of each response, summed over its tokens.",
        _KL_SEQUENCE,
        level=Level.SEQUENCE,
        keys=_keys(PPO_LEGACY, "objective/kl_dist"),
        reading="A long upper tail: a few responses have left the reference although the mean looks well.",
    ),
    _kl.gauge(
        "rl_kl_per_token",
        "KL divergence to the reference policy, mean over completion tokens; only with beta above 0. GRPO: the k3 "
        "estimator, never negative. RLOO: k1, signed.",
        keys=_keys("grpo rloo", "kl"),
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
        keys=_keys(ASYNC_GRPO, "kl"),
        reading="Grows with the age of the samples: the policy has moved on since they were drawn.",
    ),
    _kl.gauge(
        "rl_kl_coef",
        "Coefficient of the KL penalty in force. Modern PPO, GRPO and RLOO do not log it: it is their setting kl_coef "
        "or beta in each step.",
        unit="",
        level=Level.STEP,
        keys=_keys(PPO_LEGACY, "objective/kl_coef") + _keys(ONLINE_DPO, "beta"),
        reading="A steady climb of the adaptive coefficient often comes before an instability [trl].",
    ),
)

_ENTROPY = (
    _entropy.gauge(
        "rl_entropy_per_token",
        "Entropy of the policy's next-token distribution, mean over completion tokens (modern PPO: over padding too).",
        keys=_keys(_GROUPWISE, "entropy") + _keys(PPO, "policy/entropy_avg") + _keys(PPO_LEGACY, "ppo/policy/entropy"),
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
        keys=_keys("ppo ppo-legacy online-dpo", "objective/entropy"),
        reading="High early, declines slowly [ranges]. For collapse watch the entropy per token.",
    ),
    _entropy.gauge(
        "rl_entropy_coef",
        "Coefficient of the entropy bonus in force; only where the bonus is on.",
        unit="",
        level=Level.STEP,
        keys=_keys(GRPO, "entropy_coef"),
        reading="At its maximum: entropy cannot be held.",
    ),
)

_RATIO = (
    *(0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0),
    *(1.001, 1.01, 1.05, 1.1, 1.2, 1.28, 1.5, 2.0, 5.0, 10.0, 200.0, 1000.0),
)
_CLIP_SOURCE = "[ranges], per token; per sequence (RLOO, GSPO) far higher values are normal"

_POLICY = (
    _policy.gauge(
        "rl_policy_ratio_mean",
        "Mean probability ratio new/old policy. Modern PPO: over padding too, and from trl 0.17 too small where "
        "mini-batches have fewer micro-batches than gradient_accumulation_steps.",
        keys=_keys(PPO, "val/ratio") + _keys(ASYNC_GRPO, "ratio"),
        healthy=Range(0.5, 2.0, "[trl]: about 1; 2, 1000 or 0.1 are too drastic"),
        reading="1 is no change. Far from 1: the updates are too large for the data they were sampled from.",
        corrected=True,
    ),
    _policy.gauge(
        "rl_corrected_mean",
        "A mean of modern PPO as it would be logged without a fault of trl 0.17 and later: statistics slots that "
        "are never written count as 0 where a mini-batch has fewer micro-batches than gradient_accumulation_steps. "
        "The metric that is corrected is the label.",
        level=Level.STEP,
        labels=("metric",),
        reading="Equal to the metric that it corrects in most configurations; else use this one for thresholds.",
        may_be_nonfinite=True,
    ),
    _policy.gauge(
        "rl_policy_ratio_var",
        "Variance of the micro-batches' mean ratios, not of the ratio; NaN where there is one micro-batch.",
        level=Level.STEP,
        keys=_keys(PPO, "val/ratio_var"),
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
    _policy.gauge(
        "rl_policy_approxkl",
        "How far an update moved the policy: the k2 estimate, half the mean squared log-ratio (modern PPO: over "
        "padding too). Not the KL to the reference.",
        unit="nats",
        keys=_keys(PPO, "policy/approxkl_avg") + _keys(PPO_LEGACY, "ppo/policy/approxkl"),
        healthy=Range(0.0, 0.05, "[ranges] 0.01 to 0.05; [37] below 0.02"),
        reading="High with a high clip fraction: updates too aggressive.",
        corrected=True,
    ),
    _policy.histogram(
        "rl_policy_approxkl_dist",
        "rl_policy_approxkl, one observation a step: a spike between two scrapes stays visible.",
        (0.0, 0.00001, 0.0001, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0),
        unit="nats",
        scope=RankScope.GLOBAL,
        of="rl_policy_approxkl",
        reading="Counts above 0.1: updates that went too far.",
    ),
    _policy.gauge(
        "rl_policy_policykl",
        "How far an update moved the policy: the k1 estimate, the mean of old minus new log-probability. Drives "
        "early stopping.",
        unit="nats",
        keys=_keys(PPO_LEGACY, "ppo/policy/policykl"),
        healthy=Range(None, 1.5, "legacy PPO stops the epoch at 1.5 times target_kl"),
        reading="Near 0; growth within a step is the policy moving away from its samples.",
    ),
    _policy.gauge(
        "rl_policy_clipfrac",
        "Share of response tokens for which the clipped branch of the loss is the active one. A NaN counts as not "
        "clipped.",
        unit="fraction",
        keys=_keys(PPO, "policy/clipfrac_avg") + _keys(PPO_LEGACY, "ppo/policy/clipfrac"),
        healthy=Range(0.0, 0.2, "[ranges]"),
        reading="High: aggressive updates. Exactly 0 with several updates a batch: the policy does not move, or is "
        "NaN.",
        corrected=True,
    ),
    _clip.gauge(
        "rl_clip_ratio_region_mean",
        "Share clipped on either side: of tokens, or of sequences where rl_run_info says so "
        "(RLOO, importance_sampling_level=sequence).",
        keys=_keys(_GROUPWISE, "clip_ratio/region_mean"),
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="Exactly 0 while every update is on-policy. High: learning rate or number of iterations too high, or "
        "the clip range too narrow.",
    ),
    _clip.gauge(
        "rl_clip_ratio_low_mean",
        "Share below 1 - epsilon with a negative advantage.",
        keys=_keys(_GROUPWISE, "clip_ratio/low_mean"),
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="High: completions worse than their group are pushed down harder than the clip range allows.",
    ),
    _clip.gauge(
        "rl_clip_ratio_low_min",
        "Smallest such share: over ranks up to trl 1.8, over completions from 1.9.",
        keys=_keys(_GROUPWISE, "clip_ratio/low_min"),
        reading="Above 0: even the least clipped rank or completion is clipped.",
    ),
    _clip.gauge(
        "rl_clip_ratio_high_mean",
        "Share above 1 + epsilon_high with a positive advantage.",
        keys=_keys(_GROUPWISE, "clip_ratio/high_mean"),
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="High: completions better than their group are pushed up harder than the clip range allows.",
    ),
    _clip.gauge(
        "rl_clip_ratio_high_max",
        "Largest such share: over ranks up to trl 1.8, over completions from 1.9.",
        keys=_keys(_GROUPWISE, "clip_ratio/high_max"),
        reading="Near 1: one rank or completion is clipped almost as a whole.",
    ),
    _clip.gauge(
        "rl_clip_ratio",
        "Share of clipped tokens as trl 0.16 and the Liger loss (up to 1.13) log it: the two sides together.",
        keys=_keys(GRPO, "clip_ratio"),
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="Exactly 0 while every update is on-policy. High: updates too aggressive.",
    ),
    _clip.gauge(
        "rl_cispo_clip_ratio",
        "Share of tokens with a ratio above epsilon_high and a positive advantage (loss_type=cispo).",
        keys=_keys(GRPO, "cispo_clip_ratio"),
        reading="High: many weights are cut; updates too aggressive for the samples.",
    ),
    _policy.gauge(
        "rl_vespo_phi_seq_mean",
        "Mean weight of a sequence (loss_type=vespo).",
        level=Level.SEQUENCE,
        keys=_keys(GRPO, "vespo/phi_seq_mean"),
        reading="About 1 when on-policy.",
        may_be_nonfinite=True,
    ),
)

_ADVANTAGE = (
    _advantage.gauge(
        "rl_advantage_mean",
        "Mean advantage over response tokens, whitened.",
        keys=_keys(PPO_LEGACY, "ppo/policy/advantages_mean"),
        healthy=Range(-0.1, 0.1, "[ranges]: centred near 0; it is whitened over the batch"),
        reading="Away from 0: advantages are not centred, every action looks good (or bad).",
    ),
    _advantage.histogram(
        "rl_advantage_dist",
        "Advantage of each token (PPO) or completion (GRPO, RLOO). Arrays that legacy PPO logs hold masked "
        "positions as well, and -1 where the advantage was NaN.",
        _both_signs(0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0),
        unit="advantage",
        reading="Balanced, not skewed [ranges]. All at 0: no learning signal.",
    ),
)

_LOSSES = (
    _loss.gauge(
        "rl_loss",
        "Training loss, mean over the logging window. transformers replaces NaN and infinity by a running mean "
        "before it logs.",
        keys=_keys(_TRAINERS, "loss"),
        reading="No measure of success in GRPO and RLOO (about beta times KL while on-policy). Exactly 0 for ever can "
        "be a hidden NaN.",
    ),
    _loss.histogram(
        "rl_loss_dist",
        "rl_loss, one observation a step: a spike between two scrapes stays visible.",
        _LOSS,
        of="rl_loss",
        reading="Counts in the outer buckets: spikes.",
    ),
    _loss.gauge(
        "rl_policy_loss",
        "Clipped policy loss, mean over the updates of a step; GRPO logs it only with the entropy bonus. Legacy "
        "PPO logs 0 for updates that ratio_threshold skipped.",
        keys=_keys(PPO, "loss/policy_avg")
        + _keys(PPO_LEGACY, "ppo/loss/policy")
        + _keys(GRPO, "policy_loss")
        + _keys("sdpo", "self_distillation/policy_loss"),
        reading="Small oscillations around 0 [ranges].",
        corrected=True,
    ),
    _loss.histogram(
        "rl_policy_loss_dist",
        "rl_policy_loss, one observation a step.",
        _LOSS,
        of="rl_policy_loss",
        reading="Counts in the outer buckets: spikes.",
    ),
    _loss.gauge(
        "rl_value_loss",
        "Half the mean squared error of the value function, the larger of clipped and unclipped, before vf_coef.",
        unit="squared reward",
        keys=_keys(PPO, "loss/value_avg") + _keys(PPO_LEGACY, "ppo/loss/value"),
        reading="Falls, then stays level. Spikes or turns NaN when training goes wrong [trl].",
        corrected=True,
    ),
    _loss.histogram(
        "rl_value_loss_dist",
        "rl_value_loss, one observation a step.",
        (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 1000.0, 10000.0, 1000000.0),
        unit="squared reward",
        of="rl_value_loss",
        reading="Counts in the upper buckets: spikes.",
    ),
    _loss.gauge(
        "rl_total_loss",
        "Policy loss plus vf_coef times value loss.",
        keys=_keys(PPO_LEGACY, "ppo/loss/total"),
        reading="Declines gradually [ranges].",
    ),
    _loss.gauge(
        "rl_aux_loss",
        "Load-balancing loss of a mixture-of-experts model.",
        keys=_keys(f"{_GROUPWISE} sft dpo kto", "aux_loss"),
        reading="Grows when few experts take most tokens.",
    ),
)

_VALUE = (
    _value.gauge(
        "rl_value_mean",
        "Mean of the value function over response tokens, before the update.",
        keys=_keys(PPO_LEGACY, "ppo/val/mean"),
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
        keys=_keys(PPO_LEGACY, "ppo/val/var"),
        reading="Stable [ranges].",
    ),
    _value.gauge(
        "rl_value_prediction",
        "Mean of the value function over response tokens, during the update.",
        keys=_keys(PPO_LEGACY, "ppo/val/vpred"),
        reading="On the scale of the returns; drifting away from them is a critic that diverges.",
    ),
    _value.gauge(
        "rl_value_error",
        "Mean squared error between value predictions and returns.",
        unit="squared reward",
        keys=_keys(PPO_LEGACY, "ppo/val/error"),
        reading="Falls smoothly [ranges].",
    ),
    _value.gauge(
        "rl_value_explained_variance",
        "1 - error / variance of the returns; minus infinity where the returns do not vary.",
        unit="fraction",
        keys=_keys(PPO_LEGACY, "ppo/val/var_explained"),
        healthy=Range(0.8, 1.0, "[ranges]; negative through whole healthy runs has been seen"),
        reading="1 is a perfect critic, 0 one that might as well predict the mean, below 0 a worse one. Compare with "
        "the run's own level.",
        may_be_nonfinite=True,
    ),
    _value.gauge(
        "rl_value_clipfrac",
        "Share of tokens for which the clipped value loss is the larger one.",
        unit="fraction",
        keys=_keys(PPO, "val/clipfrac_avg") + _keys(PPO_LEGACY, "ppo/val/clipfrac"),
        healthy=Range(0.0, 0.2, "[ranges]: low"),
        reading="High early while the critic fits; lasting: the value function moves too fast.",
        corrected=True,
    ),
    _value.gauge(
        "rl_return_mean",
        "Mean of the TD(lambda) returns: advantage plus value.",
        keys=_keys(PPO_LEGACY, "ppo/returns/mean"),
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
        keys=_keys(PPO_LEGACY, "ppo/returns/var"),
        reading="Consistent with the scale of the reward [ranges].",
    ),
)

_OPTIMIZER = (
    _optimizer.gauge(
        "rl_learning_rate",
        "Learning rate in force (of the first parameter group).",
        keys=_keys(_TRAINERS, "learning_rate") + _keys(PPO, "lr") + _keys(PPO_LEGACY, "ppo/learning_rate"),
        reading="Follows its schedule; 0 in the middle of a run means that nothing is learnt any more.",
    ),
    _optimizer.gauge(
        "rl_grad_norm",
        "Norm of the gradient before clipping, of the last optimizer step of the logging window.",
        keys=_keys(_TRAINERS, "grad_norm"),
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
        of="rl_grad_norm",
        reading='Counts in the upper buckets: spikes; in le="0.0": steps without any gradient.',
    ),
    _optimizer.gauge(
        "rl_weight_norm",
        "Norm of the trained weights that this rank holds, measured before each rollout; in PPO after the updates "
        "of each step, and NaN is looked for before them too.",
        scope=RankScope.RANK,
        reading="Drifts slowly. NaN: weights are lost, and the rollout that follows will fail.",
    ),
    _optimizer.gauge(
        "rl_weight_changed_fraction",
        "Share of the trained weights (of some 30,000 that are compared, bit for bit) that have changed since the "
        "rollout before.",
        unit="fraction",
        scope=RankScope.RANK,
        reading="1 in fp32; a few percent in bf16 at a low learning rate, whose updates are lost in rounding. 0: the "
        "policy is frozen.",
    ),
)

_COMPLETION = (
    _completion.gauge(
        "rl_completion_length_mean",
        "Mean length of the completions, truncated ones included. Legacy PPO: of one rank.",
        keys=_keys(f"{_GROUPWISE} {_SAMPLED} async-distillation", "completions/mean_length")
        + _keys(GRPO, "completion_length")
        + _keys(PPO_LEGACY, "tokens/responses_len_mean"),
        reading="No drift towards the limit, no collapse to a few tokens.",
    ),
    _completion.gauge(
        "rl_completion_length_std",
        "Spread of the completion lengths of one rank.",
        keys=_keys(PPO_LEGACY, "tokens/responses_len_std"),
        reading="Not exploding [ranges]. 0: every answer has the same length.",
    ),
    _completion.gauge(
        "rl_completion_length_min",
        "Length of the shortest completion, mean over the logging window.",
        keys=_keys(f"{_GROUPWISE} {_SAMPLED} async-distillation", "completions/min_length"),
        reading="Near 0: some completions are empty.",
    ),
    _completion.gauge(
        "rl_completion_length_max",
        "Length of the longest completion, mean over the logging window.",
        keys=_keys(f"{_GROUPWISE} {_SAMPLED} async-distillation", "completions/max_length"),
        reading="At max_completion_length: some completions are cut off.",
    ),
    _completion.histogram(
        "rl_completion_length_dist",
        "Length of each completion.",
        _LENGTHS,
        keys=_keys(PPO_LEGACY, "tokens/responses_dist"),
        reading="Mass at the limit: truncation. One bucket only: every answer has the same length.",
    ),
    _completion.gauge(
        "rl_terminated_completion_length_mean",
        "Mean length of the completions that ended by themselves; TRL logs 0 when none did.",
        keys=_keys(f"grpo rloo {_SAMPLED}", "completions/mean_terminated_length"),
        reading="Compare with the mean of all: far below it, the long ones are those cut off.",
    ),
    _completion.gauge(
        "rl_terminated_completion_length_min",
        "Length of the shortest completion that ended by itself; TRL logs 0 when none did.",
        keys=_keys(f"grpo rloo {_SAMPLED}", "completions/min_terminated_length"),
        reading="Near 0: some completions end at once.",
    ),
    _completion.gauge(
        "rl_terminated_completion_length_max",
        "Length of the longest completion that ended by itself; TRL logs 0 when none did.",
        keys=_keys(f"grpo rloo {_SAMPLED}", "completions/max_terminated_length"),
        reading="Near the limit: the limit begins to bite.",
    ),
    _completion.gauge(
        "rl_completion_truncated_fraction",
        "Share of completions cut off at the length limit, without an end token.",
        unit="fraction",
        keys=_keys(f"{_GROUPWISE} {_SAMPLED} async-distillation", "completions/clipped_ratio"),
        healthy=Range(0.0, 0.25, "no number published; 1 means that nothing ever terminates"),
        reading="High: the limit is too short, or the model forgets to stop.",
    ),
    _completion.gauge(
        "rl_eos_tokens",
        "End tokens in the responses of one rank, end tokens used as padding included.",
        unit="tokens per batch",
        level=Level.STEP,
        scope=RankScope.RANK,
        keys=_keys(PPO, "val/num_eos_tokens"),
        healthy=Range(1.0, None, "above 0 once the model stops by itself"),
        reading="Falling to 0: the model forgets to stop.",
    ),
    _completion.gauge(
        "rl_eos_fraction",
        "Share of the completions of one rank that contain an end token.",
        unit="fraction",
        scope=RankScope.RANK,
        keys=_keys(ONLINE_DPO, "val/contain_eos_token"),
        reading="Falling: the model forgets to stop.",
    ),
    _completion.gauge(
        "rl_prompt_length_mean",
        "Mean length of the prompts of one rank.",
        keys=_keys(PPO_LEGACY, "tokens/queries_len_mean"),
        reading="Watch for drift of the data [ranges].",
    ),
    _completion.gauge(
        "rl_prompt_length_std",
        "Spread of the prompt lengths of one rank.",
        keys=_keys(PPO_LEGACY, "tokens/queries_len_std"),
        reading="A change of the data.",
    ),
    _completion.histogram(
        "rl_prompt_length_dist",
        "Length of each prompt.",
        _LENGTHS,
        keys=_keys(PPO_LEGACY, "tokens/queries_dist"),
        reading="A change of its shape is a change of the data.",
    ),
    _completion.gauge(
        "rl_tool_call_frequency",
        "Tool calls per completion.",
        unit="calls per completion",
        keys=_keys("grpo async-grpo distillation", "tools/call_frequency"),
        reading="Falling to 0: the policy has unlearnt its tools.",
    ),
    _completion.gauge(
        "rl_tool_failure_frequency",
        "Share of tool calls that failed; TRL logs 0 when there were none.",
        unit="fraction",
        level=Level.STEP,
        keys=_keys("grpo async-grpo distillation", "tools/failure_frequency"),
        reading="High: the tools are down, or are called wrongly.",
    ),
)

_LOGPROBS = (
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
    _logprob.gauge(
        "rl_ref_dropout",
        "Highest probability of dropout that is on in the reference of modern PPO: read from its modules.",
        unit="fraction",
        level=Level.STEP,
        scope=RankScope.RANK,
        reading="0. More: the reference is in training mode, and KL is partly noise.",
    ),
    _logprob.gauge(
        "rl_ref_logprob_noise",
        "Mean difference between the reference's log-probabilities of one token after one prompt: the first tokens of "
        "completions of a group, where they are the same.",
        scope=RankScope.RANK,
        reading="0, or rounding: the reference is deterministic. More: dropout is on in it, and KL is noise.",
    ),
)

_LOGGED_UNMASKED = {
    "rl_policy_ratio_dist": "ppo/policy/ratio",
    "rl_advantage_dist": "ppo/policy/advantages",
    "rl_logprob_dist": "objective/logprobs",
    "rl_ref_logprob_dist": "objective/ref_logprobs",
}


def _unmasked(metric: Metric, key: str) -> Metric:
    """Return the metric for a distribution as legacy PPO logs it, without its mask; for a run without taps."""
    return replace(
        metric,
        series=f"{metric.series.removesuffix('dist')}unmasked_dist",
        scope=RankScope.GLOBAL,
        help=f"{metric.series} as legacy PPO logs it: with prompt and padding positions, and averaged over ranks "
        "element by element. Only where no taps see the tokens themselves.",
        reading="Its bulk is padding. Attach to the trainer instead: rlexporter.attach(ppo_trainer).",
        healthy=None,
        keys=_keys(PPO_LEGACY, key),
        of=metric.series,
    )


_UNMASKED = tuple(
    _unmasked(metric, _LOGGED_UNMASKED[metric.series])
    for metric in (*_POLICY, *_ADVANTAGE, *_LOGPROBS)
    if metric.series in _LOGGED_UNMASKED
)

_SAMPLING = (
    _sampling.gauge(
        "rl_sampling_logp_difference_mean",
        "Mean absolute difference between the trainer's and the sampler's log-probability of a token; tokens "
        "without a score are left out. Modern PPO: in the first micro-batch of each step, before any update.",
        unit="nats",
        keys=_keys(GRPO, "sampling/sampling_logp_difference/mean"),
        healthy=Range(0.0, 0.05, "TRL issue 6789, bf16"),
        reading="Growth is a mismatch between the two engines.",
    ),
    _sampling.gauge(
        "rl_sampling_logp_difference_max",
        "Largest such difference.",
        unit="nats",
        keys=_keys(GRPO, "sampling/sampling_logp_difference/max"),
        healthy=Range(0.0, 0.7, "TRL issue 6789: 0.4 to 0.7 in healthy bf16 runs"),
        reading="A single large value may be noise; one that stays is a mismatch.",
    ),
    _sampling.gauge(
        "rl_importance_sampling_ratio_min",
        "Smallest trainer/sampler probability ratio, after truncation or masking: 0 is a masked one.",
        keys=_keys(GRPO, "sampling/importance_sampling_ratio/min"),
        healthy=Range(0.5, None, "[verl], per token"),
        reading="Near 0: tokens that the sampler liked and the trainer would not have said.",
    ),
    _sampling.gauge(
        "rl_importance_sampling_ratio_mean",
        "Mean trainer/sampler probability ratio, after truncation or masking.",
        keys=_keys(GRPO, "sampling/importance_sampling_ratio/mean"),
        healthy=Range(0.5, 2.0, "[verl], per token; per sequence 0.4 to 0.7 is normal (TRL issue 5814)"),
        reading="Away from 1: sampler and trainer are different policies.",
    ),
    _sampling.gauge(
        "rl_importance_sampling_ratio_max",
        "Largest trainer/sampler probability ratio, after truncation: it cannot show more than the cap.",
        keys=_keys(GRPO, "sampling/importance_sampling_ratio/max"),
        reading="At the cap: there are ratios above it.",
    ),
)

_SPEED = (
    _speed.histogram(
        "rl_step_duration_seconds",
        "Duration of each step, as this process measured it; evaluation and saving are not in it.",
        _SECONDS,
        level=Level.STEP,
        reading="A second hump: some steps do more, such as generation every few steps.",
    ),
    _speed.gauge(
        "rl_step_time_seconds",
        "Duration of a step as the trainer logs it, generation included.",
        level=Level.STEP,
        scope=RankScope.RANK,
        keys=_keys("grpo rloo distillation", "step_time")
        + _keys("async-grpo async-distillation", "perf/step_s")
        + _keys(PPO_LEGACY, "time/ppo/total"),
        reading="Stable. Growth with the completion length is expected.",
    ),
    _speed.gauge(
        "rl_phase",
        "1 for the part of the step that is under way, 0 for the others; all 0 between them.",
        unit="",
        level=Level.STEP,
        scope=RankScope.RANK,
        labels=("phase",),
        initial=_each(PHASES),
        reading="The one that stays at 1 is where a run hangs.",
    ),
    _speed.gauge(
        "rl_phase_time_seconds",
        "Duration of one part of the last step.",
        level=Level.STEP,
        scope=RankScope.RANK,
        labels=("phase",),
        keys=_keys(PPO_LEGACY, "time/ppo/{phase}")
        + _keys("async-grpo async-distillation", "perf/{phase}_s", only=True),
        reading="Shows which part of a step grows.",
    ),
    _speed.gauge(
        "rl_train_runtime_seconds",
        "Duration of train(), from the summary at its end.",
        keys=_keys(_TRAINERS, "train_runtime"),
    ),
    _speed.gauge(
        "rl_train_samples_per_second",
        "Samples per second of the whole train(), from the summary at its end.",
        unit="samples per second",
        keys=_keys(_TRAINERS, "train_samples_per_second"),
    ),
    _speed.gauge(
        "rl_train_steps_per_second",
        "Steps per second of the whole train(), from the summary at its end.",
        unit="steps per second",
        keys=_keys(_TRAINERS, "train_steps_per_second"),
    ),
    _loss.gauge(
        "rl_train_loss",
        "Mean loss of the whole train(), from the summary at its end.",
        level=Level.RUN,
        keys=_keys(_TRAINERS, "train_loss"),
        reading="No measure of success in GRPO and RLOO.",
    ),
    _speed.gauge(
        "rl_train_flos",
        "Floating-point operations so far, from the summary at the end of train(); 0 where the trainer does not count.",
        unit="floating-point operations",
        keys=_keys(_TRAINERS, "total_flos"),
    ),
)

_EVALUATION = (
    _evaluation.gauge(
        "rl_eval_runtime_seconds",
        "Duration of the last evaluation.",
        unit="seconds",
        keys=_keys(_TRAINERS, "eval_runtime"),
    ),
    _evaluation.gauge(
        "rl_eval_samples_per_second",
        "Samples per second in the last evaluation.",
        unit="samples per second",
        keys=_keys(_TRAINERS, "eval_samples_per_second"),
    ),
    _evaluation.gauge(
        "rl_eval_steps_per_second",
        "Batches per second in the last evaluation.",
        unit="batches per second",
        keys=_keys(_TRAINERS, "eval_steps_per_second"),
    ),
    _evaluation.gauge(
        "rl_eval_timestamp_seconds",
        "When the last evaluation was logged. Every other metric that an evaluation logs is served as rl_eval_*, "
        "with the data set as a label.",
        unit="seconds since the epoch",
    ),
    _evaluation.gauge("rl_eval_step", "The step of the last evaluation.", unit="steps"),
    _evaluation.gauge(
        "rl_eval_reward_function_unfiltered_mean",
        "Mean of what a reward function returned in the last evaluation, before TRL leaves NaN out: NaN if a value "
        "was. Without None, and of one rank.",
        unit="reward",
        level=Level.SEQUENCE,
        scope=RankScope.RANK,
        labels=("dataset", "reward_function"),
        reading="NaN or infinite: this function fails for some completions. The logged mean leaves them out.",
    ),
)

_PREFERENCE = (
    _preference.gauge(
        "rl_implicit_reward_chosen",
        "Implicit reward of the chosen completion.",
        keys=_keys("dpo online-dpo kto", "rewards/chosen"),
        reading="Falling together with the rejected one: the likelihood of both is being pushed down.",
    ),
    _preference.gauge(
        "rl_implicit_reward_rejected",
        "Implicit reward of the rejected completion.",
        keys=_keys("dpo online-dpo kto", "rewards/rejected"),
        reading="Falls while the policy learns to avoid them.",
    ),
    _preference.gauge(
        "rl_implicit_reward_accuracy",
        "Share of pairs whose chosen completion has the higher implicit reward.",
        unit="fraction",
        keys=_keys("dpo online-dpo", "rewards/accuracies"),
        reading="Rises from about 0.5; at 1 from the start the pairs are trivial.",
    ),
    _preference.gauge(
        "rl_implicit_reward_margin",
        "Implicit reward of the chosen completion minus that of the rejected one.",
        keys=_keys("dpo online-dpo kto", "rewards/margins"),
        reading="Rises while the policy learns.",
    ),
    _preference.gauge(
        "rl_judge_probability",
        "Mean probability that the judge gives to the policy's completion.",
        unit="fraction",
        keys=_keys(ONLINE_DPO, "rewards/probabilities"),
        reading="Rises above 0.5 while the policy beats its opponent.",
    ),
    _preference.gauge(
        "rl_sequence_logprob_chosen",
        "Log-probability of the chosen completion; CPO and TPO with a loss that is normalised by length (ipo, simpo, "
        "tpo-l): its mean per token.",
        unit="nats",
        keys=_keys("dpo online-dpo kto cpo tpo", "logps/chosen"),
        reading="A steep fall: chosen answers become unlikely too.",
    ),
    _preference.gauge(
        "rl_sequence_logprob_rejected",
        "Log-probability of the rejected completion; CPO and TPO with a loss that is normalised by length (ipo, simpo, "
        "tpo-l): its mean per token.",
        unit="nats",
        keys=_keys("dpo online-dpo kto cpo tpo", "logps/rejected"),
        reading="Falls while the policy learns to avoid them.",
    ),
)

_TRUTH = (
    _truth.counter(
        "rl_nonfinite_values_total",
        "NaN and infinities seen in a metric; they are in no bucket and no sum. metric is the Prometheus name. "
        "A series is absent until its first one.",
        unit="values",
        labels=("metric", "kind"),
        healthy=Range(0.0, 0.0, "a healthy run has none, but for rl_policy_ratio_var and rl_value_explained_variance"),
        reading="Any increase is a fault, even where the metric itself looks well.",
    ),
    _truth.counter(
        "rl_skipped_updates_total",
        "Updates that changed nothing: mini-batches of legacy PPO whose losses were set to 0, since their mean "
        "probability ratio was above ratio_threshold (TRL tells it by a Python warning only), and steps in fp16 whose "
        "gradients overflowed.",
        level=Level.STEP,
        scope=RankScope.RANK,
        initial=((),),
        reading="0 in PPO: each is a ratio that blew up, and its loss is logged as 0. In fp16 a few at the start, and "
        "one now and then, are healthy.",
    ),
    _truth.counter(
        "rl_undefined_values_total",
        "Values logged as None (TRL: nothing was left to average), or outside what the metric can be (padding). "
        "A series is absent until its first one; that of the metric is absent until the next number.",
        unit="values",
        labels=("metric",),
        reading="Expected where reward functions judge only some of the samples; elsewhere a signal is lost.",
    ),
    _truth.gauge(
        "rl_signal_available",
        "1 where a signal can be measured at the tensor in this run, 0 where it cannot, with the reason in "
        "rl_signal_unavailable_info.",
        labels=("signal",),
        reading="A rule on a signal that is not available can never fire.",
    ),
    _truth.info(
        "rl_signal_unavailable_info",
        "Why a signal cannot be measured in this run: by its configuration, or by an error. Always 1.",
        labels=("signal", "cause", "reason"),
    ),
    _condition.gauge(
        "rl_condition",
        "1 while a condition holds: its signal is beyond the limit of this severity in enough of its last "
        "observations. 0 when it holds no more; absent where it never began: rl_condition_judged says if it could.",
        labels=("condition", "severity"),
        reading="1 is an alert; docs/alerts.md says what it means and what to try.",
    ),
    _condition.gauge(
        "rl_condition_judged",
        "1 where a condition could be judged in this run, 0 where its signal has not come yet, or never will.",
        labels=("condition",),
        reading="0 for long: an alert that cannot fire. rl_signal_unavailable_info says why.",
    ),
    _condition.counter(
        "rl_condition_events_total",
        "How often a condition has begun; absent until the first time.",
        unit="events",
        labels=("condition", "severity"),
    ),
    _condition.gauge(
        "rl_condition_last_event_timestamp_seconds",
        "When a condition last began; absent while it never has.",
        unit="seconds since the epoch",
        labels=("condition", "severity"),
    ),
    _condition.gauge(
        "rl_condition_last_event_step",
        "The step in which a condition last began.",
        unit="steps",
        labels=("condition", "severity"),
    ),
    _condition.gauge(
        "rl_condition_last_event_value",
        "The value with which a condition last began, in the unit of its signal; always finite.",
        labels=("condition", "severity"),
    ),
    _condition.gauge(
        "rl_condition_last_event_threshold",
        "The limit that was in force when a condition last began, in the unit of its signal.",
        labels=("condition", "severity"),
    ),
    _condition.gauge(
        "rl_condition_symptom",
        "1 where a condition last began in the wake of another, its cause, and has not outlived it: then only the "
        "cause is an alert. 0 where it is no symptom any more; absent where it never was. The condition run_failed "
        "stands for the failure of the run.",
        labels=("condition", "severity"),
        reading="1: look at what began in the same step or shortly before.",
    ),
    _condition.gauge(
        "rl_signal",
        "A number that conditions are judged by, of the newest step that has one: of that step alone where the trainer "
        "logs a mean over several, from the tensor where that was seen, or computed from others. It is always finite.",
        level=Level.STEP,
        labels=("signal",),
        reading="Compare it with the rl_threshold of its conditions; docs/alerts.md says which those are.",
    ),
    _condition.gauge(
        "rl_incident",
        "What has gone wrong in the run, one series an incident: 2 while it holds, 1 while it has eased (the number is "
        "within its limit, but not where it was before), 0 once it is over. subject: what it is about, such as "
        "a reward function; cause: the condition that explains it; unit: that of its value and limit. "
        "Absent while nothing has gone wrong.",
        labels=("condition", "severity", "subject", "cause", "unit"),
        reading="1 is worth a look: what went wrong has not been undone.",
    ),
    _condition.gauge(
        "rl_run_verdict",
        "What the incidents of the run say of it: 0 fine, 1 look today, 2 act now. It leaves out that the run "
        "has failed, hangs or is gone.",
        level=Level.STEP,
    ),
    _condition.info(
        "rl_run_cause_info",
        "What the verdict on the run names first: the likeliest cause of all that is wrong. Always 1; absent while the "
        "verdict is fine.",
        labels=("condition", "severity", "subject"),
    ),
    _condition.gauge(
        "rl_threshold",
        "The limit of a condition that is in force, in the unit of its signal, also where it follows the run's "
        "own past.",
        labels=("condition", "severity"),
    ),
    _truth.gauge(
        "rl_logged_value",
        "A value whose key the catalogue does not know: of another trainer, or logged by a reward function. An "
        "array is served as its mean.",
        level=Level.STEP,
        labels=("key",),
    ),
)

_EXPORTER = (
    _exporter.counter(
        "rlexporter_errors_total",
        "Errors of the exporter itself, kept away from training. Each kind is logged once. A series is absent until "
        "its first one.",
        unit="errors",
        labels=("where",),
        healthy=Range(0.0, 0.0, "an error is a bug, or a disk or network that failed"),
        reading=f"where is the part that failed: {', '.join(ERROR_PLACES)}.",
    ),
    _exporter.gauge(
        "rlexporter_unmapped_keys",
        "Keys of the log lines that the catalogue does not know; they are served as rl_logged_value.",
        unit="keys",
        initial=((),),
    ),
    _exporter.counter(
        "rlexporter_dropped_keys_total",
        "Values dropped because the cap on keys outside the catalogue was reached.",
        unit="values",
        initial=((),),
    ),
    _exporter.counter(
        "rlexporter_ignored_values_total",
        "Logged values that are no numbers: strings, tables, objects.",
        unit="values",
        initial=((),),
    ),
    _exporter.counter(
        "rlexporter_record_seconds_total",
        "Time that log lines and step events have cost the training thread.",
        unit="seconds",
        initial=((),),
    ),
    _exporter.counter(
        "rlexporter_observe_seconds_total",
        "Time that tensors have cost the training thread.",
        unit="seconds",
        initial=((),),
    ),
    _exporter.counter("rlexporter_scrapes_total", "Answers given on /metrics.", unit="scrapes"),
    _exporter.gauge(
        "rlexporter_time_seconds",
        "The clock of the process when it answers a scrape, to the second. Not pushed, and not in the state file.",
        unit="seconds since the epoch",
        reading="Its distance from the scrape's own time is how far the two clocks are apart.",
    ),
    _exporter.info(
        "rlexporter_build_info",
        "Version of rlexporter and of the libraries that serve. Always 1.",
        labels=("version", "python", "prometheus_client", "fastapi"),
    ),
)

_DECLARED = (
    *(*_RUN, *_REWARDS, *_KL, *_ENTROPY, *_POLICY, *_ADVANTAGE, *_LOSSES, *_VALUE, *_OPTIMIZER, *_COMPLETION),
    *(*_LOGPROBS, *_UNMASKED, *_SAMPLING, *_SPEED, *_EVALUATION, *_PREFERENCE, *offline.PREFERENCE, *offline.DATA),
    *(*offline.DISTILLATION, *pipeline.PIPELINE, *_TRUTH, *_EXPORTER),
    *FRAMEWORK_METRICS,
)


def _with_keys(metric: Metric) -> Metric:
    """Give a histogram that counts one value a step the log keys of its gauge."""
    return replace(metric, keys=next(each.keys for each in _DECLARED if each.series == metric.of))


CATALOG = tuple(_with_keys(metric) if metric.of and not metric.keys else metric for metric in _DECLARED)

NAMED: dict[str, Metric] = {metric.series: metric for metric in CATALOG}
"""The catalogue by Prometheus name."""

MAY_BE_NONFINITE = frozenset(metric.series for metric in CATALOG if metric.may_be_nonfinite)
"""The metrics in which NaN or infinities are never a fault by themselves."""
