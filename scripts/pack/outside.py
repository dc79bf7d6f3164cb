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
    ),
    PrometheusAlert(
        alert="RLRunFailed",
        condition="run_not_back",
        family=Family.CRASH,
        severity=Severity.WARNING,
        expr='max without (state, attempt) (time() - rl:run_last_seen_timestamp_seconds{state="preempted"}) > 1800',
        summary="A run that was preempted has not come back.",
        description="it was preempted {{ $value | humanizeDuration }} ago, and has not come back.",
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
    ),
)
