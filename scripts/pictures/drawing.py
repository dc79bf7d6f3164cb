"""Panels as Grafana would roughly draw them, to look at where there is no Grafana: layout, titles, units, emptiness."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scripts.pictures.boxes import nothing, stat, table
from scripts.pictures.look import BACKGROUND, COLORS, DIM, LINE, PALETTE, PANEL, TEXT, Json, Shown, number

UNIT, GAP = 34.0, 6.0
"""Pixels of a row of the grid, and between two panels."""


def page(dashboard: Json, shown: Mapping[int, Shown], width: int, height: float | None = None) -> Figure:
    """All panels at their places, closed rows opened; ``height``: only so many rows of the grid, and those closed."""
    boxes = [each for each in dashboard["panels"] if height is None or each["gridPos"]["y"] < height]
    if height is None:
        boxes += [inner for each in boxes for inner in each.get("panels", ())]
    rows = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in boxes)
    tall = rows * UNIT + 50
    figure = Figure(figsize=(width / 100, tall / 100), dpi=100, facecolor=BACKGROUND)
    figure.text(8 / width, 1 - 26 / tall, dashboard["title"], color=TEXT, fontsize=13, weight="bold")
    for panel in boxes:
        place, cell = panel["gridPos"], width / 24
        left, top = place["x"] * cell + GAP / 2, 44 + place["y"] * UNIT
        wide, high = place["w"] * cell - GAP, place["h"] * UNIT - GAP
        if panel["type"] == "row":
            sign = "▸" if panel["collapsed"] and height is not None else "▾"
            figure.text((left + 4) / width, 1 - (top + 21) / tall, f"{sign} {panel['title']}", color=TEXT, fontsize=11)
            continue
        frame = figure.add_axes((left / width, 1 - (top + high) / tall, wide / width, high / tall))
        frame.set(xticks=[], yticks=[], facecolor=PANEL)
        for side in frame.spines.values():
            side.set_color(LINE)
        frame.text(8 / wide, 1 - 16 / high, panel["title"], color=TEXT, fontsize=8.5, weight="bold", va="center")
        _DRAWN[panel["type"]](frame, panel, shown[panel["id"]], wide, high)
    return figure


def _inner(frame: Axes, wide: float, high: float, *, bottom: float, left: float = 54.0, right: float = 14.0) -> Axes:
    axes = frame.inset_axes((left / wide, bottom / high, 1 - (left + right) / wide, 1 - (bottom + 30) / high))
    axes.set_facecolor(PANEL)
    axes.tick_params(colors=DIM, labelsize=7, length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return axes


def _clock(axes: Axes, shown: Shown) -> None:
    axes.set_xlim(shown.start, shown.end)
    step = 1800 if shown.end - shown.start > 3600 else 600
    first = math.ceil(shown.start / step) * step
    ticks = np.arange(first, shown.end, step)
    axes.set_xticks(ticks, [f"{int(at // 3600 % 24):02}:{int(at // 60 % 60):02}" for at in ticks])


def _timeseries(frame: Axes, panel: Json, shown: Shown, wide: float, high: float) -> None:
    drawn = [each for each in shown.series if np.isfinite(each[2]).any()]
    if not drawn:
        nothing(frame, panel)
        return
    defaults = panel["fieldConfig"]["defaults"]
    own = {each["matcher"]["options"]: {p["id"]: p["value"] for p in each["properties"]} for each in _overrides(panel)}
    handed = any(own.get(name, {}).get("custom.axisPlacement") == "right" for name, *_ in drawn)
    per_row = max(1, int(wide // 150))
    labels = [name for name, *_ in drawn if not own.get(name, {}).get("custom.hideFrom")][: 3 * per_row]
    axes = _inner(frame, wide, high, bottom=24 + 13 * -(-len(labels) // per_row), right=48 if handed else 14)
    axes.grid(color=LINE, linewidth=0.6)
    other = axes.twinx() if handed else axes
    other.set_facecolor("none" if handed else PANEL)
    lines, at = {}, dict.fromkeys((name for name, *_ in drawn), 0)
    base: Any = 0.0
    for i, (name, times, values, _) in enumerate(drawn):
        look = own.get(name, {})
        color = COLORS.get(look.get("color", {}).get("fixedColor", ""), PALETTE[i % len(PALETTE)])
        on = other if look.get("custom.axisPlacement") == "right" else axes
        if defaults["custom"].get("stacking", {}).get("mode") == "normal" and len(values) == len(drawn[0][2]):
            top = base + np.nan_to_num(values)
            on.fill_between(times, base, top, color=color, alpha=0.6, linewidth=0)
            base, values = top, top
        style = "--" if "custom.lineStyle" in look else "-"
        dot = "." if np.isfinite(values).sum() < 40 else ""
        [lines[name]] = on.plot(
            times, values, style, color=color, linewidth=look.get("custom.lineWidth", 1.1), marker=dot, markersize=3
        )
        at[name] = i
    for name, look in own.items():
        below = look.get("custom.fillBelowTo")
        if below in at and name in at:
            one, two = drawn[at[name]], drawn[at[below]]
            axes.fill_between(one[1], one[2], two[2], color=lines[name].get_color(), alpha=0.2, linewidth=0)
    _scale(axes, defaults, shown, min(float(np.nanmin(values)) for _, _, values, _ in drawn))
    if handed:
        unit = next(look["unit"] for look in own.values() if look.get("custom.axisPlacement") == "right")
        _format(other, unit)
        other.tick_params(colors=DIM, labelsize=7, length=0)
        for side in other.spines.values():
            side.set_visible(False)
    _legend(frame, [(label, lines[label].get_color()) for label in labels], wide, high, per_row)


def _overrides(panel: Json) -> list[Json]:
    return list(panel["fieldConfig"]["overrides"])


def _scale(axes: Axes, defaults: Json, shown: Shown, lowest: float = 0.0) -> None:
    """Axes as the data wants them, and annotations."""
    if defaults["custom"]["scaleDistribution"]["type"] == "log":
        axes.set_yscale("log")
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
    low, high = axes.get_ylim()
    low = min(low, defaults["custom"].get("axisSoftMin", low))
    low = 0.0 if low < 0 <= lowest and "axisSoftMin" in defaults["custom"] else low
    axes.set_ylim(low, high)
    _format(axes, defaults["unit"])
    if axes.get_xlabel() != "step":
        _clock(axes, shown)
        _annotate(axes, shown)


def _annotate(axes: Axes, shown: Shown) -> None:
    """Lines where something happened, and a bar below where it lasted."""
    for color, start, end in shown.marks:
        axes.axvline(start, color=COLORS[color], linewidth=0.7, linestyle=(0, (3, 2)), alpha=0.8)
        axes.axvspan(start, end, ymax=0.02, color=COLORS[color], linewidth=0)


def _format(axes: Axes, unit: str) -> None:
    low, high = axes.get_ylim()
    if unit == "none" and axes.get_yscale() == "linear" and high - low < 0.02 * abs(high):
        axes.ticklabel_format(useOffset=False)
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, unit)))
    axes.minorticks_off()


def _legend(frame: Axes, labels: Sequence[tuple[str, Any]], wide: float, high: float, per_row: int) -> None:
    rows = -(-len(labels) // per_row)
    for i, (label, color) in enumerate(labels):
        x, y = 10 + (i % per_row) * (wide - 20) / per_row, 8 + 13 * (rows - 1 - i // per_row)
        frame.plot([x / wide, (x + 12) / wide], [y / high] * 2, color=color, linewidth=2.5)
        frame.text(
            (x + 16) / wide, y / high, label[: int((wide - 40) / per_row / 5)], color=TEXT, fontsize=6.8, va="center"
        )
    frame.set(xlim=(0, 1), ylim=(0, 1))


def _trend(frame: Axes, panel: Json, shown: Shown, wide: float, high: float) -> None:
    axes = _inner(frame, wide, high, bottom=34)
    axes.grid(color=LINE, linewidth=0.6)
    for i, (_, steps, values, _) in enumerate(shown.series):
        there = np.isfinite(values)
        axes.plot(steps[there], values[there], color=PALETTE[i % len(PALETTE)], linewidth=1.1)
    axes.set_xlabel("step", color=DIM, fontsize=7, labelpad=1)
    _scale(axes, panel["fieldConfig"]["defaults"], shown)


def _heatmap(frame: Axes, panel: Json, shown: Shown, wide: float, high: float) -> None:
    found = sorted(
        ((float(labels["le"]), times, values) for _, times, values, labels in shown.series), key=lambda e: e[0]
    )
    if not found or not any(values.any() for _, _, values in found):
        nothing(frame, panel)
        return
    times = np.unique(np.concatenate([each for _, each, _ in found]))
    counts = np.zeros((len(found), len(times)))
    for i, (_, when, values) in enumerate(found):
        counts[i, np.searchsorted(times, when)] = values
    counts = np.maximum(np.diff(counts, axis=0, prepend=0), 0)
    used = np.flatnonzero(counts.any(axis=1))
    low, top = max(used[0] - 1, 0), min(used[-1] + 1, len(found) - 1)
    counts = np.ma.masked_less_equal(counts[low : top + 1], 1e-9)
    axes = _inner(frame, wide, high, bottom=24)
    step = float(np.min(np.diff(times))) if len(times) > 1 else 60.0
    edges = np.append(times - step, times[-1])
    if len(times) > 1 and np.diff(times).max() > step * 1.5:
        grid = np.arange(times[0] - step, times[-1] + step / 2, step)
        wider = np.ma.masked_equal(np.zeros((counts.shape[0], len(grid) - 1)), 0)
        wider[:, np.round((times - grid[0]) / step).astype(int) - 1] = counts
        counts, edges = wider, grid
    norm = mpl.colors.PowerNorm(0.5, vmin=0, vmax=float(counts.max()))
    axes.pcolormesh(edges, np.arange(counts.shape[0] + 1), counts, cmap="Spectral_r", norm=norm)
    marks = range(0, counts.shape[0], max(1, counts.shape[0] // 8))
    unit = panel["options"]["yAxis"]["unit"]
    names = ["+Inf" if math.isinf(found[low + i][0]) else number(found[low + i][0], unit) for i in marks]
    axes.set_yticks([i + 1 for i in marks], names)
    _clock(axes, shown)


_DRAWN: dict[str, Callable[[Axes, Json, Shown, float, float], None]] = {
    "timeseries": _timeseries,
    "trend": _trend,
    "heatmap": _heatmap,
    "stat": stat,
    "table": table,
}
