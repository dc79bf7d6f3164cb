"""The last state of a run reaches whoever scrapes it, however its process ends, though an answer takes long to make."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlexporter import Exporter, Rank
from rlexporter.model.snapshot import RunState
from tests.conftest import fetch
from tests.tools import GENERATIONS, eventually, free_port, free_ports, prometheus, served

SECONDS = 0.15
"""How long an answer takes to make."""
SCRIPT = f"""
import sys, time
from rlexporter import Exporter
from rlexporter.outputs import prometheus

encode = prometheus.encode


def slowly(*arguments, **options):
    time.sleep({SECONDS})
    return encode(*arguments, **options)


def train():
    for step in range(1, 4):
        exporter.log({{"reward": float(step)}}, step=step)
        time.sleep(1.0)
    exporter.log({{"reward": 4.0}}, step=4)


prometheus.encode = slowly
how, port = sys.argv[1:]
exporter = Exporter(run="r", port=int(port))
if how in ("with", "raise"):
    with exporter:
        train()
        if how == "raise":
            raise ValueError("dead")
else:
    exporter.start()
    train()
    if how == "exit":
        sys.exit(3)
    if how == "signal":
        time.sleep(600)
"""
ENDS = {"with": "finished", "raise": "failed", "exit": "stopped", "signal": "preempted", "none": "finished"}
"""How a script ends, and the state of its run."""


def last_scrape(how: str, port: int) -> str:
    """What somebody had last who scraped the script every two seconds until it had ended."""
    texts = [""]
    with subprocess.Popen([sys.executable, "-c", SCRIPT, how, str(port)], stderr=subprocess.PIPE, text=True) as process:
        eventually(lambda: served(port, "Prometheus/3") or process.poll() is not None)
        while process.poll() is None:
            texts.append(served(port, "Prometheus/3"))
            if how == "signal" and "rl_step{" in texts[-1] and value(texts[-1], "rl_step") == 4:
                process.send_signal(signal.SIGTERM)
                how = ""
            time.sleep(2.0)
        assert process.stderr is not None
        assert process.stderr.read().count("serving the final state") == 1
    return next(text for text in reversed(texts) if text)


def value(text: str, series: str) -> float:
    found = re.search(rf"^{series}{{.*}} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else float("nan")


@pytest.mark.waits
def test_however_a_process_ends() -> None:
    """All five ends at once, each with its last step and its state."""
    with ThreadPoolExecutor(len(ENDS)) as pool:
        ends = {how: pool.submit(last_scrape, how, port) for how, port in free_ports(ENDS).items()}
    for how, state in ENDS.items():
        text = ends[how].result()
        assert value(text, "rl_reward_mean") == 4.0, how
        assert f'state="{state}"}} 1.0' in text, how


def test_who_closes_second_waits(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the first has closed: otherwise the process would end in the middle of an answer."""
    assert exporter._server is not None
    closes, goes_on, closed = threading.Event(), threading.Event(), exporter._server.close

    def close() -> None:
        closes.set()
        assert goes_on.wait(60)
        closed()

    monkeypatch.setattr(exporter._server, "close", close)
    first, second = (threading.Thread(target=exporter.close) for _ in range(2))
    first.start()
    assert closes.wait(60)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    goes_on.set()
    for each in (first, second):
        each.join(60)
    assert exporter.port is None


def test_an_answer_that_is_not_made_yet_is_waited_for(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who asked for it before the end: it holds the end, and counts once it was taken."""
    from rlexporter.outputs import prometheus

    encode, asked, goes_on = prometheus.encode, threading.Event(), threading.Event()

    def slowly(*arguments: object, **options: object) -> object:
        asked.set()
        assert goes_on.wait(60)
        return encode(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("rlexporter.endpoint.app.prometheus.encode", slowly)
    exporter.end()
    with ThreadPoolExecutor(1) as pool:
        scrape = pool.submit(fetch, f"{exporter.url}/metrics", **{"User-Agent": "Prometheus/3"})
        assert asked.wait(60)
        assert exporter._ending.patience() > 0
        goes_on.set()
        assert scrape.result()[0] == 200
        eventually(lambda: exporter._ending.patience() == 0)


@pytest.mark.parametrize(("interval", "patience"), [(5.0, 10.0), (60.0, 30.0)])
def test_a_failed_rank_lets_the_others_wait_less(interval: float, patience: float) -> None:
    """For two scrapes, and for half a minute at most: its launcher waits for its end."""
    with Exporter(run="r", port=0, rank=Rank(1, local=1, world_size=2), ranks="all") as exporter:
        add_scrapes(exporter, interval)
        exporter.log({"reward": 1.0})
        assert exporter._ending.patience() == pytest.approx(150.0, 0.01)
        exporter.end(ValueError())
        assert exporter.state is RunState.FAILED
        assert exporter._ending.patience() == pytest.approx(patience, 0.01)
        exporter.close()


def add_scrapes(exporter: Exporter, interval: float) -> None:
    """Let somebody have come twice."""
    from rlexporter.endpoint.scrapers import Fetch

    assert exporter._server is not None
    for at in (2 * interval, interval):
        before = Fetch(time.monotonic() - at, "10.0.0.1", 1, "Prometheus/3")
        exporter._server.fetches.add(before)
        before.take()


ENDING = """
import sys, time
from pathlib import Path
from rlexporter import Exporter

port, folder = int(sys.argv[1]), Path(sys.argv[2])
with Exporter(run="r", port=port) as exporter:
    exporter.log({"reward": 1.0}, step=1)
    while not (folder / "end").exists():
        time.sleep(0.05)
    if len(sys.argv) > 3:
        raise ValueError("dead")
"""
"""A run that ends, well or with an exception, when it finds a file."""


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize(("error", "state"), [([], "finished"), (["raises"], "failed")])
def test_a_prometheus_that_is_restarted_sees_the_end(
    generation: str, error: list[str], state: str, tmp_path: Path
) -> None:
    """It scrapes every second, is stopped, and comes back six seconds later; the run ends meanwhile, and waits."""
    port = free_port()
    command = [sys.executable, "-c", ENDING, str(port), str(tmp_path), *error]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            with prometheus(generation, tmp_path / "server", [f"127.0.0.1:{port}"]) as server:
                eventually(lambda: server.query("count_over_time(rl_step[1m]) > 3"))
            (tmp_path / "end").touch()
            eventually(lambda: f'state="{state}"}} 1.0' in served(port))
            time.sleep(6.0)
            assert process.poll() is None
            with prometheus(generation, tmp_path / "server", [f"127.0.0.1:{port}"]) as server:
                assert process.wait(60) == bool(error)
                [found] = server.query(f'last_over_time(rl_run_state{{state="{state}"}}[5m])')
                assert found["value"][1] == "1"
        finally:  # also where there is no Prometheus, for which the test is skipped
            process.kill()
        assert process.stderr is not None
        process.stderr.close()
