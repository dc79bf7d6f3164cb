"""Recording rules: what Prometheus works out about each run, once per evaluation; alerts only select from it.

Three things are decided here and nowhere else. *Which attempt*: a run that is started again is judged by its newest
process, wherever that is. *How old*: the clock of a trainer may be wrong, so its timestamps are moved to the clock of
Prometheus. *For how long*: a dead run stays dead until it is back, although its series are gone; a rule that selects
its own last result carries that over.

Memory belongs to an attempt. What is remembered has the label ``attempt``, the start of the process that it is of, and
is taken only while `rl:run_last_seen_timestamp_seconds`, which has that label too, is of the same. What is remembered
of a condition is its moment, and is taken only if that lies in the newest attempt.

Expressions are evaluated in this order. ``run(x)`` is the largest value over the processes of a run, ``LOST`` the
labels that it loses, and ``NONFINITE`` a matcher of the conditions on NaN (`scripts.pack.promql`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scripts.pack.outside import LOST_WITHOUT

LATELY = 600
"""Seconds for which a condition that lasted one step is still an alert."""
STORM_RUNS, STORM_SHARE, STORM_SECONDS = 5, 0.05, 900
"""A storm: so many runs, and this share of those that are seen, become sick within so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A Prometheus recording rule. Several may record one series, under different ``labels``."""

    name: str
    expr: str
    help: str
    labels: Mapping[str, str] = field(default_factory=dict)


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

_SEEN = "rl:run_last_seen_timestamp_seconds"
_START = "rl:run_start_timestamp_seconds"
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
        expr='count_values without () ("attempt",\n'
        '  last_over_time(rl_run_start_timestamp_seconds{rank="0"}[2m])\n'
        "  and (\n"
        "    rl:attempt_start_timestamp_seconds\n"
        "    == ignoring (LOST) group_left () max without (LOST) (rl:attempt_start_timestamp_seconds)\n"
        "  )\n"
        ")",
        help="The newest process of each run. The label `attempt` is its start by its own clock, which no other has.",
    ),
    RecordingRule(
        name="rl:run_state",
        expr="run(\n"
        '  (last_over_time(rl_run_state{rank="0"}[2m]) == 1)\n'
        "  * ignoring (state, attempt) group_left (attempt) rl:newest_attempt\n"
        ")",
        help="The state of the newest attempt, while it is seen.",
    ),
    RecordingRule(
        name=_SEEN,
        expr="rl:run_state * 0 + time()\n"
        "or (\n"
        f"  last_over_time({_SEEN}[1h])\n"
        "  == ignoring (state, attempt) group_left ()\n"
        f"  max without (state, attempt) (last_over_time({_SEEN}[1h]))\n"
        "  > time() - 86400\n"
        f'  unless last_over_time({_SEEN}{{state=~"finished|stopped"}}[1h]) < time() - 3600\n'
        "  unless ignoring (state, attempt) rl:run_state\n"
        ")",
        help="When the newest attempt was last seen, and in which state; kept for a day, and for an hour if the run "
        "ended well.",
    ),
    RecordingRule(
        name=_START,
        expr="run(rl:attempt_start_timestamp_seconds and ignoring (attempt) rl:newest_attempt)\n"
        f"or last_over_time({_START}[1h])\n"
        f"and ignoring (state, attempt) {_SEEN}",
        help="When the newest attempt of a run began; kept while the run is remembered.",
    ),
)

_FACTS = (
    RecordingRule(
        name="rl:run_fact",
        expr="max without (LOST, condition, severity) (\n"
        "  label_replace(\n"
        "    last_over_time({\n"
        '      __name__=~"rl_(step|gpus|stall_after_seconds|last_good_checkpoint_step|run_exception_info'
        '|condition_symptom)",\n'
        '      condition=~"|run_failed",rank="0"\n'
        "    }[2m]),\n"
        '    "fact", "$1", "__name__", "rl_(.+)"\n'
        "  )\n"
        "  * ignoring (fact, exception, condition, severity, attempt) group_left (attempt) (\n"
        "    rl:newest_attempt\n"
        '    and ignoring (attempt) max_over_time(rl_run_start_timestamp_seconds{rank="0"}[2m])\n'
        '    == min_over_time(rl_run_start_timestamp_seconds{rank="0"}[2m])\n'
        "  )\n"
        ")\n"
        "or last_over_time(rl:run_fact[1h])\n"
        f"and ignoring (fact, exception, state) {_SEEN}",
        help="What the newest attempt said of itself when it was last seen, kept while the run is remembered: its "
        "step, its GPUs, how long a stall is, the newest good checkpoint, the exception that it died of, and whether "
        "a value that was no number explains that. A process that took the place of another within two minutes has "
        "said nothing yet: it cannot be told who did.",
    ),
    RecordingRule(
        name="rl:run_steps_lost",
        expr="max without (fact, attempt) (\n"
        '  max_over_time(rl:run_fact{fact="step"}[1h])\n'
        f'  unless ignoring (fact, state) last_over_time({_SEEN}{{state=~"finished|stopped"}}[1h])\n'
        ")\n"
        '- ignoring (fact, attempt) rl:run_fact{fact="step"} > 0\n'
        'and ignoring (state, attempt) rl:run_state{state="running"}',
        help="How many steps a run is behind where it was within the last hour, in attempts that did not end well.",
    ),
    RecordingRule(
        name="rl:run_errors",
        expr="sum without (where, LOST) (\n"
        "  rlexporter_errors_total > 0\n"
        "  and (\n"
        "    increase(rlexporter_errors_total[15m]) > 0\n"
        "    or rlexporter_errors_total unless rlexporter_errors_total offset 15m\n"
        "  )\n"
        ")",
        help="How many errors the exporter of a run has had, where one came within a quarter of an hour.",
    ),
)

_OUTSIDE = (
    RecordingRule(
        name="rl:condition",
        labels={"condition": "run_failed", "severity": "critical"},
        expr=f'max without (state, attempt) (time() - {_SEEN}{{state="failed"}})',
        help="A run has failed, and is not back.",
    ),
    RecordingRule(
        name="rl:condition",
        labels={"condition": "run_vanished", "severity": "critical"},
        expr="max without (state, attempt) (\n"
        f'  time() - {_SEEN}{{state="running"}} > 90\n'
        f'  or time() - {_SEEN}{{state="starting"}} > 90\n'
        "  and ignoring (state, attempt) (\n"
        f'    {_START} + ignoring (fact, attempt) rl:run_fact{{fact="stall_after_seconds"}} < time()\n'
        "  )\n"
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
        "  and ignoring (attempt) rl:newest_attempt\n"
        ")\n"
        'and ignoring (state, attempt) rl:run_state{state=~"starting|running"}',
        help="A run makes no steps: its own clock says how long ago the last one was.",
    ),
    RecordingRule(
        name="rl:run_over",
        expr="max without (state) (\n"
        f'  {_SEEN}{{state!~"starting|running"}}\n'
        f"  or {_SEEN} and ignoring (state, attempt)\n"
        '  max without (condition, severity) (rl:condition{condition="run_vanished"})\n'
        ")",
        help="When an attempt was last seen that has ended or vanished, and has no follower.",
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
        f">= ignoring (condition, severity, LOST) group_left () {_START}",
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
        name="rl:condition_at_end",
        expr="(\n"
        '  rl:condition_event{severity="critical"} and run(last_over_time(rl_condition[5m]) == 1)\n'
        "  or rl:condition_event{NONFINITE}\n"
        '  and ignoring (condition, severity, fact, attempt) rl:run_fact{fact="condition_symptom"} == 1\n'
        ") + ignoring (condition, severity, attempt) group_left (attempt) rl:run_over * 0\n"
        "or last_over_time(rl:condition_at_end[1h])\n"
        "and ignoring (condition, severity) rl:run_over",
        help="What was critical when an attempt ended or vanished, or what it says that it died of, while that is "
        "remembered and has no follower.",
    ),
    RecordingRule(
        name="rl:condition",
        expr="(\n"
        "  rl:condition_event\n"
        "  or last_over_time(rl:condition_event[5m])\n"
        f"  and ignoring (condition, severity) {_START} < time() - 300\n"
        ")\n"
        "unless ignoring (condition, severity, attempt) rl:run_over\n"
        "or rl:condition_event{NONFINITE}\n"
        "or max without (attempt) (rl:condition_at_end)",
        help="What is wrong with the newest attempt of a run, with the value with which it began. What flaps within "
        "five minutes goes on. The end of a run mends nothing: what was critical then stays until the run is back, for "
        "an hour after a good end and for a day after any other, so that nobody is told that it is resolved. Warnings "
        "end with the run. What is not finite is told even if it began in the last step, however the run ended.",
    ),
)


def _of_event(name: str, series: str, text: str) -> RecordingRule:
    """Return a rule for ``series`` of each condition in `rl:condition`, kept while that lasts."""
    return RecordingRule(
        name=name,
        expr=f"run(last_over_time({series}[5m]) and rl:condition_event_timestamp_seconds) and rl:condition\n"
        f"or last_over_time({name}[1h])\n"
        "and rl:condition",
        help=text,
    )


_SINCE = "rl:condition_since_timestamp_seconds"
_MOMENTS = (
    _of_event("rl:condition_step", "rl_condition_last_event_step", "The step in which a condition began."),
    _of_event("rl:condition_threshold", "rl_condition_last_event_threshold", "The limit that was in force then."),
    RecordingRule(
        name=_SINCE,
        expr="(\n"
        f"  last_over_time({_SINCE}[5m])\n"
        f"  or last_over_time({_SINCE}[1h]) and max without (attempt) (rl:condition_at_end)\n"
        f") >= ignoring (condition, severity) group_left () {_START}\n"
        "and rl:condition\n"
        "or run(rl:condition_event_timestamp_seconds) and rl:condition\n"
        'or time() - rl:condition{condition=~"run_failed|run_vanished"}\n'
        "or rl:condition * 0 + time()",
        help="Since when a condition has held without a break of five minutes.",
    ),
    RecordingRule(
        name="rl:run_gpu_seconds",
        expr='rl:run_fact{fact="gpus"} * ignoring (fact, attempt) (\n'
        f"  max without (state, attempt) ({_SEEN}) - {_START}\n"
        ")",
        help="GPU seconds of the newest attempt of a run.",
    ),
    RecordingRule(
        name="rl:run_gpu_seconds_since_critical",
        expr='rl:run_fact{fact="gpus"} * ignoring (fact, attempt) clamp_min(\n'
        f"  max without (state, attempt) ({_SEEN})\n"
        f'  - min without (condition, severity) ({_SINCE}{{severity="critical"}}),\n'
        "  0\n"
        ")",
        help="GPU seconds that a run has spent since the first critical condition that still holds.",
    ),
    RecordingRule(
        name="rl:run_gpu_hours_since_critical",
        expr="rl:run_gpu_seconds_since_critical / 3600 > 0.1",
        help="The same in hours, where it is worth a word in a message.",
    ),
    RecordingRule(
        name="rl:alert_fact",
        expr="label_replace(\n"
        '  {__name__=~"rl:condition_step|rl:condition_threshold"}, "fact", "$1", "__name__", ".+_(.+)"\n'
        ")\n"
        'or label_replace(run(rl_incident{rank="0"}), "fact", "incident", "", "")\n'
        "and ignoring (subject, cause, unit, fact) rl:condition\n"
        "or rl:condition * 0 + ignoring (condition, severity, fact) group_left (fact)\n"
        '  max without (attempt) (rl:run_fact{fact="last_good_checkpoint_step"})\n'
        "or label_replace(\n"
        "  rl:condition * 0 + ignoring (condition, severity) group_left () rl:run_gpu_hours_since_critical,\n"
        '  "fact", "gpu_hours", "", ""\n'
        ")",
        help="What an alert says beside its value: its text asks for that in every evaluation, and finds all "
        "of it by labels alone.",
    ),
)

_VERDICT = (
    RecordingRule(
        name="rl:run_verdict",
        expr='max without (condition, severity) (rl:condition{condition=~"run_.+"}) * 0 + 2\n'
        "or run(last_over_time(rl_run_verdict[2m]))\n"
        "or last_over_time(rl:run_verdict[1h])\n"
        "and ignoring (attempt) rl:run_over",
        help="The verdict on a run: 0 fine, 1 look, 2 act. The processes say it, the worst of all ranks; only that the "
        "run has failed, vanished or hangs is added here. It stays when the run has ended.",
    ),
    RecordingRule(
        name="rl:run_named",
        expr='rl:condition{condition=~"run_.+"} * 0 + time() + 1\n'
        'or run(timestamp(rl_run_cause_info{rank="0"}) or timestamp(rl_run_cause_info{rank!="0"}) - 60)\n'
        "or last_over_time(rl:run_named[1h])",
        help="When the processes of a run last named a cause, other ranks a minute after rank 0; newer than all is "
        "that it has failed, vanished or hangs.",
    ),
    RecordingRule(
        name="rl:run_cause",
        expr="rl:run_named\n"
        "and topk without (condition, severity, subject, signal) (1,\n"
        "  3e10 + rl:run_named{NONFINITE}\n"
        "  and ignoring (condition, severity, subject, signal, fact, attempt) (\n"
        '    rl:run_fact{fact="condition_symptom"} == 1\n'
        "  )\n"
        "  or rl:run_named\n"
        ")\n"
        "and ignoring (condition, severity, subject, signal) rl:run_verdict > 0",
        help="What the verdict on a run names first: the NaN that it says it died of, else its process, else what the "
        "processes named last. Absent where nothing is wrong.",
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
        name="rl:runs_seen",
        expr=f"count by (cluster) ({_SEEN} > time() - {STORM_SECONDS})",
        help="How many runs were seen within it.",
    ),
    RecordingRule(
        name="rl:storm",
        expr=f"rl:runs_newly_sick >= {STORM_RUNS}\n"
        f"and rl:runs_newly_sick / ignoring (severity) group_left () rl:runs_seen >= {STORM_SHARE}\n"
        "or rl:runs_newly_sick and last_over_time(rl:storm[2m])",
        help="How many became sick, while that is a storm: it ends when none did within a quarter of an hour.",
    ),
    RecordingRule(
        name="rl:storm_member",
        expr=f"rl:condition_since_timestamp_seconds > time() - {STORM_SECONDS}\n"
        "and on (cluster, severity) rl:storm\n"
        "or rl:condition_since_timestamp_seconds <= last_over_time(rl:storm_member[1h]) + 60",
        help="What began within a storm, for as long as it lasts itself.",
    ),
)

OWN_WORK = 'phase=~"generation|reward"'
"""The phases in which a rank works by itself in a rollout, before ranks wait for each other."""
_OF_A_PROCESS = ", ".join(label for label in LOST_WITHOUT if label != "rank")
_RANKS = (
    RecordingRule(
        name="rl:rank_work_fraction",
        expr=f"sum without (phase, {_OF_A_PROCESS}) (rate(rl_phase_seconds_total{{{OWN_WORK}}}[15m]))",
        help="Share of the time that each rank works by itself, in generation and rewards (GRPO, RLOO).",
    ),
    RecordingRule(
        name="rl:rank_lag_fraction",
        expr="max without (rank) (rl:rank_work_fraction) - min without (rank) (rl:rank_work_fraction)\n"
        "and count without (rank) (rl:rank_work_fraction) > 1",
        help="Share of the time for which the fastest rank waits for the slowest one, of those that serve.",
    ),
)

RECORDING_RULES: tuple[RecordingRule, ...] = (
    *_CLOCK,
    *_ATTEMPTS,
    *_FACTS,
    *_OUTSIDE,
    *_CONDITIONS,
    *_MOMENTS,
    *_VERDICT,
    *_STORM,
    *_RANKS,
)
