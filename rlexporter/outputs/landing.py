"""Snapshot -> the page at `/`: what runs here, and where its metrics are. Pure."""

from __future__ import annotations

from html import escape

from rlexporter.model import Snapshot

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>rlexporter: {run}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em}}
dt{{color:#666}}dd{{margin:0 0 .5em}}</style></head>
<body><h1>{run}</h1>
<dl>{facts}</dl>
<p><a href="/metrics">/metrics</a> for Prometheus &middot; <a href="/livez">/livez</a> &middot;
<a href="/readyz">/readyz</a></p></body></html>
"""


def page(snapshot: Snapshot) -> str:
    """HTML; everything that came from outside is escaped."""
    facts = {
        "Algorithm": _info(snapshot, "rl_run_info", "algorithm"),
        "Trainer": _info(snapshot, "rl_run_info", "trainer"),
        "State": _state(snapshot),
        "Step": _number(snapshot, "rl_step"),
        "Steps planned": _number(snapshot, "rl_steps_planned"),
        "Reward": _number(snapshot, "rl_reward_mean"),
        "Exporter": _info(snapshot, "rlexporter_build_info", "version"),
    }
    listed = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items() if value)
    return _PAGE.format(run=escape(snapshot.labels.get("run", "")), facts=listed)


def _info(snapshot: Snapshot, name: str, label: str) -> str:
    for series in snapshot.samples:
        if series.metric.series == name:
            return dict(zip(series.metric.labels, series.labels, strict=True)).get(label, "")
    return ""


def _state(snapshot: Snapshot) -> str:
    for series, value in snapshot.samples.items():
        if series.metric.series == "rl_run_state" and value == 1:
            return series.labels[0]
    return ""


def _number(snapshot: Snapshot, name: str) -> str:
    value = snapshot.value(name)
    return "" if value is None else f"{value:g}"
