"""Recording rules: what Prometheus works out about each run, once per evaluation; alerts only select from it.

Three things are decided here and nowhere else. *Which attempt*: a run that is started again is judged by its newest
process, wherever that is. *How old*: the clock of a trainer may be wrong, so its timestamps are moved to the clock of
Prometheus. *For how long*: a dead run stays dead until it is back, although its series are gone; a rule that selects
its own last result carries that over.

Memory belongs to an attempt. What is remembered has the label ``attempt``, the start of the process that it is of, and
is taken only while `rl:run_last_seen_timestamp_seconds`, which has that label too, is of the same. What is remembered
of a condition is its moment, and is taken only if that lies in the newest attempt.

What an alert says stands in labels of `rl:alert`, which alerts select from and drop: so no text has to ask for it, the
labels of an alert stay what they are, and all of it arrives at once. Whatever such labels are joined from has one row a
run or condition, by `topk` where there could be two: a rule whose result has the same labels twice records nothing.

Expressions are evaluated in this order. ``run(x)`` is the largest value over the processes of a run, ``LOST`` the
labels that it loses, and ``NONFINITE`` a matcher of the conditions on NaN (`scripts.pack.promql`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import indent

from scripts.pack.outside import LOST_WITHOUT

LATELY = 600
"""Seconds for which a condition that lasted one step is still an alert."""
STORM_SECONDS = 900
STORM_RUNS, ANY_RUNS, STORM_SHARE = 5, 10, 0.05
"""A storm: within `STORM_SECONDS` so many runs get one kind of fault, or so many any, and are this share of all.

A few faults that have nothing in common are none.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A Prometheus recording rule. Several may record one series, under different ``labels``."""

    name: str
    expr: str
    help: str
    """What it is, in the first sentence, which is in the rules too; then what is to be known of it."""
    labels: Mapping[str, str] = field(default_factory=dict)


_HERE, _AWAY = "rl:evaluation_timestamp_seconds", "rl:away_since_timestamp_seconds"
_SINCE_HERE = "rl:evaluating_since_timestamp_seconds"
_CLOCK = (
    RecordingRule(
        name="rl:evaluation_gap_seconds",
        expr=f"time() - last_over_time({_HERE}[1h])",
        help="How long ago the last evaluation was.",
    ),
    RecordingRule(
        name=_AWAY,
        expr=f"last_over_time({_HERE}[1h])\n"
        "and (\n"
        f"  time() - last_over_time({_HERE}[1h]) > 40\n"
        f"  and time() - last_over_time({_HERE}[1h]) > 2.5 * quantile_over_time(0.1, rl:evaluation_gap_seconds[1h])\n"
        ")\n"
        f"or last_over_time({_AWAY}[1h])",
        help="The last one before Prometheus was away: two are missing. It is seen in the first evaluation after that, "
        "which knows nothing yet of itself: where a database shows series late the next ones do not either.",
    ),
    RecordingRule(
        name=_SINCE_HERE,
        expr=f"vector(time()) and {_AWAY} == last_over_time({_HERE}[1h])\n"
        f"or last_over_time({_SINCE_HERE}[1h])\n"
        "or vector(time())",
        help="Since when it is back.",
    ),
    RecordingRule(name=_HERE, expr="vector(time())", help="This evaluation."),
    RecordingRule(
        name="rl:clock_offset_seconds",
        expr="(rlexporter_time_seconds - timestamp(rlexporter_time_seconds)) > 30\n"
        "or (rlexporter_time_seconds - timestamp(rlexporter_time_seconds)) < -30",
        help="How far the clock of a process is ahead of Prometheus.",
    ),
)

_SEEN = "rl:run_last_seen_timestamp_seconds"
_START = "rl:run_start_timestamp_seconds"
_SEEN_SO_FAR = f"timestamp(rl:run_state) or last_over_time({_SEEN}[1h])"
"""When Prometheus is back, series of rules from before are still there for five minutes: their time is that of then."""
_ANSWERED, _UNSEEN, _GONE = "rl:run_answered_timestamp_seconds", "rl:run_end_unseen", "rl:run_gone_timestamp_seconds"
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
        help="The newest process of a run; `attempt` is its start by its own clock.",
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
        expr=f"({_SEEN_SO_FAR})\n"
        f"== ignoring (state, attempt) group_left () max without (state, attempt) ({_SEEN_SO_FAR})\n"
        "> time() - 86400\n"
        f'unless last_over_time({_SEEN}{{state=~"finished|stopped"}}[1h]) < time() - 3600',
        help="When it was last seen, and how; kept for a day, for an hour if it ended well.",
    ),
    RecordingRule(
        name=_START,
        expr="run(rl:attempt_start_timestamp_seconds and ignoring (attempt) rl:newest_attempt)\n"
        f"or last_over_time({_START}[1h])\n"
        f"and ignoring (state, attempt) {_SEEN}",
        help="When it began; kept while the run is remembered.",
    ),
    RecordingRule(
        name=_ANSWERED,
        expr="run(\n"
        '  timestamp(rl_run_start_timestamp_seconds{rank="0"})\n'
        f"  > scalar(clamp_min({_AWAY} or vector(0), time() - 120))\n"
        ") * 0 + time()",
        help="A run whose last scrape succeeded.",
    ),
    RecordingRule(
        name=_UNSEEN,
        expr=f"last_over_time({_ANSWERED}[1h]) == on () group_left () {_AWAY}\n"
        f"or last_over_time({_UNSEEN}[1h]) unless last_over_time({_ANSWERED}[1h]) > last_over_time({_UNSEEN}[1h])\n"
        f"and ignoring (state, attempt) {_SEEN}",
        help="A run that was there until Prometheus was away, and not since.",
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
        help="What the newest attempt last said of itself, kept while the run is remembered. That is its step, its "
        "GPUs, how long a stall is, the newest good checkpoint, the exception that it died of, and whether a value "
        "that was no number explains that. A process that took the place of another within two minutes has said "
        "nothing yet: it cannot be told who did.",
    ),
    RecordingRule(
        name="rl:run_steps_lost",
        expr="max without (fact, attempt) (\n"
        '  max_over_time(rl:run_fact{fact="step"}[1h])\n'
        f'  unless ignoring (fact, state) last_over_time({_SEEN}{{state=~"finished|stopped"}}[1h])\n'
        ")\n"
        '- ignoring (fact, attempt) rl:run_fact{fact="step"} > 0\n'
        'and ignoring (state, attempt) rl:run_state{state="running"}',
        help="How many steps a run is behind its best of the last hour.",
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
        help="Errors of the exporter, where one came within a quarter of an hour.",
    ),
)

_OUTSIDE = (
    RecordingRule(
        name=_GONE,
        expr="max without (state, attempt) (\n"
        f'  {_SEEN}{{state="running"}}\n'
        f'  or {_SEEN}{{state="starting"}} and ignoring (state, attempt) (\n'
        f'    {_START} + ignoring (fact, attempt) rl:run_fact{{fact="stall_after_seconds"}} < time()\n'
        "  )\n"
        ") < time() - 90\n"
        "and (\n"
        f"  max without (state, attempt) ({_SEEN}) == last_over_time({_GONE}[1h])\n"
        f"  or {_START} and on () time() - {_SINCE_HERE} > 120\n"
        ")",
        help="When a run was last seen that is gone: Prometheus must have been there for two minutes to say so. "
        "What was gone before it was away still is.",
    ),
    RecordingRule(
        name="rl:condition",
        labels={"condition": "run_failed", "severity": "critical"},
        expr=f'max without (state, attempt) (time() - {_SEEN}{{state="failed"}})',
        help="A run has failed, and is not back.",
    ),
    RecordingRule(
        name="rl:condition",
        labels={"condition": "run_vanished", "severity": "critical"},
        expr=f"time() - {_GONE} unless {_UNSEEN}",
        help="A run that trained is not seen any more.",
    ),
    RecordingRule(
        name="rl:condition",
        labels={"condition": "run_end_unseen", "severity": "warning"},
        expr=f"time() - {_GONE} and {_UNSEEN}",
        help="The same, where nobody was there to see how it ended.",
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
        help="A run makes no steps, by its own clock.",
    ),
    RecordingRule(
        name="rl:run_over",
        expr="max without (state) (\n"
        f'  {_SEEN}{{state!~"starting|running"}}\n'
        f"  or {_SEEN} and ignoring (state, attempt) {_GONE}\n"
        ")",
        help="When an attempt was last seen that is over, and has no follower.",
    ),
)

_CONDITIONS = (
    RecordingRule(
        name="rl:condition_event_timestamp_seconds",
        expr="(\n"
        '  last_over_time(rl_condition_last_event_timestamp_seconds{severity!="info"}[5m])\n'
        "  - ignoring (condition, severity) group_left () last_over_time(rl:clock_offset_seconds[5m])\n"
        '  or last_over_time(rl_condition_last_event_timestamp_seconds{severity!="info"}[5m])\n'
        ")\n"
        f">= ignoring (condition, severity, LOST) group_left () {_START}",
        help="When a condition last began, by the clock of Prometheus.",
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
        help="The value of a condition that holds, or began within ten minutes, and is no symptom.",
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
        help="What was critical when an attempt ended, or what it died of; kept until the run is back.",
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
        help="What is wrong with the newest attempt, and with which value it began. What flaps within five minutes "
        "goes on. The end of a run mends nothing: what was critical then stays until the run is back, for an hour "
        "after a good end and for a day after any other, so that nobody is told that it is resolved. Warnings end with "
        "the run. What is not finite is told even if it began in the last step, however the run ended.",
    ),
)


def _of_event(name: str, series: str, text: str, more: str = "") -> RecordingRule:
    """Return a rule for ``series`` of each condition in `rl:condition`, kept while that lasts; and for ``more``."""
    return RecordingRule(
        name=name,
        expr=f"run(last_over_time({series}[5m]) and rl:condition_event_timestamp_seconds) and rl:condition\n"
        f"{more}"
        f"or last_over_time({name}[1h])\n"
        "and rl:condition",
        help=text,
    )


_LAST_STEP = (
    'or rl:condition{condition=~"run_.+"} * 0 + ignoring (condition, severity) group_left ()\n'
    '  max without (fact, attempt) (rl:run_fact{fact="step"})\n'
)
_SINCE = "rl:condition_since_timestamp_seconds"
_MOMENTS = (
    _of_event(
        "rl:condition_step",
        "rl_condition_last_event_step",
        "The step in which a condition began; of a process its last.",
        _LAST_STEP,
    ),
    _of_event("rl:condition_threshold", "rl_condition_last_event_threshold", "The limit that was in force then."),
    RecordingRule(
        name=_SINCE,
        expr="(\n"
        f"  last_over_time({_SINCE}[5m])\n"
        f"  or last_over_time({_SINCE}[1h]) and max without (attempt) (rl:condition_at_end)\n"
        f") >= ignoring (condition, severity) group_left () {_START}\n"
        "and rl:condition\n"
        "or run(rl:condition_event_timestamp_seconds) and rl:condition\n"
        'or time() - rl:condition{condition=~"run_failed|run_vanished|run_end_unseen"}\n'
        "or rl:condition * 0 + time()",
        help="Since when it has held without a break of five minutes.",
    ),
    RecordingRule(
        name="rl:run_gpu_seconds",
        expr='rl:run_fact{fact="gpus"} * ignoring (fact, attempt) (\n'
        f"  max without (state, attempt) ({_SEEN}) - {_START}\n"
        ")",
        help="GPU seconds of the newest attempt.",
    ),
    RecordingRule(
        name="rl:run_gpu_seconds_since_critical",
        expr='rl:run_fact{fact="gpus"} * ignoring (fact, attempt) clamp_min(\n'
        f"  max without (state, attempt) ({_SEEN})\n"
        f'  - min without (condition, severity) ({_SINCE}{{severity="critical"}}),\n'
        "  0\n"
        ")",
        help="Those since the first critical condition that still holds.",
    ),
    RecordingRule(
        name="rl:run_gpu_hours_since_critical",
        expr="rl:run_gpu_seconds_since_critical / 3600 > 0.1",
        help="The same in hours, where it is worth a word.",
    ),
)

_UNSEEN_END = 'rl:condition{condition="run_end_unseen"}'
_VERDICT = (
    RecordingRule(
        name="rl:run_verdict",
        expr='max without (condition, severity) (rl:condition{severity="critical"}) * 0 + 2\n'
        f"or clamp_min(last_over_time(rl:run_verdict[1h]), 1) and ignoring (condition, severity) {_UNSEEN_END}\n"
        "or run(last_over_time(rl_run_verdict[2m]))\n"
        "or last_over_time(rl:run_verdict[1h])\n"
        "and ignoring (attempt) rl:run_over",
        help="0 fine, 1 look, 2 act: the worst that ranks say. What pages is act, and an end that nobody saw is "
        "worth a look.",
    ),
    RecordingRule(
        name="rl:run_named",
        expr='rl:condition{condition=~"run_(failed|vanished|stalled)"} * 0 + time() + 1\n'
        f"or {_UNSEEN_END} * 0 + 1\n"
        'or run(timestamp(rl_run_cause_info{rank="0"}) or timestamp(rl_run_cause_info{rank!="0"}) - 60)\n'
        "or last_over_time(rl:run_named[1h])\n"
        f"and ignoring (condition, severity, subject, signal) {_START}",
        help="When a run last named a cause. Other ranks are a minute after rank 0; newest is what its process does, "
        "oldest an unseen end.",
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
        help="What the verdict names first: the NaN that a run died of, else the newest.",
    ),
)


OF_CONDITION, OF_RUN = ("step", "limit", "subject", "unit"), ("checkpoint", "gpu_hours", "cause")
TOLD = (*OF_CONDITION, *OF_RUN, "seen")
"""The labels that the texts of alerts are made of, and that alerts drop."""
_OF_RUN, _ALL_TOLD = ", ".join(OF_RUN), ", ".join((*OF_CONDITION, *OF_RUN))
_WRONG = "(rl:condition or rl:condition_event) ^ 0"
"""1 for all that is wrong. What began in this moment is in `rl:condition` later where a database shows series late."""
_WRONG_AT_ALL = f"max without (severity) ({_WRONG})"
_ANY_RUN = f"{_START} ^ 0"
_NEWS = (
    "run(last_over_time(rl_condition_last_event_{0}[5m]) and rl:condition_event_timestamp_seconds) or rl:condition_{0}"
)


def _label(name: str, values: str) -> str:
    """Return an expression with a label ``name`` that is the value; its own value is 1."""
    return f'count_values without () ("{name}", {values})'


def _with(labels: str, ones: str, *, beside: str = "", others: str) -> str:
    """Return a factor of 1 that adds ``labels``, which ``ones`` have.

    ``beside``: labels of the other side that ``ones`` have not. ``others``: 1 for all that may have no such labels.
    """
    ignored = f"{beside}, {labels}" if beside else labels
    return f"* ignoring ({ignored}) group_left ({labels}) (\n  {ones}\n  or ignoring ({labels}) {others}\n)"


_LIMIT = _label("limit", f"floor(({_NEWS.format('threshold')}) * 1e9 + 0.5) / 1e9")
_SUBJECT = "topk without (subject, unit) (1, rl:condition_subject) ^ 0"
_CHECKPOINT = _label("checkpoint", 'max without (fact, attempt) (rl:run_fact{fact="last_good_checkpoint_step"})')
_WASTED = "rl:run_gpu_hours_since_critical"
_UNIT = f"10 ^ (1 - floor(log10({_WASTED})))"
_HOURS = _label("gpu_hours", f"floor({_WASTED} * {_UNIT} + 0.5) / {_UNIT}")
"""Two digits, so that the label seldom changes."""
_NAMES = "condition, severity, subject, signal"
_CAUSE = (
    f"max without ({_NAMES}) (\n"
    f'  label_replace(topk without ({_NAMES}) (1, rl:run_cause), "cause", "$1", "condition", "(.+)")\n'
    ") ^ 0"
)


def _about(label: str, more: str, of: str, series: str) -> str:
    """Return what a ``condition`` of a process is about: a label of ``series``, without that and ``more``."""
    named = f'max without ({label}, {more}) (label_replace({series}, "subject", "$1", "{label}", "(.+)"))'
    return f'label_replace({named}, "condition", "{of}", "", "")'


_EXCEPTION = _about("exception", "fact, attempt", "run_failed", 'rl:run_fact{fact="run_exception_info"}')
_PHASE = _about("phase", "LOST", "run_stalled", 'rl_phase{rank="0"} == 1')
_TELLING = (
    RecordingRule(
        name="rl:condition_subject",
        expr="topk without (subject, unit) (1,\n"
        "  max without (severity, cause, LOST) (\n"
        '    timestamp(rl_incident{rank="0"})\n'
        "    and ignoring (condition, severity, subject, cause, unit, attempt) rl:newest_attempt\n"
        "  )\n"
        f"  or {_EXCEPTION}\n"
        f"  or {_PHASE}\n"
        ") * 0 + time()\n"
        "or ignoring (subject, unit) topk without (subject, unit) (1, last_over_time(rl:condition_subject[1h]))\n"
        "and ignoring (severity, subject, unit) rl:condition",
        help="What a condition is about, and its unit: of a failure the exception, of a hang the phase.",
    ),
    RecordingRule(
        name="rl:alert",
        expr="(\n"
        '  rl:condition{condition!="run_failed"}\n'
        "  or rl:condition_event unless ignoring (condition, severity, attempt) rl:run_over\n"
        '  or rl:condition{condition="run_failed"}\n'
        "  unless ignoring (condition, severity, fact, attempt) (\n"
        '    rl:run_fact{fact="condition_symptom"} == 1\n'
        "    and ignoring (fact, condition, severity) rl:condition_at_end{NONFINITE}\n"
        "  )\n"
        ")\n"
        + "\n".join(
            (
                _with("step", _label("step", _NEWS.format("step")), others=_WRONG),
                _with("limit", _LIMIT, beside="step", others=_WRONG),
                _with("subject, unit", _SUBJECT, beside="severity, step, limit", others=_WRONG_AT_ALL),
                f"* ignoring (condition, severity, {_ALL_TOLD}) group_left ({_OF_RUN}) (",
                f"  ({_CHECKPOINT} or ignoring (checkpoint) {_ANY_RUN})",
                indent(_with("gpu_hours", _HOURS, beside="checkpoint", others=_ANY_RUN), "  "),
                indent(_with("cause", _CAUSE, beside="checkpoint, gpu_hours", others=_ANY_RUN), "  "),
                ")",
            )
        ),
        help="What alerts are raised on, and all that they say, as labels that they drop.",
    ),
)

_SICK_SINCE = "rl:run_sick_since_timestamp_seconds"
_KIND = f'label_replace({_SINCE}, "kind", "$1", "condition", "([^_]+).*")'
_OF_ANY = "sum without (kind) (rl:runs_newly_sick)"
_STORM = (
    RecordingRule(
        name=_SICK_SINCE,
        expr=f"last_over_time({_SICK_SINCE}[20m])\n"
        f"and ignoring (kind) min without (condition) ({_SINCE})\n"
        f"or ignoring (kind) bottomk without (kind) (1, min without (condition) ({_KIND}))",
        help="Since when a run has had alerts, without a break of twenty minutes, and the kind of the first.",
    ),
    RecordingRule(
        name="rl:runs_newly_sick",
        expr=f"count by (cluster, severity, kind) ({_SICK_SINCE} > time() - {STORM_SECONDS})",
        help="How many runs became sick within a quarter of an hour.",
    ),
    RecordingRule(
        name="rl:runs_seen",
        expr=f"count by (cluster) ({_SEEN} > time() - {STORM_SECONDS})",
        help="How many were seen within it.",
    ),
    RecordingRule(
        name="rl:storm",
        expr=f"(rl:runs_newly_sick >= {STORM_RUNS} or rl:runs_newly_sick and ignoring (kind) {_OF_ANY} >= {ANY_RUNS})\n"
        f"and ignoring (kind) {_OF_ANY} / ignoring (severity) group_left () rl:runs_seen >= {STORM_SHARE}\n"
        "or rl:runs_newly_sick and last_over_time(rl:storm[2m])",
        help="A storm: five of one kind, or ten of any; until none joins for a quarter of an hour.",
    ),
    RecordingRule(
        name="rl:storm_member",
        expr=f"{_SINCE} > time() - {STORM_SECONDS}\n"
        "and (\n"
        f"  {_SINCE} and ignoring (condition, kind) ({_SICK_SINCE} and on (cluster, severity, kind) rl:storm)\n"
        f"  or max without (kind) ({_KIND} and on (cluster, severity, kind) rl:storm)\n"
        ")\n"
        f"or {_SINCE} <= last_over_time(rl:storm_member[1h]) + 60",
        help="What began in a storm, in its runs or of its kind, for as long as it lasts itself.",
    ),
    RecordingRule(
        name="rl:storm_runs",
        expr="count by (cluster, severity) (count without (condition) (rl:storm_member))\n"
        "* on (cluster) group_left (seen) (\n"
        f"  {_label('seen', 'rl:runs_seen')}\n"
        "  or ignoring (seen) count by (cluster) (rl:storm_member) ^ 0\n"
        ")",
        help="How many runs are in a storm; `seen` is of how many.",
    ),
)

OWN_WORK = 'phase=~"generation|reward"'
"""The phases in which a rank works by itself in a rollout, before ranks wait for each other."""
_OF_A_PROCESS = ", ".join(label for label in LOST_WITHOUT if label != "rank")
_OTHERS = f'max without (state, {_OF_A_PROCESS}) (last_over_time(rl_run_state{{rank!="0",state=~"running|failed"}}[5m]'
_RANKS = (
    RecordingRule(
        name="rl:rank_work_fraction",
        expr=f"sum without (phase, {_OF_A_PROCESS}) (rate(rl_phase_seconds_total{{{OWN_WORK}}}[15m]))",
        help="Share of the time that each rank works by itself (GRPO, RLOO).",
    ),
    RecordingRule(
        name="rl:rank_lag_fraction",
        expr="max without (rank) (rl:rank_work_fraction) - min without (rank) (rl:rank_work_fraction)\n"
        "and count without (rank) (rl:rank_work_fraction) > 1",
        help="Share of the time for which the fastest one waits for the slowest.",
    ),
    RecordingRule(
        name="rl:rank_missing",
        expr="(\n"
        f"  {_OTHERS} offset 5m) == 1)\n"
        "  or last_over_time(rl:rank_missing[1h])\n"
        ")\n"
        f"unless {_OTHERS}))\n"
        'and ignoring (rank, state, attempt) rl:run_state{state="running"}\n'
        f"and ignoring (rank) {_START} < time() - 600\n"
        f"and on () time() - {_SINCE_HERE} > 300",
        help="A rank that was not seen for five minutes, while rank 0 goes on.",
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
    *_TELLING,
    *_STORM,
    *_RANKS,
)
