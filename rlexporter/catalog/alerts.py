"""Alerts on what only Prometheus can see, such as a run that has vanished, hangs, or keeps restarting.

``expr`` is PromQL; ``run(...)`` in it is the largest value over the processes of a run (`rlexporter.generate.promql`).
The table of causes and of the families that are their symptoms is at the end.
"""

from __future__ import annotations

from rlexporter.model.alert import PrometheusAlert, RecordingRule
from rlexporter.model.condition import Family, Severity

RUNBOOKS = "https://github.com/rlexporter/rlexporter/blob/main/alerts/runbooks"
"""The folder that `runbook_url` points to: alerts/runbooks in the repository."""

LOST_WITHOUT = ("rank", "instance", "pod", "container", "endpoint", "node")
"""The labels of one process. Rules drop them by name, so that cluster and namespace survive."""


WATCHDOG = "RLExporterWatchdog"
"""The alert that always fires; it belongs to no run and no condition."""

RECORDING_RULES: tuple[RecordingRule, ...] = (
    RecordingRule(
        name="rl:run_running",
        expr='run(last_over_time(rl_run_state{state="running",rank="0"}[2m])) == 1',
    ),
    RecordingRule(
        name="rl:run_failed",
        expr='run(last_over_time(rl_run_state{state="failed",rank="0"}[15m])) == 1\n'
        "unless ignoring (state) rl:run_running",
    ),
    RecordingRule(
        name="rl:run_vanished",
        expr='run(last_over_time(rl_run_state{state="running",rank="0"}[30m])) == 1\n'
        'unless run(present_over_time(rl_run_state{state="running",rank="0"}[2m]))',
    ),
    RecordingRule(
        name="rl:run_stalled",
        expr='time() - run(last_over_time(rl_last_step_timestamp_seconds{rank="0"}[5m]))\n'
        '> run(last_over_time(rl_stall_after_seconds{rank="0"}[5m]))\n'
        "and ignoring (state) rl:run_running",
    ),
    RecordingRule(
        name="rl:conditions_critical",
        expr="count without (condition, severity) (\n"
        '  run(last_over_time(rl_condition_last_event_timestamp_seconds{severity="critical"}[15m])) > time() - 600\n'
        '  or run(last_over_time(rl_condition{severity="critical"}[15m])) == 1\n'
        ")",
    ),
)

MANY_RUNS = PrometheusAlert(
    alert="RLManyRunsSick",
    family=Family.STALL,
    severity=Severity.CRITICAL,
    expr="count by (cluster) (\n"
    "  count by (cluster, namespace, run) (\n"
    '    {__name__=~"rl:(run_failed|run_vanished|run_stalled|conditions_critical)"}\n'
    "  )\n"
    ") >= 5",
    summary="Five or more runs are sick at once.",
    description="{{ $value }} runs of {{ with $labels.cluster }}cluster {{ . }}{{ else }}this Prometheus{{ end }} have "
    "critical alerts. Their own pages are held back.",
    meaning="Many runs do not break by themselves at the same time: look for what they share. One page goes out, and "
    "the pages of the single runs are inhibited.",
    causes=(
        "A node pool, a file system, a network or a reward service that fails.",
        "A rollout of a driver, an image or a configuration.",
    ),
    remedies=("Look at what the runs have in common, then at their own alerts in the list of Alertmanager.",),
    source="five: more than one sweep usually loses at once",
    of_run=False,
)

RUN_FAILED = PrometheusAlert(
    alert="RLRunFailed",
    family=Family.CRASH,
    severity=Severity.CRITICAL,
    expr="rl:run_failed\n"
    "unless ignoring (state, condition, severity) (\n"
    '  run(last_over_time(rl_condition_symptom{condition="run_failed",rank="0"}[15m])) == 1\n'
    ")",
    summary="A run has ended with an exception.",
    description="it has ended with "
    '{{ with printf "last_over_time(rl_run_exception_info{run=%q}[15m])" $labels.run | query }}'
    "{{ (. | first).Labels.exception }}{{ else }}an exception{{ end }}"
    '{{ with printf "max(last_over_time(rl_step{run=%q}[15m]))" $labels.run | query }}, after step '
    "{{ . | first | value }}{{ end }}.",
    meaning="`train()` raised, and the run is over. Silent where the run died of a value that was NaN or infinite: the "
    "alert on that is the one.",
    causes=(
        "NaN weights: sampling fails with a probability tensor that contains inf, nan or negative elements.",
        "Out of memory.",
        "An exception in a reward function or a tool.",
    ),
    remedies=("Read the exception; look for a non-finite alert before it; resume from the last checkpoint.",),
    source="the state that the exporter serves after the end",
)
RUN_VANISHED = PrometheusAlert(
    alert="RLRunVanished",
    family=Family.STALL,
    severity=Severity.CRITICAL,
    expr="rl:run_vanished",
    wait="1m",
    summary="A run that was training is unreachable.",
    description="it was running, and has not been seen for more than two minutes.",
    meaning="Its last word was that it is running, and then no scrape succeeded any more: the process was killed, or "
    "cannot be reached. A run that ends, fails or is preempted says so.",
    causes=(
        "SIGKILL: the OOM killer, a lost node, a time limit of the scheduler.",
        "A network or discovery problem: other targets of the node are down too.",
    ),
    remedies=(
        "Look at the scheduler's and the kernel's log of the node.",
        "Resume from the last checkpoint: `rl_last_checkpoint_step` was its step.",
    ),
    source="two minutes: eight scrapes at 15 seconds; one more for a Prometheus that restarts",
)
RUN_STALLED = PrometheusAlert(
    alert="RLRunStalled",
    family=Family.STALL,
    severity=Severity.CRITICAL,
    expr="rl:run_stalled",
    summary="A run makes no steps any more.",
    description="no step has ended for {{ $value | humanizeDuration }}"
    '{{ with printf "last_over_time(rl_phase{run=%q,rank=\\"0\\"}[5m]) == 1" $labels.run | query }}, in the phase '
    "{{ (. | first).Labels.phase }}{{ end }}.",
    meaning="The process is alive and is scraped, but its last step (or its start) is longer ago than ten times its "
    "own pace, and than ten minutes; before the first step, half an hour.",
    causes=(
        "A reward function, a tool or a judge that does not answer.",
        "A rank that is gone while the others wait in a collective.",
        "A sampler that hangs, a data loader that waits.",
    ),
    remedies=(
        "`rl_phase` says where; `py-spy dump --pid` shows the stack.",
        "Give reward functions a time-out.",
        'A run with slow steps: `thresholds={"run_stalled": seconds}`.',
    ),
    source="600 seconds: prime-rl; ten times the own median: `rl_stall_after_seconds`",
)

PROMETHEUS_ALERTS: tuple[PrometheusAlert, ...] = (
    MANY_RUNS,
    RUN_VANISHED,
    RUN_STALLED,
    RUN_FAILED,
    PrometheusAlert(
        alert="RLRunRestarting",
        family=Family.CRASH,
        severity=Severity.WARNING,
        expr='sum without (LOST) (changes(rl_run_start_timestamp_seconds{rank="0"}[1h]) + 1) >= 3',
        summary="A run starts again and again.",
        description="it has started {{ $value }} times within an hour.",
        meaning="The run was started three times or more within an hour: it crashes early, or is preempted often.",
        causes=("A crash soon after the start that the launcher retries.", "A partition that preempts."),
        remedies=("Look at how its attempts ended: `rl_run_state`, `rl_run_exception_info`.",),
        source="two restarts an hour",
    ),
    PrometheusAlert(
        alert="RLRunLostProgress",
        family=Family.CRASH,
        severity=Severity.WARNING,
        expr='run(max_over_time(rl_step{rank="0"}[1h])) - run(rl_step{rank="0"}) > 0',
        wait="1m",
        summary="A run is at a step that it had left behind.",
        description="it is {{ $value }} steps behind where it was within the last hour.",
        meaning="The step is below its own maximum of the last hour: a checkpoint was resumed, and what came after it "
        "is done again. The alert ends when the run has caught up.",
        causes=("A restart from an old checkpoint.", "Two runs under one name."),
        remedies=("Save more often (`save_steps`).", "Give each run a name of its own."),
        source="a step only grows within one run",
    ),
    PrometheusAlert(
        alert="RLRunPreempted",
        family=Family.CRASH,
        severity=Severity.INFO,
        expr='run(last_over_time(rl_run_state{state="preempted",rank="0"}[15m])) == 1\n'
        "unless ignoring (state) rl:run_running",
        summary="A run was told to end.",
        description="it was preempted (SIGTERM), and has not come back yet.",
        meaning="The process got SIGTERM, as schedulers send it before they take a node away. No page: it is expected "
        "to be queued again.",
        causes=("A preemption, a time limit, a drained node, a person.",),
        remedies=("Nothing, if it is queued again.",),
        source="the state that the exporter serves after SIGTERM",
    ),
    PrometheusAlert(
        alert="RLExporterErrors",
        family=Family.EXPORTER,
        severity=Severity.WARNING,
        expr="sum without (where, LOST) (\n"
        "  increase(rlexporter_errors_total[15m]) > 0\n"
        "  or (rlexporter_errors_total > 0 unless rlexporter_errors_total offset 15m)\n"
        ") > 0",
        summary="The exporter has errors of its own.",
        description="the exporter has had {{ $value | humanize }} errors; training is not affected.",
        meaning="Something in the exporter failed; what it should have shown may be missing. The first error of each "
        "kind is in the log of the training process.",
        causes=("A bug, a full disk (recording), or a version of TRL that the taps were not made for.",),
        remedies=("Read the log of the process for `rlexporter`; report it.",),
        source="an error of the exporter is always a fault",
    ),
    PrometheusAlert(
        alert="RLSignalUnavailable",
        family=Family.EXPORTER,
        severity=Severity.INFO,
        expr='max without (reason, LOST) (last_over_time(rl_signal_unavailable_info{cause="error"}[5m])) == 1',
        summary="A signal that this run should have cannot be measured.",
        description="the signal {{ $labels.signal }} cannot be measured at the tensor; alerts that need it cannot "
        "fire.",
        meaning="A tap on the trainer failed or does not fit its version. What the configuration leaves out (KL with "
        "`beta=0`, the ratio of on-policy updates) is not meant, and raises nothing.",
        causes=("A version of TRL that is newer than the taps, or a trainer that overrides what they look at.",),
        remedies=("The reason is in `rl_signal_unavailable_info`; see docs/compatibility.md.",),
        source="a rule that cannot fire is the worst failure of monitoring",
    ),
)

IMPACT: dict[Family, str] = {
    Family.NONFINITE: "What was learnt from this step is wrong, and the next optimizer step can spread NaN into every "
    "weight. Sampling then fails, and the run dies.",
    Family.CRASH: "The run makes no progress, and holds or has lost its hardware.",
    Family.STALL: "Hardware is held and nothing is learnt.",
    Family.SLOW: "The run costs more than it should.",
    Family.POLICY_STEP: "Updates this large destroy what the policy can do; it may look calm again within a few "
    "steps, and be ruined.",
    Family.KL_HIGH: "The policy has left the ground on which the reward means something: it may score high and be "
    "useless.",
    Family.KL_NEGATIVE: "The policy is trained on samples that it did not draw: the gradient points elsewhere.",
    Family.ENTROPY_LOW: "Exploration ends: what the policy does not try any more it cannot learn.",
    Family.ENTROPY_HIGH: "Answers fall apart into noise.",
    Family.GRAD: "An update may have been thrown far off; with Adam its moments carry it on for many steps.",
    Family.GRAD_DEAD: "Nothing is learnt, although the hardware is busy.",
    Family.VALUE: "Advantages are computed from a value function that is lost: the policy gradient is noise.",
    Family.REWARD_FLAT: "There is no policy gradient: the hardware is busy for nothing.",
    Family.REWARD_DROP: "The policy is getting worse at what it is trained for.",
    Family.REWARD_JUMP: "The reward does not measure what it did: what is learnt now is something else.",
    Family.PLATEAU: "The run costs and does not learn.",
    Family.TRUNCATION: "Truncated answers are rewarded for what they are not, and cost the most to sample.",
    Family.LENGTH: "The policy has found a length that pays, or has lost its language.",
    Family.KL_COEF: "The penalty outweighs the reward, and the policy is pulled back and nothing else; or there is "
    "none, and nothing holds the policy to the reference.",
    Family.LR: "Nothing is learnt (0), or updates are larger than planned.",
    Family.KEYS: "Panels and alerts look at old numbers.",
    Family.ADVANTAGE: "Every action looks good, or bad, or all look alike: the policy gradient is biased, or there is "
    "none.",
    Family.EXPORTER: "Monitoring has a hole; training goes on.",
}

INHIBITIONS: tuple[tuple[tuple[Family, ...], tuple[Family, ...]], ...] = (
    (
        (Family.NONFINITE,),
        (
            *(
                Family.GRAD,
                Family.GRAD_DEAD,
                Family.REWARD_DROP,
                Family.REWARD_FLAT,
                Family.PLATEAU,
                Family.KEYS,
            ),
            *(Family.VALUE, Family.LENGTH, Family.TRUNCATION),
        ),
    ),
    (
        (Family.ENTROPY_LOW,),
        (Family.REWARD_FLAT, Family.LENGTH, Family.PLATEAU, Family.GRAD_DEAD),
    ),
    (
        (Family.POLICY_STEP, Family.GRAD, Family.LR),
        (Family.KL_HIGH, Family.REWARD_DROP, Family.LENGTH, Family.PLATEAU),
    ),
    ((Family.KL_NEGATIVE,), (Family.POLICY_STEP, Family.REWARD_DROP)),
    ((Family.REWARD_JUMP,), (Family.VALUE, Family.GRAD)),
    ((Family.TRUNCATION,), (Family.LENGTH,)),
    ((Family.REWARD_FLAT,), (Family.PLATEAU, Family.GRAD_DEAD)),
    ((Family.STALL,), (Family.SLOW,)),
)
"""The families that are causes, each with its symptoms: see `rlexporter.catalog.causes`."""
