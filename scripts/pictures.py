"""Draws the dashboards from what a real Prometheus answers, to look at them: docs/images, and all of it in .work.

    python -m scripts.pictures

Real runs: three demos are trained, two of them with a fault, and their recordings are put on the clock of a larger
model, a step every half a minute or so; recorded runs of other trainers stand beside them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import isfinite, sin
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from rlexporter import check, recording
from rlexporter.catalog import CATALOG
from rlexporter.config import Settings
from rlexporter.generate.dashboards import dashboards
from rlexporter.model import RunState
from rlexporter.outputs.history import History
from rlexporter.recording import Event
from rlexporter.run import Run
from scripts import drawing
from scripts.drawing import Json, Shown
from tests.dashboards.grafana import View, panels, variable
from tests.tools import Prometheus, prometheus, require_tools

ROOT = Path(__file__).parent.parent
WORK, IMAGES = ROOT / ".work/pictures", ROOT / "docs/images"
END = 1_800_000_000.0
SECONDS = 2 * 3600.0
SCRAPE = 15.0
WIDTH = 1400
COLOURS = 64
MOST_BYTES = 150_000


@dataclass(frozen=True)
class Planned:
    """A run of the pictures. ``minutes``: from its start to the end of what is shown; ``until``: its last step."""

    name: str
    file: Path
    minutes: float
    algorithm: str = ""
    until: int = 10**9
    ends: bool = False
    """Whether it is over at the end of what is shown, as it was at the end of the recording."""


def _demo(name: str, *arguments: str) -> Path:
    """The recording of a demo; trained once."""
    file = WORK / f"{name}.jsonl"
    if not file.exists():
        part = file.with_suffix(".part")
        part.unlink(missing_ok=True)
        command = [sys.executable, "-m", "rlexporter", "demo", "--port", "0", "--linger", "0", *arguments]
        subprocess.run(command, check=True, env={**os.environ, "RLEXPORTER_RECORD": str(part)})  # noqa: S603 - our own command
        part.rename(file)
    return file


def _planned() -> list[Planned]:
    runs = ROOT / "tests/data/runs"
    return [
        Planned("math-grpo-7b", _demo("healthy", "--steps", "320"), 110, until=270),
        Planned("math-grpo-7b-lr", _demo("broken", "--steps", "320", "--fault", "lr_spike@200"), 110, until=240),
        Planned("code-grpo-nan", _demo("nan", "--steps", "320", "--fault", "nan@150"), 80, ends=True),
        Planned("helpful-rloo", runs / "rloo-healthy_multi-0.jsonl", 60),
        Planned("summary-ppo", runs / "ppo-healthy_accum-0.jsonl", 100),
        Planned("legacy-ppo", runs / "ppo_legacy-healthy_wandb_types-0.jsonl", 25),
    ]


def _at_pace(event: Event, start: float, pace: float) -> Event:
    """As if each step had taken about so many seconds; what they were spent on is as it was recorded."""
    update, logs = event.update, event.logs
    took = pace * (1 + sum(0.03 * sin(speed * event.step) for speed in (0.9, 0.37, 0.11)))
    if update is not None:
        own = {name: seconds for name, seconds in update.phases.items() if name not in ("eval", "save")}
        factor = took / (sum(own.values()) or 1.0)
        phases = {**update.phases, **{name: factor * seconds for name, seconds in own.items()}}
        update = replace(update, duration=update.duration and took, phases=phases)
    if logs is not None and "step_time" in logs:
        logs = {**logs, "step_time": took}
    return replace(event, time=start + pace * event.step, update=update, logs=logs)


def _history(planned: Planned) -> Iterator[bytes]:
    """What scrapes every 15 seconds would have given, as OpenMetrics."""
    found = recording.read(planned.file, planned.algorithm)
    events = [each for each in found.events if isfinite(each.time) and each.step <= planned.until]
    if not planned.ends:
        events = [each for each in events if each.state is None or not each.state.over]
    start = END - planned.minutes * 60
    pace, last = planned.minutes * 60 / max(each.step for each in events), 0
    clock = [start]
    settings = {"run": planned.name, "rank": 0, "world_size": 1, "algorithm": found.facts.algorithm}
    run = Run(Settings.load(settings), clock=lambda: clock[0])
    run.prepare(replace(found.facts, info={**found.facts.info, "torch": ""}))
    run.enter(RunState.RUNNING)
    saved = 0
    history, scraped = History({"job": "rlexporter", "instance": f"{planned.name}:9750"}), start
    for event in (_at_pace(replace(each, step=each.step or last), start, pace) for each in events):
        last = event.step
        while scraped < event.time:
            history.add(run.snapshot, scraped)
            scraped += SCRAPE
        clock[0] = event.time
        if event.state is None:
            check.feed(run.store, event)
            if event.step > saved and event.step % 50 == 0:
                run.saved(saved := event.step)
        elif event.state.over:
            run.enter(event.state, event.exception)
    history.add(run.snapshot, max(scraped, clock[0]))
    return history.text()


def _blocks(data: Path, text: Iterator[bytes]) -> None:
    with tempfile.NamedTemporaryFile(suffix=".om") as file:
        file.writelines(text)
        file.flush()
        command = [
            str(require_tools("3") / "promtool"),
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            file.name,
            str(data),
        ]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command


def _alerts(server: Prometheus) -> Iterator[bytes]:
    """What the rules would have fired, as `ALERTS`: they are evaluated once more over all that time."""
    rules = [
        rule
        for group in yaml.safe_load((ROOT / "alerts/rlexporter.rules.yml").read_text())["groups"]
        for rule in group["rules"]
    ]
    records = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
    yield b"# TYPE ALERTS gauge\n"
    for rule in rules:
        if "alert" not in rule or "__name__" in rule["expr"]:
            continue
        expression = rule["expr"]
        for name, record in [*records.items()] * 2:
            expression = expression.replace(name, f"({record})")
        for series in _range(server, expression, SCRAPE):
            labels = {**series["metric"], **rule["labels"], "alertname": rule["alert"], "alertstate": "firing"}
            text = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()) if key != "__name__")
            for at, _ in series["values"]:
                yield f"ALERTS{{{text}}} 1 {at}\n".encode()
    yield b"# EOF\n"


def _range(server: Prometheus, expression: str, step: float) -> list[Json]:
    end = END // step * step
    start = end - SECONDS // step * step
    return list(server.get("query_range", query=expression, start=f"{start}", end=f"{end}", step=f"{step}")["result"])


def _look(server: Prometheus, dashboard: Json, chosen: Mapping[str, str]) -> dict[int, Shown]:
    """What each panel gets."""
    view = View({"job": ".+", "rank": ".+", "reward_function": ".+", **chosen}, SECONDS, SCRAPE)
    if any(each["name"] == "window" for each in dashboard["templating"]["list"]):
        query = variable(dashboard, "window")["query"]["query"].removeprefix("query_result(").removesuffix(")")
        [found] = server.query(view.fill(query), time=str(END))
        view = replace(view, variables={**view.variables, "window": found["value"][1]})
    marks = list(_marks(server, dashboard, view)) if "|" not in chosen["run"] else []
    return {panel["id"]: _panel(server, view, panel, marks) for panel in panels(dashboard)}


def _panel(server: Prometheus, view: View, panel: Json, marks: list[tuple[str, float, float]]) -> Shown:
    shown = Shown(start=END - SECONDS, end=END, marks=marks)
    if panel["type"] == "table":
        _merge(server, view, panel, shown)
        return shown
    for target in panel["targets"]:
        step = view.interval(panel, target, 600)
        for series in _range(server, view.fill(target["expr"], step), step):
            labels = series["metric"]
            legend = target["legendFormat"]
            for key, value in labels.items():
                legend = legend.replace("{{" + key + "}}", value)
            points = np.array([[float(at), float(value)] for at, value in series["values"]])
            if panel["type"] in ("timeseries", "stat"):
                points = _with_gaps(points, step)
            shown.series.append((legend, points[:, 0], points[:, 1], labels))
    return shown


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


def _marks(server: Prometheus, dashboard: Json, view: View) -> Iterator[tuple[str, float, float]]:
    for annotation in dashboard["annotations"]["list"]:
        for series in _range(server, view.fill(annotation["expr"], 30), 30):
            values = [float(value) / 1000 if annotation["useValueForTime"] else at for at, value in series["values"]]
            times = sorted(set(values))
            if annotation["useValueForTime"]:
                yield from ((annotation["iconColor"], at, at) for at in times)
            else:
                yield annotation["iconColor"], times[0], times[-1]


def _save(figure: Any, path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            path, optimize=True
        )
    return path.stat().st_size


def main() -> None:
    """Draw all of them."""
    WORK.mkdir(parents=True, exist_ok=True)
    runs = _planned()
    made = {each["uid"]: each for each in map(json.loads, dashboards(CATALOG).values())}
    every = "|".join(each.name for each in runs)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for each in runs:
            _blocks(folder / "data", _history(each))
        with prometheus("3", folder, []) as server:
            alerts = list(_alerts(server))
        _blocks(folder / "data", iter(alerts))
        server = stack.enter_context(prometheus("3", folder, []))
        for name, uid, run, rows in (
            ("run-healthy", "rlexporter-run", runs[0].name, 50),
            ("run-broken", "rlexporter-run", runs[1].name, 50),
            ("fleet", "rlexporter-fleet", every, None),
            ("ranks", "rlexporter-ranks", runs[0].name, None),
            ("exporter", "rlexporter-exporter", every, None),
            ("run-ppo", "rlexporter-run", "summary-ppo", None),
        ):
            shown = _look(server, made[uid], {"run": run})
            size = _save(drawing.page(made[uid], shown, WIDTH), WORK / f"{name}.png")
            print(f"{WORK / name}.png: {size // 1000} kB")
            if name.startswith(("run-h", "run-b", "fleet")):
                size = _save(drawing.page(made[uid], shown, WIDTH, rows), IMAGES / f"{name}.png")
                print(f"{IMAGES / name}.png: {size // 1000} kB")
                assert size < MOST_BYTES


if __name__ == "__main__":
    main()
