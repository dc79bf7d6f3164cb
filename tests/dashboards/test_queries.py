"""Every query of every panel, in real servers of two generations that scraped runs of every kind."""

from __future__ import annotations

import contextlib
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from rlexporter.catalog import CATALOG
from rlexporter.generate.dashboards import beside, dashboards
from tests.dashboards import world
from tests.dashboards.grafana import ANY, Json, View, loaded, panels, variable
from tests.tools import EACH_GENERATION, GENERATIONS, ROOT, Prometheus, prometheus, scraped, wait_scraped

DASHBOARDS: dict[str, Json] = {each["uid"]: each for each in map(loaded, map(json.loads, dashboards(CATALOG).values()))}
_SECONDS = 300.0
"""The time that is shown: on a busy machine the runs take minutes."""
_LEGEND = re.compile(r"\{\{(\w+)\}\}")

_NEAR = {"{{severity}} limit"}
"""Lines that are drawn only where a curve comes near to a limit."""
_LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")
_RESULT = re.compile(r"query_result\((.+)\)")


@dataclass(frozen=True)
class Server:
    """A Prometheus, and the moment at which every run had been scraped. ``answers``: see `ask`."""

    prometheus: Prometheus
    at: float

    def instant(self, view: View, expression: str) -> list[Json]:
        """The result of an instant query at the end."""
        return list(self.ask("query", {"query": view.fill(expression), "time": f"{self.at:.3f}"})["result"])

    def ask(self, path: str, query: Mapping[str, str]) -> Any:
        """The data of an answer; a warning or an info in it is a fault."""
        url = f"http://127.0.0.1:{self.prometheus.port}/api/v1/{path}"
        request = urllib.request.Request(url, urllib.parse.urlencode(query).encode())
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), (query, answer["warnings"])
        assert not answer.get("infos"), (query, answer["infos"])
        return answer["data"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """Both generations, after they have scraped all runs; the runs themselves are over."""
    rules = ROOT / "alerts/rlexporter.rules.yml"
    with contextlib.ExitStack() as stack:
        with world.running() as (targets, ticks):
            started = {
                generation: stack.enter_context(
                    prometheus(generation, tmp_path_factory.mktemp(f"prometheus-{generation}"), targets, rules=rules)
                )
                for generation in GENERATIONS
            }
            world.play(ticks, lambda since: _wait(started.values(), len(targets), since))
            since = time.time()
            found = {name: Server(each, scraped(each, len(targets), since)) for name, each in started.items()}
        yield found


def _wait(servers: Collection[Prometheus], targets: int, since: float) -> None:
    """Wait until each of them has scraped every target: a rate needs two scrapes, between which something happened."""
    for server in servers:
        wait_scraped(server, targets, since)


def _view(run: str, window: str = "60") -> View:
    chosen = {"job": "rlexporter", "run": run, "window": window, "datasource": "prometheus"}
    return View({**ANY, **chosen}, _SECONDS, 1.0)


def _query(server: Server, view: View, panel: Json, target: Json) -> list[Json]:
    """What a panel gets for one of its targets."""
    step = view.interval(panel, target)
    query = {"query": view.fill(target["expr"], step)}
    if target["instant"]:
        found = server.ask("query", {**query, "time": f"{server.at:.3f}"})
    else:
        around = {"start": f"{server.at - _SECONDS:.3f}", "end": f"{server.at:.3f}", "step": f"{step:.3f}"}
        found = server.ask("query_range", {**query, **around})
    return list(found["result"])


@pytest.mark.parametrize("generation", EACH_GENERATION)
@pytest.mark.parametrize("uid", DASHBOARDS)
def test_every_query_answers(servers: dict[str, Server], generation: str, uid: str) -> None:
    """Without warnings, with data of at least one run, and with the labels that its legend uses.

    No other exporter is there: `test_beside.py` has them.
    """
    server = servers[generation]
    views = [_view(run) for run in (*world.names(), "grpo|ppo")]  # what compares two runs says nothing of one
    silent, nameless = [], []
    with ThreadPoolExecutor(4) as pool:
        for panel in panels(DASHBOARDS[uid]):
            for target in panel["targets"]:
                answers = list(pool.map(lambda view, p=panel, t=target: _query(server, view, p, t), views))
                series = [each for answer in answers for each in answer]
                may_be_empty = target["legendFormat"] in _NEAR or beside.is_foreign(target["expr"])
                if not series and not may_be_empty:
                    silent.append((panel["title"], target["refId"], target["expr"][:150]))
                wanted = set(_LEGEND.findall(target["legendFormat"]))
                if any(wanted - set(each["metric"]) for each in series):
                    nameless.append((panel["title"], target["legendFormat"]))
    assert not silent, "\n".join(map(str, silent))
    assert not nameless, "\n".join(map(str, nameless))


def _values(server: Server, view: View, uid: str, name: str) -> list[str]:
    """The values that a variable gets, as the data source of Grafana makes them."""
    query = variable(DASHBOARDS[uid], name)["query"]["query"]
    labels = _LABEL_VALUES.fullmatch(query)
    if labels:
        matching = {"match[]": view.fill(labels[1]), "start": f"{server.at - _SECONDS:.3f}", "end": f"{server.at:.3f}"}
        return sorted({series[labels[2]] for series in server.ask("series", matching) if labels[2] in series})
    result = _RESULT.fullmatch(query)
    assert result
    found = re.compile(variable(DASHBOARDS[uid], name)["regex"].strip("/"))
    texts = [_as_text(each) for each in server.instant(view, result[1])]
    return [match[1] for text in texts if (match := found.search(text))]


def _as_text(result: Json) -> str:
    """What `query_result` makes of a sample."""
    labels = ",".join(f'{name}="{value}"' for name, value in result["metric"].items() if name != "__name__")
    return f"{result['metric'].get('__name__', '')}{{{labels}}} {result['value'][1]} {result['value'][0] * 1000:.0f}"


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_variables_find_what_is_there(servers: dict[str, Server], generation: str) -> None:
    """Jobs, runs and ranks by their labels; the window as a number that can stand before `s`."""
    server, everything = servers[generation], _view(world.ALL)

    for uid in DASHBOARDS:
        assert _values(server, everything, uid, "job") == ["rlexporter"]
        of_ppo = {"ppo", "ppo-legacy", "nan", "values"}
        chosen = {"rlexporter-run": {*world.names()} - of_ppo, "rlexporter-ppo": of_ppo}.get(uid, {*world.names()})
        assert _values(server, everything, uid, "run") == sorted(chosen)
    assert _values(server, _view(world.RANKS), "rlexporter-ranks", "rank") == ["0", "1"]
    assert _values(server, everything, "rlexporter-run", "reward_function") == ["format"]
    assert _values(server, everything, "rlexporter-run", "window") == ["60"]
    assert _values(server, _view("nobody"), "rlexporter-run", "window") == ["60"]


@pytest.mark.parametrize("generation", EACH_GENERATION)
@pytest.mark.parametrize("uid", DASHBOARDS)
def test_annotations_find_what_happened(servers: dict[str, Server], generation: str, uid: str) -> None:
    """Alerts, conditions, checkpoints and starts; those with a time of their own within the time that is shown."""
    server = servers[generation]
    for annotation in DASHBOARDS[uid]["annotations"]["list"]:
        found = [each for run in world.names() for each in server.instant(_view(run), annotation["expr"])]
        wanted = set(_LEGEND.findall(annotation["titleFormat"] + annotation["textFormat"]))
        assert found, annotation["name"]
        for each in found:
            assert wanted <= set(each["metric"]), annotation["name"]
            if annotation["useValueForTime"]:
                assert server.at - _SECONDS < float(each["value"][1]) / 1000 <= server.at, annotation["name"]


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_the_panels_tell_the_runs_apart(servers: dict[str, Server], generation: str) -> None:
    """State, alerts and NaN of the broken run; a healthy one has none of them, one of two ranks that of rank 1."""
    server = servers[generation]

    def shown(run: str, title: str) -> list[str]:
        panel = next(each for each in panels(DASHBOARDS["rlexporter-run"]) if each["title"] == title)
        found = _query(server, _view(run), panel, panel["targets"][0])
        return [(each["value"] if "value" in each else each["values"][-1])[1] for each in found]

    def mapped(title: str) -> Json:
        panel = next(each for each in panels(DASHBOARDS["rlexporter-run"]) if each["title"] == title)
        options: Json = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
        return {value: option["text"] for value, option in options.items()}

    words, states = mapped("Verdict"), mapped("State")
    assert [words[value] for value in shown(world.BROKEN, "Verdict")] == ["act"]
    assert [words[value] for value in shown(world.RANKS, "Verdict")] == ["act"]
    assert [words[value] for value in shown("grpo", "Verdict")] == ["fine"]
    assert [states[value] for value in shown(world.BROKEN, "State")] == ["failed"]
    assert [states[value] for value in shown(world.RANKS, "State")] == ["running"]
    assert len(shown(world.BROKEN, "Wrong now")) == 1, "what killed it: the rest ended with it"
    assert shown("grpo", "Wrong now") == []
    assert len(shown(world.RANKS, "Wrong now")) == 1  # its own, and that of the storm of all these runs
    assert shown(world.RANKS, "Conditions that have begun") == ["0"]  # it has begun, and is over
    assert float(shown(world.RANKS, "NaN and infinite")[0]) == 2
    assert float(shown(world.BROKEN, "NaN and infinite")[0]) >= 3
    assert float(shown(world.BROKEN, "Nearest to an alert")[0]) > 1 > float(shown("grpo", "Nearest to an alert")[0])


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_the_cause_is_told_in_words(servers: dict[str, Server], generation: str) -> None:
    """As Grafana shows it: the newest row of the field `condition`, through the mappings of the panel."""
    panel = next(each for each in panels(DASHBOARDS["rlexporter-run"]) if each["title"] == "Why")
    assert panel["options"]["reduceOptions"]["fields"] == "/^condition$/"
    assert panel["targets"][0]["format"] == "table"
    texts = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]

    def why(run: str) -> str:
        found = _query(servers[generation], _view(run), panel, panel["targets"][0])
        newest = max(found, key=lambda each: each["values"][-1][0])
        return str(texts[newest["metric"]["condition"]]["text"])

    assert why(world.BROKEN) == "The loss is NaN or infinite."
    assert why("grpo") == "Nothing is wrong in what is judged."
    assert why("nan") == "The probability ratio, or a KL that is computed from it, is NaN or infinite."
