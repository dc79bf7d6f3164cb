"""Draws all of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rlexporter.catalog import CATALOG
from rlexporter.generate.dashboards import dashboards
from scripts.pictures import drawing
from scripts.pictures.look import Json, Shown, palette
from scripts.pictures.runs import (
    END,
    IMAGES,
    SCRAPE,
    SECONDS,
    WORK,
    alerts,
    blocks,
    history,
    over_time,
    planned,
    recorded,
)
from tests.dashboards.grafana import View, loaded, panels, variable
from tests.dashboards.transformations import tables, transformed
from tests.tools import Prometheus, prometheus

WIDTH = 1400
MOST_BYTES = 150_000
TOP = 1030
"""Pixels of a run's dashboard down to the end of its first row on stability: what the README begins with."""


def _look(server: Prometheus, dashboard: Json, chosen: Mapping[str, str]) -> dict[int, Shown]:
    """What each panel gets."""
    view = View({"job": ".+", **chosen}, SECONDS, SCRAPE)
    if any(each["name"] == "window" for each in dashboard["templating"]["list"]):
        query = variable(dashboard, "window")["query"]["query"].removeprefix("query_result(").removesuffix(")")
        [found] = server.query(view.fill(query), time=str(END))
        view = replace(view, variables={**view.variables, "window": found["value"][1]})
    marks = list(_marks(server, dashboard, view)) if "|" not in chosen["run"] else []
    return {panel["id"]: _panel(server, view, panel, marks) for panel in panels(dashboard)}


def _panel(server: Prometheus, view: View, panel: Json, marks: list[tuple[str, float, float]]) -> Shown:
    shown = Shown(start=END - SECONDS, end=END, marks=marks)
    if panel["type"] == "table":
        fill = _merge if panel["transformations"][0]["id"] == "merge" else _matrix
        fill(server, view, panel, shown)
        return shown
    if panel["type"] == "trend":
        _steps(server, view, panel, shown)
        return shown
    chosen = panel["options"].get("reduceOptions", {}).get("fields", "").strip("/^$")
    if chosen:
        shown.text = _newest(server, view, panel, chosen)
        return shown
    for target in panel["targets"]:
        step = view.interval(panel, target, 600)
        for series in over_time(server, view.fill(target["expr"], step), step):
            labels = series["metric"]
            legend = target["legendFormat"]
            for key, value in labels.items():
                legend = legend.replace("{{" + key + "}}", value)
            points = np.array([[float(at), float(value)] for at, value in series["values"]])
            if panel["type"] in ("timeseries", "stat"):
                points = _with_gaps(points, step)
            shown.series.append((legend, points[:, 0], points[:, 1], labels))
    return shown


def _steps(server: Prometheus, view: View, panel: Json, shown: Shown) -> None:
    """A line a run over its steps, as the transformations of the panel make them."""
    step = view.interval(panel, panel["targets"][0], 600)
    answers = {each["refId"]: over_time(server, view.fill(each["expr"], step), step) for each in panel["targets"]}
    frame = {name: np.array(values, float) for name, values in transformed(panel, tables(answers)).items()}
    steps = frame.pop(panel["options"]["xField"])
    shown.series = [(name, steps, values, {}) for name, values in frame.items()]


def _newest(server: Prometheus, view: View, panel: Json, label: str) -> str:
    """The newest value of a label."""
    [target] = panel["targets"]
    step = view.interval(panel, target, 600)
    found = over_time(server, view.fill(target["expr"], step), step)
    return str(max(found, key=lambda each: float(each["values"][-1][0]))["metric"][label]) if found else ""


def _with_gaps(points: Any, step: float) -> Any:
    """Nothing is drawn where there was nothing."""
    holes = np.flatnonzero(np.diff(points[:, 0]) > 1.5 * step) + 1
    return (
        np.insert(points, holes, [[points[hole - 1, 0] + step, np.nan] for hole in holes], axis=0)
        if len(holes)
        else points
    )


def _merge(server: Prometheus, view: View, panel: Json, shown: Shown) -> None:
    """Rows by the labels that the queries share, as the transformations of the panel make them."""
    organize = panel["transformations"][1]["options"]
    single = len(panel["targets"]) == 1
    for target in panel["targets"]:
        name = "Value" if single else f"Value #{target['refId']}"
        for each in server.query(view.fill(target["expr"]), time=str(END)):
            labels = {key: value for key, value in each["metric"].items() if key != "__name__"}
            for row in shown.rows:
                if all(row.get(key, value) == value for key, value in labels.items()):
                    break
            else:
                row = {}
                shown.rows.append(row)
            row.update({**labels, name: float(each["value"][1])})
    order, hidden, names = organize["indexByName"], organize["excludeByName"], organize["renameByName"]
    keys = sorted({key for row in shown.rows for key in row if key not in hidden}, key=lambda key: order.get(key, 99))
    shown.rows = [{names.get(key, key): value for key, value in row.items()} for row in shown.rows]
    shown.columns = [names.get(key, key) for key in keys]
    for by in panel["options"]["sortBy"]:
        shown.rows.sort(key=lambda row: row.get(by["displayName"]) or 0, reverse=by["desc"])


def _matrix(server: Prometheus, view: View, panel: Json, shown: Shown) -> None:
    """Rows and columns by two labels, as the transformations of the panel make them."""
    answers = {each["refId"]: server.query(view.fill(each["expr"]), time=str(END)) for each in panel["targets"]}
    if not any(answers.values()):
        return
    table = transformed(panel, tables(answers))
    shown.columns = list(table)
    shown.rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


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
    runs = planned()
    made = {each["uid"]: each for each in map(loaded, map(json.loads, dashboards(CATALOG).values()))}
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
        ):
            shown = _look(server, made[uid], {"run": run})
            size = _save(drawing.page(made[uid], shown, WIDTH), WORK / f"{name}.png")
            print(f"{WORK / name}.png: {size // 1000} kB")
            if name.startswith(("run-h", "run-b", "fleet")):
                size = _save(drawing.page(made[uid], shown, WIDTH, rows), IMAGES / f"{name}.png")
                print(f"{IMAGES / name}.png: {size // 1000} kB")
                assert size < MOST_BYTES
    with Image.open(IMAGES / "run-broken.png") as image:
        image.crop((0, 0, WIDTH, TOP)).save(IMAGES / "run-broken-top.png", optimize=True)


if __name__ == "__main__":
    main()
