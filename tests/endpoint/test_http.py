"""What the endpoint answers, whatever is asked and logged, over real sockets."""

from __future__ import annotations

import gzip
import logging
from itertools import product
from math import inf
from types import SimpleNamespace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rlexporter import Exporter
from rlexporter.endpoint import app
from rlexporter.status.page import page
from tests.conftest import fetch
from tests.endpoint.test_auth import METHODS, PATHS
from tests.endpoint.wire import ask
from tests.tools import GENERATIONS, promtool_lint, require_tools


def test_metrics(exporter: Exporter) -> None:
    """What was logged, in the format that was asked for."""
    exporter.log({"reward": 1.5}, step=3)
    status, text, headers = fetch(f"{exporter.url}/metrics")

    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert headers["cache-control"] == "no-store"
    assert 'rl_reward_mean{rank="0",run="test"} 1.5\n' in text
    assert 'rlexporter_scrapes_total{rank="0",run="test"} 1.0\n' in text

    _, text, headers = fetch(f"{exporter.url}/metrics", accept="application/openmetrics-text")
    assert headers["content-type"].startswith("application/openmetrics-text; version=")
    assert text.endswith("# EOF\n")
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    assert {family.name for family in families} >= {"rl_reward_mean", "rl_steps"}
    assert 'rlexporter_scrapes_total{rank="0",run="test"} 2.0\n' in text


def test_the_clock_is_that_of_the_answer(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each answer that is made, of each format, though nothing has changed; in no snapshot, so nowhere else."""
    clock = [1000.0]
    monkeypatch.setattr(app, "time", SimpleNamespace(time=lambda: clock[0], monotonic=lambda: clock[0]))
    for now in (1000.0, 1000.5, 1002.0):
        clock[0] = now
        _, text, _ = fetch(f"{exporter.url}/metrics")
        shown = 1000.0 if now < 1002 else 1002.0  # within a second an answer is kept for all scrapers
        assert f'rlexporter_time_seconds{{rank="0",run="test"}} {shown}\n' in text
    assert exporter.snapshot.value("rlexporter_time_seconds") is None


def test_health_is_the_exporters_own(exporter: Exporter) -> None:
    """A run that failed must stay scraped."""
    exporter.end(RuntimeError())

    assert fetch(f"{exporter.url}/livez")[:2] == (200, "ok\n")
    assert fetch(f"{exporter.url}/readyz")[:2] == (200, "ok\n")


def test_the_page_has_nothing_of_the_run_in_it() -> None:
    """A run can have any name: the page is the same for all, and asks for what it shows."""
    with Exporter(run="<script>alert(1)</script>", port=0) as exporter:
        exporter.log({"reward": 1.5}, step=3)
        found = ask(exporter, "GET", "/")

    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert found.body.decode() == page()


@pytest.mark.parametrize(
    ("path", "begins", "share"),
    [
        ("/", page().encode(), 1 / 3),
        ("/metrics", b"# HELP ", 1 / 3),
        ("/api/status", b'{"version":1,', 1),
        ("/api/history", b'{"version":1,', inf),
    ],
)
def test_gzip_where_it_is_understood(exporter: Exporter, path: str, begins: bytes, share: float) -> None:
    """The page and a scrape have a third of the bytes; a cache on the way is told."""
    exporter.log({"reward": 1.0, "kl": 0.01}, step=1)
    plain, small = ask(exporter, "GET", path), ask(exporter, "GET", path, "Accept-Encoding: gzip")

    assert small.headers["content-encoding"] == "gzip"
    assert small.headers["vary"].endswith("Accept-Encoding")
    assert small.headers["content-type"] == plain.headers["content-type"]
    assert gzip.decompress(small.body).startswith(begins)
    assert len(small.body) < len(plain.body) * share


@pytest.mark.parametrize("path", ["/", "/metrics", "/livez", "/readyz", "/api/status", "/api/history"])
def test_head(exporter: Exporter, path: str) -> None:
    """The headers of a GET, without the body."""
    found = ask(exporter, "HEAD", path)

    assert (found.status, found.body) == (200, b"")
    assert int(found.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("path", "broken"),
    [("/metrics", "rlexporter.outputs.prometheus.families"), ("/api/status", "rlexporter.status.document.status")],
)
def test_a_failed_answer_says_so_and_the_next_one_works(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str, broken: str
) -> None:
    """Status 500, counted and logged; the run goes on."""
    with monkeypatch.context() as patch:
        patch.setattr(broken, lambda *_, **__: 1 / 0)
        assert ask(exporter, "GET", path).status == 500
        assert "division by zero" in caplog.text

    assert ask(exporter, "GET", path).status == 200
    assert b'rlexporter_errors_total{rank="0",run="test",where="scrape"} 1.0\n' in ask(exporter).body


def test_nothing_can_be_written(exporter: Exporter) -> None:
    """405 on every path, and what is allowed."""
    for method, path in product(METHODS[2:], PATHS):
        found = ask(exporter, method, path)
        assert (found.status, found.headers["allow"]) == (405, "GET, HEAD")


def test_an_empty_body_is_none(exporter: Exporter) -> None:
    """Some clients say so."""
    assert ask(exporter, "GET", "/metrics", "Content-Length: 0").status == 200


def test_names_are_bounded(exporter: Exporter) -> None:
    """A hundred of them are enough for everybody."""
    assert ask(exporter, "GET", "/metrics?" + "name[]=rl_step&" * 100).status == 200
    assert ask(exporter, "GET", "/metrics?" + "name[]=rl_step&" * 101).status == 400


def test_nothing_else_is_there(exporter: Exporter) -> None:
    """No pages that load foreign scripts; a slash too many is another path, and no redirection to what Host says."""
    for path in ("/docs", "/openapi.json", "/nothing", "/metrics/", "http://elsewhere/metrics"):
        assert ask(exporter, "GET", path).status == 404


def test_the_loggers_of_uvicorn_stay_the_users(exporter: Exporter, caplog: pytest.LogCaptureFixture) -> None:
    """Who serves something else with uvicorn in this process sees what it logs."""
    log, access = logging.getLogger("uvicorn.error"), logging.getLogger("uvicorn.access")
    assert ask(exporter).status == 200
    with caplog.at_level(logging.INFO):
        log.warning("mine")
        access.info("mine too")
    assert [record.message for record in caplog.records] == ["mine", "mine too"]
    assert (log.level, log.handlers, log.propagate) == (logging.NOTSET, [], True)
    assert (access.level, access.handlers, access.propagate) == (logging.NOTSET, [], True)
    names = ("uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio")
    assert [len(logging.getLogger(name).filters) for name in names] == [1] * 4
    exporter.close()
    assert [logging.getLogger(name).filters for name in names] == [[]] * 4


def test_labels_are_escaped_and_cut(exporter: Exporter) -> None:
    """Whatever a key looks like, every scrape stays one that Prometheus reads."""
    evil = ['q"u\\o\nt}e{', "nul\0l", "half \ud800 pair", "x" * 5000, "\U0001f600", " ", "# EOF", 'a",b="c']
    exporter.log(dict.fromkeys(evil, 1.0) | {"reward": 1.5})
    for accept in ("text/plain", "application/openmetrics-text;version=1.0.0"):
        found = ask(exporter, "GET", "/metrics", f"Accept: {accept}")
        assert found.status == 200
        lines = [line for line in found.body.decode().splitlines() if line.startswith("rl_logged_value{")]
        assert len(lines) == len(evil)
        assert max(map(len, lines)) < 250
        assert 'rl_reward_mean{rank="0",run="test"} 1.5' in found.body.decode()
    text = ask(exporter).body.decode()
    assert [
        promtool_lint(require_tools(generation), text).count("error while linting") for generation in GENERATIONS
    ] == [0, 0]


def test_a_run_can_have_any_name() -> None:
    """One from an environment that is no UTF-8, for instance."""
    with Exporter(run="na\udcffme", port=0, linger=0) as exporter:
        assert b'run="na?me"' in ask(exporter).body
        assert b'"name":"na?me"' in ask(exporter, "GET", "/api/status").body


def test_a_flood_of_keys_is_cut(exporter: Exporter) -> None:
    """And the scrape stays of a bounded size."""
    for step in range(20):
        exporter.log({f"key {step} {i} " + "x" * 500: 1.0 for i in range(500)}, step=step)
    body = ask(exporter).body
    assert body.count(b"rl_logged_value{") == 200
    assert len(body) < 1 << 20
    assert b'rlexporter_dropped_keys_total{rank="0",run="test"} 9800.0' in body
