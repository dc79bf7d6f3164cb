"""What opening a dashboard costs a Prometheus that has had 100 runs for three hours.

`python -m benchmarks.opening` tells what each query costs. Nothing but the queries goes on in the server meanwhile.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import re
import statistics
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import past, remote_write, simulated
from rlexporter.catalog.metrics import CATALOG
from scripts.pack.dashboards import dashboards
from scripts.pack.dashboards.frame import WIDTH
from tests.dashboards import grafana
from tests.dashboards.grafana import ANY, Json, View, loaded, panels
from tests.tools import Prometheus, free_port

RUNS, SAMPLES, EVERY = 100, 720, 15
_ROUNDS, _OPENINGS = 5, 3
_SCREEN = 1920
"""Pixels of a screen; Grafana asks for no more points than a panel is wide."""
_LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")
_RESULT = re.compile(r"query_result\((.+)\)")


@dataclass(frozen=True)
class Opened:
    """A dashboard that somebody opens for these runs; ``everything``: all that is closed in it, too."""

    uid: str
    runs: str
    everything: bool = False


_ONE = past.RUN.format(42)
_TEN = "|".join(map(past.RUN.format, range(40, 50)))
OPENED = {
    "*run*": Opened("rlexporter-run", _ONE),
    "*run*, all rows open": Opened("rlexporter-run", _ONE, everything=True),
    "*ranks*": Opened("rlexporter-ranks", _ONE),
    "*compare*, ten runs": Opened("rlexporter-compare", f"({_TEN})"),
    f"*fleet*, all {RUNS} runs": Opened("rlexporter-fleet", ".+"),
}


@dataclass(frozen=True)
class Request:
    """What Grafana asks. ``of``: the panel and its target, the variable or the annotation that it is for."""

    of: str
    path: str
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class Server:
    """A Prometheus whose newest samples are of the time ``end``, and a connection to it that stays, as Grafana's do."""

    prometheus: Prometheus
    end: float
    connection: http.client.HTTPConnection

    def ask(self, request: Request, **more: str) -> Any:
        """The data of an answer, which the server compresses, as it does for Grafana."""
        query = urllib.parse.urlencode({**request.parameters, **more})
        self.connection.request("GET", f"/api/v1/{request.path}?{query}", headers={"Accept-Encoding": "gzip"})
        with self.connection.getresponse() as response:
            body = response.read()
            zipped = response.headers["Content-Encoding"] == "gzip"
        return json.loads(gzip.decompress(body) if zipped else body)["data"]

    def cpu(self) -> float:
        """Seconds of CPU time that the server has had."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.prometheus.port}/metrics", timeout=600) as response:
            found = re.search(r"^process_cpu_seconds_total (\S+)$", response.read().decode(), re.MULTILINE)
        assert found
        return float(found[1])


def rows() -> Iterator[str]:
    """The table."""
    yield "| opened | requests | CPU: seconds of a core | as many requests for `1` | samples | kept open |"
    yield "|---|---|---|---|---|---|"
    with _running() as server:
        for name, opened in OPENED.items():
            yield _row(server, name, opened)


def _row(server: Server, name: str, opened: Opened) -> str:
    dashboard = _dashboard(opened)
    requests = _requests(server, dashboard, opened)
    read = sum(_samples(server, each) for each in requests)
    nothing = [Request("", "query", {"query": "1"})] * len(requests)
    found = [(_opening(server, requests), _opening(server, nothing)) for _ in range(_ROUNDS)]
    cost, floor = (f"{statistics.median(of):.2f} ({min(of):.2f} to {max(of):.2f})" for of in zip(*found, strict=True))
    share = statistics.median(of for of, _ in found) / _refresh(dashboard)
    return f"| {name} | {len(requests)} | {cost} | {floor} | {read:,} | {100 * share:.1f} % of a core |"


def _opening(server: Server, requests: Sequence[Request]) -> float:
    """Seconds of CPU time of all requests, beyond those of as long without any: the mean of some openings."""
    before, start = server.cpu(), time.monotonic()
    for _ in range(_OPENINGS):
        for each in requests:
            server.ask(each)
    between = server.cpu()
    time.sleep(time.monotonic() - start)
    return (2 * between - before - server.cpu()) / _OPENINGS


def _samples(server: Server, request: Request) -> int:
    """How many samples the server says that it looked at: those in a window again at each step."""
    found = server.ask(request, stats="all")
    return int(found["stats"]["samples"]["totalQueryableSamples"]) if "stats" in found else 0


def _milliseconds(server: Server, request: Request) -> float:
    """How long a request takes by the clock: the best of three."""
    found = []
    for _ in range(3):
        start = time.perf_counter()
        server.ask(request)
        found.append(1e3 * (time.perf_counter() - start))
    return min(found)


def _dashboard(opened: Opened) -> Json:
    every = map(loaded, map(json.loads, dashboards(CATALOG).values()))
    return next(each for each in every if each["uid"] == opened.uid)


def _refresh(dashboard: Json) -> float:
    """Seconds after which an open dashboard asks again."""
    refresh = dashboard["refresh"]
    return float(refresh[:-1]) * {"s": 1, "m": 60}[refresh[-1]]


def _requests(server: Server, dashboard: Json, opened: Opened) -> list[Request]:
    """All that Grafana asks."""
    view = View({**ANY, "job": ".*", "run": opened.runs}, SAMPLES * EVERY, EVERY)
    every = [each for each in dashboard["templating"]["list"] if each["type"] == "query"]
    found = [_of_variable(server, view, each) for each in every]
    ask = grafana.asking(server.prometheus)
    values = {each["name"]: grafana.values(ask, view, each, server.end) for each in every}
    view = grafana.resolved(ask, view, dashboard, server.end)
    found += [
        _range(server, view, each["name"], each["expr"], float(each["step"].removesuffix("s")))
        for each in dashboard["annotations"]["list"]
    ]
    for panel in panels(dashboard) if opened.everything else dashboard["panels"]:
        for view_of_panel in _repeated(view, panel, values):
            found += [_of_target(server, view_of_panel, panel, target) for target in panel.get("targets", ())]
    return found


def _repeated(view: View, panel: Json, values: Mapping[str, Sequence[str]]) -> Iterator[View]:
    """A panel that is repeated is there once for each value of a variable."""
    name = panel.get("repeat")
    for value in values[name] if name else [None]:
        yield View({**view.variables, name: value}, view.seconds, view.scrape) if name and value else view


def _of_variable(server: Server, view: View, variable: Json) -> Request:
    """Label values from whole series, as Grafana asks a server whose version it was not told: it is the dearer way."""
    query, name = variable["query"]["query"], f"variable {variable['name']}"
    if labels := _LABEL_VALUES.fullmatch(query):
        return Request(name, "series", {"match[]": view.fill(labels[1]), **_between(server, view, 1.0)})
    result = _RESULT.fullmatch(query)
    assert result, query
    return Request(name, "query", {"query": view.fill(result[1], view.scrape), "time": f"{server.end:.3f}"})


def _of_target(server: Server, view: View, panel: Json, target: Json) -> Request:
    name = f"{panel['title']} {target['refId']}"
    step = view.interval(panel, target, _SCREEN * panel["gridPos"]["w"] // WIDTH)
    if not target["instant"]:
        return _range(server, view, name, target["expr"], step, view.least(target))
    return Request(name, "query", {"query": view.fill(target["expr"], step), "time": f"{server.end:.3f}"})


def _range(server: Server, view: View, name: str, expression: str, step: float, least: float = 0.0) -> Request:
    asked = {"query": view.fill(expression, step, least), "step": f"{step:.3f}"}
    return Request(name, "query_range", {**asked, **_between(server, view, step)})


def _between(server: Server, view: View, step: float) -> dict[str, str]:
    """The time that is shown, on multiples of the step, as Grafana puts it."""
    ends = {"start": server.end - view.seconds, "end": server.end}
    return {name: f"{at // step * step:.3f}" for name, at in ends.items()}


@contextlib.contextmanager
def _running() -> Iterator[Server]:
    """A server that has had the runs for three hours."""
    end = time.time() // EVERY * EVERY
    times = [end - EVERY * before for before in reversed(range(SAMPLES))]
    courses = past.courses(times)
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with simulated.server("3", Path(folder), port, {}, remote_write.OPTION) as server:
            remote_write.write(port, courses, RUNS, times)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
            with contextlib.closing(connection):
                yield Server(server, end, connection)


def main() -> None:
    """Tell what each query of each dashboard costs."""
    with _running() as server:
        for name, opened in OPENED.items():
            print(_row(server, name, opened))
            requests = _requests(server, _dashboard(opened), opened)
            costs = [(_milliseconds(server, each), _samples(server, each), each.of) for each in requests]
            for cost, samples, of in sorted(costs, reverse=True):
                print(f"    {cost:7.1f} ms {samples:10,} samples  {of}")


if __name__ == "__main__":
    main()
