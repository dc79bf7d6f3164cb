"""The metrics of a run as such: its state, pace, evaluations and conditions, and the exporter itself."""

from __future__ import annotations

from rlexporter.catalog.algorithms import PPO, PPO_LEGACY
from rlexporter.catalog.as_logged import AS_LOGGED
from rlexporter.catalog.entries import Entries, keys
from rlexporter.model.metric import Group, Level, Range, RankScope
from rlexporter.model.snapshot import RunState

ERROR_PLACES = (
    *("log", "observe", "step", "tap", "event", "identity", "exit", "keep_good"),
    *("scrape", "auth", "otlp", "discovery", "state", "record", "notify", "compare", "on_critical"),
)
"""The parts of the exporter that can have an error: `rlexporter_errors_total{where}`."""

PHASES = ("rollout", "generation", "reward", "update", "eval", "save")
"""The parts of a run's time that `rl_phase{phase}` and `rl_phase_time_seconds{phase}` tell apart."""

TENSOR_SIGNALS = (
    *("reward", "advantage", "ratio", "kl", "logprob", "entropy", "completion_length", "prompt_length"),
    *("loss", "grad_norm", "weights", "value", "reference", "prompt", "copies", "loss_mask"),
)
"""The signals that may be measured at the tensor: `rl_signal_available{signal}`."""

HYPERPARAMETERS = tuple(
    """
    learning_rate max_steps num_train_epochs total_episodes warmup_steps warmup_ratio weight_decay
    max_grad_norm per_device_train_batch_size gradient_accumulation_steps logging_steps save_steps eval_steps
    num_generations num_iterations steps_per_generation generation_batch_size max_prompt_length
    max_completion_length response_length temperature top_p top_k min_p repetition_penalty num_beams beta epsilon
    epsilon_high delta scale_rewards mask_truncated_completions vllm_importance_sampling_correction
    vllm_importance_sampling_cap vllm_importance_sampling_clip_max use_vllm use_liger_loss entropy_coef
    sync_ref_model ref_model_sync_steps ref_model_mixup_alpha num_ppo_epochs ppo_epochs num_mini_batches
    batch_size mini_batch_size kl_coef init_kl_coef adap_kl_ctrl target horizon target_kl early_stopping
    cliprange cliprange_value vf_coef gamma lam whiten_rewards missing_eos_penalty ratio_threshold score_clip
    use_score_scaling max_staleness
    """.split()
)
"""The settings served as `rl_hyperparameter{name}` if they are numbers in the trainer's configuration."""

INFO_LABELS = (
    *("algorithm", "trainer", "model", "attempt", "world_size", "rank_scope", "loss_type", "importance_sampling_level"),
    *("trl", "transformers", "torch", "rlexporter"),
)

_COUNTED = "grpo rloo dpo kto tpo sft reward distillation"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)

_run = Entries(Group.RUN, level=Level.RUN)
_process = Entries(Group.RUN, level=Level.RUN, scope=RankScope.RANK)
_progress = Entries(Group.PROGRESS, level=Level.RUN)
_step = Entries(Group.PROGRESS, level=Level.RUN, unit="steps")
_speed = Entries(Group.SPEED, level=Level.STEP, unit="seconds")
_rate = Entries(Group.SPEED, level=Level.STEP)
_summary = Entries(Group.SPEED, level=Level.RUN)
_evaluation = Entries(Group.EVALUATION, level=Level.RUN, labels=("dataset",))
_validation = Entries(Group.EVALUATION, level=Level.RUN)
_condition = Entries(Group.CONDITION, level=Level.RUN, labels=("condition", "severity"))
_signal = Entries(Group.CONDITION, level=Level.STEP, labels=("signal",))
_truth = Entries(Group.TRUTH, level=Level.RUN)
_exporter = Entries(Group.EXPORTER, level=Level.RUN, scope=RankScope.RANK)
_from_zero = Entries(Group.EXPORTER, level=Level.RUN, scope=RankScope.RANK, initial=((),))


def _each(values: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple((value,) for value in values)


RUN = (
    _run.info(
        "rl_run_info",
        "What is running: algorithm, trainer class, model, attempt (how often a run of this name was started), number "
        "of ranks, versions. Always 1. rank_scope says whose tensors the distributions hold: one rank's, or all.",
        labels=INFO_LABELS,
    ),
    _process.gauge(
        "rl_run_state",
        "1 for the state the run is in, 0 for the others. failed: train() raised; preempted: SIGTERM; "
        "stopped: Ctrl-C, sys.exit or on_critical.",
        labels=("state",),
        initial=_each(tuple(state.value for state in RunState)),
    ),
    _process.info(
        "rl_run_exception_info",
        "What ended the last train(): the class of an exception, or on_critical; absent while there is none.",
        labels=("exception",),
    ),
    _process.gauge(
        "rl_run_start_timestamp_seconds",
        "When this process began the run.",
        unit="seconds since the epoch",
    ),
    _run.gauge("rl_world_size", "How many ranks the run has.", unit="ranks"),
    _run.gauge(
        "rl_gpus",
        "How many GPUs, or other accelerators, the run trains on: one a rank, 0 on a CPU; absent where no adapter "
        "knows the trainer's device. Those of a separate generation server are not among them.",
        unit="GPUs",
        reading="Its sum over time is what the run has cost: GPU hours.",
    ),
    _process.gauge(
        "rl_ranks_covered",
        "How many ranks the local metrics of this endpoint cover: 1, its own.",
        unit="ranks",
        reading="The sum over the endpoints of a run is below rl_world_size where some ranks are not seen: a NaN that "
        "only they have is not counted. RLEXPORTER_RANKS=all lets each rank serve its own.",
    ),
    _run.gauge(
        "rl_hyperparameter",
        "A numeric setting of the trainer's configuration, under its own name; booleans as 0 and 1.",
        labels=("name",),
    ),
    _step.gauge(
        "rl_step",
        "The step the run is at: an optimizer step in GRPO, RLOO and other Trainer loops, an update in modern "
        "PPO, one step() call in legacy PPO. A resumed checkpoint continues it.",
        scope=RankScope.RANK,
        reading="Grows. Falls back only when an older checkpoint is resumed.",
    ),
    _step.counter("rl_steps_total", "Steps done by this process, from 0.", initial=((),)),
    _step.gauge("rl_steps_planned", "The step at which training is to end."),
    _progress.gauge(
        "rl_episode",
        "Prompts consumed so far by all ranks, as the trainer counts them: 0 again with every train().",
        unit="episodes",
        keys=keys(PPO, "episode"),
        reading="Grows within one train().",
    ),
    _progress.counter(
        "rl_episodes_total",
        "Prompts consumed by all ranks since this process began.",
        unit="episodes",
        keys=keys(PPO, "episode"),
        reading="Its rate is the throughput in prompts.",
    ),
    _progress.gauge(
        "rl_tokens_seen",
        "Prompt and completion tokens processed by all ranks; restored with a checkpoint, so it can fall back.",
        unit="tokens",
        keys=keys(_COUNTED, "num_tokens"),
        reading="Grows. A fall is a resumed checkpoint.",
    ),
    _progress.counter(
        "rl_tokens_total",
        "Prompt and completion tokens processed by all ranks since this process began.",
        unit="tokens",
        keys=keys(_COUNTED, "num_tokens"),
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
    _step.gauge(
        "rl_last_log_step",
        "The step at which the trainer last logged: behind rl_step by up to logging_steps.",
    ),
    _progress.gauge(
        "rl_last_checkpoint_timestamp_seconds", "When the last checkpoint was written.", unit="seconds since the epoch"
    ),
    _step.gauge(
        "rl_last_checkpoint_step",
        "The step of the last checkpoint: what is after it is lost with the process.",
    ),
    _step.gauge(
        "rl_last_good_checkpoint_step",
        "The step of the newest checkpoint that is older than anything critical: older than the steps whose numbers "
        "show what went wrong, or its cause; and after a NaN the weights were seen to be numbers again. It is known "
        "with the next step, or with the end of the run; a resumed run starts with the checkpoint that it continues, "
        "unless its first step is bad. With transformers and TRL it is one that still exists. Absent while there is "
        "none. As rank 0 sees it.",
        reading="Behind rl_last_checkpoint_step after a fault: resume from this one.",
    ),
)

SPEED = (
    _summary.gauge(
        "rl_episodes_per_second",
        "Episodes so far over seconds since train(), truncated to an integer by TRL: 0 in slow runs.",
        unit="episodes per second",
        keys=keys(PPO, "eps"),
        reading="A run average: it recovers only slowly after a pause.",
    ),
    _speed.histogram(
        "rl_step_duration_seconds",
        "Duration of each step, as this process measured it; evaluation and saving are not in it.",
        _SECONDS,
        reading="A second hump: some steps do more, such as generation every few steps.",
    ),
    _speed.gauge(
        "rl_step_time_seconds",
        "Duration of a step as the trainer logs it, generation included.",
        scope=RankScope.RANK,
        keys=keys("grpo rloo distillation", "step_time")
        + keys("async-grpo async-distillation", "perf/step_s")
        + keys(PPO_LEGACY, "time/ppo/total"),
        reading="Stable. Growth with the completion length is expected.",
    ),
    _rate.gauge(
        "rl_phase",
        "1 for the part of the step that is under way, 0 for the others; all 0 between them.",
        scope=RankScope.RANK,
        labels=("phase",),
        initial=_each(PHASES),
        reading="The one that stays at 1 is where a run hangs.",
    ),
    _speed.gauge(
        "rl_phase_time_seconds",
        "Duration of one part of the last step.",
        scope=RankScope.RANK,
        labels=("phase",),
        keys=keys(PPO_LEGACY, "time/ppo/{phase}") + keys("async-grpo async-distillation", "perf/{phase}_s", only=True),
        reading="Shows which part of a step grows.",
    ),
    _speed.counter(
        "rl_phase_seconds_total",
        "Time that this process has spent in each part of its steps. GRPO and RLOO: generation is this rank's own, and "
        "rollout is the rest of it, in which ranks wait for each other.",
        scope=RankScope.RANK,
        labels=("phase",),
        reading="Its rate is the share of the time. A rank with more generation or reward than others is a straggler.",
    ),
    _speed.fraction(
        "rl_waiting_fraction",
        "Share of the step in which the trainer waits for samples.",
        reading="High: generation does not keep up.",
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
    _evaluation.gauge(
        "rl_eval_score",
        "A score of the last validation: the data set, what was scored, and the statistic over samples, as the "
        "framework names them (mean@8, best@8/mean).",
        labels=("dataset", "score", "statistic"),
        reading="Rises while the policy learns. Falls while the training reward rises: it is being hacked.",
    ),
    _validation.gauge(
        "rl_validation_reward_mean",
        "Mean reward of the last validation.",
        unit="reward",
        reading="Rises while the policy learns. Falls while the training reward rises: it is being hacked.",
    ),
    _evaluation.gauge(
        "rl_eval_reward",
        "Mean reward of the last validation on a data set.",
        unit="reward",
        reading="Rises while the policy learns. Falls while the training reward rises: it is being hacked.",
    ),
    _evaluation.fraction(
        "rl_eval_pass_at_k",
        "Share of prompts of the last validation of which at least one of k completions gets a reward of 1.",
        labels=("dataset", "k"),
        reading="Rises while the policy learns.",
    ),
)

TRUTH = (
    _condition.gauge(
        "rl_condition",
        "1 while a condition holds: its signal is beyond the limit of this severity in enough of its last "
        "observations. 0 when it holds no more; absent where it never began: rl_condition_judged says if it could.",
        reading="1 is an alert; docs/alerts.md says what it means and what to try.",
    ),
    _condition.gauge(
        "rl_condition_judged",
        "1 where a condition could be judged in this run, 0 where its signal has not come yet, or never will.",
        labels=("condition",),
        reading="0 for long: an alert that cannot fire. rl_signal_unavailable_info says why.",
    ),
    _condition.counter(
        "rl_condition_events_total", "How often a condition has begun; absent until the first time.", unit="events"
    ),
    _condition.gauge(
        "rl_condition_last_event_timestamp_seconds",
        "When a condition last began; absent while it never has.",
        unit="seconds since the epoch",
    ),
    _condition.gauge("rl_condition_last_event_step", "The step in which a condition last began.", unit="steps"),
    _condition.gauge(
        "rl_condition_last_event_value",
        "The value with which a condition last began, in the unit of its signal; always finite.",
    ),
    _condition.gauge(
        "rl_condition_last_event_threshold",
        "The limit that was in force when a condition last began, in the unit of its signal.",
    ),
    _condition.gauge(
        "rl_condition_symptom",
        "1 where a condition last began in the wake of another, its cause, and has not outlived it: then only the "
        "cause is an alert. 0 where it is no symptom any more; absent where it never was. The condition run_failed "
        "stands for the failure of the run.",
        reading="1: look at what began in the same step or shortly before.",
    ),
    _signal.gauge(
        "rl_signal",
        "A number that conditions are judged by, of the newest step that has one: of that step alone where the trainer "
        "logs a mean over several, from the tensor where that was seen, or computed from others. It is always finite.",
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
        labels=(),
    ),
    _condition.info(
        "rl_run_cause_info",
        "What the verdict on the run names first: the likeliest cause of all that is wrong. Its label signal names the "
        "rl_signal that it is judged by. Always 1; absent while the verdict is fine.",
        labels=("condition", "severity", "subject", "signal"),
    ),
    _signal.gauge(
        "rl_nearest_limit_fraction",
        "How near the run is to an alert: of all numbers that are judged, the one nearest to one of its limits, as a "
        "share of that limit (for a lower limit the limit as a share of the number). 1 is at the limit. There is one "
        "series, whose label signal says which number it is.",
        unit="fraction",
        reading="An alert also asks how often: a single step beyond 1 need not raise one. Limits that are measured "
        "with the run's own past are known after its first steps. Limits for changes, and those at 0 or below, are "
        "left out; so are numbers that stand still within their limit, as those do whose healthy value is fixed. "
        "Absent while nothing comes near a limit.",
    ),
    _condition.gauge(
        "rl_threshold",
        "The limit of a condition that is in force, in the unit of its signal, also where it follows the run's "
        "own past.",
    ),
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
        "What keeps a signal from being measured in this run: its configuration, or an error. Always 1; the page of "
        "the run says more.",
        labels=("signal", "cause"),
    ),
    _truth.gauge(
        "rl_logged_value",
        "A value that is logged under a key without a series of its own: of another trainer, of a reward function, or "
        "one that no panel and no rule reads. An array is served as its mean.",
        level=Level.STEP,
        labels=("key",),
        keys=AS_LOGGED,
        reading="As its trainer documents the key; `rlexporter metrics KEY` says whether a key is known.",
    ),
    _exporter.counter(
        "rlexporter_errors_total",
        "Errors of the exporter itself, kept away from training. Each kind is logged once. A series is absent until "
        "its first one.",
        unit="errors",
        labels=("where",),
        healthy=Range(0.0, 0.0, "an error is a bug, or a disk or network that failed"),
        reading=f"where is the part that failed: {', '.join(ERROR_PLACES)}.",
    ),
    _from_zero.gauge(
        "rlexporter_unmapped_keys",
        "Keys of the log lines that the catalog does not know; they are served as rl_logged_value.",
        unit="keys",
    ),
    _exporter.info(
        "rlexporter_guessed_key_info",
        "A log key of an unknown trainer that is taken for a series by its last part. Always 1.",
        labels=("key", "series"),
        reading="A guess: `RLEXPORTER_MAP` says what a key means.",
    ),
    _from_zero.counter(
        "rlexporter_dropped_keys_total",
        "Values dropped because the cap on keys outside the catalog was reached.",
        unit="values",
    ),
    _from_zero.counter(
        "rlexporter_ignored_values_total",
        "Logged values that are no numbers: strings, tables, objects.",
        unit="values",
    ),
    _from_zero.counter(
        "rlexporter_record_seconds_total",
        "Time that log lines and step events have cost the training thread.",
        unit="seconds",
    ),
    _from_zero.counter(
        "rlexporter_observe_seconds_total",
        "Time that tensors have cost the training thread.",
        unit="seconds",
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
