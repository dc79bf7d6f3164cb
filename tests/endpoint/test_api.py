"""`/api/status` and `/api/history`, over real sockets, and how often open pages ask for them."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlexporter import Exporter, Rank
from rlexporter.catalog.languages import language
from rlexporter.endpoint import app
from rlexporter.endpoint.app import PageTurns
from rlexporter.model.snapshot import RunState
from rlexporter.status import document
from tests.conftest import fetch
from tests.endpoint.wire import ask
from tests.status.test_document import SCHEMA, check
from tests.tools import eventually


def _get(exporter: Exporter, path: str) -> Any:
    """What is answered at ``path``: JSON that nobody keeps."""
    status, text, headers = fetch(f"{exporter.url}{path}")
    assert status == 200, text
    assert (headers["content-type"], headers["cache-control"]) == ("application/json", "no-store")
    return json.loads(text)


def _status(exporter: Exporter) -> Any:
    found = _get(exporter, "/api/status")
    check(found, SCHEMA)
    return found


def test_the_status_of_a_run(exporter: Exporter) -> None:
    """What was logged, and the verdict on it."""
    for step in range(1, 4):
        exporter.log({"reward": 0.5 * step, "kl": 0.01}, step=step)
    found = eventually(lambda: (got := _status(exporter))["run"]["step"] == 3 and got)
    assert (found["run"]["name"], found["run"]["state"]) == ("test", "running")
    assert found["verdict"]["word"] == "fine"
    assert found["cards"][0]["main"][0]["value"] == 1.5

    exporter.log({"reward": math.nan, "kl": 0.01}, step=4)
    found = eventually(lambda: (got := _status(exporter))["run"]["step"] == 4 and got)
    assert (found["verdict"]["word"], found["verdict"]["conditions"]) == ("act", ["nonfinite_reward"])
    assert found["cards"][0]["main"][0]["value"] == "NaN"

    exporter.end(MemoryError("no"))
    found = eventually(lambda: (got := _status(exporter))["run"]["state"] == "failed" and got)
    assert "The run has failed with MemoryError after step 4." in found["verdict"]["text"]
    assert fetch(f"{exporter.url}/livez")[0] == 200


def test_the_history_is_kept_while_nobody_asks(exporter: Exporter) -> None:
    """By a thread of its own, until the exporter is closed; a reload finds all of it."""
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("rlexporter-history") == 1
    for step in range(1, 4):
        exporter.log({"reward": float(step), "kl": 0.01}, step=step)

        def seen(step: int = step) -> Any:
            found = _get(exporter, f"/api/history?series=rl_reward_mean&points={100 + step}")["curves"]
            return found and found[0]["steps"][-1] == step and found

        assert eventually(seen)
    assert _get(exporter, "/api/history?series=rl_reward_mean&series=rl_nothing") == {
        "version": 1,
        "curves": [{"series": "rl_reward_mean", "labels": {}, "steps": [1, 2, 3], "values": [1.0, 2.0, 3.0]}],
        "marks": [],
        "heat_maps": [],
        "earlier": None,
    }
    exporter.observe("rl_reward_dist", [0.5, 2.0])
    exporter.log({"reward": 4.0}, step=4)
    (heat,) = eventually(lambda: _get(exporter, "/api/history?heat_maps=1")["heat_maps"])
    assert (heat["series"], heat["steps"], [sum(counts) for counts in heat["counts"]]) == ("rl_reward_dist", [4], [2])
    cards = {curve["series"] for curve in _get(exporter, "/api/history")["curves"]}
    assert {"rl_reward_mean", "rl_kl_per_token"} <= cards
    exporter.close()
    assert "rlexporter-history" not in [thread.name for thread in threading.enumerate()]


def test_the_process_is_served_as_everywhere(exporter: Exporter) -> None:
    """The series that every client library has of its process, in each format, with the numbers of this one."""
    for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
        text = fetch(f"{exporter.url}/metrics", accept)[1]
        names = "virtual_memory_bytes resident_memory_bytes start_time_seconds cpu_seconds_total open_fds max_fds"
        found = dict(re.findall(r"^(process_\w+) (\S+)$", text, re.MULTILINE))
        assert set(found) == {f"process_{name}" for name in names.split()}
        memory = int(re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024
        assert float(found["process_resident_memory_bytes"]) == pytest.approx(memory, rel=0.3)
        assert time.time() - 86400 < float(found["process_start_time_seconds"]) < time.time()
    only = fetch(f"{exporter.url}/metrics?name[]=process_open_fds")[1].splitlines()
    assert [line for line in only if not line.startswith("#")] == [f"process_open_fds {only[-1].split()[-1]}"]


def test_what_is_asked_is_bounded(exporter: Exporter) -> None:
    """A curve more, or a number that is none, is refused."""
    good = ["&".join(["series=a"] * 50), "points=4", "series=%3Cscript%3E"]
    bad = ["&".join(["series=a"] * 51)]
    bad += [f"points={each}" for each in ("3", "2001", "x", "-5", "1e3", "%D9%A3%D9%A3", "9" * 5000, "")]
    statuses = {query: ask(exporter, "GET", f"/api/history?{query}").status for query in (*good, *bad)}
    assert statuses == dict.fromkeys(good, 200) | dict.fromkeys(bad, 400)


def test_many_pages_ask_less_often(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is told when to come again; of a hundred that come at once each has a turn of its own, up to a limit."""
    at_once = SimpleNamespace(monotonic=lambda: 100.0, time=time.time)
    monkeypatch.setattr("rlexporter.endpoint.app.time", at_once)
    told = [int(ask(exporter, "GET", "/api/status").headers["retry-after"]) for _ in range(140)]
    assert told == [round(min(2 + page / 4, 30)) for page in range(140)]


def _asked(pages: int, seconds: float) -> dict[int, list[float]]:
    """Let so many pages begin within a second, and ask when they are told to; return the times of each."""
    turns, due = PageTurns(), {page: 100.0 + page / pages for page in range(pages)}
    times: dict[int, list[float]] = {page: [] for page in range(pages)}
    while min(due.values()) < 100.0 + seconds:
        page = min(due, key=lambda each: due[each])
        times[page].append(due[page])
        due[page] += turns.seconds(due[page])
    return times


@pytest.mark.parametrize(("pages", "every"), [(1, 2.0), (8, 2.0), (16, 4.0), (64, 16.0), (500, 30.0)])
def test_each_page_gets_its_turn(pages: int, every: float) -> None:
    """All together ask four times a second, until each waits for half a minute."""
    asked = _asked(pages, 300.0)
    for times in asked.values():
        assert (times[-1] - times[1]) / (len(times) - 2) == pytest.approx(every, rel=0.25)


def test_a_page_that_closes_gives_its_turn_back() -> None:
    """Those that stay ask more often within half a minute."""
    turns = PageTurns()
    assert [turns.seconds(100.0) for _ in range(64)][-1] == pytest.approx(18, abs=1)
    assert turns.seconds(118.0) == 2


def test_the_language_is_chosen(exporter: Exporter) -> None:
    """By the address, or else by the header, as a cache on the way is told; all else stays as it is."""
    exporter.log({"reward": 1.0, "kl": 0.01}, step=1)
    for path, header, code in (
        ("/api/status", "", "en"),
        ("/api/status", "Accept-Language: vi-VN,vi;q=0.9,en;q=0.5", "vi"),
        ("/api/status?lang=zh", "Accept-Language: vi", "zh"),
        ("/api/status?lang=tlh", "Accept-Language: vi", "en"),
    ):
        found = ask(exporter, "GET", path, *filter(None, [header]))
        told = json.loads(found.body)
        check(told, SCHEMA)
        assert found.headers["content-language"] == told["language"] == code
        assert found.headers["vary"] == "Accept-Language, Accept-Encoding"
        assert (found.headers["content-type"], found.headers["cache-control"]) == ("application/json", "no-store")
        assert told["cards"][0]["title"] == language(code)("Is it learning?")
        assert (told["verdict"]["word"], told["run"]["state"]) == ("fine", "running")
    scrape = ask(exporter, "GET", "/metrics", "Accept-Language: vi")
    assert "content-language" not in scrape.headers
    assert b"# HELP rl_reward_mean Mean reward per completion." in scrape.body


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the answers, which stands still but for the test."""
    now = [1000.0]
    monkeypatch.setattr(app, "time", SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0]))
    return now


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The languages of the documents that were made, in order."""
    found, real = list[str](), document.status

    def noted(*given: Any) -> Any:
        found.append(given[3].code)
        return real(*given)

    monkeypatch.setattr(document, "status", noted)
    return found


@pytest.mark.usefixtures("clock")
def test_languages_that_there_are_not_take_no_room(exporter: Exporter, made: list[str]) -> None:
    """While the clock stands still each of the three is made once, whatever is asked for."""
    exporter.log({"reward": 1.0}, step=1)
    for number in range(30):
        _get(exporter, f"/api/status?lang=x{number}")
        _get(exporter, f"/api/status?lang={('vi', 'zh')[number % 2]}")
    assert sorted(made) == ["en", "vi", "zh"]


def test_pages_share_what_is_made(exporter: Exporter, clock: list[float], made: list[str]) -> None:
    """Four times a second at most while something changes, once a second else."""
    for step in range(1, 401):  # 4 seconds of steps of 10 ms, each of which 3 pages ask for
        clock[0] += 0.01
        exporter._run.feed.record({"reward": 1.0}, step)
        for _ in range(3 if step % 20 == 0 else 0):
            _get(exporter, "/api/status")
    assert len(made) <= 4 * 4 + 1
    made.clear()
    for _ in range(40):
        clock[0] += 0.1
        _get(exporter, "/api/status")
    assert 3 <= len(made) <= 5


def test_runbooks_are_served(exporter: Exporter) -> None:
    """By the name of an alert: a cluster without internet has them. Nothing else is."""
    verdict = _status(exporter)["verdict"]
    assert verdict["runbook"] == ""
    for name in ("RLKL", "RLKL.md"):
        status, text, headers = fetch(f"{exporter.url}/runbooks/{name}")
        assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert "# RLKL" in text
    for name in ("RLNoSuchAlert", "..%2F..%2Fpyproject", "RLKL%00", "README.txt"):
        assert fetch(f"{exporter.url}/runbooks/{name}")[0] == 404, name


def test_every_rank_has_its_own() -> None:
    """What it does not serve is null or empty."""
    with Exporter(run="test", port=0, linger=0, rank=Rank(1, world_size=2), ranks="all") as exporter:
        exporter.log({"reward": 1.0}, step=1)
        found = eventually(lambda: (got := _status(exporter))["run"]["step"] == 1 and got)
        assert (found["run"]["rank"], found["run"]["state"]) == ("1", RunState.RUNNING.value)
        assert found["cards"][0]["state"] == "unknown"
        assert found["verdict"]["word"] == "fine"
