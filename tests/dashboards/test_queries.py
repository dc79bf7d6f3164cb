"""Every query of every panel, in a real server that scraped runs of every kind."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlexporter.conditions.table import SIGNALS
from scripts.pack.dashboards import beside
from tests.dashboards import grafana, world
from tests.dashboards.grafana import ANY, Json, View, newest, panel, panels, variable
from tests.dashboards.transformations import records, tables, transformed
from tests.tools import GENERATIONS, ROOT, Prometheus, prometheus, require_tools, scraped, wait_scraped

pytestmark = pytest.mark.waits

DASHBOARDS = grafana.DASHBOARDS
_SECONDS = 1800.0
"""The time that is shown: on a busy machine the runs take minutes."""
_SCRAPE = 3
"""Seconds: one process answers for all runs here, and on a busy machine it must not fall behind."""
_LEGEND = re.compile(r"\{\{(\w+)\}\}")

_NEAR = {"{{severity}} limit"}
"""Lines that are drawn only where a curve comes near to a limit."""


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
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus, after it has scraped all runs; the runs themselves are over."""
    rules, folder = ROOT / "alerts/rlexporter.rules.yml", tmp_path_factory.mktemp("prometheus")
    with contextlib.ExitStack() as stack:
        with world.running() as (targets, ticks):
            every = {"scrape_interval": f"{_SCRAPE}s", "scrape_timeout": f"{_SCRAPE}s"}
            started = stack.enter_context(prometheus("3", folder, targets, rules=rules, scrape=every))
            # A rate needs two scrapes, between which something happened.
            world.play(ticks, lambda since: wait_scraped(started, len(targets), since))
            found = Server(started, scraped(started, len(targets), time.time()))
        yield found


def _view(run: str, **chosen: str) -> View:
    return View(
        {**ANY, "job": "rlexporter", "run": run, "datasource": "prometheus", **chosen}, _SECONDS, float(_SCRAPE)
    )


def _query(server: Server, view: View, of: Json, target: Json) -> list[Json]:
    """What a panel gets for one of its targets."""
    return grafana.answer(server.ask, view, of, target, server.at)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_query_is_parsed_by_both_generations(generation: str, tmp_path: Path) -> None:
    """Those of panels, annotations and variables, as expressions of rules."""
    view, expressions = View({**ANY, "job": "j", "run": "r", "datasource": "d"}, 10800.0, 15.0), set()
    for dashboard in DASHBOARDS.values():
        expressions |= {target["expr"] for each in panels(dashboard) for target in each["targets"]}
        expressions |= {annotation["expr"] for annotation in dashboard["annotations"]["list"]}
        variables = [each for each in dashboard["templating"]["list"] if each["type"] == "query"]
        expressions |= {grafana.query_of(each) for each in variables}
    rules = [
        {"record": "x", "expr": view.fill(each, 15.0), "labels": {"number": f"{i}"}}
        for i, each in enumerate(expressions)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    command = [str(require_tools(generation) / "promtool"), "check", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stderr
    assert f"{len(expressions)} rules found" in done.stdout
    assert len(expressions) > 200


@pytest.mark.slow
@pytest.mark.parametrize("uid", DASHBOARDS)
def test_every_query_answers(server: Server, uid: str) -> None:
    """Without warnings, with data of at least one run, and with the labels that its legend uses.

    No other exporter is there: `test_beside.py` has them.
    """
    runs = (*world.names(), "grpo|ppo")  # what compares two runs says nothing of one
    views = [grafana.resolved(server.ask, _view(run), DASHBOARDS[uid], server.at) for run in runs]
    silent, nameless = [], []
    with ThreadPoolExecutor(4) as pool:
        for drawn in panels(DASHBOARDS[uid]):
            for target in drawn["targets"]:
                answers = list(pool.map(lambda view, p=drawn, t=target: _query(server, view, p, t), views))
                series = [each for answer in answers for each in answer]
                may_be_empty = target["legendFormat"] in _NEAR or beside.is_foreign(target["expr"])
                if not series and not may_be_empty:
                    silent.append((drawn["title"], target["refId"], target["expr"][:150]))
                wanted = set(_LEGEND.findall(target["legendFormat"]))
                if any(wanted - set(each["metric"]) for each in series):
                    nameless.append((drawn["title"], target["legendFormat"]))
    assert not silent, "\n".join(map(str, silent))
    assert not nameless, "\n".join(map(str, nameless))


_TOLD = re.compile(r"No data in this range; or |no data, or |-$")


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_of_a_run_that_does_not_exist_nothing_is_said(server: Server, uid: str) -> None:
    """No panel has a value, not even 0, and the text of each says first that there may be no data at all."""
    view, wrong = _view("nobody"), []
    for each in panels(DASHBOARDS[uid]):
        of_all = uid == "rlexporter-fleet" and each["type"] == "stat"  # no run is 0 runs
        found = [] if of_all else [_query(server, view, each, target) for target in each["targets"]]
        told = each["type"] == "trend" or _TOLD.match(each["fieldConfig"]["defaults"]["noValue"])
        if any(found) or not told:
            wrong.append(each["title"])
    assert not wrong


@pytest.mark.parametrize("name", world.LOGS)
def test_a_run_whose_tensors_nobody_sees_has_all_that_is_logged(server: Server, name: str) -> None:
    """The main numbers among it. A panel that is empty only without tensors says so."""
    algorithm = name.removesuffix("-log")
    dashboard = DASHBOARDS["rlexporter-ppo" if algorithm.startswith("ppo") else "rlexporter-run"]

    def filled(run: str) -> set[str]:
        view = grafana.resolved(server.ask, _view(run), dashboard, server.at)
        every = grafana.own_panels(dashboard)
        return {each["title"] for _, each in every if any(_query(server, view, each, t) for t in each["targets"])}

    seen, logged = filled(algorithm), filled(name)
    main = {"Reward", "KL", "Entropy", "Verdict", "The number behind it"}
    assert logged >= main | (set() if algorithm == "ppo" else {"Completion length", "Step time"})  # it logs neither
    for title in seen - logged:
        of = panel(dashboard, title)
        assert of["type"] == "heatmap" or "looks at the tensors" in of["fieldConfig"]["defaults"]["noValue"], title


def test_variables_find_what_is_there(server: Server) -> None:
    """Jobs, runs and ranks by their labels; the window as a number that can stand before `s`."""
    everything = _view(world.ALL)

    def values(view: View, uid: str, name: str) -> list[str]:
        return grafana.values(server.ask, view, variable(DASHBOARDS[uid], name), server.at)

    for uid in DASHBOARDS:
        assert values(everything, uid, "job") == ["rlexporter"]
        of_ppo = {"ppo", "ppo-legacy", "ppo-log", "ppo-legacy-log", "nan", "values"}
        chosen = {"rlexporter-run": {*world.names()} - of_ppo, "rlexporter-ppo": of_ppo}.get(uid, {*world.names()})
        assert values(everything, uid, "run") == sorted(chosen)
    assert values(_view(world.RANKS), "rlexporter-ranks", "rank") == ["0", "1"]
    assert values(everything, "rlexporter-run", "reward_function") == ["format"]
    assert int(values(everything, "rlexporter-run", "window")[0]) >= 4 * _SCRAPE
    assert values(_view("nobody"), "rlexporter-run", "window") == [f"{4 * _SCRAPE}"]
    for window, apart in (("60", "15"), ("391", "98")):
        assert values(_view("nobody", window=window), "rlexporter-run", "apart") == [apart]
    for uid in DASHBOARDS:
        assert values(everything, uid, "team") == ["llm", "vision"]
        assert values(everything, uid, "user") == ["ada"]
        assert world.SHARED in values(_view("", team="llm"), uid, "run") or uid == "rlexporter-ppo"
        assert values(_view("", team="nobody"), uid, "run") == []


def test_annotations_find_what_happened(server: Server) -> None:
    """Alerts, conditions, checkpoints and starts; those with a time of their own within the time that is shown."""
    for uid, dashboard in DASHBOARDS.items():
        for annotation in dashboard["annotations"]["list"]:
            where = (uid, annotation["name"])
            found = [each for run in world.names() for each in server.instant(_view(run), annotation["expr"])]
            wanted = set(_LEGEND.findall(annotation["titleFormat"] + annotation["textFormat"]))
            assert found, where
            for each in found:
                assert wanted <= set(each["metric"]), where
                if annotation["useValueForTime"]:
                    assert server.at - _SECONDS < float(each["value"][1]) / 1000 <= server.at, where


def test_the_panels_tell_the_runs_apart(server: Server) -> None:
    """State, alerts and NaN of the broken run; a healthy one has none of them, one of two ranks that of rank 1."""

    def found(run: str, title: str) -> list[Json]:
        of = panel(DASHBOARDS["rlexporter-run"], title)
        return _query(server, _view(run), of, of["targets"][0])

    def shown(run: str, title: str) -> list[str]:
        return [(each["value"] if "value" in each else each["values"][-1])[1] for each in found(run, title)]

    options = panel(DASHBOARDS["rlexporter-run"], "Verdict")["fieldConfig"]["defaults"]["mappings"][0]["options"]
    words = {value: option["text"] for value, option in options.items()}
    assert [words[value] for value in shown(world.BROKEN, "Verdict")] == ["act"]
    assert [words[value] for value in shown(world.RANKS, "Verdict")] == ["act"]
    assert [words[value] for value in shown("grpo", "Verdict")] == ["fine"]
    assert [each["metric"]["state"] for each in found(world.BROKEN, "State")] == ["failed"]
    assert [each["metric"]["state"] for each in found(world.RANKS, "State")] == ["running"]
    assert shown("grpo", "Wrong now") == []
    assert shown(world.RANKS, "Conditions that have begun") == ["0"]  # it has begun, and is over
    assert float(shown(world.RANKS, "NaN and infinite")[0]) == 2
    assert float(shown(world.BROKEN, "NaN and infinite")[0]) >= 3
    assert float(shown(world.BROKEN, "Nearest to an alert")[0]) > 1 > float(shown("grpo", "Nearest to an alert")[0])


def _wrong_now(server: Server, view: View) -> list[dict[str, Any]]:
    """The rows of *Wrong now*, as they stand there."""
    of = panel(DASHBOARDS["rlexporter-run"], "Wrong now")
    return records(transformed(of, tables(grafana.answers(server.ask, view, of, server.at))))


def test_what_is_wrong_now_is_what_the_run_says(server: Server) -> None:
    """And the alerts that fire, each with the step, value and limit with which it began; symptoms are left out."""
    rows = _wrong_now(server, _view(world.BROKEN))
    broken = {row["condition"]: row for row in rows}
    standing = {"nonfinite": 2, "kl_high": 2, "kl_jump": 2}
    assert {name: row.get("now") for name, row in broken.items()} == {**standing, "run_failed": None}
    assert len(rows) == len(broken)
    assert broken["nonfinite"]["seen in step"] == 61
    assert broken["kl_high"]["value then"] > broken["kl_high"]["limit then"] > 0
    assert {name for name, row in broken.items() if row["alertname"]} >= {"nonfinite", "kl_high"}
    assert [row["condition"] for row in _wrong_now(server, _view(world.RANKS))] == ["nonfinite"], (
        "its own, and not that of the storm of all these runs"
    )
    assert _wrong_now(server, _view("grpo")) == []


def test_what_is_critical_is_told_once(server: Server) -> None:
    """Its warning, which lasts as well, has no row of its own."""
    rows = _wrong_now(server, _view(world.DRIFTS))
    both = server.instant(_view(world.DRIFTS), 'rl:condition{run="$run",condition="kl_jump"}')

    assert {each["metric"]["severity"] for each in both} == {"critical", "warning"}
    [row] = [row for row in rows if row["condition"] == "kl_jump"]
    assert row["severity"] == "critical"
    assert row["value then"] > row["limit then"] > 0
    assert len({row["condition"] for row in rows}) == len(rows)


def test_the_cause_comes_first(server: Server) -> None:
    """Then what else is wrong, the oldest first; that the run has ended is no cause, and its alert has no value."""
    rows = _wrong_now(server, _view(world.BROKEN))

    assert rows[0]["condition"] == "nonfinite"
    assert rows[-1]["condition"] == "run_failed"
    assert rows[0]["limit then"] is None, "one NaN is too many"
    steps = [row["seen in step"] for row in rows[1:-1]]
    assert steps == sorted(steps)
    assert (rows[-1]["value then"], rows[-1]["limit then"]) == (None, None)
    [dead] = _wrong_now(server, _view(world.SHARED))
    assert (dead["subject"], dead["value then"], dead["limit then"]) == ("letter_reward", None, None)
    assert [row["instance"] for row in rows[:-1]] == [rows[0]["instance"]] * (len(rows) - 1)
    assert rows[0]["instance"].startswith("127.0.0.1:"), "a link leads to the page of the run"


def test_the_number_behind_the_verdict_is_that_of_the_cause(server: Server) -> None:
    """With the limit that was passed; of a healthy run it is the reward."""
    of = panel(DASHBOARDS["rlexporter-run"], "The number behind it")

    def shown(run: str) -> list[set[str]]:
        view = grafana.resolved(server.ask, _view(run), DASHBOARDS["rlexporter-run"], server.at)
        found = [_query(server, view, of, target) for target in of["targets"]]
        return [
            {each["metric"].get("signal") or grafana.legend(target, each["metric"]) for each in one}
            for target, one in zip(of["targets"], found, strict=True)
        ]

    assert shown(world.BROKEN) == [{"nonfinite"}, {"critical limit"}, set()]
    assert shown("grpo") == [set(), set(), {"reward"}]
    assert shown("nobody") == [set(), set(), set()]


def test_what_is_nearest_to_an_alert_is_named(server: Server) -> None:
    """One number, whose name stands beside its share."""
    of = panel(DASHBOARDS["rlexporter-run"], "Nearest to an alert")
    assert of["options"]["textMode"] == "value_and_name"
    for run in (world.BROKEN, "grpo"):
        [found] = _query(server, _view(run), of, of["targets"][0])
        assert grafana.legend(of["targets"][0], found["metric"]) in {each.name for each in SIGNALS}


def test_the_cause_is_told_in_words(server: Server) -> None:
    """As Grafana shows it: the newest row of the fields `cause` and `since`, through the mappings of the panel.

    Fields of labels are in the order of the alphabet.
    """
    of = panel(DASHBOARDS["rlexporter-run"], "Why")
    assert of["options"]["reduceOptions"]["fields"] == "/^(cause|since)$/"
    assert of["targets"][0]["format"] == "table"

    def why(run: str, **chosen: str) -> tuple[str, str]:
        found = _query(server, _view(run, **chosen), of, of["targets"][0])
        told = grafana.mapped(newest(found, "cause"), of["fieldConfig"]["defaults"]["mappings"])
        assert told
        return str(told["text"]), newest(found, "since")

    assert why(world.BROKEN) == ("rl_loss is NaN or infinite.", "seen in step 61")
    assert why("grpo") == ("Nothing is wrong in what is judged.", " ")
    assert why("nan")[0] == "rl_policy_ratio_mean is NaN or infinite."
    assert why(world.SHARED, team="llm") == ("Nothing is wrong in what is judged.", " ")
    dead = "letter_reward no longer tells completions apart, and the task is not solved."
    assert why(world.SHARED, team="vision") == (dead, "seen in step 68")


def _rows(server: Server, uid: str, title: str) -> list[dict[str, Any]]:
    """The rows of a table of runs, those of the two teams, by team."""
    of = panel(DASHBOARDS[uid], title)
    found = records(transformed(of, tables(grafana.answers(server.ask, _view(world.SHARED), of, server.at))))
    return sorted((row for row in found if row.get("run", world.SHARED) == world.SHARED), key=lambda row: row["team"])


@pytest.mark.parametrize(
    ("uid", "title"),
    [
        *(("rlexporter-fleet", "Runs"), ("rlexporter-compare", "Runs")),
        *(("rlexporter-exporter", "Conditions that are not judged"), ("rlexporter-exporter", "Versions")),
        *(("rlexporter-ranks", "Processes"), ("rlexporter-run", "Process")),
    ],
)
def test_runs_of_one_name_of_two_teams_are_two_rows(server: Server, uid: str, title: str) -> None:
    """Each with its own numbers."""
    assert [row["team"] for row in _rows(server, uid, title)] == ["llm", "vision"]


def test_what_a_table_says_of_two_teams_is_of_each(server: Server) -> None:
    """Verdict, cause, state, and an address that leads to the run of that team."""
    fleet, compare = _rows(server, "rlexporter-fleet", "Runs"), _rows(server, "rlexporter-compare", "Runs")
    for rows in (fleet, compare):
        assert [row["verdict"] for row in rows] == [0, 1]
        assert [row["condition"] for row in rows] == ["none", "reward_function_dead"]
        assert [row["state"] for row in rows] == ["running", "running"]
        addresses = [f"rlexporter-run?var-job=rlexporter&var-team={team}&" for team in ("llm", "vision")]
        assert [row["dashboard"] for row in rows] == addresses
    assert _wrong_now(server, _view(world.SHARED, team="llm")) == []
    assert [row["team"] for row in _wrong_now(server, _view(world.SHARED))] == ["vision"]


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_runs_of_one_name_of_two_teams_are_two_lines(server: Server, uid: str) -> None:
    """Wherever there is one of a run: each panel has as many again for the second team, and under names of their own
    where a page is of many runs.
    """
    named, dashboard = uid in ("rlexporter-fleet", "rlexporter-exporter"), DASHBOARDS[uid]
    drawn, wrong = 0, []
    for each in panels(dashboard):
        if each["type"] != "timeseries" or any(beside.is_foreign(target["expr"]) for target in each["targets"]):
            continue
        for target in each["targets"]:
            both, llm, vision = (
                _query(server, _view(world.SHARED, **chosen), each, target)
                for chosen in ({}, {"team": "llm"}, {"team": "vision"})
            )
            legends = [grafana.legend(target, found["metric"]) for found in both]
            drawn += len(llm) * len(vision)
            if len(both) != len(llm) + len(vision) or (named and len(set(legends)) < len(legends)):
                wrong.append((each["title"], target["refId"], legends))
    assert not wrong
    assert drawn or uid in ("rlexporter-compare", "rlexporter-ppo")


def test_runs_of_one_name_of_two_teams_are_two_columns(server: Server) -> None:
    """In the curves over steps."""
    of = panel(DASHBOARDS["rlexporter-compare"], "Reward")
    found = transformed(of, tables(grafana.answers(server.ask, _view(world.SHARED), of, server.at)))

    assert set(found) == {"step", "shared llm", "shared vision"}
