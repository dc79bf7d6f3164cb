"""Fixtures that every test can use."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from rlexporter.catalog.metrics import CATALOG
from rlexporter.endpoint import server
from rlexporter.exporter import Exporter
from rlexporter.feed.feed import Feed
from rlexporter.model.metric import Group, Key, Kind, Level, Metric, Series
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.run import shutdown
from rlexporter.tensors import host

DATA = Path(__file__).parent / "data"
SURPRISE = Metric(
    series="rl_surprise",
    kind=Kind.GAUGE,
    group=Group.POLICY,
    help="A new one.",
    level=Level.STEP,
    unit="nats",
    keys=(Key("surprise/mean", ("grpo",)),),
)
"""A metric that the catalog does not have."""


def pytest_configure() -> None:
    """Let processes of tests be interrupted: a shell ignores SIGINT in what it starts in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _imports_are_not_collected() -> None:
    """Modern PPO calls `gc.collect()` several times a step, and torch and trl leave many objects to look at."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _timers_go_off_at_once() -> None:
    """Closing an exporter waits for a timer or two; hundreds of tests close one."""
    server._BEAT_SECONDS = 0.01


@pytest.fixture
def data() -> Path:
    """The folder of test data."""
    return DATA


@pytest.fixture
def feed() -> Feed:
    """A feed on a clock that stands still."""
    return Feed(CATALOG, clock=lambda: 1000.0)


@pytest.fixture
def grpo(feed: Feed) -> Feed:
    """A feed of a GRPO run at step 0."""
    feed.begin(RunFacts(algorithm="grpo", step=0), {"run": "test", "rank": "0"})
    return feed


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """A started exporter on a free port."""
    running = Exporter(run="test", port=0)
    running.start()
    yield running
    running.close()


@pytest.fixture
def any_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters that are not told a port take a free one."""
    monkeypatch.setenv("RLEXPORTER_LISTEN_PORT", "0")


@pytest.fixture
def no_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers of other tests in this process, which may still be in memory, have no callback of ours."""
    callback = sys.modules.get("rlexporter.integrations.callback")
    if callback is not None:
        monkeypatch.setattr(callback, "made", WeakSet())


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """No test leaves an exporter behind, and no environment of this machine reaches one."""
    before = list(shutdown.live())  # those of a fixture that serves several tests
    yield
    left = [ending for ending in shutdown.live() if ending not in before]
    for ending in left:
        ending.close()
    assert not left


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RLEXPORTER_REQUIRE_ALL", "RLEXPORTER_RUNS"):  # of the tests: no settings, which would be told of
        monkeypatch.delenv(name, raising=False)
    of_launchers = ("RANK", "WORLD_SIZE", "MASTER_", "LOCAL_", "SLURM_", "TORCHELASTIC_", "KUBERNETES_")
    of_opentelemetry = ("OTEL_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    for name in [each for each in os.environ if each.startswith((*of_launchers, *of_opentelemetry))]:
        monkeypatch.delenv(name)


def observe(feed: Feed, series: Series, values: Any, mask: Any = None) -> None:
    """Count values in a histogram of a feed."""
    step = int(feed.snapshot.value("rl_step") or 0)
    feed.absorb(StepUpdate(step=step, seen={series: host.count(values, series.metric.bounds, mask)}))


def fetch(url: str, accept: str = "", **headers: str) -> tuple[int, str, dict[str, str]]:
    """GET by a real socket: status, body, headers."""
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"Accept": accept, **headers})
    try:
        with urllib.request.urlopen(request, timeout=600) as response:
            body: Any = response.read()
            return response.status, body.decode(), {k.lower(): v for k, v in response.headers.items()}
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), {k.lower(): v for k, v in error.headers.items()}
