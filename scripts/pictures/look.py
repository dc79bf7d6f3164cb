"""What things look like: colors, and values as Grafana spells them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import matplotlib as mpl
import numpy as np

Json = dict[str, Any]

BACKGROUND, PANEL, TEXT, DIM, LINE = "#111217", "#181b1f", "#d5d5e0", "#8e8e99", "#2c3036"
PALETTE = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#fade2a", "#96d98d", "#ffa6b0")
COLORS = {
    "green": "#73bf69",
    "red": "#f2495c",
    "orange": "#ff9830",
    "yellow": "#fade2a",
    "blue": "#5794f2",
    "purple": "#b877d9",
    "text": TEXT,
    "transparent": "none",
}
ALPHA = 0.16
"""Of what is unhealthy."""


@dataclass
class Shown:
    """What a panel has got. ``series``: for each target its legend and points; ``rows``: of a table."""

    series: list[tuple[str, np.ndarray, np.ndarray, Mapping[str, str]]] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """Of a panel of words: the newest values of the chosen labels."""
    marks: list[tuple[str, float, float]] = field(default_factory=list)
    """Annotations: color, from, to."""
    start: float = 0.0
    end: float = 1.0


def number(value: float, unit: str, decimals: int | None = None) -> str:
    """A value with its unit, as short as Grafana has it."""
    if math.isnan(value):
        return "NaN"
    if unit == "dateTimeAsLocal":
        return f"{datetime.fromtimestamp(value / 1000, timezone.utc):%Y-%m-%d %H:%M}"
    if unit == "percentunit":
        return f"{value * 100:.3g}%" if abs(value) < 10 else f"{value * 100:.0f}%"
    if unit == "s" and not value:
        return "0 s"
    if unit == "s":
        for limit, size, name in (
            (1e-3, 1e-6, "µs"),
            (1, 1e-3, "ms"),
            (60, 1, "s"),
            (3600, 60, "min"),
            (86400, 3600, "h"),
        ):
            if abs(value) < limit:
                return f"{value / size:.3g} {name}"
        return f"{value / 86400:.3g} days"
    if unit == "short" and abs(value) >= 1000:
        return f"{value / 1000:.3g} K" if abs(value) < 1e6 else f"{value / 1e6:.3g} M"
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e6 else f"{value:.3g}"


def palette() -> bytes:
    """The colors of a picture: ours, and what becomes of them at the edges of lines.

    What a library chooses lacks those that are rare, and these are the alarms.
    """
    found = [(color, BACKGROUND, alpha) for color in (TEXT, DIM) for alpha in (1, 0.8, 0.6, 0.4, 0.2)]
    found += [(each, each, 1) for each in (PANEL, LINE, BACKGROUND)]
    found += [(each, PANEL, alpha) for each in {*PALETTE, *COLORS.values()} - {"none"} for alpha in (1, 0.65, 0.35)]
    found += [(COLORS["red"], PANEL, ALPHA), (COLORS["blue"], PANEL, 0.2)]
    found += [(mpl.colors.to_hex(mpl.colormaps["Spectral_r"](x)), PANEL, 1) for x in np.linspace(0, 1, 24)]
    rgb = []
    for color, below, alpha in found:
        over, under = (np.array(mpl.colors.to_rgb(each)) for each in (color, below))
        rgb += [round(255 * each) for each in over * alpha + under * (1 - alpha)]
    return bytes(rgb)


def appearance(value: float, settings: Mapping[str, Any]) -> tuple[str, str]:
    """The text and the color of a value, by mappings and thresholds."""
    key = f"{value:.0f}" if value == value and value == int(value) else str(value)
    for mapping in settings.get("mappings", ()):
        if key in mapping["options"]:
            found = mapping["options"][key]
            return found["text"], COLORS[found["color"]]
    color = "text"
    for step in settings.get("thresholds", {}).get("steps", ()):
        if step["value"] is None or value >= step["value"]:
            color = step["color"]
    return number(value, settings.get("unit", "none"), settings.get("decimals")), COLORS.get(color, TEXT)
