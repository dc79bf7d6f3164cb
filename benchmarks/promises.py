"""What is promised of a process that is watched, on a quiet machine and beside eight busy processes.

python -m benchmarks.promises NAME   measures one of them, in a process of its own
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import quantiles

from benchmarks.paired import scraped
from rlexporter import Exporter
from tests.conftest import fetch
from tests.e2e.attacked import KEYS, STEPS, VALUES, memory
from tests.endpoint.test_fuzz import exchanged, random_request
from tests.run.test_last_sample import ENDS, last_scrape, value
from tests.tools import free_ports, served

_BUSY = 8


def rows() -> Iterator[str]:
    """The lines of a Markdown table."""
    quiet = {name: _measured(name) for name in _PROMISES}
    with contextlib.ExitStack() as busy:
        for _ in range(_BUSY):
            process = busy.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            busy.callback(process.kill)
        beside = {name: _measured(name) for name in _PROMISES}
    yield f"| what | quiet | beside {_BUSY} busy processes |"
    yield "|---|---|---|"
    for name, (what, _) in _PROMISES.items():
        yield f"| {what} | {quiet[name]} | {beside[name]} |"


def _measured(name: str) -> str:
    command = [sys.executable, "-m", __name__, name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own
    return done.stdout.splitlines()[-1]


def _exporter() -> Exporter:
    return Exporter(run="bench", algorithm="grpo", port=0, linger=0)


def _errors(exporter: Exporter) -> float:
    return exporter.snapshot.value("rlexporter_errors_total", where="log") or 0


def _last_samples() -> str:
    lives = {f"{how} {number}": how for how in ENDS for number in range(4)}
    with ThreadPoolExecutor(len(lives)) as pool:
        ports = free_ports(lives)
        texts = {name: pool.submit(last_scrape, how, ports[name]) for name, how in lives.items()}
    found = [
        value(texts[name].result(), "rl_reward_mean") == 4.0 and f'state="{ENDS[how]}"}} 1.0' in texts[name].result()
        for name, how in lives.items()
    ]
    return f"{sum(found)} of {len(found)}"


def _inputs() -> str:
    rng, raised, count = random.Random(0), 0, 10_000  # noqa: S311 - no secret
    with _exporter() as exporter:
        for _ in range(count):
            try:
                line = {rng.choice(KEYS): rng.choice(VALUES)(rng) for _ in range(rng.randrange(8))}
                exporter.log(line, step=rng.choice(STEPS))  # type: ignore[arg-type]
                exporter.observe("policy_ratio", rng.choice(VALUES)(rng))
            except Exception:  # noqa: BLE001, PERF203 - this is what is counted
                raised += 1
    return f"{raised} of {count:,}"


def _keys() -> str:
    lines = [{f"key_{line}_{key}": 1.0 for key in range(100)} for line in range(1000)]
    with _exporter() as exporter:
        exporter.log(lines[0])
        before, start = memory(), time.thread_time()
        for line in lines:
            exporter.log(line)
        took = time.thread_time() - start
        return f"{(memory() - before) / 1e6:.1f} MB, {1e3 * took / len(lines):.2f} ms a line"


def _long_run() -> str:
    count, middle = 40_000, 0
    with _exporter() as exporter, scraped(exporter.port or 0, 1.0):
        for step in range(count):
            exporter.log({"reward": step % 7, "kl": 0.1, "loss": 0.5, "grad_norm": 1.0}, step=step)
            if step == count // 2:
                middle = memory()
        return f"{(memory() - middle) / 1e6:.1f} MB, {_errors(exporter):.0f} errors"


def _threads() -> str:
    sys.setswitchinterval(1e-5)

    def act() -> None:
        for _ in range(600):
            exporter.log({"reward": 1.0})
            exporter.observe("policy_ratio", [1.0] * 10)

    with _exporter() as exporter:
        threads = [threading.Thread(target=act) for _ in range(16)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        _, text, _ = fetch(f"{exporter.url}/metrics")
        lines, values = value(text, "rl_steps_total"), value(text, "rl_policy_ratio_dist_count")
        return f"{lines:,.0f} of 9,600 lines, {values:,.0f} of 96,000 values"


def _signals() -> str:
    handled, count = 0, 0

    def log(*_: object) -> None:
        nonlocal handled
        exporter.log({"reward": 1.0})
        handled += 1

    with _exporter() as exporter:
        signal.signal(signal.SIGALRM, log)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            exporter.log({"reward": 0.5})
            count += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        counted = exporter.snapshot.value("rl_steps_total") or 0
        return f"{counted:,.0f} of {count + handled:,}, {handled:,} signals, {_errors(exporter):.0f} errors"


def _forks() -> str:
    hung, count = 0, 50
    with _exporter() as exporter:
        for step in range(count):
            exporter.log({"reward": 1.0}, step=step)
            child = os.fork()
            if not child:
                exporter.log({"reward": 2.0}, step=10**6)
                exporter.close()
                os._exit(0)
            hung += not _ended(child)
        theirs = exporter.snapshot.value("rl_step") != count - 1
        return f"{hung} of {count} hung, {'something' if theirs else 'nothing'} of theirs"


def _ended(child: int) -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _requests() -> str:
    failed, count = 0, 5000
    with _exporter() as exporter:
        for seed in range(count):
            rng = random.Random(seed)  # noqa: S311 - no secret
            failed += b"HTTP/1.1 5" in exchanged(exporter, random_request(rng))
    return f"{failed} of {count:,}"


def _scrapes() -> str:
    """Scrapes beside strangers of whom 200 say nothing, and one floods."""
    from benchmarks.flood import flood
    from tests.endpoint.wire import connect

    took: list[float] = []
    with _exporter() as exporter, contextlib.ExitStack() as strangers:
        for _ in range(200):
            strangers.enter_context(connect(exporter))
        strangers.enter_context(flood("/livez", "", exporter.port or 0))
        for step in range(100):
            exporter.log({"reward": 1.0}, step=step)
            start = time.monotonic()
            took += [time.monotonic() - start] if served(exporter.port or 0, "Prometheus/3") else []
            time.sleep(0.1)
    middle, last = (1e3 * quantiles(took, n=100)[at - 1] for at in (50, 99))
    return f"{100 - len(took)} of 100 refused; {middle:.0f} ms, p99 {last:.0f} ms"


_PROMISES: dict[str, tuple[str, Callable[[], str]]] = {
    "last": ("last samples that arrive, in five ends, with an answer that takes 150 ms", _last_samples),
    "inputs": ("random lines and values that raise", _inputs),
    "keys": ("100,000 different keys, 100 a line", _keys),
    "long": ("growth in the second 20,000 of 40,000 lines, scraped each second", _long_run),
    "threads": ("16 threads that log and observe, switched each 10 us", _threads),
    "signals": ("lines counted while a handler logs, a thousand times a second", _signals),
    "forks": ("forked children that log, close and end", _forks),
    "requests": ("random requests that are answered by 5xx", _requests),
    "scrapes": ("scrapes beside 200 strangers who say nothing, and one who floods", _scrapes),
}


if __name__ == "__main__":
    print(_PROMISES[sys.argv[1]][1]())
