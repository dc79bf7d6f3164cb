"""What goes wrong around a training: it trains as it would have, and is counted right afterwards.

Faults are there while a real GRPO trainer takes its steps, several that do not exclude each other in one training.
Afterwards losses, weights and random state are compared with those of a run without rlexporter, bit for bit, and what
is served with what the trainer did. A port that is taken on one rank is in test_ranks.py; more of slow clients, and
what they cost, in tests/endpoint/test_connections.py.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import TrainerCallback

import rlexporter
from rlexporter import recording
from rlexporter.exporter import Exporter
from rlexporter.outputs import discovery, otlp, prometheus, state_file
from rlexporter.store.keys import clip
from tests import tiny, tools
from tests.adapters.twice import random_states
from tests.conftest import fetch
from tests.tools import eventually, free_port

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

STEPS = 6
SAMPLES = 4 * STEPS // 2  # each is used in two steps
FAULTS: dict[str, list[Callable[[Around], None]]] = {}
"""Those of each training."""


@dataclass
class Around:
    """What faults may do: settings of the exporter, something in each step, checks at the end."""

    folder: Path
    patch: pytest.MonkeyPatch
    stack: ExitStack
    settings: dict[str, Any] = field(default_factory=dict)
    each_step: list[Callable[[Exporter], None]] = field(default_factory=list)
    afterwards: list[Callable[[Exporter], None]] = field(default_factory=list)
    errors: set[str] = field(default_factory=set)
    """Where errors of the exporter's own are expected."""

    def every_way_out(self) -> None:
        """Let everything leave the process in each way that there is, to a collector that is away."""
        self.settings |= {"state_file": self.folder / "state.json", "discovery_dir": self.folder / "targets"}
        self.settings.setdefault("otlp", f"http://127.0.0.1:{free_port()}")
        self.errors.add("otlp")


def fault(training: str) -> Callable[[Callable[[Around], None]], None]:
    """Put what is decorated into the table, as a fault of this training."""
    return FAULTS.setdefault(training, []).append


class EachStep(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Calls what the fault wants in the middle of each step."""

    def __init__(self, calls: list[Callable[[], None]]) -> None:
        self._calls = calls

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for call in self._calls:
            call()


def _train(folder: Path, watch: Callable[[Any], list[Callable[[], None]]]) -> tuple[Any, ...]:
    """Losses, weights and random state of a training."""
    random.seed(7)
    np.random.seed(7)
    trainer = tiny.grpo(folder, max_steps=STEPS, num_iterations=2, seed=7)
    trainer.add_callback(EachStep(watch(trainer)))
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    weights = {name: tensor.tolist() for name, tensor in trainer.model.state_dict().items()}
    return losses, weights, random_states()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """The training without rlexporter."""
    return _train(tmp_path_factory.mktemp("alone"), lambda _: [])


@fault("receivers")
def collector_down(around: Around) -> None:
    """Nobody listens where the pushes go."""
    around.settings["otlp"] = f"http://127.0.0.1:{free_port()}"
    around.errors.add("otlp")


@fault("process")
def collector_never_answers(around: Around) -> None:
    """It accepts, and that is all."""
    silent = around.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    around.settings["otlp"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
    around.errors.add("otlp")


@fault("receivers")
def prometheus_down_and_back(around: Around) -> None:
    """It is gone in the middle; counters hold what happened meanwhile."""
    port = free_port()
    around.settings["port"] = port
    servers = ExitStack()
    around.stack.enter_context(servers)
    folder = around.folder / "prometheus"
    server = [servers.enter_context(tools.prometheus("3", folder, [f"127.0.0.1:{port}"]))]
    counted = "rl_reward_dist_bucket{le='+Inf'}"

    def disturb(exporter: Exporter) -> None:
        step = exporter.snapshot.value("rl_step")
        if step == 2:
            eventually(lambda: server[0].value(counted))
            servers.pop_all().close()
        if step == 5:
            server[0] = servers.enter_context(tools.prometheus("3", folder, [f"127.0.0.1:{port}"]))

    around.each_step.append(disturb)
    around.afterwards.append(lambda _: eventually(lambda: server[0].value(counted) == SAMPLES))


@fault("receivers")
def slow_clients(around: Around) -> None:
    """200 connections that begin a request and never end it, more than may be kept: a scrape comes through."""
    clients: list[socket.socket] = []

    def connect(exporter: Exporter) -> None:
        while len(clients) < 200:
            sock = around.stack.enter_context(socket.create_connection(("127.0.0.1", exporter.port or 0)))
            sock.sendall(b"GET /metr")
            clients.append(sock)
        assert "rl_step" in _scrape(exporter)
        assert _sockets_of(exporter.port or 0) < 150

    around.each_step.append(connect)


@fault("receivers")
def many_scrapers(around: Around) -> None:
    """64 at once, in each step."""

    def scrape(exporter: Exporter) -> None:
        with ThreadPoolExecutor(64) as pool:
            found = list(pool.map(lambda _: fetch(f"{exporter.url}/metrics")[0], range(64)))
        assert found == [200] * 64

    around.each_step.append(scrape)


@fault("process")
def disk_full(around: Around) -> None:
    """For state file and recording: what is written of them goes to a device that is always full."""
    path = around.folder / "state.json"
    around.settings |= {"state_file": path, "record": "/dev/full"}
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")

    def planted() -> bool:
        """Put a full device in the place of the file; a write that is under way comes first."""
        with suppress(FileExistsError):
            partial.symlink_to("/dev/full")
            return True
        return partial.is_symlink()

    def fill(exporter: Exporter) -> None:
        eventually(planted)
        for outlet in exporter._outlets:
            outlet.wake()
        eventually(lambda: not partial.is_symlink())  # tried, and cleared away

    around.each_step.append(fill)
    around.errors |= {"state", "record"}

    def whole(_: Exporter) -> None:
        assert recording.read_saved_state(path)

    around.afterwards.append(whole)


@fault("content")
def clock_jumps(around: Around) -> None:
    """A day ahead and two back, as a clock does that is set. The machine's own cannot be: Python's is."""
    real, ahead = time.time, [0.0]
    around.patch.setattr(time, "time", lambda: real() + ahead[0])

    def jump(exporter: Exporter) -> None:
        exporter.run.store._clock = time.time  # which it took before it was replaced
        ahead[0] = {2.0: 86400.0, 4.0: -86400.0}.get(exporter.snapshot.value("rl_step") or 0, ahead[0])

    def sane(exporter: Exporter) -> None:
        seconds = exporter.snapshot.buckets
        durations = next(
            found for series, found in seconds.items() if series.metric.series == "rl_step_duration_seconds"
        )
        assert 0 <= durations.minimum <= durations.maximum < 60
        assert (exporter.snapshot.value("rl_stall_after_seconds") or 0) < 7200

    around.each_step.append(jump)
    around.afterwards.append(sane)


@fault("process")
def forks(around: Around) -> None:
    """A child, as a DataLoader makes them, has none of the sockets, and takes nothing away when it ends."""
    around.every_way_out()

    def fork(exporter: Exporter) -> None:
        with socket.create_connection(("127.0.0.1", exporter.port or 0)) as client:
            fetch(f"{exporter.url}/livez")
            child = os.fork()
            if not child:
                os._exit(_sockets_of(exporter.port or 0))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200 OK" in client.recv(1000)
        assert len(list((around.folder / "targets").iterdir())) == 1

    around.each_step.append(fork)


def _sockets_of(port: int) -> int:
    """How many open sockets of this process have this port of their own."""
    count = 0
    for each in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(each))) as sock:
                name = sock.getsockname()
        except (OSError, ValueError):
            continue
        count += isinstance(name, tuple) and len(name) > 1 and name[1] == port
    return count


@fault("content")
def key_flood(around: Around) -> None:
    """10,000 keys that nobody knows, a few hundred of them kept."""

    def flood(exporter: Exporter) -> None:
        if exporter.snapshot.value("rl_step") == 3:
            exporter.run.store.record({f"key/{i}": float(i) for i in range(10_000)}, 3)

    def bounded(exporter: Exporter) -> None:
        kept = [s for s in exporter.snapshot.samples if s.metric.series == "rl_logged_value"]
        assert 0 < len(kept) <= 200
        assert (exporter.snapshot.value("rlexporter_dropped_keys_total") or 0) >= 9_800

    around.each_step.append(flood)
    around.afterwards.append(bounded)


HOSTILE = (
    '"} 1\nrl_loss{x="',
    "\\",
    "\n# EOF\n",
    "\x00\x7f",
    "😈" * 500,
    "le",
    "{{ .Value }}",
    "<script>alert(1)",
)


@fault("content")
def hostile_labels(around: Around) -> None:
    """Names of reward functions that are meant to break the format: escaped and cut."""

    def name(exporter: Exporter) -> None:
        for each in HOSTILE:
            exporter.observe("reward_function", [1.0], reward_function=each)
            now = int(exporter.snapshot.value("rl_step") or 0)
            exporter.run.store.record({f"rewards/{each}/mean": 1.0, each: nan}, now)

    def escaped(exporter: Exporter) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        families = {each.name: each for each in text_string_to_metric_families(_scrape(exporter))}
        found = {sample.labels["reward_function"] for sample in families["rl_reward_function_mean"].samples}
        assert {clip(each) for each in HOSTILE} <= found
        assert "alert(1)" not in fetch(f"{exporter.url}/")[1], "the page is the same for every run"
        told = json.loads(fetch(f"{exporter.url}/api/status")[1])["rewards"]
        assert {clip(each) for each in HOSTILE} <= {each["function"] for each in told}

    around.each_step.append(name)
    around.afterwards.append(escaped)


@fault("ourselves")
def every_output_fails(around: Around) -> None:
    """An exception of its own in each of them."""
    around.every_way_out()
    around.patch.setattr(discovery, "FRESH_SECONDS", 0.02)
    done: list[int] = []

    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("planted")

    def break_all(exporter: Exporter) -> None:
        if not done:
            around.patch.setattr(prometheus, "encode", fail)
            around.patch.setattr(state_file, "text", fail)
            around.patch.setattr(discovery, "write_whole", fail)
            around.patch.setattr(otlp, "metrics_data", fail)
        done.append(fetch(f"{exporter.url}/metrics")[0])
        for outlet in exporter._outlets:
            outlet.wake()
        eventually(lambda: {"state", "discovery"} <= _errors(exporter))

    def mend(_: Exporter) -> None:
        assert set(done) == {500}
        around.patch.undo()

    around.each_step.append(break_all)
    around.afterwards.append(mend)
    around.errors |= {"scrape", "state", "discovery"}


@contextmanager
def _around(training: str, folder: Path) -> Iterator[Around]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        around = Around(folder, patch, stack, {"port": 0, "linger": 0})
        for build in FAULTS[training]:
            build(around)
        yield around


@pytest.mark.parametrize("training", FAULTS)
def test_a_training_survives(training: str, tmp_path: Path, alone: tuple[Any, ...]) -> None:
    """Each fault has a text of its own."""
    made: list[Exporter] = []
    with _around(training, tmp_path) as around:

        def watch(trainer: Any) -> list[Callable[[], None]]:
            made.append(rlexporter.attach(trainer, run="r", **around.settings))
            return [lambda each=each: each(made[0]) for each in around.each_step]  # type: ignore[misc]

        try:
            assert _train(tmp_path, watch) == alone
            exporter = made[0]
            for check in around.afterwards:
                check(exporter)
            _figures_are_right(exporter)
        finally:
            for each in made:
                each.close()
        assert _errors(exporter) == around.errors
    _nothing_is_left()


def _figures_are_right(exporter: Exporter) -> None:
    text = _scrape(exporter)
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    labels = 'rank="0",run="r"'
    assert lines[f"rl_step{{{labels}}}"] == str(float(STEPS))
    assert lines[f"rl_steps_total{{{labels}}}"] == str(float(STEPS))
    assert lines[f"rl_step_duration_seconds_count{{{labels}}}"] == str(float(STEPS))
    assert lines[f'rl_advantage_dist_bucket{{le="+Inf",{labels}}}'] == str(float(SAMPLES))
    assert lines[f'rl_run_state{{{labels},state="finished"}}'] == "1.0"
    assert len(lines) < 1700


def _scrape(exporter: Exporter) -> str:
    status, text, _ = fetch(f"{exporter.url}/metrics")
    assert status == 200
    return text


def _errors(exporter: Exporter) -> set[str]:
    found = exporter.snapshot.samples.items()
    return {s.labels[0] for s, value in found if s.metric.series == "rlexporter_errors_total" and value}


def _nothing_is_left() -> None:
    def threads() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name.startswith("rlexporter")]

    eventually(lambda: not threads())
    assert "rlexporter" in sys.modules
