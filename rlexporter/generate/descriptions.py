"""What an alert says of its run: templates of Prometheus, which ask its rules for step, limit and checkpoint.

Each says where first, then what: numbers are those of the moment in which it began, in the words of a person.
"""

from __future__ import annotations

from typing import NamedTuple

from rlexporter.conditions import evidence
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.model.condition import Condition, PrometheusAlert

_RUN = ("cluster", "namespace", "job", "run")
_NAMED = "Run {{ $labels.run }}"
_ONE_OR_NONE = 0.5
"""The limit of signals that are 1 or 0: the summary says all there is."""
_COUNTED = {"values": "NaN or infinite value", "reward functions": "reward function", "keys": "key"}


class Description(NamedTuple):
    """A text that all alerts with numbers of one kind share."""

    name: str
    """The kind: the name of the YAML anchor under which the text stands once."""
    text: str


def of_condition(condition: Condition) -> Description:
    """Return the description of an alert on a condition."""
    unit = SIGNAL_NAMED[condition.signal].unit
    if not unit and all(limit.value == _ONE_OR_NONE for limit in condition.limits):
        return Description("yes_or_no", _text(""))
    if unit in _COUNTED:
        count = f'{{{{ $value | printf "%.0f" }}}} {_COUNTED[unit]}{{{{ if ne $value 1.0 }}}}s{{{{ end }}}}'
        return Description(unit.replace(" ", "_"), _text(f": {count}"))
    if unit == "fraction":
        return Description(unit, _text(": {{ $value | humanizePercentage }}" + _limit("humanizePercentage")))
    if unit == evidence.UNIT:
        form = 'printf "1 in 10^%.3g"'
        return Description("chance", _text(f": a chance of {{{{ $value | {form} }}}}{_limit(form)}"))
    form = 'printf "%.4g"'
    return Description("number", _text(f": {{{{ $value | {form} }}}}{_UNIT}{_limit(form)}"))


def _text(numbers: str) -> str:
    """Return where, what with which ``numbers``, and what it costs; Prometheus is asked once for all of it."""
    return f"{_ASKED}{_NAMED}{_SUBJECT}{_STEP}{numbers}.{_GOOD}{_HOURS}"


def _found(test: str, text: str) -> str:
    """Return a part of a template: ``text`` about the ``.Value`` of what was asked for and passes ``test``."""
    return f"{{{{ range $found }}}}{{{{ if {test} }}}}{text}{{{{ end }}}}{{{{ end }}}}"


_LABELS = ",".join(f"{name}=%q" for name in _RUN)
_GIVEN = " ".join(f"$labels.{name}" for name in _RUN)
"""What selects by the labels of a run in the format of a query, and what fills that format."""


def _asked(query: str, given: str) -> str:
    """Return a part of a template that asks Prometheus: ``query`` is the format, which ``given`` fills.

    Prometheus fills templates in each evaluation, and a question costs it as much as a rule: so each has one.
    """
    return f'{{{{ $found := printf "{query}" {given} | query }}}}'


_IS = 'eq .Labels.__name__ "rl:{}"'
_FACT = 'eq .Labels.fact "{}"'
_NAMES = "rl:condition_step|rl:condition_threshold|rl:run_fact|rl:run_gpu_hours_since_critical|rl_incident"
_ASKED = _asked(
    f'{{__name__=~\\"{_NAMES}\\",fact=~\\"|last_good_checkpoint_step\\",rank=~\\"|0\\",'
    f'condition=~\\"|%s\\",severity=~\\"|%s\\",{_LABELS}}}',
    f"$labels.condition $labels.severity {_GIVEN}",
)
_SUBJECT = _found(".Labels.subject", ", {{ .Labels.subject }}")
_UNIT = _found('and .Labels.unit (ne .Labels.unit "reward")', " {{ .Labels.unit }}")
_STEP = _found(_IS.format("condition_step"), ', step {{ .Value | printf "%.0f" }}')
_GOOD = _found(
    _FACT.format("last_good_checkpoint_step"), ' The last good checkpoint is that of step {{ .Value | printf "%.0f" }}.'
)
_HOURS = _found(
    _IS.format("run_gpu_hours_since_critical"),
    ' {{ .Value | printf "%.1f" }} GPU hours were spent since it went wrong.',
)
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


def _limit(form: str) -> str:
    return _found(_IS.format("condition_threshold"), f", limit {{{{ .Value | {form} }}}}")
