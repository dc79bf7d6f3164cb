"""Recording rules: what Prometheus works out about each run, once per evaluation; alerts only select from it.

Three things are decided here and nowhere else. *Which attempt*: a run that is started again is judged by its newest
process, wherever that is. *How old*: the clock of a trainer may be wrong, so its timestamps are moved to the clock of
Prometheus. *For how long*: a dead run stays dead until it is back, although its series are gone; a rule that selects
its own last result carries that over.

Expressions are evaluated in this order. ``run(x)`` is the largest value over the processes of a run, ``LOST`` the
labels that it loses, ``NONFINITE`` a matcher of the conditions on NaN, ``CAUSAL`` one of those whose warnings may be
causes (`rlexporter.generate.promql`).
"""

from __future__ import annotations

from rlexporter.catalog.causes import WAKE
from rlexporter.model.alert import RecordingRule

LATELY = 600
"""Seconds for which a condition that lasted one step is still an alert."""
STORM_RUNS, STORM_SHARE, STORM_SECONDS = 5, 0.05, 900
"""A storm: so many runs, and this share of those that are seen, become sick within so many seconds."""


def _carried(name: str, now: str, lasts: str, text: str) -> RecordingRule:
    """Return a rule for ``now``, and for its own last result where that is gone while ``lasts`` holds."""
    return RecordingRule(name=name, expr=f"{now}\nor last_over_time({name}[1h])\n{lasts}", help=text)


_CLOCK = (
    RecordingRule(
        name="rl:evaluating_since_timestamp_seconds",
        expr="last_over_time(rl:evaluating_since_timestamp_seconds[2m]) or vector(time())",
        help="Since when Prometheus has been evaluating without a gap of two minutes: before that it saw nobody.",
    ),
    RecordingRule(
        name="rl:clock_offset_seconds",
        expr="(rlexporter_time_seconds - timestamp(rlexporter_time_seconds)) > 30\n"
        "or (rlexporter_time_seconds - timestamp(rlexporter_time_seconds)) < -30",
        help="How far the clock of a process is ahead of Prometheus; absent below half a minute.",
    ),
)

_ATTEMPTS = (
    RecordingRule(
        name="rl:attempt_start_timestamp_seconds",
        expr='last_over_time(rl_run_start_timestamp_seconds{rank="0"}[2m]) '
        '- last_over_time(rl:clock_offset_seconds{rank="0"}[2m])\n'
        'or last_over_time(rl_run_start_timestamp_seconds{rank="0"}[2m])',
        help="When each process of rank 0 began, by the clock of Prometheus.",
    ),
    RecordingRule(
        name="rl:newest_attempt",
        expr="rl:attempt_start_timestamp_seconds\n"
        "== ignoring (LOST) group_left () max without (LOST) (rl:attempt_start_timestamp_seconds)",
        help="The same, of the newest process of each run only.",
    ),
    _carried(
        name="rl:run_start_timestamp_seconds",
        now="run(rl:newest_attempt)",
        lasts="and ignoring (state) last_over_time(rl:run_last_seen_timestamp_seconds[1h])",
        text="When the newest attempt of a run began; kept while the run is remembered.",
    ),
    RecordingRule(
        name="rl:run_state",
        expr='run(last_over_time(rl_run_state{rank="0"}[2m]) == 1 and ignoring (state) rl:newest_attempt)',
        help="The state of the newest attempt, while it is seen.",
    ),
    RecordingRule(
        name="rl:run_last_seen_timestamp_seconds",
        expr="rl:run_state * 0 + time()\n"
        "or (\n"
        '  last_over_time(rl:run_last_seen_timestamp_seconds{state!~"finished|stopped"}[1h])\n'
        "  == ignoring (state) group_left ()\n"
        "  max without (state) (last_over_time(rl:run_last_seen_timestamp_seconds[1h]))\n"
        "  > time() - 86400\n"
        "  unless ignoring (state) rl:run_state\n"
        ")",
        help="When the newest attempt was last seen, and in which state; kept for a day unless the run ended well.",
    ),
    _carried(
        name="rl:run_start_due_timestamp_seconds",
        now="rl:run_start_timestamp_seconds + (\n"
        '  run(last_over_time(rl_stall_after_seconds{rank="0"}[2m]))\n'
        '  and ignoring (state) rl:run_state{state="starting"}\n'
        ")",
        lasts='and ignoring (state) rl:run_last_seen_timestamp_seconds{state="starting"}',
        text="Until when a run that is starting may take for it.",
    ),
)


def _kept(name: str, series: str, text: str) -> RecordingRule:
    """Return a rule for the newest value of ``series`` in the newest attempt, kept while the run is remembered."""
    return _carried(
        name=name,
        now=f'run(last_over_time({series}{{rank="0"}}[2m]) and rl:newest_attempt)',
        lasts="and ignoring (state) rl:run_last_seen_timestamp_seconds",
        text=text,
    )


_FACTS = (
    _kept("rl:run_step", "rl_step", "The step that a run had reached when it was last seen."),
    _kept(
        "rl:run_last_good_checkpoint_step",
        "rl_last_good_checkpoint_step",
        "The newest checkpoint from before what went wrong.",
    ),
    RecordingRule(
        name="rl:run_steps_lost",
        expr='max_over_time(rl:run_step[1h]) - rl:run_step > 0\nand ignoring (state) rl:run_state{state="running"}',
        help="How many steps a run is behind where it was within the last hour.",
    ),
    RecordingRule(
        name="rl:run_errors",
        expr="sum without (where, LOST) (rlexporter_errors_total > 0)",
        help="How many errors the exporter has had in a run; absent without any.",
    ),
    _kept("rl:run_gpus", "rl_gpus", "How many GPUs a run holds, or held when it was last seen."),
    _carried(
        name="rl:run_exception",
        now='run(last_over_time(rl_run_exception_info{rank="0"}[2m]) and ignoring (exception) rl:newest_attempt)',
        lasts='and ignoring (exception, state) rl:run_last_seen_timestamp_seconds{state="failed"}',
        text="The class of the exception that a run died of.",
    ),
    _carried(
        name="rl:run_failure_explained",
        now="max without (condition, severity, LOST) (\n"
        '  last_over_time(rl_condition_symptom{condition="run_failed",rank="0"}[2m]) == 1\n'
        "  and ignoring (condition, severity) rl:newest_attempt\n"
        ")",
        lasts='and ignoring (state) rl:run_last_seen_timestamp_seconds{state="failed"}',
        text="1 for a run whose failure is the symptom of a value that was no number: that is the alert.",
    ),
)

_OUTSIDE = (
    RecordingRule(
        name="rl:condition",
        labels={"condition": "run_failed", "severity": "critical"},
        expr='max without (state) (time() - rl:run_last_seen_timestamp_seconds{state="failed"})',
        help="A run has failed, and is not back.",
    ),
    RecordingRule(
        name="rl:condition",
        labels={"condition": "run_vanished", "severity": "critical"},
        expr="max without (state) (\n"
        '  time() - rl:run_last_seen_timestamp_seconds{state="running"} > 90\n'
        '  or time() - rl:run_last_seen_timestamp_seconds{state="starting"} > 90\n'
        "  and ignoring (state) rl:run_start_due_timestamp_seconds < time()\n"
        ")\n"
        "and on () (time() - rl:evaluating_since_timestamp_seconds > 120)",
        help="A run that was training is not seen any more; one that was starting, when its time for that is over.",
    ),
    RecordingRule(
        name="rl:condition",
        labels={"condition": "run_stalled", "severity": "critical"},
        expr="run(\n"
        "  (\n"
        '    last_over_time(rlexporter_time_seconds{rank="0"}[2m])\n'
        '    or last_over_time(rl_last_step_timestamp_seconds{rank="0"}[2m]) * 0 + time()\n'
        "  )\n"
        '  - last_over_time(rl_last_step_timestamp_seconds{rank="0"}[2m])\n'
        '  > last_over_time(rl_stall_after_seconds{rank="0"}[2m])\n'
        "  and rl:newest_attempt\n"
        ")\n"
        'and ignoring (state) rl:run_state{state=~"starting|running"}',
        help="A run makes no steps: its own clock says how long ago the last one was.",
    ),
)

_CONDITIONS = (
    RecordingRule(
        name="rl:condition_event_timestamp_seconds",
        expr="(\n"
        "  last_over_time(rl_condition_last_event_timestamp_seconds[5m])\n"
        "  - ignoring (condition, severity) group_left () last_over_time(rl:clock_offset_seconds[5m])\n"
        "  or last_over_time(rl_condition_last_event_timestamp_seconds[5m])\n"
        ")\n"
        ">= ignoring (condition, severity, LOST) group_left () rl:run_start_timestamp_seconds",
        help="When a condition last began in the newest attempt, by the clock of Prometheus.",
    ),
    RecordingRule(
        name="rl:condition_event",
        expr="run(\n"
        "  last_over_time(rl_condition_last_event_value[5m])\n"
        "  and (\n"
        f"    rl:condition_event_timestamp_seconds > time() - {LATELY}\n"
        "    or rl:condition_event_timestamp_seconds and last_over_time(rl_condition[5m]) == 1\n"
        "  )\n"
        "  unless last_over_time(rl_condition_symptom[5m]) == 1\n"
        ")",
        help="The value with which a condition began that holds, or began within ten minutes, and is no symptom.",
    ),
    RecordingRule(
        name="rl:condition",
        expr="(\n"
        "  rl:condition_event\n"
        "  or last_over_time(rl:condition_event[5m])\n"
        "  and ignoring (condition, severity) rl:run_start_timestamp_seconds < time() - 300\n"
        ")\n"
        'and ignoring (condition, severity, state) rl:run_last_seen_timestamp_seconds{state=~"starting|running"}\n'
        'unless ignoring (condition, severity) rl:condition{condition="run_vanished"}\n'
        "or rl:condition_event{NONFINITE}\n"
        "and ignoring (condition, severity) max without (condition, severity) (\n"
        '  rl:condition{condition=~"run_failed|run_vanished"}\n'
        ")\n"
        "or last_over_time(rl:condition{NONFINITE}[5m])\n"
        "and ignoring (condition, severity) (\n"
        '  rl:run_failure_explained or max without (condition, severity) (rl:condition{condition="run_vanished"})\n'
        ")",
        help="What is wrong with the newest attempt of a run, with the value with which it began. It ends with the "
        "attempt, but for the NaN of which it died, which stays while the run is dead; what flaps within five minutes "
        "goes on.",
    ),
)


def _of_event(name: str, series: str, text: str) -> RecordingRule:
    """Return a rule for ``series`` of each condition in `rl:condition`, kept while that lasts."""
    return _carried(
        name=name,
        now=f"run(last_over_time({series}[5m]) and rl:condition_event_timestamp_seconds) and rl:condition",
        lasts="and rl:condition",
        text=text,
    )


_MOMENTS = (
    _of_event("rl:condition_step", "rl_condition_last_event_step", "The step in which a condition began."),
    _of_event("rl:condition_threshold", "rl_condition_last_event_threshold", "The limit that was in force then."),
    RecordingRule(
        name="rl:condition_since_timestamp_seconds",
        expr="last_over_time(rl:condition_since_timestamp_seconds[5m]) and rl:condition\n"
        'or last_over_time(rl:condition_since_timestamp_seconds{condition=~"run_.+"}[1h]) and rl:condition\n'
        "or run(rl:condition_event_timestamp_seconds) and rl:condition\n"
        'or time() - rl:condition{condition=~"run_failed|run_vanished"}\n'
        "or rl:condition * 0 + time()",
        help="Since when a condition has held without a break of five minutes.",
    ),
    RecordingRule(
        name="rl:run_gpu_seconds",
        expr="rl:run_gpus * (\n"
        "  max without (state) (rl:run_last_seen_timestamp_seconds) - rl:run_start_timestamp_seconds\n"
        ")",
        help="GPU seconds of the newest attempt of a run.",
    ),
    RecordingRule(
        name="rl:run_gpu_seconds_since_critical",
        expr="rl:run_gpus * clamp_min(\n"
        "  max without (state) (rl:run_last_seen_timestamp_seconds)\n"
        '  - min without (condition, severity) (rl:condition_since_timestamp_seconds{severity="critical"}),\n'
        "  0\n"
        ")",
        help="GPU seconds that a run has spent since the first critical condition that still holds.",
    ),
    RecordingRule(
        name="rl:run_gpu_hours_since_critical",
        expr="rl:run_gpu_seconds_since_critical / 3600 > 0.1",
        help="The same in hours, where it is worth a word in a message.",
    ),
)

_SINCE = "rl:condition_since_timestamp_seconds"
_BAD = 'severity=~"critical|warning"'
_SUSPECT = "rl:suspect_since_timestamp_seconds"
_CAUSE = (
    RecordingRule(
        name="rl:run_incident_step",
        expr="min without (condition) (\n"
        f"  min without (severity) (rl:condition_step{{{_BAD}}})\n"
        '  and ignoring (severity) rl:condition_step{severity="critical"}\n'
        f") - {WAKE}",
        help="The step from which a warning may be the cause of what is critical in a run: shortly before that began.",
    ),
    RecordingRule(
        name=_SUSPECT,
        expr="label_replace(\n"
        f"  min without (severity) ({_SINCE}{{{_BAD}}})\n"
        "  and ignoring (severity) (\n"
        '    rl:condition_step{severity="warning",CAUSAL}\n'
        "    >= ignoring (condition, severity) group_left () rl:run_incident_step\n"
        f'    or {_SINCE}{{severity="critical"}}\n'
        "  ),\n"
        '  "severity", "critical", "", ""\n'
        ")\n"
        f'or {_SINCE}{{severity="warning"}}\n'
        f'unless ignoring (condition, severity) {_SINCE}{{severity="critical"}}',
        help="What may be the cause of what is wrong in a run, and since when; its severity is the worst in the run.",
    ),
    RecordingRule(
        name="rl:run_cause",
        expr=f"{_SUSPECT}\n"
        "and topk without (condition, severity) (1,\n"
        f"  3e10 - {_SUSPECT}{{NONFINITE}}\n"
        f'  or 2e10 - {_SUSPECT}{{condition=~"run_.+"}}\n'
        f"  or 1e10 - {_SUSPECT}\n"
        ")",
        help="What the verdict on a run names first, and since when it has held: what is not finite, then the process, "
        "then what began first. Its severity is the worst in the run. Absent where nothing is wrong.",
    ),
)

_STORM = (
    RecordingRule(
        name="rl:run_sick_since_timestamp_seconds",
        expr="last_over_time(rl:run_sick_since_timestamp_seconds[20m])\n"
        'and min without (condition) (rl:condition_since_timestamp_seconds{severity=~"critical|warning"})\n'
        'or min without (condition) (rl:condition_since_timestamp_seconds{severity=~"critical|warning"})',
        help="Since when a run has had an alert of a severity; a break of less than twenty minutes is none.",
    ),
    RecordingRule(
        name="rl:runs_newly_sick",
        expr=f"count by (cluster, severity) (rl:run_sick_since_timestamp_seconds > time() - {STORM_SECONDS})",
        help="How many runs became sick within a quarter of an hour.",
    ),
    RecordingRule(
        name="rl:storm",
        expr=f"rl:runs_newly_sick >= {STORM_RUNS}\n"
        "and rl:runs_newly_sick / ignoring (severity) group_left () (\n"
        f"  count by (cluster) (rl:run_last_seen_timestamp_seconds > time() - {STORM_SECONDS})\n"
        f") >= {STORM_SHARE}\n"
        "or rl:runs_newly_sick and last_over_time(rl:storm[2m])",
        help="The same, while that is a storm: it ends when no run became sick within a quarter of an hour.",
    ),
    RecordingRule(
        name="rl:storm_member",
        expr=f"rl:condition_since_timestamp_seconds > time() - {STORM_SECONDS}\n"
        "and on (cluster, severity) rl:storm\n"
        "or rl:condition_since_timestamp_seconds <= last_over_time(rl:storm_member[1h]) + 60",
        help="What began within a storm, for as long as it lasts itself.",
    ),
)

RECORDING_RULES: tuple[RecordingRule, ...] = (
    *_CLOCK,
    *_ATTEMPTS,
    *_FACTS,
    *_OUTSIDE,
    *_CONDITIONS,
    *_MOMENTS,
    *_CAUSE,
    *_STORM,
)
