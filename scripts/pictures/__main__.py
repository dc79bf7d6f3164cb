"""Draws all of them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from scripts.pictures import drawing, moving
from scripts.pictures.look import Json, Shown, palette
from scripts.pictures.runs import DEAD, IMAGES, SECONDS, WORK, alerts, demo, history, over_time, planned, recorded
from tests.dashboards import grafana
from tests.dashboards.grafana import View, panels
from tests.dashboards.past import END, SCRAPE, blocks
from tests.dashboards.transformations import records, tables, transformed
from tests.tools import Prometheus, prometheus

WIDTH = 1400
MOST_BYTES = 150_000
POINTS = 600
"""The most that a panel has room for."""


def _look(server: Prometheus, dashboard: Json, chosen: Mapping[str, str]) -> dict[int, Shown]:
    """What each panel gets."""
    ask, view = grafana.asking(server), View({"job": ".+", **chosen}, SECONDS, SCRAPE, aligned=True)
    view = grafana.resolved(ask, view, dashboard, END)
    marks = list(_marks(server, dashboard, view)) if "|" not in chosen["run"] else []
    return {panel["id"]: _panel(ask, view, panel, marks) for panel in panels(dashboard)}


def _panel(ask: grafana.Ask, view: View, panel: Json, marks: list[tuple[str, float, float]]) -> Shown:
    shown = Shown(start=END - SECONDS, end=END, marks=marks)
    answers = grafana.answers(ask, view, panel, END, POINTS)
    words = re.findall(r"\w+", panel["options"].get("reduceOptions", {}).get("fields", ""))
    if panel["type"] in ("table", "trend"):
        if any(answers.values()):
            _transformed(panel, answers, shown)
    elif words:
        found = answers[panel["targets"][0]["refId"]]
        shown.texts = [text for word in words if (text := grafana.newest(found, word)).strip()]
    else:
        for target in panel["targets"]:
            step = view.interval(panel, target, POINTS)
            for series in answers[target["refId"]]:
                _add(panel, target, series, step, shown)
    return shown


def _transformed(panel: Json, answers: Mapping[str, list[Json]], shown: Shown) -> None:
    """A table, or a line a run over its steps, as the transformations of the panel make them."""
    frame = transformed(panel, tables(answers))
    if panel["type"] == "trend":
        steps = np.array(frame.pop(panel["options"]["xField"]), float)
        shown.series = [(name, steps, np.array(values, float), {}) for name, values in frame.items()]
        return
    # What was answered with nothing has no column.
    shown.columns = [name for name, values in frame.items() if any(value is not None for value in values)]
    shown.rows = records(frame)
    for by in panel["options"].get("sortBy", ()):
        shown.rows.sort(key=lambda row: row.get(by["displayName"]) or 0, reverse=by["desc"])


def _add(panel: Json, target: Json, series: Json, step: float, shown: Shown) -> None:
    """Add a line with its legend."""
    samples = series.get("values") or [series["value"]]
    points = np.array([[float(at), float(value)] for at, value in samples])
    if panel["type"] in ("timeseries", "stat"):
        points = _with_gaps(points, step)
    shown.series.append((grafana.legend(target, series["metric"]), points[:, 0], points[:, 1], series["metric"]))


def _with_gaps(points: Any, step: float) -> Any:
    """Nothing is drawn where there was nothing."""
    holes = np.flatnonzero(np.diff(points[:, 0]) > 1.5 * step) + 1
    return (
        np.insert(points, holes, [[points[hole - 1, 0] + step, np.nan] for hole in holes], axis=0)
        if len(holes)
        else points
    )


def _marks(server: Prometheus, dashboard: Json, view: View) -> Iterator[tuple[str, float, float]]:
    for annotation in dashboard["annotations"]["list"]:
        for series in over_time(server, view.fill(annotation["expr"], 30), 30):
            values = [float(value) / 1000 if annotation["useValueForTime"] else at for at, value in series["values"]]
            times = sorted(set(values))
            if annotation["useValueForTime"]:
                yield from ((annotation["iconColor"], at, at) for at in times)
            else:
                yield annotation["iconColor"], times[0], times[-1]


def _save(figure: Any, path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    colors = Image.new("P", (1, 1))
    colors.putpalette(palette())
    with Image.open(path) as image:
        image.convert("RGB").quantize(palette=colors, dither=Image.Dither.NONE).save(path, optimize=True)
    return path.stat().st_size


def main() -> None:
    """Draw all of them."""
    WORK.mkdir(parents=True, exist_ok=True)
    moving.draw(demo(*DEAD))
    runs = planned()
    every = "|".join(each.name for each in runs)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for each in runs:
            blocks(folder / "data", history(each))
        recorded(folder / "data")
        with prometheus("3", folder, []) as server:
            firing = list(alerts(server))
        blocks(folder / "data", iter(firing))
        server = stack.enter_context(prometheus("3", folder, []))
        for name, uid, run, rows in (
            ("run-healthy", "rlexporter-run", runs[0].name, 50),
            ("run-broken", "rlexporter-run", runs[1].name, 50),
            ("fleet", "rlexporter-fleet", every, None),
            ("compare", "rlexporter-compare", f"{runs[0].name}|{runs[1].name}", None),
            ("ranks", "rlexporter-ranks", runs[0].name, None),
            ("exporter", "rlexporter-exporter", every, None),
            ("run-ppo", "rlexporter-ppo", "ppo", None),
            ("run-nan", "rlexporter-run", "grpo-nan", 50),
            ("run-team", "rlexporter-run", "grpo-shared", 50),
        ):
            team = {"team": "code"} if run == "grpo-shared" else {}
            shown = _look(server, grafana.DASHBOARDS[uid], {"run": run, **team})
            size = _save(drawing.page(grafana.DASHBOARDS[uid], shown, WIDTH), WORK / f"{name}.png")
            print(f"{WORK / name}.png: {size // 1000} kB")
            if name.startswith(("run-h", "run-b", "fleet")):
                size = _save(drawing.page(grafana.DASHBOARDS[uid], shown, WIDTH, rows), IMAGES / f"{name}.png")
                print(f"{IMAGES / name}.png: {size // 1000} kB")
                assert size < MOST_BYTES


if __name__ == "__main__":
    main()
