"""The endpoint, over real sockets."""

from __future__ import annotations

import gzip
import http.client
import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rlexporter.catalog import CATALOG
from rlexporter.endpoint import app, bodies, endpoint
from rlexporter.exporter import Exporter
from rlexporter.model.step import RunFacts
from rlexporter.status.page import page
from rlexporter.store.store import Store
from tests.conftest import fetch


def _raw(exporter: Exporter, method: str, path: str, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    assert exporter.port
    with closing(http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=10)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        response = connection.getresponse()
        return response.status, response.read(), response.headers


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


def test_gzip_where_it_is_understood(exporter: Exporter) -> None:
    """Far fewer bytes."""
    _, plain, _ = _raw(exporter, "GET", "/metrics")
    _, body, headers = _raw(exporter, "GET", "/metrics", Accept_Encoding="gzip")

    assert headers["content-encoding"] == "gzip"
    assert len(body) < len(plain) / 3
    assert gzip.decompress(body).startswith(b"# HELP rl_")


def test_the_clock_is_that_of_the_answer(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each answer that is made, of each format, though nothing has changed; in no snapshot, so nowhere else."""
    clock = [1000.0]
    for each in (app, bodies):
        monkeypatch.setattr(each, "time", SimpleNamespace(time=lambda: clock[0], monotonic=lambda: clock[0]))
    for now in (1000.0, 1000.5, 1002.0):
        clock[0] = now
        _, text, _ = fetch(f"{exporter.url}/metrics")
        shown = 1000.0 if now < 1002 else 1002.0  # within a second an answer is kept for all scrapers
        assert f'rlexporter_time_seconds{{rank="0",run="test"}} {shown}\n' in text
    assert exporter.snapshot.value("rlexporter_time_seconds") is None


def test_a_few_names(exporter: Exporter) -> None:
    """`name[]` as the Prometheus libraries have it."""
    exporter.log({"reward": 1.5}, step=3)
    _, text, _ = fetch(f"{exporter.url}/metrics?name[]=rl_step&name[]=rl_reward_mean")

    assert [line.split("{")[0] for line in text.splitlines() if line[0] != "#"] == ["rl_reward_mean", "rl_step"]


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/"])
def test_head(exporter: Exporter, path: str) -> None:
    """The headers of a GET, without the body."""
    status, body, headers = _raw(exporter, "HEAD", path)

    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/metrics", 405), ("DELETE", "/", 405), ("GET", "/docs", 404), ("GET", "/openapi.json", 404)],
)
def test_nothing_else_is_there(exporter: Exporter, method: str, path: str, status: int) -> None:
    """No writing, and no pages that load foreign scripts."""
    assert _raw(exporter, method, path)[0] == status


def test_health_is_the_exporters_own(exporter: Exporter) -> None:
    """A run that failed must stay scraped."""
    exporter.end(RuntimeError())

    assert fetch(f"{exporter.url}/livez")[:2] == (200, "ok\n")
    assert fetch(f"{exporter.url}/readyz")[:2] == (200, "ok\n")


def test_the_page_has_nothing_of_the_run_in_it() -> None:
    """A run can have any name: the page is the same for all, and asks for what it shows."""
    with Exporter(run="<script>alert(1)</script>", port=0) as exporter:
        exporter.log({"reward": 1.5}, step=3)
        _, text, headers = fetch(f"{exporter.url}/")

    assert headers["content-type"] == "text/html; charset=utf-8"
    assert text == page()


def test_the_page_is_compressed_for_whom_it_may_be(exporter: Exporter) -> None:
    """A quarter of its size."""
    status, body, headers = _raw(exporter, "GET", "/", Accept_Encoding="gzip")

    assert (status, headers["content-encoding"], headers["vary"]) == (200, "gzip", "Accept-Encoding")
    assert gzip.decompress(body).decode() == page()
    assert len(body) < len(page()) / 3


def test_a_failed_scrape_says_so_and_the_next_one_works(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Status 500, counted and logged."""
    with monkeypatch.context() as patch:
        patch.setattr("rlexporter.outputs.prometheus.families", lambda snapshot: 1 / 0)
        assert fetch(f"{exporter.url}/metrics")[0] == 500
        assert "division by zero" in caplog.text

    status, text, _ = fetch(f"{exporter.url}/metrics")
    assert status == 200
    assert 'rlexporter_errors_total{rank="0",run="test",where="scrape"} 1.0\n' in text


@pytest.fixture
def busy() -> Iterator[int]:
    """The port of a server whose store is written to as fast as one thread can."""
    store = Store(CATALOG)
    store.begin(RunFacts(algorithm="grpo", step=0), {"run": "busy", "rank": "0"})
    server = endpoint.Server(endpoint.claim("127.0.0.1", 0, free=str, fallback=False), lambda: store.snapshot, _fail)
    server.start()
    stop = threading.Event()

    def write() -> None:
        for step in itertools.takewhile(lambda _: not stop.is_set(), itertools.count(1)):
            keys = ("kl", "reward", "grad_norm", "loss", "mine", "rewards/f/mean", "num_tokens", "learning_rate")
            store.record(dict.fromkeys(keys, float(step)), step)

    writer = threading.Thread(target=write)
    writer.start()
    yield server.port
    stop.set()
    writer.join()
    server.close()


def _fail(error: Exception) -> None:
    raise error


def test_a_scrape_is_one_moment(busy: int) -> None:
    """Sixteen scrapers against a writer that never pauses: 128 scrapes, none of them torn, no error."""
    torn: list[set[float]] = []
    scrapes: list[int] = []
    wanted = {
        *("rl_kl_per_token", "rl_reward_mean", "rl_grad_norm", "rl_loss", "rl_logged_value", "rl_learning_rate"),
        *("rl_reward_function_mean", "rl_step", "rl_steps_total", "rl_tokens_total", "rl_last_log_step"),
    }

    def scrape() -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", busy, timeout=600)) as connection:
            for _ in range(8):
                connection.request("GET", "/metrics")
                response = connection.getresponse()
                text = response.read().decode()
                lines = [line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#"]
                values = {float(value) for name, value in lines if name.split("{")[0] in wanted}
                counts = {float(value) for name, value in lines if name.startswith("rl_grad_norm_dist_count")}
                scrapes.append(response.status)
                if len(values | counts) != 1:
                    torn.append(values | counts)

    threads = [threading.Thread(target=scrape) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert torn == []
    assert scrapes == [200] * 128
