"""What an alert says of its run: templates of Prometheus, which ask its rules for step, limit and checkpoint.

Each says where first, then what: numbers are those of the moment in which it began, in the words of a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlexporter.conditions import chance
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.model.alert import PrometheusAlert
from rlexporter.model.condition import Condition

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
    if unit == chance.UNIT:
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


_IS = 'eq .Labels.__name__ "rl:{}"'
_NAMES = "rl:condition_step|rl:condition_threshold|rl:run_fact|rl:run_gpu_hours_since_critical|rl_incident"
_ASKED = (
    f'{{{{ $found := printf "{{__name__=~\\"{_NAMES}\\",fact=~\\"|last_good_checkpoint_step\\",rank=~\\"|0\\",'
    f'condition=~\\"|%s\\",severity=~\\"|%s\\",{",".join(f"{name}=%q" for name in _RUN)}}}" '
    f"$labels.condition $labels.severity {' '.join(f'$labels.{name}' for name in _RUN)} | query }}}}"
)
_SUBJECT = _found(".Labels.subject", ", {{ .Labels.subject }}")
_UNIT = _found('and .Labels.unit (ne .Labels.unit "reward")', " {{ .Labels.unit }}")
_STEP = _found(_IS.format("condition_step"), ', step {{ .Value | printf "%.0f" }}')
_GOOD = _found(".Labels.fact", ' The last good checkpoint is that of step {{ .Value | printf "%.0f" }}.')
_HOURS = _found(
    _IS.format("run_gpu_hours_since_critical"),
    ' {{ .Value | printf "%.1f" }} GPU hours were spent since it went wrong.',
)


def from_outside(alert: PrometheusAlert) -> str:
    """Return the description of an alert that only Prometheus can raise."""
    labels, given = _labels(_RUN)
    said = alert.description.replace("LABELS", labels).replace("GIVEN", given)
    if alert.of_run:
        said = f"{_NAMED}: {said}" + (_END if alert.tells_checkpoint else "")
    return said


def _labels(names: Sequence[str]) -> tuple[str, str]:
    """Return what selects by these labels in the format of a query, and what fills that format."""
    return ",".join(f"{name}=%q" for name in names), " ".join(f"$labels.{name}" for name in names)


def _asked_at_once(texts: Mapping[str, str], of: Sequence[str]) -> str:
    """Return a part of a template as `_said` does, for several facts of a run, each with its text about ``.Value``.

    Prometheus fills templates in each evaluation, and a question costs it as much as a rule: so there is one.
    """
    labels, given = _labels(of)
    records = "rl:run_fact|rl:run_gpu_hours_since_critical" if "" in texts else "rl:run_fact"
    asked = f'printf "{{__name__=~\\"{records}\\",fact=~\\"{"|".join(texts)}\\",{labels}}}" {given} | query'
    parts = (
        f'{{{{ range $said }}}}{{{{ if eq .Labels.fact "{name}" }}}}{text}{{{{ end }}}}{{{{ end }}}}'
        for name, text in texts.items()
    )
    return f"{{{{ with $said := {asked} }}}}{''.join(parts)}{{{{ end }}}}"


_END = _asked_at_once(
    {
        "step": ' Its last step was {{ .Value | printf "%.0f" }}.',
        "last_good_checkpoint_step": ' The last good checkpoint is that of step {{ .Value | printf "%.0f" }}.',
    },
    _RUN,
)


def _limit(form: str) -> str:
    return _found(_IS.format("condition_threshold"), f", limit {{{{ .Value | {form} }}}}")
