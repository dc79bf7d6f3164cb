"""What an alert says of its run: templates of Prometheus, which have step, limit and checkpoint from labels.

Each names the run and the step first. Values are from the step in which it began.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from rlexporter.catalog.alerts import PrometheusAlert
from rlexporter.conditions import table
from rlexporter.conditions.table import CONDITIONS, SIGNAL_NAMED
from rlexporter.model.condition import Condition
from scripts.pack import promql

_NAMED = "Run {{ $labels.run }}"
_COUNTED = {"values": "NaN or infinite value"}


_COUNT = ': {{ $value | printf "%.0f" }} {{ $noun }}{{ if ne $value 1.0 }}s{{ end }}'
_MANY = 4
_CONDITION, _NAMED_ONCE = "$labels.condition", 3
"""What a choice is made by, and for so many choices it gets a shorter name."""


def by_condition(texts: Mapping[str, str], between: str = "") -> str:
    """Return a template of the text of the condition that an alert is about, by its name; the last is for all others.

    It is the text itself where there is only one. ``between`` stands before each choice but the first.
    """
    named: dict[str, list[str]] = {}
    for name, text in texts.items():
        named.setdefault(text, []).append(name)
    *choices, (last, _) = named.items()
    if not choices:
        return last
    named_once = len(choices) >= _NAMED_ONCE
    cases = (f"if {_any_of(names, texts, '$of' if named_once else _CONDITION)} }}}}{text}" for text, names in choices)
    return (
        ("{{- $of := $labels.condition }}" + between if named_once else "")
        + "{{- "
        + f"{between}{{{{- else ".join(cases)
        + f"{between}{{{{- else }}}}{last}{{{{ end }}}}"
    )


def _any_of(names: Sequence[str], among: Iterable[str], condition: str) -> str:
    """Return a test for any of ``names``, by a first word that no other ``among`` them has, if there are many."""
    first, *others = {name.partition("_")[0] for name in names}
    if len(names) >= _MANY and not others and sum(name.startswith(f"{first}_") for name in among) == len(names):
        return f'match "^{first}_" {condition}'
    return f"eq {condition} {' '.join(map(json.dumps, names))}"


def of_conditions(conditions: Sequence[Condition] = CONDITIONS) -> str:
    """Return the description of alerts on any of ``conditions``."""
    told = [*filter(promql.alerts, conditions)]
    nouns = {each.name: f'{{{{ $noun = "{_counted(each)}" }}}}' for each in told if _counted(each)}
    others = {each.name: _numbers(each) for each in told if not _counted(each)}
    numbers = by_condition(dict(sorted(others.items(), key=lambda each: each[1] == _NUMBER)), "\n") if others else ""
    if nouns:
        counted = by_condition({**nouns, **({"": ""} if others else {})}, "\n")
        numbers = (
            f'{{{{- $noun := "" }}}}\n{counted}\n{{{{- if $noun }}}}{_COUNT}\n{{{{- else }}}}{numbers}{{{{ end }}}}'
        )
    return "\n".join((_NAMED, _SUBJECT, _STEP, f"{numbers}.", _GOOD, _HOURS))


def _counted(condition: Condition) -> str:
    """Return what the value of a condition is a number of; empty where it is none."""
    return "" if condition.finding else _COUNTED.get(SIGNAL_NAMED[condition.signal].unit, "")


def _numbers(condition: Condition) -> str:
    """Return the part of the description that says what was measured, and against which limit."""
    unit = SIGNAL_NAMED[condition.signal].unit
    if condition.finding:
        return ""
    if unit == "fraction":
        return ": {{ $value | humanizePercentage }}" + _with("limit", ", limit {{ humanizePercentage . }}")
    if unit == table.ORDERS:
        limit = _with("limit", ", limit 1 in 10^{{ . }}")
        return f': a chance of {{{{ $value | printf "1 in 10^%.3g" }}}}{limit}'
    return _NUMBER


def _with(label: str, text: str) -> str:
    """Return a part of a template: ``text``, about ``.``, where the alert was found with this label."""
    return f"{{{{- with $labels.{label} }}}}{text}{{{{ end }}}}"


_SHORT = r'reReplaceAll "(\\.[0-9]*?[1-9][0-9]{3})[0-9]+" "$1" .'
"""What makes a number in a label as short as one of four digits: a template cannot make it a number again."""
_SUBJECT = _with("subject", ", {{ . }}")
_UNIT = _with("unit", '{{ if ne . "reward" }} {{ . }}{{ end }}')
_NUMBER = ': {{ $value | printf "%.4g" }}' + _UNIT + _with("limit", f", limit {{{{ {_SHORT} }}}}")
_STEP = _with("step", ", step {{ . }}")
_GOOD = _with("checkpoint", " The last good checkpoint is that of step {{ . }}.")
_HOURS = _with("gpu_hours", " {{ . }} GPU hours were spent since it went wrong.")
STOP_OR_LOOK = (
    '{{ if eq $labels.severity "critical" }}Stop the run if it still runs'
    + _with("checkpoint", ", and resume from the checkpoint of step {{ . }}")
    + ".{{ else }}Let the run go on, and look at it today.{{ end }}"
)
"""What to do first about something wrong with a run, as the verdict of the process has it in the first of its steps."""
_END = _with("step", " Its last step was {{ . }}.") + _GOOD


def from_outside(alert: PrometheusAlert) -> str:
    """Return the description of an alert that only Prometheus can raise."""
    if not alert.of_run:
        return alert.description
    return f"{_NAMED}: {alert.description}" + (_END if alert.tells_checkpoint else "")
