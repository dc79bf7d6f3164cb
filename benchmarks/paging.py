"""How long a page takes: real servers that scrape and evaluate every 15 seconds, rules and groups as they are shipped.

All trials run at once, each in a cluster of its own, so that none is part of a storm; those of a kind begin three
seconds apart, which is all of a scrape's 15. A run is an exporter that is told of a step each second; those that are
killed are processes of their own.

    python -m benchmarks.paging RUN PORT    # such a process
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from statistics import median

import numpy as np

from rlexporter import Exporter
from tests.tools import ROOT, Webhook, alertmanager, free_port, free_ports, require_tools, running

TRIALS = 5
APART_SECONDS = 3.0
WARM_SECONDS = 240.0
"""Until anything goes wrong: Prometheus takes two minutes before it says of any run that it has vanished."""
SECOND_SECONDS = 240.0
"""How long after the first critical condition of a run the second begins."""
STALLED_SECONDS = 30.0
GIVE_UP_SECONDS = 900.0
WELL = {"loss": 0.1, "grad_norm": 1.0, "completions/clipped_ratio": 0.0}


@dataclass
class Trial:
    """A run in which something goes wrong, and when that was; seconds since the epoch."""

    run: str
    exporter: Exporter
    line: dict[str, float] = field(default_factory=lambda: dict(WELL))
    hangs: bool = False
    began: dict[str, float] = field(default_factory=dict)
    """By alert."""

    def step(self) -> None:
        """Let it go on."""
        if not self.hangs:
            self.exporter.log(self.line)


def nan_gradient(trial: Trial) -> None:
    trial.exporter.log({**WELL, "grad_norm": nan})
    trial.began["RLNotANumber"] = time.time()


def ratio(trial: Trial) -> None:
    trial.exporter.observe("policy_ratio", np.array([1.0, 50.0]))
    trial.exporter.log(WELL)
    trial.began["RLRatio"] = time.time()


def hang(trial: Trial) -> None:
    trial.hangs = True
    trial.began["RLRunStalled"] = time.time() + STALLED_SECONDS


def truncation(trial: Trial) -> None:
    trial.line = {**WELL, "completions/clipped_ratio": 0.95}
    for _ in range(20):
        trial.step()
    trial.began["RLLength"] = time.time()


KINDS: dict[str, tuple[tuple[float, Callable[[Trial], None]], ...]] = {
    "NaN": ((0.0, nan_gradient),),
    "ratio": ((0.0, ratio),),
    "hang": ((0.0, hang),),
    "second": ((0.0, ratio), (SECOND_SECONDS, truncation)),
}
SHOWN = {
    "NaN": ("RLNotANumber", "a NaN gradient norm in one step"),
    "ratio": ("RLRatio", "a probability ratio of 50 in one step"),
    "second": ("RLLength", "a second critical condition of a run, four minutes after the first"),
    "hang": ("RLRunStalled", "a hang, from when the limit of the run (`run_stalled`) has passed"),
    "kill": ("RLRunVanished", "SIGKILL"),
}


def rows() -> Iterator[str]:
    """The table."""
    yield "| what happens | median, seconds | worst, seconds |"
    yield "|---|---|---|"
    took = _measured()
    for kind, (_, said) in SHOWN.items():
        yield f"| {said} | {median(took[kind]):.0f} | {max(took[kind]):.0f} |"


def _measured() -> dict[str, list[float]]:
    """Seconds from fault to page, of each kind."""
    names = [f"{kind}-{number}" for kind in (*KINDS, "kill") for number in range(TRIALS)]
    ports = free_ports(names)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        webhook = stack.enter_context(Webhook())
        trials = {run: Trial(run, stack.enter_context(_run(run, ports[run]))) for run in names if "kill" not in run}
        killed = {run: stack.enter_context(_process(run, ports[run])) for run in names if "kill" in run}
        stack.enter_context(_servers(folder, [*ports.values()], webhook))
        began = _play(trials, killed, webhook)
        told = _told(webhook)
        return {
            kind: [told[run, alert] - began[run, alert] for run in names if run.startswith(kind)]
            for kind, (alert, _) in SHOWN.items()
        }


def _play(
    trials: dict[str, Trial], killed: dict[str, subprocess.Popen[bytes]], webhook: Webhook
) -> dict[tuple[str, str], float]:
    """Let everything go wrong in its time, and wait for the pages; when each began, by run and alert."""
    start = time.time() + WARM_SECONDS
    due: list[tuple[float, Callable[[], None]]] = []
    began: dict[tuple[str, str], float] = {}

    def kill(run: str) -> None:
        began[run, "RLRunVanished"] = time.time()
        killed[run].kill()

    for run in (*trials, *killed):
        kind, number = run.split("-")
        at = start + APART_SECONDS * int(number)
        if kind == "kill":
            due.append((at, lambda run=run: kill(run)))  # type: ignore[misc]
        for later, fault in KINDS.get(kind, ()):
            due.append((at + later, lambda fault=fault, run=run: fault(trials[run])))  # type: ignore[misc]
    due.sort(key=lambda each: each[0])
    expected = {(f"{kind}-{number}", alert) for kind, (alert, _) in SHOWN.items() for number in range(TRIALS)}
    while not expected <= _told(webhook).keys():
        if time.time() > start + GIVE_UP_SECONDS:
            raise RuntimeError(f"never paged: {sorted(expected - _told(webhook).keys())}")
        while due and due[0][0] <= time.time():
            due.pop(0)[1]()
        for trial in trials.values():
            trial.step()
        time.sleep(1.0)
    return began | {(trial.run, alert): at for trial in trials.values() for alert, at in trial.began.items()}


def _told(webhook: Webhook) -> dict[tuple[str, str], float]:
    """When the first page came, by run and alert."""
    found: dict[tuple[str, str], float] = {}
    for body in webhook.bodies("/page"):
        for each in body["alerts"]:
            if each["status"] == "firing":
                found.setdefault((each["labels"]["run"], each["labels"]["alertname"]), body["receivedAt"])
    return found


@contextlib.contextmanager
def _run(run: str, port: int) -> Iterator[Exporter]:
    thresholds = {"run_stalled": STALLED_SECONDS}
    exporter = Exporter(run=run, port=port, algorithm="grpo", labels={"cluster": run}, thresholds=thresholds).start()
    try:
        yield exporter
    finally:
        exporter.close()


@contextlib.contextmanager
def _process(run: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "benchmarks.paging", run, str(port)]
    with subprocess.Popen(command) as process:  # noqa: S603 - our own
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def _servers(folder: Path, ports: list[int], webhook: Webhook) -> Iterator[None]:
    """Prometheus 3.5.3 and Alertmanager 0.33.1."""
    (folder / "desk").mkdir()
    (folder / "desk/rlexporter.tmpl").write_text((ROOT / "alerts/rlexporter.tmpl").read_text())
    config = (ROOT / "alerts/alertmanager.yml").read_text()
    config = config.replace("http://127.0.0.1:9099", f"http://127.0.0.1:{webhook.port}")
    with alertmanager("new", folder / "desk", config) as desk:
        own = free_port()
        scraped = {"job_name": "rlexporter", "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
        told = {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{desk.port}"]}]}]}
        settings = {
            "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
            "rule_files": [str(ROOT / "alerts/rlexporter.rules.yml")],
            "alerting": told,
            "scrape_configs": [scraped],
        }
        (folder / "prometheus.yml").write_text(json.dumps(settings))
        command = [
            str(require_tools("3") / "prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{own}",
        ]
        with running(command, folder, own):
            yield


def _serve(run: str, port: str) -> None:
    """Be a run that makes steps until it is killed."""
    with _run(run, int(port)) as exporter:
        while True:
            exporter.log(WELL)
            time.sleep(1.0)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
