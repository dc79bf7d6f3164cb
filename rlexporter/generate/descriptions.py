"""What an alert says of its run: templates of Prometheus, which ask its rules for step, limit and checkpoint.

Each says where first, then what: numbers are those of the moment in which it began, in the words of a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlexporter.conditions import chance
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.model.alert import PrometheusAlert
from rlexporter.model.condition import Condition, Limit

_RUN = ("cluster", "namespace", "job", "run")
_OF = (*_RUN, "condition", "severity")
_NAMED = "Run {{ $labels.run }}"
_ONE_OR_NONE = 0.5
"""The limit of signals that are 1 or 0: the summary says all there is."""
_WITHOUT_UNIT = ("", "reward")
_COUNTED = {"values": "NaN or infinite value", "reward functions": "reward function", "keys": "key"}


def of_condition(condition: Condition, limit: Limit) -> str:
    """Return the description of an alert on one limit of a condition."""
    numbers = _numbers(SIGNAL_NAMED[condition.signal].unit, limit)
    step = _said("rl:condition_step", f", step {_WHOLE}", _OF)
    return f"{_NAMED}{step}{f': {numbers}' if numbers else ''}.{_COST}"


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


def _said(record: str, text: str, of: Sequence[str]) -> str:
    """Return a part of a template: ``text`` about the value of ``record``, nothing where it has none.

    ``of``: the labels that the alert shares with it.
    """
    labels, given = _labels(of)
    return f'{{{{ with printf "{record}{{{labels}}}" {given} | query }}}}{text}{{{{ end }}}}'


def _asked_at_once(texts: Mapping[str, str], of: Sequence[str]) -> str:
    """Return a part of a template as `_said` does, for several facts of a run, each with its text about ``.Value``.

    Prometheus fills templates in each evaluation, and a question costs it as much as a rule: so there is one. What has
    no name are the GPU hours.
    """
    labels, given = _labels(of)
    records = "rl:run_fact|rl:run_gpu_hours_since_critical" if "" in texts else "rl:run_fact"
    asked = f'printf "{{__name__=~\\"{records}\\",fact=~\\"{"|".join(texts)}\\",{labels}}}" {given} | query'
    parts = (
        f'{{{{ range $said }}}}{{{{ if eq .Labels.fact "{name}" }}}}{text}{{{{ end }}}}{{{{ end }}}}'
        for name, text in texts.items()
    )
    return f"{{{{ with $said := {asked} }}}}{''.join(parts)}{{{{ end }}}}"


_WHOLE = '{{ . | first | value | printf "%.0f" }}'
_CHECKPOINT = {
    "last_good_checkpoint_step": ' The last good checkpoint is that of step {{ .Value | printf "%.0f" }}.',
}
_END = _asked_at_once({"step": ' Its last step was {{ .Value | printf "%.0f" }}.', **_CHECKPOINT}, _RUN)
_COST = _asked_at_once(
    {**_CHECKPOINT, "": ' {{ .Value | printf "%.1f" }} GPU hours were spent since it went wrong.'}, _RUN
)


def _numbers(unit: str, limit: Limit) -> str:
    """Return value and limit, each as what it is; nothing where the value is a yes."""
    if not unit and limit.value == _ONE_OR_NONE:
        return ""
    if unit in _COUNTED:
        return f'{{{{ $value | printf "%.0f" }}}} {_COUNTED[unit]}{{{{ if ne $value 1.0 }}}}s{{{{ end }}}}'
    if unit == "fraction":
        return "{{ $value | humanizePercentage }}" + _limit("{{ . | first | value | humanizePercentage }}")
    before, number = ("", "%.4g")
    if unit == chance.UNIT:
        before, number, unit = "a chance of ", "1 in 10^%.3g", ""
    after = "" if unit in _WITHOUT_UNIT else f" {unit}"
    limit_text = _limit(f'{{{{ . | first | value | printf "{number}" }}}}')
    return f'{{{{ $value | printf "{before}{number}" }}}}{after}{limit_text}'


def _limit(shown: str) -> str:
    return _said("rl:condition_threshold", f", limit {shown}", _OF)
