"""Alerts on what only Prometheus can see, such as a target that is silent or a run that keeps restarting.

``expr`` is PromQL as in `scripts.pack.recording_rules`, which has worked out what most select, and has put what a
description says beside the value into labels. Alerts drop those.
"""

from __future__ import annotations

from rlexporter.catalog.alerts import RUN_END_UNSEEN, RUN_FAILED, RUN_STALLED, RUN_VANISHED, PrometheusAlert
from rlexporter.model.condition import Family, Severity

LOST_WITHOUT = ("rank", "instance", "pod", "container", "endpoint", "node")
"""The labels of one process. Rules drop them by name, so that cluster and namespace survive."""


WATCHDOG = "RLExporterWatchdog"
"""The alert that always fires; it belongs to no run and no condition."""


MANY_RUNS = PrometheusAlert(
    alert="RLManyRunsSick",
    family=Family.STORM,
    severity=Severity.CRITICAL,
    milder=True,
    expr="rl:storm_member * 0 + on (cluster, severity) group_left (seen) rl:storm_runs",
    summary="Five or more runs became sick within a quarter of an hour.",
    description='{{ $value | printf "%.0f" }}{{ with $labels.seen }} of the {{ . }}{{ end }} runs'
    "{{ with $labels.cluster }} in cluster {{ . }}{{ end }} "
    '{{ if eq $labels.severity "critical" }}became sick{{ else }}began to warn{{ end }} '
    "within a quarter of an hour.",
    meaning="Many runs do not break in one way at one time by themselves: look for what they share. A storm is five "
    "runs or more with one kind of fault (the first word of `condition`), or ten with any. One message of each "
    "severity names them, up to ten, and is sent again as more join them; what began in the storm is not told a second "
    "time. What begins later, or is worse, is told as ever, of these runs too. The storm ends when no run has joined "
    "it for a quarter of an hour; its alerts last as long as what they stand for.",
    causes=(
        "A node pool, a file system, a network or a reward service that fails.",
        "A rollout of a driver, an image or a configuration.",
    ),
    remedies=("Look at what the runs have in common, then at their own alerts in the list of Alertmanager.",),
    source="five runs and one in twenty of those that are seen: more than one sweep usually loses at once; ten and one "
    "in ten of any fault: six faults that had nothing to do with each other came within a quarter of an hour",
    of_run=False,
)
"""The alert of a storm: it stands for each alert that began in it, and all of it is one message."""

PROCESS_ALERTS = {each.condition: each for each in (RUN_FAILED, RUN_VANISHED, RUN_STALLED, RUN_END_UNSEEN)}
"""The alerts on a run's process, by the names of their conditions in `rl:condition`."""

_LIVE = 'rl:run_state{state=~"starting|running"}'

PROMETHEUS_ALERTS: tuple[PrometheusAlert, ...] = (
    MANY_RUNS,
    RUN_VANISHED,
    RUN_STALLED,
    RUN_FAILED,
    RUN_END_UNSEEN,
    PrometheusAlert(
        alert="RLRunRestarting",
        condition="run_restarting",
        family=Family.CRASH,
        severity=Severity.WARNING,
        expr="count without (attempt) (\n"
        "  run(last_over_time(rl:newest_attempt[1h]))\n"
        '  unless ignoring (state) last_over_time(rl:run_last_seen_timestamp_seconds{state=~"finished|stopped"}[1h])\n'
        ") >= 3",
        summary="A run starts again and again.",
        description="it has started {{ $value }} times within an hour.",
        meaning="The run was started three times or more within an hour: it crashes early, or is preempted often. "
        "Starts that finished or were stopped by hand do not count.",
        causes=("A crash soon after the start that the launcher retries.", "A partition that preempts."),
        remedies=("Look at how its attempts ended: `rl_run_state`, `rl_run_exception_info`.",),
        source="two restarts an hour",
    ),
    PrometheusAlert(
        alert="RLRunRestarting",
        condition="run_lost_progress",
        family=Family.CRASH,
        severity=Severity.WARNING,
        expr="rl:run_steps_lost\n"
        "> 2 * (\n"
        "  max without (name, LOST) (\n"
        '    rl_hyperparameter{name="save_steps",rank="0"} >= 1\n'
        '    or (rl_hyperparameter{name="save_steps",rank="0"} < 1) * ignoring (name) rl_steps_planned{rank="0"}\n'
        "  )\n"
        "  or rl:run_steps_lost * 0\n"
        ")",
        wait="1m",
        summary="A run has lost more than two checkpoints' worth of steps.",
        description='it is {{ $value | printf "%.0f" }} steps behind where it was within the last hour.',
        meaning="The step is below its own maximum of the last hour by more than twice what lies between two "
        "checkpoints (`save_steps`, where the trainer has it): it was resumed from an old one, or from none. Steps of "
        "an attempt that finished or was stopped by hand do not count. The alert ends when the run has caught up.",
        causes=("A restart from an old checkpoint, or without one.", "Two runs under one name."),
        remedies=("Resume from the newest good checkpoint.", "Give each run a name of its own."),
        source="a routine resume loses one interval at most",
    ),
    PrometheusAlert(
        alert="RLRunFailed",
        condition="run_not_back",
        family=Family.CRASH,
        severity=Severity.WARNING,
        expr='max without (state, attempt) (time() - rl:run_last_seen_timestamp_seconds{state="preempted"}) > 1800',
        summary="A run that was preempted has not come back.",
        description="it was preempted {{ $value | humanizeDuration }} ago, and has not come back.",
        meaning="It got SIGTERM, ended, and no process of its name has been seen for half an hour. The alert fires "
        "until the run is back, for a day at most.",
        causes=("It waits in the queue.", "Nobody queued it again, or the new attempt dies before it is seen."),
        remedies=("Look at the queue; submit it again. Silence the run if it was meant to end.",),
        source="half an hour",
    ),
    PrometheusAlert(
        alert="RLTargetSilent",
        family=Family.EXPORTER,
        severity=Severity.WARNING,
        expr="up{TARGETS} == 0\n"
        "unless on (job, instance) max_over_time(up{TARGETS}[1h]) == 1\n"
        "unless on (job, instance) last_over_time(up{TARGETS}[5m] offset 1h)\n"
        'or up{TARGETS} == 0 and on (job, instance) ALERTS{alertname="RLTargetSilent"}',
        wait="10m",
        summary="A target has not answered a single scrape.",
        description="No scrape of {{ $labels.instance }} has succeeded: it is not reachable, or refuses (401). The "
        "page /targets of Prometheus shows the error.",
        meaning="It was discovered within the last hour, in a job of the expected name, and no scrape has succeeded "
        "since. A run may be training there, and nobody watches it. The name is `.*rlexporter.*`; "
        "`rlexporter generate --job REGEX` sets another.",
        causes=(
            "The token of the scrape is missing or wrong: 401.",
            "A firewall, or an endpoint that listens on the loopback address only (`RLEXPORTER_LISTEN_HOST`).",
            "http against an endpoint with TLS, or the other way round.",
        ),
        remedies=("Read the error on /targets; try `curl` from the machine of Prometheus.",),
        source="ten minutes: a run that is starting answers long before",
        of_run=False,
    ),
    PrometheusAlert(
        alert="RLRanks",
        condition="rank_straggles",
        family=Family.SLOW,
        severity=Severity.WARNING,
        expr="(\n"
        "  rl:rank_lag_fraction > 0.25\n"
        "  and ignoring (alertname, alertgroup, alertstate, condition, severity, family) (\n"
        "    rl:rank_lag_fraction > 2 * avg_over_time(rl:rank_lag_fraction[1h] offset 30m)\n"
        '    or last_over_time(ALERTS{alertname="RLRanks",condition="rank_straggles",alertstate="firing"}[15m])\n'
        "  )\n"
        "  or rl:rank_lag_fraction > 0.5\n"
        ") * ignoring (subject) group_left (subject) max without (rank) (\n"
        '  label_replace(topk without (rank) (1, rl:rank_work_fraction) ^ 0, "subject", "$1", "rank", "(.+)")\n'
        ")",
        wait="15m",
        summary="One rank is slow, and the others wait for it.",
        description="the others wait for {{ $value | humanizePercentage }} of the time"
        "{{ with $labels.subject }} for rank {{ . }}{{ end }}.",
        meaning="In generation and rewards a rank works by itself, and ranks wait for each other afterwards. The "
        "difference between the slowest and the fastest one is more than a quarter of the time, and twice what it was "
        "an hour ago; the alert then fires for as long as it is more than a quarter. A rank that is slow from its "
        "first step is told where the others wait for more than half of the time: what is less may be the run's own "
        "way, as where one rank alone asks a judge. It needs the ranks to serve (`RLEXPORTER_RANKS=timings`), and "
        "half an hour of the run.",
        causes=(
            "A GPU that is throttled, or shared with another job.",
            "A judge, sandbox or file system that answers one node late.",
            "Prompts of one rank that grow longer than those of the others.",
        ),
        remedies=("The dashboard of ranks shows which one and in which phase; look at its node.",),
        source="Relax issue 334 takes 1.2 times the mean for a straggler; no recorded run has one: live runs of two "
        "ranks (tests/e2e/test_ranks.py)",
    ),
    PrometheusAlert(
        alert="RLRanks",
        condition="rank_missing",
        family=Family.EXPORTER,
        severity=Severity.WARNING,
        expr="count without (rank) (rl:rank_missing)\n"
        "* ignoring (subject) group_left (subject) max without (rank) (\n"
        '  label_replace(topk without (rank) (1, rl:rank_missing), "subject", "$1", "rank", "(.+)")\n'
        ")",
        summary="A rank is no longer scraped, and its run goes on.",
        description='{{ $value | printf "%.0f" }} of its ranks{{ with $labels.subject }} (rank {{ . }}, say){{ end }} '
        "can no longer be scraped, and rank 0 goes on.",
        meaning="A rank other than 0 trained, and no scrape of it has succeeded for five minutes, while rank 0 says "
        "that the run goes on. A NaN that only this rank sees is told by nobody. Ranks that end with their run, that "
        "an attempt of fewer ranks does without, or that are back within five minutes are no alert.",
        causes=(
            "The process of the rank was killed, or hangs: the others will soon wait for it in a collective.",
            "Its node is not reachable, or its target is no longer discovered.",
        ),
        remedies=("Look for the rank on /targets, then at its process and at its node.",),
        source="five minutes: a rank that is restarted is found within one or two",
    ),
    PrometheusAlert(
        alert="RLRanks",
        condition="rank_zero_missing",
        family=Family.EXPORTER,
        severity=Severity.WARNING,
        expr='max without (LOST) (rl_run_start_timestamp_seconds{rank!="0"})\n'
        "unless ignoring (state, attempt) rl:run_last_seen_timestamp_seconds",
        wait="5m",
        summary="Rank 0 of a run is not scraped.",
        description="other ranks are scraped and rank 0 is not: no other alert can fire for this run.",
        meaning="State, start and step of a run are those of rank 0. Without it nothing else can be told of the run, "
        "not even a NaN that another rank sees.",
        causes=(
            "A port of rank 0 that discovery does not find, or that another process has taken.",
            "Rank 0 is on a node that Prometheus does not reach.",
        ),
        remedies=("Look for rank 0 on /targets; the log of its process says on which port it serves.",),
        source="five minutes: ranks of one run are found within one or two",
    ),
    PrometheusAlert(
        alert="RLExporterErrors",
        condition="clock_off",
        family=Family.EXPORTER,
        severity=Severity.WARNING,
        expr="max without (LOST) (abs(rl:clock_offset_seconds)) > 60",
        wait="10m",
        keep="30m",
        summary="The clock of a trainer is wrong.",
        description="its clock is {{ $value | humanizeDuration }} off that of Prometheus.",
        meaning="Alerts allow for it. Times in logs, checkpoints and dashboards that show the trainer's own "
        "timestamps are off by as much.",
        causes=("A node without time synchronization.", "The clock of Prometheus itself, if all runs have it."),
        remedies=("Start chrony or systemd-timesyncd on the node.",),
        source="one minute: no synchronized clock is as far off",
    ),
    PrometheusAlert(
        alert="RLExporterErrors",
        condition="exporter_errors",
        family=Family.EXPORTER,
        severity=Severity.WARNING,
        expr=f"rl:run_errors and ignoring (state, attempt) {_LIVE}",
        keep="15m",
        summary="The exporter has errors of its own.",
        description='the exporter has had {{ $value | printf "%.0f" }} errors; training is not affected.',
        meaning="Something in the exporter failed; what it should have shown may be missing. The first error of each "
        "kind is in the log of the training process.",
        causes=("A bug, a full disk (recording), or a version of TRL that the taps were not made for.",),
        remedies=("Read the log of the process for `rlexporter`; report it.",),
        source="an error of the exporter is always a fault",
    ),
)

IMPACT: dict[Family, str] = {
    Family.NONFINITE: "What was learned from this step is wrong, and the next optimizer step can spread NaN into every "
    "weight. Sampling then fails, and the run dies.",
    Family.CRASH: "The run makes no progress, and holds or has lost its hardware.",
    Family.STALL: "Hardware is held and nothing is learned.",
    Family.STORM: "Many runs make no progress, or soon will not: what they share is broken.",
    Family.SLOW: "The run costs more than it should.",
    Family.POLICY_STEP: "Updates this large destroy what the policy can do; it may look calm again within a few "
    "steps, and be ruined.",
    Family.KL_HIGH: "The policy has left the ground on which the reward means something: it may score high and be "
    "useless.",
    Family.KL_NEGATIVE: "The policy is trained on samples that it did not draw: the gradient points elsewhere.",
    Family.ENTROPY_LOW: "Exploration ends: what the policy does not try any more it cannot learn.",
    Family.ENTROPY_HIGH: "Answers fall apart into noise.",
    Family.GRAD: "An update may have been thrown far off; with Adam its moments carry it on for many steps.",
    Family.GRAD_DEAD: "Nothing is learned, although the hardware is busy.",
    Family.VALUE: "Advantages are computed from a value function that is lost: the policy gradient is noise.",
    Family.REWARD_FLAT: "There is no policy gradient: the hardware is busy for nothing.",
    Family.REWARD_DROP: "The policy is getting worse at what it is trained for.",
    Family.REWARD_JUMP: "The reward does not measure what it did: what is learned now is something else.",
    Family.PLATEAU: "The run costs and does not learn.",
    Family.TRUNCATION: "Truncated answers are rewarded for what they are not, and cost the most to sample.",
    Family.LENGTH: "The policy has found a length that pays, or has lost its language.",
    Family.KL_COEF: "The penalty outweighs the reward, and the policy is pulled back and nothing else; or there is "
    "none, and nothing holds the policy to the reference.",
    Family.DATA: "The policy is trained on other prompts than were meant, or on the same ones again and again.",
    Family.OBJECTIVE: "The policy is taught something else than what is rewarded, and no log line shows it.",
    Family.OPTIMIZER: "A part of the model learns nothing, or nothing does.",
    Family.WEIGHTS: "What was learned may be lost.",
    Family.LR: "Nothing is learned (0), or updates are larger than planned.",
    Family.ADVANTAGE: "Every action looks good, or bad, or all look alike: the policy gradient is biased, or there is "
    "none.",
    Family.EVALUATION: "The policy is worse at what it is meant for, or the evaluation is not to be trusted.",
    Family.EXPORTER: "Monitoring has a hole; training goes on.",
}
