"""The generated parts of alerts/runbooks: limits and what they are worth, between two marks; people write the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rlexporter.conditions.table import BY_ALERT, CONDITIONS, SIGNAL_NAMED
from rlexporter.model.condition import Condition, Limit
from scripts.pack.markdown import table
from scripts.pack.outside import PROMETHEUS_ALERTS, WATCHDOG

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "alerts/runbooks"
ALERTS = (*BY_ALERT, *dict.fromkeys(each.alert for each in PROMETHEUS_ALERTS), WATCHDOG)
"""The names of all alerts, each of which has a runbook."""


def pages() -> dict[str, str]:
    """Return the runbooks by file name, with what is generated in them.

    Raises:
        FileNotFoundError: an alert has no runbook yet.
    """
    found = {f"{alert}.md": _page(alert) for alert in ALERTS}
    return {"README.md": _between("alerts", _index(), _written("README.md")), **found}


def _page(alert: str) -> str:
    text = _written(f"{alert}.md")
    conditions = BY_ALERT.get(alert, ())
    if not conditions:
        return text
    return _between("limits", _limits(conditions), _between("evidence", _evidence(conditions), text))


def _written(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _between(mark: str, generated: str, text: str) -> str:
    """Return ``text`` with ``generated`` between ``mark`` and its end. Raises ValueError if they are missing."""
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{text.partition(chr(10))[0]} needs {begin} and {end}, each once")
    return f"{text[: text.index(begin)]}{begin}\n{generated}{text[text.index(end) :]}"


def _limits(conditions: Sequence[Condition]) -> str:
    rows = [
        (
            f"`{condition.name}`",
            limit.severity.value,
            limit_text(condition, limit),
            hold_text(limit),
            ", ".join(condition.algorithms) or "all",
        )
        for condition in conditions
        for limit in condition.limits
    ]
    names = [condition.name for condition in conditions]
    return (
        f"\n{table(('Condition', 'Severity', 'Limit', 'How often', 'Algorithms'), rows)}\n"
        f'`thresholds={{"{names[0]}": ...}}`, `RLEXPORTER_THRESHOLDS={names[0]}=...` or a TOML file sets another one, '
        f'`off` none. `rl_threshold{{condition="{names[0]}"}}` is the limit in force.\n\n'
    )


def limit_text(condition: Condition, limit: Limit) -> str:
    """Return a limit as text: ``3 nats per token (k3)``, ``0.45 times ...``."""
    if limit.value is None:
        return "found"
    by_variant = limit.value if isinstance(limit.value, Mapping) else {"": limit.value}
    side = "below" if condition.below else "above"
    number = ", ".join(f"{value:g}" + (f" ({variant})" if variant else "") for variant, value in by_variant.items())
    of = condition.detector.words if condition.detector.relative else SIGNAL_NAMED[condition.signal].unit
    return f"{side} {number} {of}".rstrip()


def hold_text(limit: Limit) -> str:
    """Return the observations that ``limit`` needs as text: ``3 of 5``."""
    enough, of = limit.lasts.value
    if of == 1:
        return "once"
    return f"{enough} in a row" if enough == of else f"{enough} of {of}"


_ROW = re.compile(r"^\| `(\w+)` \|(.*)\|$", re.MULTILINE)
_HEALTHY = re.compile(r"wrongly, of (\d+) healthy")


def _evidence(conditions: Sequence[Condition]) -> str:
    """Return how sure an alert is, as one line, from the table of docs/evidence.md."""
    text = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    rows = {name: [int(cell.strip() or 0) for cell in cells.split("|")] for name, cells in _ROW.findall(text)}
    (healthy,) = _HEALTHY.findall(text)
    wrong = {each.name: rows[each.name][-1] for each in conditions if each.name in rows and rows[each.name][-1]}
    needed = sum(sum(rows[each.name][:-2]) for each in conditions if each.name in rows)
    false = "never raised"
    if wrong:
        false = "raised wrongly in " + ", ".join(f"{count} (`{name}`)" for name, count in wrong.items())
    use = f"in {needed} cases a recorded fault is found late, misnamed or missed without it"
    if needed < 2:
        use = "in 1 case it was needed" if needed else "no recorded fault has needed it so far"
    return f"How sure: on {healthy} healthy runs it was {false}; {use} ([evidence](../../docs/evidence.md)).\n"


def _index() -> str:
    return "\n" + "\n".join(_tables()) + "\n"


def _tables() -> Iterator[str]:
    yield "### Judged in the process, step by step\n"
    yield table(
        ("Alert", "Condition", "Holds", "Algorithms", "Summary"),
        [
            (
                f"[{condition.alert}]({condition.alert}.md)",
                f"`{condition.name}`",
                "<br>".join(
                    f"{limit.severity.value}: {limit_text(condition, limit)}, {hold_text(limit)}"
                    for limit in condition.limits
                ),
                ", ".join(condition.algorithms) or "all",
                condition.summary,
            )
            for condition in CONDITIONS
        ],
    )
    yield "### Seen by Prometheus, from outside\n"
    outside = [
        (
            f"[{each.alert}]({each.alert}.md)",
            f"`{each.condition}`" if each.condition else "",
            each.severity.value,
            each.summary,
        )
        for each in PROMETHEUS_ALERTS
    ]
    watchdog = (f"[{WATCHDOG}]({WATCHDOG}.md)", "", "none", "Alerting works.")
    yield table(("Alert", "Condition", "Severity", "Summary"), [*outside, watchdog])
