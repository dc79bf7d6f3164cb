"""What open status pages cost: an answer of `/api/status`, and a training beside 64 pages that poll it."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

from benchmarks.measure import cpu_of

PAGES = 64
_ROUNDS = 5
_STEPS = 300
_OBSERVED = ("policy_ratio", "reward", "advantage", "kl_per_token", "logprob", "ref_logprob", "entropy_per_token")
_POLLER = """
import http.client, itertools, sys, threading, time
port, pages = int(sys.argv[1]), int(sys.argv[2])
def get(path):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return float(answer.headers.get("Retry-After", 0))
def page(number):
    time.sleep(2.0 * number / pages)
    for asked in itertools.count():
        wait = get("/api/status")
        if asked % 5 == 0:
            more = ["heat_maps=1"] if asked % 15 == 0 else []
            get("/api/history?" + "&".join([*more, *(["earlier=1"] if asked == 0 else [])]))
        if asked == 0:
            get("/api/completions")
        time.sleep(max(2.0, wait))
threads = [threading.Thread(target=page, args=(number,), daemon=True) for number in range(pages)]
for thread in threads: thread.start()
time.sleep(4.0)  # all have asked once
print("polling", flush=True)
sys.stdin.read()
"""


def rows() -> Iterator[str]:
    """The lines of two Markdown tables."""
    yield "| lines of `/metrics` | made: CPU ms | asked for: ms | kilobytes, with gzip |"
    yield "|---|---|---|---|"
    yield _answers()
    yield ""
    yield f"| a step: ms | beside {PAGES} pages: ms | more | endpoint's threads: CPU ms a second |"
    yield "|---|---|---|---|"
    pairs = [(loop(), loop(_polled)) for _ in range(_ROUNDS)]
    more = median(100 * (beside.step / plain.step - 1) for plain, beside in pairs)
    plain, beside = ([pair[place].step for pair in pairs] for place in (0, 1))
    cpu = [pair[1].endpoint for pair in pairs]
    yield f"| {spread(plain)} | {spread(beside)} | {more:+.1f} % | {spread(cpu)} |"


def _answers() -> str:
    """One row: a GRPO run with many series, judged, whose steps go on while it is asked."""
    from rlexporter import Exporter
    from rlexporter.outputs.prometheus import encode
    from rlexporter.status import document
    from rlexporter.status.history import History

    line = _line()
    with Exporter(run="bench", algorithm="grpo", port=0, linger=0) as exporter:
        done = threading.Event()

        def train() -> None:
            step = 0
            while not done.wait(0.02):
                step += 1
                exporter.log({key: value + step % 7 for key, value in line.items()}, step=step)
                for name in _OBSERVED:
                    exporter.observe(name, [0.9, 1.0, 1.1])

        trainer = threading.Thread(target=train)
        trainer.start()
        time.sleep(2.0)
        asked, size = _asked(exporter.port or 0)
        done.set()
        trainer.join()
        lines = sum(not each.startswith(b"#") for each in encode(exporter.snapshot, "")[0].splitlines())
        history, made = History(), []
        history.see(exporter.snapshot)
        for _ in range(50):
            start = time.thread_time()
            json.dumps(document.status(exporter.snapshot, history, time.time()))
            made.append(1e3 * (time.thread_time() - start))
    return f"| {lines} | {spread(made)} | {spread(asked)} | {size / 1e3:.0f} |"


def _line() -> dict[str, float]:
    from rlexporter.catalog.metrics import CATALOG

    keys = [key.name for metric in CATALOG for key in metric.keys if "grpo" in key.algorithms and "{" not in key.name]
    functions = [f"rewards/f{number}/{part}" for number in range(8) for part in ("mean", "std")]
    own = [f"mine/{number}" for number in range(340)]
    return dict.fromkeys((*keys, *functions, *own), 0.5)


def _asked(port: int) -> tuple[list[float], int]:
    """Milliseconds of answers, each of which is made anew, and the bytes of one."""
    found, size = [], 0
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for _ in range(40):
            start = time.perf_counter()
            connection.request("GET", "/api/status", headers={"Accept-Encoding": "gzip"})
            size = len(connection.getresponse().read())
            found.append(1e3 * (time.perf_counter() - start))
            time.sleep(1.05)
    return found, size


class Loop(NamedTuple):
    """What one loop took: milliseconds a step by the clock, and CPU milliseconds a second of the endpoint's threads."""

    step: float
    endpoint: float


Beside = Callable[[int], contextlib.AbstractContextManager[object]]
"""What goes on beside a loop: it is given the port of the endpoint."""


def loop(beside: Beside = contextlib.nullcontext, **settings: Any) -> Loop:
    """Run a loop that computes with torch and with Python, attached; ``settings``: of its exporter."""
    import torch

    from rlexporter import Exporter

    line, weights = _line(), torch.randn(256, 256)
    with Exporter(run="bench", algorithm="grpo", port=0, linger=0, **settings) as exporter, beside(exporter.port or 0):
        before = _cpu()
        start = time.perf_counter()
        for step in range(1, _STEPS + 1):
            for _ in range(40):
                weights = torch.tanh(weights @ weights / 16)
            sum(number * number for number in range(50_000))
            exporter.log(line, step=step)
            exporter.observe("policy_ratio", weights)
        took = time.perf_counter() - start
        cpu = _cpu() - before
    return Loop(1e3 * took / _STEPS, 1e3 * cpu / took)


def _cpu() -> float:
    return cpu_of("rlexporter-http") + cpu_of("rlexporter-history")


def _polled(port: int) -> contextlib.AbstractContextManager[None]:
    """Pages in a process of their own, which takes time of the same cores, as a browser on this machine would."""
    return running(_POLLER, str(port), str(PAGES))


@contextlib.contextmanager
def running(script: str, *arguments: str) -> Iterator[None]:
    """Run a script beside, from when it has printed a line until it is killed."""
    command = [sys.executable, "-c", script, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own
    assert process.stdout
    assert process.stdin
    try:
        process.stdout.readline()
        yield
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


def spread(values: list[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
