"""Numbers and tables."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from scripts.pictures.look import COLORS, DIM, TEXT, Json, Shown, appearance
from tests.dashboards import grafana


def nothing(frame: Axes, panel: Json) -> None:
    """What a panel says where there is nothing."""
    text = panel["fieldConfig"]["defaults"].get("noValue", "No data")
    words, lines = text.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 46:
            lines.append("")
        lines[-1] += word + " "
    frame.text(0.5, 0.45, "\n".join(lines), color=DIM, fontsize=8, ha="center", va="center")


def stat(frame: Axes, panel: Json, shown: Shown, wide: float, high: float) -> None:
    """One number, or a word."""
    defaults = panel["fieldConfig"]["defaults"]
    last = [(name, values[np.isfinite(values)]) for name, _, values, _ in shown.series]
    last = [(name, values) for name, values in last if len(values)]
    if shown.texts:
        text, color = word(shown.texts[0], defaults)
        text = "\n".join(("\n".join(wrap(text, 46)), *shown.texts[1:]))
    elif not last:
        text, color = defaults["noValue"], DIM
    else:
        name, values = last[0]
        text, color = appearance(float(values[-1]), defaults)
        text = {"name": name, "value_and_name": f"{text}\n{name}"}.get(panel["options"]["textMode"], text)
    if panel["options"].get("colorMode") == "background":
        frame.set_facecolor(color)
        color = "#111217"
    size = max(9.0, min(22.0, 1.15 * wide / max(3, *map(len, text.split("\n")))))
    frame.text(0.5, 0.42, text, color=color, fontsize=size, ha="center", va="center", weight="bold")


def table(frame: Axes, panel: Json, shown: Shown, wide: float, high: float) -> None:
    """Rows below each other, as many as there is room for."""
    if not shown.rows:
        nothing(frame, panel)
        return
    own = {
        each["matcher"]["options"]: {p["id"]: p["value"] for p in each["properties"]}
        for each in panel["fieldConfig"]["overrides"]
    }
    columns = [name for name in shown.columns if not own.get(name, {}).get("custom.hidden")]
    cells = [[_cell(row.get(name), own.get(name, {})) for name in columns] for row in shown.rows]
    heads = [own.get(name, {}).get("displayName", name) for name in columns]
    lengths = [max(1.15 * len(name), *(len(row[i][0]) for row in cells)) + 2.5 for i, name in enumerate(heads)]
    starts = np.concatenate([[0], np.cumsum(lengths)]) / sum(lengths) * (wide - 16) + 10
    size = min(8.0, 1.3 * wide / sum(lengths))
    for i, name in enumerate(heads):
        frame.text(starts[i] / wide, 1 - 38 / high, name, color="#6e9fff", fontsize=size, va="center", weight="bold")
    for j, row in enumerate(cells):
        y = high - 60 - 21 * j
        if y < 8:
            break
        for i, (text, color) in enumerate(row):
            frame.text(starts[i] / wide, y / high, text, color=color, fontsize=size, va="center")
    frame.set(xlim=(0, 1), ylim=(0, 1))


def _cell(value: Any, settings: Mapping[str, Any]) -> tuple[str, str]:
    if value is None:
        return "", TEXT
    if isinstance(value, str):
        if "mappings" in settings:
            return word(value, settings)
        return value[:40], "#8ab8ff" if "links" in settings else TEXT
    return appearance(value, settings)


def word(value: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """The text and the color of a word, by mappings."""
    found = grafana.mapped(value, settings.get("mappings", ()))
    return (found["text"], COLORS[found["color"]]) if found else (value, TEXT)
