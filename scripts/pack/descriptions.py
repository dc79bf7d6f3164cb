"""What an alert says of its run: templates of Prometheus, which ask its rules for step, limit and checkpoint.

Each names the run and the step first. Values are from the step in which it began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlexporter.catalog.conditions import CONDITIONS
from rlexporter.conditions import evidence
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.model.condition import Condition, PrometheusAlert
from scripts.pack import promql

_RUN = ("cluster", "namespace", "job", "run")
_NAMED = "Run {{ $labels.run }}"
_ONE_OR_NONE = 0.5
"""The limit of signals that are 1 or 0: the summary says all there is."""
_COUNTED = {
    "values": "NaN or infinite value",
    "reward functions": "reward function",
    "keys": "key",
    "agents": "agent",
    "scores": "score",
    "skipped updates": "skipped update",
}


def by_condition(texts: Mapping[str, str], between: str = "") -> str:
    """Return a template of the text of the condition that an alert is about, by its name; the last is for all others.

    It is the text itself where there is only one. ``between`` stands before each choice but the first.
    """
    named: dict[str, list[str]] = {}
    for name, text in texts.items():
        named.setdefault(text, []).append(f'"{name}"')
    *choices, (last, _) = named.items()
    if not choices:
        return last
    cases = (f"if eq $labels.condition {' '.join(names)} }}}}{text}" for text, names in choices)
    return "{{- " + f"{between}{{{{- else ".join(cases) + f"{between}{{{{- else }}}}{last}{{{{ end }}}}"


def of_conditions(conditions: Sequence[Condition] = CONDITIONS) -> str:
    """Return the description of alerts on any of ``conditions``: Prometheus is asked once for all that it says."""
    told = sorted(filter(promql.alerts, conditions), key=lambda each: _numbers(each) == _NUMBER)
    numbers = by_condition({each.name: _numbers(each) for each in told}, "\n")
    return "\n".join((_ASKED, _NAMED, _SUBJECT, _STEP, f"{numbers}.", _GOOD, _HOURS))


def _numbers(condition: Condition) -> str:
    """Return the part of the description that says what was measured, and against which limit."""
    unit = SIGNAL_NAMED[condition.signal].unit
    if not unit and all(limit.value == _ONE_OR_NONE for limit in condition.limits):
        return ""
    if unit in _COUNTED:
        return f': {{{{ $value | printf "%.0f" }}}} {_COUNTED[unit]}{{{{ if ne $value 1.0 }}}}s{{{{ end }}}}'
    if unit == "fraction":
        return ": {{ $value | humanizePercentage }}" + _limit("humanizePercentage")
    if unit == evidence.UNIT:
        form = 'printf "1 in 10^%.3g"'
        return f": a chance of {{{{ $value | {form} }}}}{_limit(form)}"
    return _NUMBER


def _limit(form: str) -> str:
    return _found(_FACT.format("threshold"), f", limit {{{{ .Value | {form} }}}}")


def _found(test: str, text: str) -> str:
    """Return a part of a template: ``text`` about the ``.Value`` of what was asked for and passes ``test``."""
    return f"{{{{- range $found }}}}{{{{ if {test} }}}}{text}{{{{ end }}}}{{{{ end }}}}"


_LABELS = ",".join(f"{name}=%q" for name in _RUN)
_GIVEN = " ".join(f"$labels.{name}" for name in _RUN)
"""What selects by the labels of a run in the format of a query, and what fills that format."""


def _asked(query: str, given: str) -> str:
    """Return a part of a template that asks Prometheus: ``query`` is the format, which ``given`` fills.

    Prometheus fills templates in each evaluation, and a question costs it as much as a rule: so each has one.
    """
    return f'{{{{ $found := printf "{query}" {given} | query -}}}}'


_ASKED = _asked(
    f'rl:alert_fact{{condition=\\"%s\\",severity=\\"%s\\",{_LABELS}}}', f"$labels.condition $labels.severity {_GIVEN}"
)
_FACT = 'eq .Labels.fact "{}"'
_SUBJECT = _found(".Labels.subject", ", {{ .Labels.subject }}")
_UNIT = _found('and .Labels.unit (ne .Labels.unit "reward")', " {{ .Labels.unit }}")
_NUMBER = ': {{ $value | printf "%.4g" }}' + _UNIT + _limit('printf "%.4g"')
_STEP = _found(_FACT.format("step"), ', step {{ .Value | printf "%.0f" }}')
_GOOD = _found(
    _FACT.format("last_good_checkpoint_step"), ' The last good checkpoint is that of step {{ .Value | printf "%.0f" }}.'
)
_HOURS = _found(_FACT.format("gpu_hours"), ' {{ .Value | printf "%.1f" }} GPU hours were spent since it went wrong.')
_END = (
    _asked(f'rl:run_fact{{fact=~\\"step|last_good_checkpoint_step\\",{_LABELS}}}', _GIVEN)
    + _found(_FACT.format("step"), ' Its last step was {{ .Value | printf "%.0f" }}.')
    + _GOOD
)


def from_outside(alert: PrometheusAlert) -> str:
    """Return the description of an alert that only Prometheus can raise."""
    said = alert.description.replace("LABELS", _LABELS).replace("GIVEN", _GIVEN)
    if alert.of_run:
        said = f"{_NAMED}: {said}" + (_END if alert.tells_checkpoint else "")
    return said
