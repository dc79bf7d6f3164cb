"""Page at `/`, from a snapshot: the run, and the way to its metrics. Pure."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

from rlexporter.model.snapshot import Snapshot

_PAGE = Template((files("rlexporter.endpoint") / "page.html").read_text(encoding="utf-8"))


def page(snapshot: Snapshot) -> str:
    """Return the page as HTML, with all text from outside escaped."""
    facts = {
        "Algorithm": _info(snapshot, "rl_run_info", "algorithm"),
        "Trainer": _info(snapshot, "rl_run_info", "trainer"),
        "State": snapshot.state.value if snapshot.state else "",
        "Step": _number(snapshot, "rl_step"),
        "Steps planned": _number(snapshot, "rl_steps_planned"),
        "Reward": _number(snapshot, "rl_reward_mean"),
        "Exporter": _info(snapshot, "rlexporter_build_info", "version"),
    }
    listed = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items() if value)
    lists = (
        _list(
            "Conditions that hold",
            [f"{condition}: {severity}" for (condition, severity), _ in _set(snapshot, "rl_condition")],
        )
        + _list(
            "NaN and infinite values",
            [f"{metric}: {value:.0f} {kind}" for (metric, kind), value in _set(snapshot, "rl_nonfinite_values_total")],
        )
        + _list(
            "Cannot be seen in this run",
            [f"{signal}: {reason}" for (signal, _cause, reason), _ in _set(snapshot, "rl_signal_unavailable_info")],
        )
    )
    return _PAGE.substitute(run=escape(snapshot.labels.get("run", "")), facts=listed, lists=lists)


def _set(snapshot: Snapshot, name: str) -> list[tuple[tuple[str, ...], float]]:
    """Return labels and values of the samples of the metric ``name`` that are not 0."""
    return [
        (series.labels, value) for series, value in snapshot.samples.items() if value and series.metric.series == name
    ]


def _list(title: str, items: list[str]) -> str:
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<h2>{title}</h2><ul>{listed}</ul>" if items else ""


def _info(snapshot: Snapshot, name: str, label: str) -> str:
    for series in snapshot.samples:
        if series.metric.series == name:
            return dict(zip(series.metric.labels, series.labels, strict=True)).get(label, "")
    return ""


def _number(snapshot: Snapshot, name: str) -> str:
    value = snapshot.value(name)
    return "" if value is None else f"{value:g}"
