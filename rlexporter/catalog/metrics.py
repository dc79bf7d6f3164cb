"""The table: every metric, declared once. Registration, outputs, docs, dashboards and rules derive from it.

The order is the order of docs and panels. Names are dotted (`rl.kl.per_token` is `rl_kl_per_token` in Prometheus);
keys are TRL's own. To add a metric is to add one entry here.

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

from rlexporter.model import Group, Key, Kind, Level, Metric, Range, RunState, Scope

PPO_LEGACY = "ppo-legacy"
PPO = "ppo"
GRPO = "grpo"
RLOO = "rloo"
ASYNC_GRPO = "async-grpo"
ONLINE_DPO = "online-dpo"
DPO = "dpo"

ALGORITHMS = {
    PPO_LEGACY: "PPO, step() based (trl 0.11.4 and earlier)",
    PPO: "PPO, Trainer based (trl 0.9 to 1.12)",
    GRPO: "GRPO",
    RLOO: "RLOO (trl 0.22 and later)",
    ASYNC_GRPO: "AsyncGRPO (experimental)",
    ONLINE_DPO: "OnlineDPO",
    DPO: "DPO and its relatives",
}
"""Names of the algorithms as `rl_run_info{algorithm}` and `--algorithm` spell them."""

ERROR_PLACES = (
    *("log", "observe", "step", "tap", "event", "identity", "exit"),
    *("scrape", "door", "otlp", "discovery", "state", "record"),
)
"""Where an error of the exporter itself can come from: `rlexporter_errors_total{where}`."""

PHASES = ("rollout", "reward", "update", "eval", "save")
"""The parts of a run's time that `rl_phase{phase}` and `rl_phase_time_seconds{phase}` tell apart."""

SIGNALS = (
    *("reward", "advantage", "ratio", "kl", "logprob", "entropy", "completion_length", "prompt_length"),
    *("loss", "grad_norm", "weights", "value"),
)
"""What can be measured at the tensor, or not, in a run: `rl_signal_available{signal}`."""

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
"""The settings that go out as `rl_hyperparameter{name}` where a trainer's configuration has a number there."""

INFO_LABELS = (
    *("algorithm", "trainer", "model", "attempt", "world_size", "rank_scope", "loss_type", "importance_sampling_level"),
    *("trl", "transformers", "torch", "rlexporter"),
)


def _keys(algorithms: str, *names: str) -> tuple[Key, ...]:
    return tuple(Key(name, tuple(algorithms.split())) for name in names)


def _both_signs(*positive: float) -> tuple[float, ...]:
    """Bounds around zero: -x ... 0 ... x."""
    return (*(-x for x in reversed(positive)), 0.0, *positive)


def _each(values: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple((value,) for value in values)


_GROUPWISE = "grpo rloo async-grpo"
_TRAINERS = "grpo rloo async-grpo online-dpo dpo"

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

_RUN = (
    Metric(
        name="rl.run_info",
        kind=Kind.INFO,
        group=Group.RUN,
        level=Level.RUN,
        help="What is running: algorithm, trainer class, model, attempt (how often a run of this name was started), "
        "number of ranks, versions. Always 1. rank_scope says whose tensors the distributions hold: one rank's, or "
        "all.",
        labels=INFO_LABELS,
    ),
    Metric(
        name="rl.run.state",
        kind=Kind.GAUGE,
        group=Group.RUN,
        scope=Scope.RANK,
        level=Level.RUN,
        help="1 for the state the run is in, 0 for the others. failed: train() raised; preempted: SIGTERM; "
        "stopped: Ctrl-C or sys.exit.",
        labels=("state",),
        initial=_each(tuple(state.value for state in RunState)),
    ),
    Metric(
        name="rl.run.exception_info",
        kind=Kind.INFO,
        group=Group.RUN,
        scope=Scope.RANK,
        level=Level.RUN,
        help="Class of the exception that ended the last train(); absent while there is none.",
        labels=("exception",),
    ),
    Metric(
        name="rl.run.start_timestamp_seconds",
        kind=Kind.GAUGE,
        group=Group.RUN,
        scope=Scope.RANK,
        unit="seconds since the epoch",
        level=Level.RUN,
        help="When this process began the run.",
    ),
    Metric(
        name="rl.world_size",
        kind=Kind.GAUGE,
        group=Group.RUN,
        unit="ranks",
        level=Level.RUN,
        help="How many ranks the run has.",
    ),
    Metric(
        name="rl.ranks_covered",
        kind=Kind.GAUGE,
        group=Group.RUN,
        scope=Scope.RANK,
        unit="ranks",
        level=Level.RUN,
        help="How many ranks the local metrics of this endpoint cover: 1, its own.",
        reading="The sum over the endpoints of a run is below rl_world_size where some ranks are not seen: a NaN that "
        "only they have is not counted. RLEXPORTER_RANKS=all lets each rank serve its own.",
    ),
    Metric(
        name="rl.hyperparameter",
        kind=Kind.GAUGE,
        group=Group.RUN,
        level=Level.RUN,
        help="A numeric setting of the trainer's configuration, under its own name; booleans as 0 and 1.",
        labels=("name",),
    ),
    Metric(
        name="rl.step",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        scope=Scope.RANK,
        unit="steps",
        level=Level.RUN,
        help="The step the run is at: an optimizer step in GRPO, RLOO and other Trainer loops, an update in modern "
        "PPO, one step() call in legacy PPO. A resumed checkpoint continues it.",
        reading="Grows. Falls back only when an older checkpoint is resumed.",
    ),
    Metric(
        name="rl.steps_total",
        kind=Kind.COUNTER,
        group=Group.PROGRESS,
        unit="steps",
        level=Level.RUN,
        help="Steps done by this process, from 0.",
        initial=((),),
    ),
    Metric(
        name="rl.steps_planned",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        unit="steps",
        level=Level.RUN,
        help="The step at which training is to end.",
    ),
    Metric(
        name="rl.epoch",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        unit="epochs",
        level=Level.RUN,
        help="Passes over the training data so far.",
        reading="Grows. Several passes over few prompts: expect the policy to learn them by heart.",
        keys=_keys("ppo " + _TRAINERS, "epoch"),
    ),
    Metric(
        name="rl.episode",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        unit="episodes",
        level=Level.RUN,
        help="Prompts consumed so far by all ranks, as the trainer counts them: 0 again with every train().",
        reading="Grows within one train().",
        keys=_keys(PPO, "episode"),
    ),
    Metric(
        name="rl.episodes_total",
        kind=Kind.COUNTER,
        group=Group.PROGRESS,
        unit="episodes",
        level=Level.RUN,
        help="Prompts consumed by all ranks since this process began.",
        reading="Its rate is the throughput in prompts.",
        keys=_keys(PPO, "episode"),
    ),
    Metric(
        name="rl.episodes_per_second",
        kind=Kind.GAUGE,
        group=Group.SPEED,
        unit="episodes per second",
        level=Level.RUN,
        help="Episodes so far over seconds since train(), truncated to an integer by TRL: 0 in slow runs.",
        reading="A run average: it recovers only slowly after a pause.",
        keys=_keys(PPO, "eps"),
    ),
    Metric(
        name="rl.tokens_seen",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        unit="tokens",
        level=Level.RUN,
        help="Prompt and completion tokens processed by all ranks; restored with a checkpoint, so it can fall back.",
        reading="Grows. A fall is a resumed checkpoint.",
        keys=_keys(_TRAINERS, "num_tokens"),
    ),
    Metric(
        name="rl.tokens_total",
        kind=Kind.COUNTER,
        group=Group.PROGRESS,
        unit="tokens",
        level=Level.RUN,
        help="Prompt and completion tokens processed by all ranks since this process began.",
        reading="Its rate is the throughput in tokens.",
        keys=_keys(_TRAINERS, "num_tokens"),
    ),
    Metric(
        name="rl.last_step_timestamp_seconds",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        scope=Scope.RANK,
        unit="seconds since the epoch",
        level=Level.RUN,
        help="When the last step ended; the start of the run before the first one.",
        reading="`time() - rl_last_step_timestamp_seconds` is the age of the last step: its growth is a stall.",
    ),
    Metric(
        name="rl.stall_after_seconds",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        unit="seconds",
        level=Level.RUN,
        help="How old the last step may be before the run hangs: ten times the run's own pace, at least 600 seconds; "
        "longer before the first step, and while an evaluation or a checkpoint is under way.",
        reading="Below `time() - rl_last_step_timestamp_seconds`: the run is stalled.",
    ),
    Metric(
        name="rl.last_log_timestamp_seconds",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        unit="seconds since the epoch",
        level=Level.RUN,
        help="When the trainer last logged.",
    ),
    Metric(
        name="rl.last_log_step",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        unit="steps",
        level=Level.RUN,
        help="The step at which the trainer last logged: behind rl_step by up to logging_steps.",
    ),
    Metric(
        name="rl.last_checkpoint_timestamp_seconds",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        unit="seconds since the epoch",
        level=Level.RUN,
        help="When the last checkpoint was written.",
    ),
    Metric(
        name="rl.last_checkpoint_step",
        kind=Kind.GAUGE,
        group=Group.PROGRESS,
        unit="steps",
        level=Level.RUN,
        help="The step of the last checkpoint: what is after it is lost with the process.",
    ),
)

_REWARDS = (
    Metric(
        name="rl.reward.mean",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="reward",
        level=Level.SEQUENCE,
        help="Mean reward per completion. GRPO, RLOO: the weighted sum of the reward functions, raw (unweighted in "
        "trl 0.27 to 0.29). Modern PPO: the score after the missing-EOS penalty. Legacy PPO: the rewards given to "
        "log_stats().",
        reading="Rises while the policy learns. Flat from the start: nothing is learnt. A jump beyond its own spread, "
        "or a rise while KL runs away: the reward is being hacked.",
        keys=_keys(_GROUPWISE, "reward")
        + _keys(PPO_LEGACY, "env/reward_mean")
        + _keys("ppo online-dpo", "objective/scores"),
    ),
    Metric(
        name="rl.reward.std",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="reward",
        level=Level.SEQUENCE,
        help="Spread of the reward: over the whole generation batch (GRPO from trl 0.27, RLOO), the mean over groups "
        "(GRPO up to 0.26), over the gathered rewards (legacy PPO).",
        healthy=Range(0.0, None, "[ranges]: moderate, not exploding"),
        reading="0 means no difference between completions, hence no policy gradient: either solved or the reward is "
        "constant.",
        keys=_keys(_GROUPWISE, "reward_std") + _keys(PPO_LEGACY, "env/reward_std"),
    ),
    Metric(
        name="rl.reward.dist",
        kind=Kind.HISTOGRAM,
        group=Group.REWARD,
        scope=Scope.RANK,
        unit="reward",
        level=Level.SEQUENCE,
        help="Reward of each completion.",
        reading="Balanced, without long tails; two humps are two kinds of answers.",
        keys=_keys(PPO_LEGACY, "env/reward_dist"),
        bounds=_REWARD,
    ),
    Metric(
        name="rl.reward_function.mean",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="reward",
        level=Level.SEQUENCE,
        help="Mean of one reward function over the samples for which it returned a number.",
        reading="One falling while another rises: they conflict. One stuck at its lowest value is dead.",
        keys=_keys("grpo rloo", "rewards/{reward_function}/mean")
        + _keys("grpo async-grpo", "rewards/{reward_function}"),
        labels=("reward_function",),
    ),
    Metric(
        name="rl.reward_function.std",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="reward",
        level=Level.SEQUENCE,
        help="Spread of one reward function over the generation batch, NaN left out.",
        healthy=Range(0.0, None, "0 is no signal from this function"),
        reading="0: this function tells no completion from another, so it teaches nothing.",
        keys=_keys("grpo rloo", "rewards/{reward_function}/std"),
        labels=("reward_function",),
    ),
    Metric(
        name="rl.reward_function.dist",
        kind=Kind.HISTOGRAM,
        group=Group.REWARD,
        scope=Scope.RANK,
        unit="reward",
        level=Level.SEQUENCE,
        help="Reward of each completion by one reward function, where it returned a number.",
        reading="All in one bucket: this function tells no completion from another.",
        labels=("reward_function",),
        bounds=_REWARD,
    ),
    Metric(
        name="rl.reward.zero_std_fraction",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="fraction",
        level=Level.SEQUENCE,
        help="Share of completions whose group has no spread of reward, so that their advantage is 0.",
        healthy=Range(0.0, 0.9, "no number published; 1 is no policy gradient at all"),
        reading="Near 1 with a high reward: solved. Near 1 with a low one: too hard, or the reward is broken.",
        keys=_keys("grpo rloo", "frac_reward_zero_std"),
    ),
    Metric(
        name="rl.scores.mean",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="reward",
        level=Level.SEQUENCE,
        help="Mean score after score scaling and clipping; equals the reward where neither is used.",
        reading="Rises while the policy learns; away from the reward, score clipping is at work.",
        keys=_keys(PPO_LEGACY, "ppo/mean_scores"),
    ),
    Metric(
        name="rl.scores.std",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="reward",
        level=Level.SEQUENCE,
        help="Spread of the scores; over several ranks the mean of the ranks' own.",
        reading="Near 0: no learning signal. Growing without end: the reward model is off its ground.",
        keys=_keys(PPO_LEGACY, "ppo/std_scores"),
    ),
    Metric(
        name="rl.scores.margin",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="reward",
        level=Level.SEQUENCE,
        help="Mean reward of the better completion minus that of the worse one.",
        reading="Rises while the better completion is easier to tell.",
        keys=_keys(ONLINE_DPO, "objective/scores_margin"),
    ),
    Metric(
        name="rl.rlhf_reward",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="reward",
        level=Level.SEQUENCE,
        help="Score plus the (negative) KL penalty: what PPO maximises.",
        reading="Rises [trl]. Falls while the score rises: the penalty is winning.",
        keys=_keys("ppo online-dpo", "objective/rlhf_reward"),
    ),
    Metric(
        name="rl.non_score_reward.per_sequence",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="reward",
        level=Level.SEQUENCE,
        help="The KL penalty: minus kl_coef times the KL summed over a sequence.",
        reading="Small against the score; should not dominate it [ranges].",
        keys=_keys("ppo online-dpo", "objective/non_score_reward"),
    ),
    Metric(
        name="rl.non_score_reward.per_token",
        kind=Kind.GAUGE,
        group=Group.REWARD,
        unit="reward",
        level=Level.TOKEN,
        help="The KL penalty as a mean over response tokens: negative while KL is positive.",
        reading="Should not dominate the reward [ranges].",
        keys=_keys(PPO_LEGACY, "ppo/mean_non_score_reward"),
    ),
)

_KL = (
    Metric(
        name="rl.kl.per_sequence",
        kind=Kind.GAUGE,
        group=Group.KL,
        unit="nats",
        level=Level.SEQUENCE,
        help="KL divergence to the reference policy, summed over the tokens of a response, mean over the batch. "
        "Usually the k1 estimator, which can be negative.",
        healthy=Range(0.0, 10.0, "[trl]; the adaptive controller aims at 6"),
        reading="Near 0 at the first step, then grows slowly. Too high: over-optimisation. Clearly below 0: the "
        "sampler is not the policy, or generation is constrained.",
        keys=_keys("ppo ppo-legacy online-dpo", "objective/kl"),
    ),
    Metric(
        name="rl.kl.per_sequence_dist",
        kind=Kind.HISTOGRAM,
        group=Group.KL,
        scope=Scope.RANK,
        unit="nats",
        level=Level.SEQUENCE,
        help="KL divergence to the reference policy of each response, summed over its tokens.",
        reading="A long upper tail: a few responses have left the reference although the mean looks well.",
        keys=_keys(PPO_LEGACY, "objective/kl_dist"),
        bounds=_KL_SEQUENCE,
    ),
    Metric(
        name="rl.kl.per_token",
        kind=Kind.GAUGE,
        group=Group.KL,
        unit="nats",
        level=Level.TOKEN,
        help="KL divergence to the reference policy, mean over completion tokens; only with beta above 0. GRPO: the k3 "
        "estimator, never negative. RLOO: k1, signed.",
        healthy=Range(0.0, 0.1, "[ranges] on this scale; limits depend on beta, estimator and length of the run"),
        reading="Near 0 at the first step, then grows slowly; a jump means the policy leaves the reference.",
        keys=_keys("grpo rloo", "kl"),
    ),
    Metric(
        name="rl.kl.per_token_dist",
        kind=Kind.HISTOGRAM,
        group=Group.KL,
        scope=Scope.RANK,
        unit="nats",
        level=Level.TOKEN,
        help="KL divergence to the reference policy of each completion token.",
        reading="A long upper tail: a few tokens have left the reference although the mean looks well.",
        bounds=_KL_TOKEN,
    ),
    Metric(
        name="rl.rollout_kl.per_token",
        kind=Kind.GAUGE,
        group=Group.KL,
        unit="nats",
        level=Level.TOKEN,
        help="KL divergence between the policy that sampled and the current one (k3), not to a reference model.",
        reading="Grows with the age of the samples: the policy has moved on since they were drawn.",
        keys=_keys(ASYNC_GRPO, "kl"),
    ),
    Metric(
        name="rl.kl.coef",
        kind=Kind.GAUGE,
        group=Group.KL,
        help="Coefficient of the KL penalty in force.",
        reading="A steady climb of the adaptive coefficient often comes before an instability [trl].",
        keys=_keys(PPO_LEGACY, "objective/kl_coef") + _keys(ONLINE_DPO, "beta"),
    ),
)

_ENTROPY = (
    Metric(
        name="rl.entropy.per_token",
        kind=Kind.GAUGE,
        group=Group.ENTROPY,
        unit="nats",
        level=Level.TOKEN,
        help="Entropy of the policy's next-token distribution, mean over completion tokens (modern PPO: over padding "
        "too).",
        reading="High early, declines slowly [ranges]. Near 0: collapse, nothing is explored any more. A lasting "
        "rise: the policy falls apart into noise.",
        keys=_keys(_GROUPWISE, "entropy") + _keys(PPO, "policy/entropy_avg") + _keys(PPO_LEGACY, "ppo/policy/entropy"),
    ),
    Metric(
        name="rl.entropy.per_token_dist",
        kind=Kind.HISTOGRAM,
        group=Group.ENTROPY,
        scope=Scope.RANK,
        unit="nats",
        level=Level.TOKEN,
        help="Entropy of the policy's next-token distribution at each completion token.",
        reading="Mass moving to 0: the policy decides ever more tokens outright.",
        bounds=(0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0),
    ),
    Metric(
        name="rl.entropy.per_sequence",
        kind=Kind.GAUGE,
        group=Group.ENTROPY,
        unit="nats",
        level=Level.SEQUENCE,
        help="Minus the sampled log-probabilities summed over a response: a one-sample estimate. Modern PPO up to trl "
        "1.9 subtracts 1 for every padding token, so that it can be negative.",
        reading="High early, declines slowly [ranges]. For collapse watch the entropy per token.",
        keys=_keys("ppo ppo-legacy online-dpo", "objective/entropy"),
    ),
    Metric(
        name="rl.entropy.coef",
        kind=Kind.GAUGE,
        group=Group.ENTROPY,
        help="Coefficient of the entropy bonus in force; only where the bonus is on.",
        reading="At its maximum: entropy cannot be held.",
        keys=_keys(GRPO, "entropy_coef"),
    ),
)

_RATIO = (
    *(0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0),
    *(1.001, 1.01, 1.05, 1.1, 1.2, 1.28, 1.5, 2.0, 5.0, 10.0, 200.0, 1000.0),
)
_CLIP_SOURCE = "[ranges], per token; per sequence (RLOO, GSPO) far higher values are normal"

_POLICY = (
    Metric(
        name="rl.policy.ratio_mean",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        level=Level.TOKEN,
        help="Mean probability ratio new/old policy. Modern PPO: over padding too, and from trl 0.17 too small where "
        "mini-batches have fewer micro-batches than gradient_accumulation_steps.",
        healthy=Range(0.5, 2.0, "[trl]: about 1; 2, 1000 or 0.1 are too drastic"),
        reading="1 is no change. Far from 1: the updates are too large for the data they were sampled from.",
        keys=_keys(PPO, "val/ratio") + _keys(ASYNC_GRPO, "ratio"),
    ),
    Metric(
        name="rl.corrected_mean",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        help="A mean of modern PPO as it would be logged without a fault of trl 0.17 and later: statistics slots that "
        "are never written count as 0 where a mini-batch has fewer micro-batches than gradient_accumulation_steps. "
        "The metric that is corrected is the label.",
        labels=("metric",),
        reading="Equal to the metric that it corrects in most configurations; else use this one for thresholds.",
    ),
    Metric(
        name="rl.policy.ratio_var",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        help="Variance of the micro-batches' mean ratios, not of the ratio; NaN where there is one micro-batch.",
        reading="Near 0.",
        keys=_keys(PPO, "val/ratio_var"),
    ),
    Metric(
        name="rl.policy.ratio_dist",
        kind=Kind.HISTOGRAM,
        group=Group.POLICY,
        scope=Scope.RANK,
        level=Level.TOKEN,
        help="Probability ratio new/old policy of each token, over all updates.",
        healthy=Range(0.1, 200.0, "[ranges], [trl]: about 1; above 200 is over-optimisation"),
        reading="Narrow around 1. The clip edges 0.8 and 1.2 are bounds, and so are 0.1, 2, 10 and 200.",
        bounds=_RATIO,
    ),
    Metric(
        name="rl.sequence_ratio_dist",
        kind=Kind.HISTOGRAM,
        group=Group.POLICY,
        scope=Scope.RANK,
        level=Level.SEQUENCE,
        help="Probability ratio new/old policy of each sequence: the product over its tokens (RLOO), or its geometric "
        "mean (GSPO).",
        reading="Narrow around 1; long responses spread it without any fault.",
        bounds=(
            *(0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.99, 0.999, 0.9997, 1.0),
            *(1.0003, 1.0004, 1.001, 1.01, 1.1, 1.2, 1.5, 2.0, 5.0, 10.0, 200.0, 1000.0),
        ),
    ),
    Metric(
        name="rl.policy.approxkl",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        unit="nats",
        level=Level.TOKEN,
        help="How far an update moved the policy: the k2 estimate, half the mean squared log-ratio (modern PPO: over "
        "padding too). Not the KL to the reference.",
        healthy=Range(0.0, 0.05, "[ranges] 0.01 to 0.05; [37] below 0.02"),
        reading="High with a high clip fraction: updates too aggressive.",
        keys=_keys(PPO, "policy/approxkl_avg") + _keys(PPO_LEGACY, "ppo/policy/approxkl"),
    ),
    Metric(
        name="rl.policy.approxkl_dist",
        kind=Kind.HISTOGRAM,
        group=Group.POLICY,
        unit="nats",
        level=Level.TOKEN,
        help="rl_policy_approxkl, one observation a step: a spike between two scrapes stays visible.",
        reading="Counts above 0.1: updates that went too far.",
        keys=_keys(PPO, "policy/approxkl_avg") + _keys(PPO_LEGACY, "ppo/policy/approxkl"),
        of="rl_policy_approxkl",
        bounds=(0.0, 0.00001, 0.0001, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0),
    ),
    Metric(
        name="rl.policy.policykl",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        unit="nats",
        level=Level.TOKEN,
        help="How far an update moved the policy: the k1 estimate, the mean of old minus new log-probability. Drives "
        "early stopping.",
        healthy=Range(None, 1.5, "legacy PPO stops the epoch at 1.5 times target_kl"),
        reading="Near 0; growth within a step is the policy moving away from its samples.",
        keys=_keys(PPO_LEGACY, "ppo/policy/policykl"),
    ),
    Metric(
        name="rl.policy.clipfrac",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        unit="fraction",
        level=Level.TOKEN,
        help="Share of response tokens for which the clipped branch of the loss is the active one. A NaN counts as not "
        "clipped.",
        healthy=Range(0.0, 0.2, "[ranges]"),
        reading="High: aggressive updates. Exactly 0 with several updates a batch: the policy does not move, or is "
        "NaN.",
        keys=_keys(PPO, "policy/clipfrac_avg") + _keys(PPO_LEGACY, "ppo/policy/clipfrac"),
    ),
    Metric(
        name="rl.clip_ratio.region_mean",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        unit="fraction",
        level=Level.TOKEN,
        help="Share clipped on either side: of tokens, or of sequences where rl_run_info says so "
        "(RLOO, importance_sampling_level=sequence).",
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="Exactly 0 while every update is on-policy. High: learning rate or number of iterations too high, or "
        "the clip range too narrow.",
        keys=_keys(_GROUPWISE, "clip_ratio/region_mean"),
    ),
    Metric(
        name="rl.clip_ratio.low_mean",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        unit="fraction",
        level=Level.TOKEN,
        help="Share below 1 - epsilon with a negative advantage.",
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="High: completions worse than their group are pushed down harder than the clip range allows.",
        keys=_keys(_GROUPWISE, "clip_ratio/low_mean"),
    ),
    Metric(
        name="rl.clip_ratio.low_min",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        unit="fraction",
        level=Level.TOKEN,
        help="Smallest such share: over ranks up to trl 1.8, over completions from 1.9.",
        reading="Above 0: even the least clipped rank or completion is clipped.",
        keys=_keys(_GROUPWISE, "clip_ratio/low_min"),
    ),
    Metric(
        name="rl.clip_ratio.high_mean",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        unit="fraction",
        level=Level.TOKEN,
        help="Share above 1 + epsilon_high with a positive advantage.",
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="High: completions better than their group are pushed up harder than the clip range allows.",
        keys=_keys(_GROUPWISE, "clip_ratio/high_mean"),
    ),
    Metric(
        name="rl.clip_ratio.high_max",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        unit="fraction",
        level=Level.TOKEN,
        help="Largest such share: over ranks up to trl 1.8, over completions from 1.9.",
        reading="Near 1: one rank or completion is clipped almost as a whole.",
        keys=_keys(_GROUPWISE, "clip_ratio/high_max"),
    ),
    Metric(
        name="rl.clip_ratio",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        unit="fraction",
        level=Level.TOKEN,
        help="Share of clipped tokens as trl 0.16 and the Liger loss (up to 1.13) log it: the two sides together.",
        healthy=Range(0.0, 0.2, _CLIP_SOURCE),
        reading="Exactly 0 while every update is on-policy. High: updates too aggressive.",
        keys=_keys(GRPO, "clip_ratio"),
    ),
    Metric(
        name="rl.cispo_clip_ratio",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        unit="fraction",
        level=Level.TOKEN,
        help="Share of tokens with a ratio above epsilon_high and a positive advantage (loss_type=cispo).",
        reading="High: many weights are cut; updates too aggressive for the samples.",
        keys=_keys(GRPO, "cispo_clip_ratio"),
    ),
    Metric(
        name="rl.vespo_phi_seq_mean",
        kind=Kind.GAUGE,
        group=Group.POLICY,
        level=Level.SEQUENCE,
        help="Mean weight of a sequence (loss_type=vespo).",
        reading="About 1 when on-policy.",
        keys=_keys(GRPO, "vespo/phi_seq_mean"),
    ),
)

_ADVANTAGE = (
    Metric(
        name="rl.advantage.mean",
        kind=Kind.GAUGE,
        group=Group.ADVANTAGE,
        level=Level.TOKEN,
        help="Mean advantage over response tokens, whitened.",
        healthy=Range(-0.1, 0.1, "[ranges]: centred near 0; it is whitened over the batch"),
        reading="Away from 0: advantages are not centred, every action looks good (or bad).",
        keys=_keys(PPO_LEGACY, "ppo/policy/advantages_mean"),
    ),
    Metric(
        name="rl.advantage.dist",
        kind=Kind.HISTOGRAM,
        group=Group.ADVANTAGE,
        scope=Scope.RANK,
        unit="advantage",
        level=Level.TOKEN,
        help="Advantage of each token (PPO) or completion (GRPO, RLOO). Arrays that legacy PPO logs hold masked "
        "positions as well, and -1 where the advantage was NaN.",
        reading="Balanced, not skewed [ranges]. All at 0: no learning signal.",
        bounds=_both_signs(0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0),
    ),
)

_LOSSES = (
    Metric(
        name="rl.loss",
        kind=Kind.GAUGE,
        group=Group.LOSS,
        help="Training loss, mean over the logging window. transformers replaces NaN and infinity by a running mean "
        "before it logs.",
        reading="No measure of success in GRPO and RLOO (about beta times KL while on-policy). Exactly 0 for ever can "
        "be a hidden NaN.",
        keys=_keys(_TRAINERS, "loss"),
    ),
    Metric(
        name="rl.loss_dist",
        kind=Kind.HISTOGRAM,
        group=Group.LOSS,
        scope=Scope.RANK,
        help="rl_loss, one observation a step: a spike between two scrapes stays visible.",
        reading="Counts in the outer buckets: spikes.",
        keys=_keys(_TRAINERS, "loss"),
        of="rl_loss",
        bounds=_LOSS,
    ),
    Metric(
        name="rl.policy_loss",
        kind=Kind.GAUGE,
        group=Group.LOSS,
        help="Clipped policy loss, mean over the updates of a step; GRPO logs it only with the entropy bonus. Legacy "
        "PPO logs 0 for updates that ratio_threshold skipped.",
        reading="Small oscillations around 0 [ranges].",
        keys=_keys(PPO, "loss/policy_avg") + _keys(PPO_LEGACY, "ppo/loss/policy") + _keys(GRPO, "policy_loss"),
    ),
    Metric(
        name="rl.policy_loss_dist",
        kind=Kind.HISTOGRAM,
        group=Group.LOSS,
        scope=Scope.RANK,
        help="rl_policy_loss, one observation a step.",
        reading="Counts in the outer buckets: spikes.",
        keys=_keys(PPO, "loss/policy_avg") + _keys(PPO_LEGACY, "ppo/loss/policy") + _keys(GRPO, "policy_loss"),
        of="rl_policy_loss",
        bounds=_LOSS,
    ),
    Metric(
        name="rl.value_loss",
        kind=Kind.GAUGE,
        group=Group.LOSS,
        unit="squared reward",
        help="Half the mean squared error of the value function, the larger of clipped and unclipped, before vf_coef.",
        reading="Falls, then stays level. Spikes or turns NaN when training goes wrong [trl].",
        keys=_keys(PPO, "loss/value_avg") + _keys(PPO_LEGACY, "ppo/loss/value"),
    ),
    Metric(
        name="rl.value_loss_dist",
        kind=Kind.HISTOGRAM,
        group=Group.LOSS,
        scope=Scope.RANK,
        unit="squared reward",
        help="rl_value_loss, one observation a step.",
        reading="Counts in the upper buckets: spikes.",
        keys=_keys(PPO, "loss/value_avg") + _keys(PPO_LEGACY, "ppo/loss/value"),
        of="rl_value_loss",
        bounds=(0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 1000.0, 10000.0, 1000000.0),
    ),
    Metric(
        name="rl.total_loss",
        kind=Kind.GAUGE,
        group=Group.LOSS,
        help="Policy loss plus vf_coef times value loss.",
        reading="Declines gradually [ranges].",
        keys=_keys(PPO_LEGACY, "ppo/loss/total"),
    ),
    Metric(
        name="rl.aux_loss",
        kind=Kind.GAUGE,
        group=Group.LOSS,
        help="Load-balancing loss of a mixture-of-experts model.",
        reading="Grows when few experts take most tokens.",
        keys=_keys(_GROUPWISE, "aux_loss"),
    ),
)

_VALUE = (
    Metric(
        name="rl.value.mean",
        kind=Kind.GAUGE,
        group=Group.VALUE,
        unit="reward",
        level=Level.TOKEN,
        help="Mean of the value function over response tokens, before the update.",
        reading="On the scale of the returns.",
        keys=_keys(PPO_LEGACY, "ppo/val/mean"),
    ),
    Metric(
        name="rl.value_dist",
        kind=Kind.HISTOGRAM,
        group=Group.VALUE,
        scope=Scope.RANK,
        unit="reward",
        level=Level.TOKEN,
        help="Value function at each response token, before the update.",
        reading="On the scale of the returns. Counts in the outer buckets: a critic that diverges.",
        bounds=_REWARD,
    ),
    Metric(
        name="rl.value.var",
        kind=Kind.GAUGE,
        group=Group.VALUE,
        unit="squared reward",
        level=Level.TOKEN,
        help="Variance of the value function over response tokens, before the update.",
        reading="Stable [ranges].",
        keys=_keys(PPO_LEGACY, "ppo/val/var"),
    ),
    Metric(
        name="rl.value.prediction",
        kind=Kind.GAUGE,
        group=Group.VALUE,
        unit="reward",
        level=Level.TOKEN,
        help="Mean of the value function over response tokens, during the update.",
        reading="On the scale of the returns; drifting away from them is a critic that diverges.",
        keys=_keys(PPO_LEGACY, "ppo/val/vpred"),
    ),
    Metric(
        name="rl.value.error",
        kind=Kind.GAUGE,
        group=Group.VALUE,
        unit="squared reward",
        level=Level.TOKEN,
        help="Mean squared error between value predictions and returns.",
        reading="Falls smoothly [ranges].",
        keys=_keys(PPO_LEGACY, "ppo/val/error"),
    ),
    Metric(
        name="rl.value.explained_variance",
        kind=Kind.GAUGE,
        group=Group.VALUE,
        unit="fraction",
        level=Level.TOKEN,
        help="1 - error / variance of the returns; minus infinity where the returns do not vary.",
        healthy=Range(0.8, 1.0, "[ranges]; negative through whole healthy runs has been seen"),
        reading="1 is a perfect critic, 0 one that might as well predict the mean, below 0 a worse one. Compare with "
        "the run's own level.",
        keys=_keys(PPO_LEGACY, "ppo/val/var_explained"),
    ),
    Metric(
        name="rl.value.clipfrac",
        kind=Kind.GAUGE,
        group=Group.VALUE,
        unit="fraction",
        level=Level.TOKEN,
        help="Share of tokens for which the clipped value loss is the larger one.",
        healthy=Range(0.0, 0.2, "[ranges]: low"),
        reading="High early while the critic fits; lasting: the value function moves too fast.",
        keys=_keys(PPO, "val/clipfrac_avg") + _keys(PPO_LEGACY, "ppo/val/clipfrac"),
    ),
    Metric(
        name="rl.return.mean",
        kind=Kind.GAUGE,
        group=Group.VALUE,
        unit="reward",
        level=Level.TOKEN,
        help="Mean of the TD(lambda) returns: advantage plus value.",
        reading="Rises with the reward.",
        keys=_keys(PPO_LEGACY, "ppo/returns/mean"),
    ),
    Metric(
        name="rl.return_dist",
        kind=Kind.HISTOGRAM,
        group=Group.VALUE,
        scope=Scope.RANK,
        unit="reward",
        level=Level.TOKEN,
        help="TD(lambda) return at each response token: advantage plus value.",
        reading="What the value function is fitted to: compare the two.",
        bounds=_REWARD,
    ),
    Metric(
        name="rl.return.var",
        kind=Kind.GAUGE,
        group=Group.VALUE,
        unit="squared reward",
        level=Level.TOKEN,
        help="Variance of the TD(lambda) returns.",
        reading="Consistent with the scale of the reward [ranges].",
        keys=_keys(PPO_LEGACY, "ppo/returns/var"),
    ),
)

_OPTIMIZER = (
    Metric(
        name="rl.learning_rate",
        kind=Kind.GAUGE,
        group=Group.OPTIMIZER,
        help="Learning rate in force (of the first parameter group).",
        reading="Follows its schedule; 0 in the middle of a run means that nothing is learnt any more.",
        keys=_keys(_TRAINERS, "learning_rate") + _keys(PPO, "lr") + _keys(PPO_LEGACY, "ppo/learning_rate"),
    ),
    Metric(
        name="rl.grad_norm",
        kind=Kind.GAUGE,
        group=Group.OPTIMIZER,
        help="Norm of the gradient before clipping, of the last optimizer step of the logging window.",
        healthy=Range(0.0, None, "finite; max_grad_norm clips at 1 by default"),
        reading="Lasting growth: trainer and sampler disagree [verl]. NaN: the weights are lost with the next step. "
        "Exactly 0 while rewards differ: a hidden NaN.",
        keys=_keys(_TRAINERS, "grad_norm"),
    ),
    Metric(
        name="rl.grad_norm_dist",
        kind=Kind.HISTOGRAM,
        group=Group.OPTIMIZER,
        help="rl_grad_norm, one observation a step: a spike between two scrapes stays visible.",
        reading='Counts in the upper buckets: spikes; in le="0.0": steps without any gradient.',
        keys=_keys(_TRAINERS, "grad_norm"),
        of="rl_grad_norm",
        bounds=(
            *(0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0),
            *(10000.0, 1000000.0),
        ),
    ),
    Metric(
        name="rl.weight_norm",
        kind=Kind.GAUGE,
        group=Group.OPTIMIZER,
        scope=Scope.RANK,
        help="Norm of the trained weights that this rank holds, measured before each rollout.",
        reading="Drifts slowly. NaN: weights are lost, and the rollout that follows will fail.",
    ),
)

_COMPLETION = (
    Metric(
        name="rl.completion_length.mean",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Mean length of the completions, truncated ones included. Legacy PPO: of one rank.",
        reading="No drift towards the limit, no collapse to a few tokens.",
        keys=_keys(_GROUPWISE, "completions/mean_length")
        + _keys(GRPO, "completion_length")
        + _keys(PPO_LEGACY, "tokens/responses_len_mean"),
    ),
    Metric(
        name="rl.completion_length.std",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Spread of the completion lengths of one rank.",
        reading="Not exploding [ranges]. 0: every answer has the same length.",
        keys=_keys(PPO_LEGACY, "tokens/responses_len_std"),
    ),
    Metric(
        name="rl.completion_length.min",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Length of the shortest completion, mean over the logging window.",
        reading="Near 0: some completions are empty.",
        keys=_keys(_GROUPWISE, "completions/min_length"),
    ),
    Metric(
        name="rl.completion_length.max",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Length of the longest completion, mean over the logging window.",
        reading="At max_completion_length: some completions are cut off.",
        keys=_keys(_GROUPWISE, "completions/max_length"),
    ),
    Metric(
        name="rl.completion_length.dist",
        kind=Kind.HISTOGRAM,
        group=Group.COMPLETION,
        scope=Scope.RANK,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Length of each completion.",
        reading="Mass at the limit: truncation. One bucket only: every answer has the same length.",
        keys=_keys(PPO_LEGACY, "tokens/responses_dist"),
        bounds=_LENGTHS,
    ),
    Metric(
        name="rl.terminated_completion_length.mean",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Mean length of the completions that ended by themselves; TRL logs 0 when none did.",
        reading="Compare with the mean of all: far below it, the long ones are those cut off.",
        keys=_keys("grpo rloo", "completions/mean_terminated_length"),
    ),
    Metric(
        name="rl.terminated_completion_length.min",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Length of the shortest completion that ended by itself; TRL logs 0 when none did.",
        reading="Near 0: some completions end at once.",
        keys=_keys("grpo rloo", "completions/min_terminated_length"),
    ),
    Metric(
        name="rl.terminated_completion_length.max",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Length of the longest completion that ended by itself; TRL logs 0 when none did.",
        reading="Near the limit: the limit begins to bite.",
        keys=_keys("grpo rloo", "completions/max_terminated_length"),
    ),
    Metric(
        name="rl.completion_truncated_fraction",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="fraction",
        level=Level.SEQUENCE,
        help="Share of completions cut off at the length limit, without an end token.",
        healthy=Range(0.0, 0.25, "no number published; 1 means that nothing ever terminates"),
        reading="High: the limit is too short, or the model forgets to stop.",
        keys=_keys(_GROUPWISE, "completions/clipped_ratio"),
    ),
    Metric(
        name="rl.eos_tokens",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="tokens per batch",
        scope=Scope.RANK,
        help="End tokens in the responses of one rank, end tokens used as padding included.",
        healthy=Range(1.0, None, "above 0 once the model stops by itself"),
        reading="Falling to 0: the model forgets to stop.",
        keys=_keys(PPO, "val/num_eos_tokens"),
    ),
    Metric(
        name="rl.eos_fraction",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="fraction",
        level=Level.SEQUENCE,
        scope=Scope.RANK,
        help="Share of the completions of one rank that contain an end token.",
        reading="Falling: the model forgets to stop.",
        keys=_keys(ONLINE_DPO, "val/contain_eos_token"),
    ),
    Metric(
        name="rl.prompt_length.mean",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Mean length of the prompts of one rank.",
        reading="Watch for drift of the data [ranges].",
        keys=_keys(PPO_LEGACY, "tokens/queries_len_mean"),
    ),
    Metric(
        name="rl.prompt_length.std",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Spread of the prompt lengths of one rank.",
        reading="A change of the data.",
        keys=_keys(PPO_LEGACY, "tokens/queries_len_std"),
    ),
    Metric(
        name="rl.prompt_length.dist",
        kind=Kind.HISTOGRAM,
        group=Group.COMPLETION,
        scope=Scope.RANK,
        unit="tokens",
        level=Level.SEQUENCE,
        help="Length of each prompt.",
        reading="A change of its shape is a change of the data.",
        keys=_keys(PPO_LEGACY, "tokens/queries_dist"),
        bounds=_LENGTHS,
    ),
    Metric(
        name="rl.tool_call_frequency",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="calls per completion",
        level=Level.SEQUENCE,
        help="Tool calls per completion.",
        reading="Falling to 0: the policy has unlearnt its tools.",
        keys=_keys("grpo async-grpo", "tools/call_frequency"),
    ),
    Metric(
        name="rl.tool_failure_frequency",
        kind=Kind.GAUGE,
        group=Group.COMPLETION,
        unit="fraction",
        help="Share of tool calls that failed; TRL logs 0 when there were none.",
        reading="High: the tools are down, or are called wrongly.",
        keys=_keys("grpo async-grpo", "tools/failure_frequency"),
    ),
)

_LOGPROBS = (
    Metric(
        name="rl.logprob_dist",
        kind=Kind.HISTOGRAM,
        group=Group.LOGPROB,
        scope=Scope.RANK,
        unit="nats",
        level=Level.TOKEN,
        help="Log-probability of each sampled token under the policy.",
        reading="Inspect for shifts [ranges]: everything moving to 0 is a collapse of entropy.",
        bounds=_LOGPROB,
    ),
    Metric(
        name="rl.ref_logprob_dist",
        kind=Kind.HISTOGRAM,
        group=Group.LOGPROB,
        scope=Scope.RANK,
        unit="nats",
        level=Level.TOKEN,
        help="Log-probability of each sampled token under the reference model.",
        reading="Falling while the policy's own rise: the policy says what the reference would not.",
        bounds=_LOGPROB,
    ),
)

_LOGGED_UNMASKED = {
    "rl.policy.ratio_dist": "ppo/policy/ratio",
    "rl.advantage.dist": "ppo/policy/advantages",
    "rl.logprob_dist": "objective/logprobs",
    "rl.ref_logprob_dist": "objective/ref_logprobs",
}


def _unmasked(metric: Metric, key: str) -> Metric:
    """What legacy PPO logs of a distribution, for a run that no taps see."""
    return replace(
        metric,
        name=f"{metric.name.removesuffix('dist')}unmasked_dist",
        scope=Scope.GLOBAL,
        help=f"{metric.series} as legacy PPO logs it: with prompt and padding positions, and averaged over ranks "
        "element by element. Only where no taps see the tokens themselves.",
        reading="Its bulk is padding. Attach to the trainer instead: rlexporter.attach(ppo_trainer).",
        healthy=None,
        keys=_keys(PPO_LEGACY, key),
        of=metric.series,
    )


_UNMASKED = tuple(
    _unmasked(metric, _LOGGED_UNMASKED[metric.name])
    for metric in (*_POLICY, *_ADVANTAGE, *_LOGPROBS)
    if metric.name in _LOGGED_UNMASKED
)

_SAMPLING = (
    Metric(
        name="rl.sampling_logp_difference.mean",
        kind=Kind.GAUGE,
        group=Group.SAMPLING,
        unit="nats",
        level=Level.TOKEN,
        help="Mean absolute difference between the trainer's and the sampler's log-probability of a token; tokens "
        "without a score are left out.",
        healthy=Range(0.0, 0.05, "TRL issue 6789, bf16"),
        reading="Growth is a mismatch between the two engines.",
        keys=_keys(GRPO, "sampling/sampling_logp_difference/mean"),
    ),
    Metric(
        name="rl.sampling_logp_difference.max",
        kind=Kind.GAUGE,
        group=Group.SAMPLING,
        unit="nats",
        level=Level.TOKEN,
        help="Largest such difference.",
        healthy=Range(0.0, 0.7, "TRL issue 6789: 0.4 to 0.7 in healthy bf16 runs"),
        reading="A single large value may be noise; one that stays is a mismatch.",
        keys=_keys(GRPO, "sampling/sampling_logp_difference/max"),
    ),
    Metric(
        name="rl.importance_sampling_ratio.min",
        kind=Kind.GAUGE,
        group=Group.SAMPLING,
        level=Level.TOKEN,
        help="Smallest trainer/sampler probability ratio, after truncation or masking: 0 is a masked one.",
        healthy=Range(0.5, None, "[verl], per token"),
        reading="Near 0: tokens that the sampler liked and the trainer would not have said.",
        keys=_keys(GRPO, "sampling/importance_sampling_ratio/min"),
    ),
    Metric(
        name="rl.importance_sampling_ratio.mean",
        kind=Kind.GAUGE,
        group=Group.SAMPLING,
        level=Level.TOKEN,
        help="Mean trainer/sampler probability ratio, after truncation or masking.",
        healthy=Range(0.5, 2.0, "[verl], per token; per sequence 0.4 to 0.7 is normal (TRL issue 5814)"),
        reading="Away from 1: sampler and trainer are different policies.",
        keys=_keys(GRPO, "sampling/importance_sampling_ratio/mean"),
    ),
    Metric(
        name="rl.importance_sampling_ratio.max",
        kind=Kind.GAUGE,
        group=Group.SAMPLING,
        level=Level.TOKEN,
        help="Largest trainer/sampler probability ratio, after truncation: it cannot show more than the cap.",
        reading="At the cap: there are ratios above it.",
        keys=_keys(GRPO, "sampling/importance_sampling_ratio/max"),
    ),
)

_SPEED = (
    Metric(
        name="rl.step_duration_seconds",
        kind=Kind.HISTOGRAM,
        group=Group.SPEED,
        unit="seconds",
        scope=Scope.RANK,
        help="Duration of each step, as this process measured it; evaluation and saving are not in it.",
        reading="A second hump: some steps do more, such as generation every few steps.",
        bounds=_SECONDS,
    ),
    Metric(
        name="rl.step_time_seconds",
        kind=Kind.GAUGE,
        group=Group.SPEED,
        unit="seconds",
        scope=Scope.RANK,
        help="Duration of a step as the trainer logs it, generation included.",
        reading="Stable. Growth with the completion length is expected.",
        keys=_keys("grpo rloo", "step_time") + _keys(PPO_LEGACY, "time/ppo/total"),
    ),
    Metric(
        name="rl.phase",
        kind=Kind.GAUGE,
        group=Group.SPEED,
        scope=Scope.RANK,
        help="1 for the part of the step that is under way, 0 for the others; all 0 between them.",
        reading="The one that stays at 1 is where a run hangs.",
        labels=("phase",),
        initial=_each(PHASES),
    ),
    Metric(
        name="rl.phase_time_seconds",
        kind=Kind.GAUGE,
        group=Group.SPEED,
        unit="seconds",
        scope=Scope.RANK,
        help="Duration of one part of the last step.",
        reading="Shows which part of a step grows.",
        keys=_keys(PPO_LEGACY, "time/ppo/{phase}"),
        labels=("phase",),
    ),
    Metric(
        name="rl.train.runtime_seconds",
        kind=Kind.GAUGE,
        group=Group.SPEED,
        unit="seconds",
        level=Level.RUN,
        help="Duration of train(), from the summary at its end.",
        keys=_keys(_TRAINERS, "train_runtime"),
    ),
    Metric(
        name="rl.train.samples_per_second",
        kind=Kind.GAUGE,
        group=Group.SPEED,
        unit="samples per second",
        level=Level.RUN,
        help="Samples per second of the whole train(), from the summary at its end.",
        keys=_keys(_TRAINERS, "train_samples_per_second"),
    ),
    Metric(
        name="rl.train.steps_per_second",
        kind=Kind.GAUGE,
        group=Group.SPEED,
        unit="steps per second",
        level=Level.RUN,
        help="Steps per second of the whole train(), from the summary at its end.",
        keys=_keys(_TRAINERS, "train_steps_per_second"),
    ),
    Metric(
        name="rl.train.loss",
        kind=Kind.GAUGE,
        group=Group.LOSS,
        level=Level.RUN,
        help="Mean loss of the whole train(), from the summary at its end.",
        reading="No measure of success in GRPO and RLOO.",
        keys=_keys(_TRAINERS, "train_loss"),
    ),
    Metric(
        name="rl.train.flos",
        kind=Kind.GAUGE,
        group=Group.SPEED,
        unit="floating-point operations",
        level=Level.RUN,
        help="Floating-point operations so far, from the summary at the end of train(); 0 where the trainer does not "
        "count.",
        keys=_keys(_TRAINERS, "total_flos"),
    ),
)

_EVALUATION = (
    Metric(
        name="rl.eval.runtime_seconds",
        kind=Kind.GAUGE,
        group=Group.EVALUATION,
        unit="seconds",
        level=Level.RUN,
        help="Duration of the last evaluation.",
        keys=_keys(_TRAINERS, "eval_runtime"),
        labels=("dataset",),
    ),
    Metric(
        name="rl.eval.samples_per_second",
        kind=Kind.GAUGE,
        group=Group.EVALUATION,
        unit="samples per second",
        level=Level.RUN,
        help="Samples per second in the last evaluation.",
        keys=_keys(_TRAINERS, "eval_samples_per_second"),
        labels=("dataset",),
    ),
    Metric(
        name="rl.eval.steps_per_second",
        kind=Kind.GAUGE,
        group=Group.EVALUATION,
        unit="batches per second",
        level=Level.RUN,
        help="Batches per second in the last evaluation.",
        keys=_keys(_TRAINERS, "eval_steps_per_second"),
        labels=("dataset",),
    ),
    Metric(
        name="rl.eval.timestamp_seconds",
        kind=Kind.GAUGE,
        group=Group.EVALUATION,
        unit="seconds since the epoch",
        level=Level.RUN,
        help="When the last evaluation was logged. Every other metric that an evaluation logs is served as rl_eval_*, "
        "with the data set as a label.",
        labels=("dataset",),
    ),
    Metric(
        name="rl.eval.step",
        kind=Kind.GAUGE,
        group=Group.EVALUATION,
        unit="steps",
        level=Level.RUN,
        help="The step of the last evaluation.",
        labels=("dataset",),
    ),
)

_PREFERENCE = (
    Metric(
        name="rl.implicit_reward.chosen",
        kind=Kind.GAUGE,
        group=Group.PREFERENCE,
        unit="reward",
        level=Level.SEQUENCE,
        help="Implicit reward of the chosen completion.",
        reading="Falling together with the rejected one: the likelihood of both is being pushed down.",
        keys=_keys("dpo online-dpo", "rewards/chosen"),
    ),
    Metric(
        name="rl.implicit_reward.rejected",
        kind=Kind.GAUGE,
        group=Group.PREFERENCE,
        unit="reward",
        level=Level.SEQUENCE,
        help="Implicit reward of the rejected completion.",
        reading="Falls while the policy learns to avoid them.",
        keys=_keys("dpo online-dpo", "rewards/rejected"),
    ),
    Metric(
        name="rl.implicit_reward.accuracy",
        kind=Kind.GAUGE,
        group=Group.PREFERENCE,
        unit="fraction",
        level=Level.SEQUENCE,
        help="Share of pairs whose chosen completion has the higher implicit reward.",
        reading="Rises from about 0.5; at 1 from the start the pairs are trivial.",
        keys=_keys("dpo online-dpo", "rewards/accuracies"),
    ),
    Metric(
        name="rl.implicit_reward.margin",
        kind=Kind.GAUGE,
        group=Group.PREFERENCE,
        unit="reward",
        level=Level.SEQUENCE,
        help="Implicit reward of the chosen completion minus that of the rejected one.",
        reading="Rises while the policy learns.",
        keys=_keys("dpo online-dpo", "rewards/margins"),
    ),
    Metric(
        name="rl.judge_probability",
        kind=Kind.GAUGE,
        group=Group.PREFERENCE,
        unit="fraction",
        level=Level.SEQUENCE,
        help="Mean probability that the judge gives to the policy's completion.",
        reading="Rises above 0.5 while the policy beats its opponent.",
        keys=_keys(ONLINE_DPO, "rewards/probabilities"),
    ),
    Metric(
        name="rl.sequence_logprob.chosen",
        kind=Kind.GAUGE,
        group=Group.PREFERENCE,
        unit="nats",
        level=Level.SEQUENCE,
        help="Log-probability of the chosen completion.",
        reading="A steep fall: chosen answers become unlikely too.",
        keys=_keys("dpo online-dpo", "logps/chosen"),
    ),
    Metric(
        name="rl.sequence_logprob.rejected",
        kind=Kind.GAUGE,
        group=Group.PREFERENCE,
        unit="nats",
        level=Level.SEQUENCE,
        help="Log-probability of the rejected completion.",
        reading="Falls while the policy learns to avoid them.",
        keys=_keys("dpo online-dpo", "logps/rejected"),
    ),
)

_TRUTH = (
    Metric(
        name="rl.nonfinite_values_total",
        kind=Kind.COUNTER,
        group=Group.TRUTH,
        unit="values",
        level=Level.RUN,
        help="NaN and infinities seen in a metric; they are in no bucket and no sum. metric is the Prometheus name.",
        healthy=Range(0.0, 0.0, "a healthy run has none, but for rl_policy_ratio_var and rl_value_explained_variance"),
        reading="Any increase is a fault, even where the metric itself looks well.",
        labels=("metric", "kind"),
    ),
    Metric(
        name="rl.skipped_updates_total",
        kind=Kind.COUNTER,
        group=Group.TRUTH,
        scope=Scope.RANK,
        help="Mini-batches of legacy PPO whose losses were set to 0, since their mean probability ratio was above "
        "ratio_threshold. TRL tells it by a Python warning only.",
        reading="0. Each is a ratio that blew up; its loss is logged as 0.",
        initial=((),),
    ),
    Metric(
        name="rl.undefined_values_total",
        kind=Kind.COUNTER,
        group=Group.TRUTH,
        unit="values",
        level=Level.RUN,
        help="Values logged as None (TRL: nothing was left to average), or outside what the metric can be (padding). "
        "The series is absent until the next number.",
        reading="Expected where reward functions judge only some of the samples; elsewhere a signal is lost.",
        labels=("metric",),
    ),
    Metric(
        name="rl.signal_available",
        kind=Kind.GAUGE,
        group=Group.TRUTH,
        level=Level.RUN,
        help="1 where a signal can be measured at the tensor in this run, 0 where it cannot, with the reason in "
        "rl_signal_unavailable_info.",
        reading="A rule on a signal that is not available can never fire.",
        labels=("signal",),
    ),
    Metric(
        name="rl.signal_unavailable_info",
        kind=Kind.INFO,
        group=Group.TRUTH,
        level=Level.RUN,
        help="Why a signal cannot be measured in this run: by its configuration, or by an error. Always 1.",
        labels=("signal", "cause", "reason"),
    ),
    Metric(
        name="rl.condition",
        kind=Kind.GAUGE,
        group=Group.CONDITION,
        level=Level.RUN,
        help="1 while a condition holds: its signal is beyond the limit of this severity in enough of its last "
        "observations. 0 while it is judged and does not hold; absent while it cannot be judged yet.",
        reading="1 is an alert; docs/alerts.md says what it means and what to try.",
        labels=("condition", "severity"),
    ),
    Metric(
        name="rl.condition_judged",
        kind=Kind.GAUGE,
        group=Group.CONDITION,
        level=Level.RUN,
        help="1 where a condition could be judged in this run, 0 where its signal has not come yet, or never will.",
        reading="0 for long: an alert that cannot fire. rl_signal_unavailable_info says why.",
        labels=("condition",),
    ),
    Metric(
        name="rl.condition_events_total",
        kind=Kind.COUNTER,
        group=Group.CONDITION,
        unit="events",
        level=Level.RUN,
        help="How often a condition has begun.",
        labels=("condition", "severity"),
    ),
    Metric(
        name="rl.condition_last_event_timestamp_seconds",
        kind=Kind.GAUGE,
        group=Group.CONDITION,
        unit="seconds since the epoch",
        level=Level.RUN,
        help="When a condition last began; absent while it never has.",
        labels=("condition", "severity"),
    ),
    Metric(
        name="rl.condition_last_event_step",
        kind=Kind.GAUGE,
        group=Group.CONDITION,
        unit="steps",
        level=Level.RUN,
        help="The step in which a condition last began.",
        labels=("condition", "severity"),
    ),
    Metric(
        name="rl.condition_last_event_value",
        kind=Kind.GAUGE,
        group=Group.CONDITION,
        level=Level.RUN,
        help="The value with which a condition last began, in the unit of its signal; always finite.",
        labels=("condition", "severity"),
    ),
    Metric(
        name="rl.threshold",
        kind=Kind.GAUGE,
        group=Group.CONDITION,
        level=Level.RUN,
        help="The limit of a condition that is in force, in the unit of its signal, also where it follows the run's "
        "own past.",
        labels=("condition", "severity"),
    ),
    Metric(
        name="rl.logged_value",
        kind=Kind.GAUGE,
        group=Group.TRUTH,
        help="A value whose key the catalogue does not know: of another trainer, or logged by a reward function. An "
        "array is served as its mean.",
        labels=("key",),
    ),
)

_EXPORTER = (
    Metric(
        name="rlexporter.errors_total",
        kind=Kind.COUNTER,
        group=Group.EXPORTER,
        scope=Scope.RANK,
        unit="errors",
        level=Level.RUN,
        help="Errors of the exporter itself, kept away from training. Each kind is logged once.",
        healthy=Range(0.0, 0.0, "an error is a bug, or a disk or network that failed"),
        labels=("where",),
        initial=_each(ERROR_PLACES),
    ),
    Metric(
        name="rlexporter.unmapped_keys",
        kind=Kind.GAUGE,
        group=Group.EXPORTER,
        scope=Scope.RANK,
        unit="keys",
        level=Level.RUN,
        help="Keys of the log lines that the catalogue does not know; they are served as rl_logged_value.",
        initial=((),),
    ),
    Metric(
        name="rlexporter.dropped_keys_total",
        kind=Kind.COUNTER,
        group=Group.EXPORTER,
        scope=Scope.RANK,
        unit="values",
        level=Level.RUN,
        help="Values dropped because the cap on keys outside the catalogue was reached.",
        initial=((),),
    ),
    Metric(
        name="rlexporter.ignored_values_total",
        kind=Kind.COUNTER,
        group=Group.EXPORTER,
        scope=Scope.RANK,
        unit="values",
        level=Level.RUN,
        help="Logged values that are no numbers: strings, tables, objects.",
        initial=((),),
    ),
    Metric(
        name="rlexporter.record_seconds_total",
        kind=Kind.COUNTER,
        group=Group.EXPORTER,
        scope=Scope.RANK,
        unit="seconds",
        level=Level.RUN,
        help="Time that log lines and step events have cost the training thread.",
        initial=((),),
    ),
    Metric(
        name="rlexporter.observe_seconds_total",
        kind=Kind.COUNTER,
        group=Group.EXPORTER,
        scope=Scope.RANK,
        unit="seconds",
        level=Level.RUN,
        help="Time that tensors have cost the training thread.",
        initial=((),),
    ),
    Metric(
        name="rlexporter.scrapes_total",
        kind=Kind.COUNTER,
        group=Group.EXPORTER,
        scope=Scope.RANK,
        unit="scrapes",
        level=Level.RUN,
        help="Answers given on /metrics.",
    ),
    Metric(
        name="rlexporter.build_info",
        kind=Kind.INFO,
        group=Group.EXPORTER,
        scope=Scope.RANK,
        level=Level.RUN,
        help="Version of rlexporter and of the libraries that serve. Always 1.",
        labels=("version", "python", "prometheus_client", "fastapi"),
    ),
)

CATALOG: tuple[Metric, ...] = (
    *_RUN,
    *_REWARDS,
    *_KL,
    *_ENTROPY,
    *_POLICY,
    *_ADVANTAGE,
    *_LOSSES,
    *_VALUE,
    *_OPTIMIZER,
    *_COMPLETION,
    *_LOGPROBS,
    *_UNMASKED,
    *_SAMPLING,
    *_SPEED,
    *_EVALUATION,
    *_PREFERENCE,
    *_TRUTH,
    *_EXPORTER,
)

NAMED: dict[str, Metric] = {metric.series: metric for metric in CATALOG}
"""The catalogue by Prometheus name."""
