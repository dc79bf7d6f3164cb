"""What is urgent leaves at once: a process that is killed right after it has left it in its file and at the collector.

The intervals of both are ten minutes, so that only what wakes them can bring it within the patience of a test.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from os import environ
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="the extra `otlp` is not installed")

from rlexporter import Exporter, StateFile
from rlexporter.atomic_file import write_whole
from rlexporter.logs import saved_state
from rlexporter.outputs import state_file
from tests.e2e.collectors import HTTP, collector
from tests.tools import ROOT, eventually

INTERVAL_SECONDS = 600

CHILD = """
import math, sys, time
from rlexporter import Exporter
from rlexporter.model.step import RunFacts, StepUpdate
exporter = Exporter(run="r", algorithm="grpo", port=0).start()
sink = exporter.run.sink
for happens in sys.argv[1:]:
    while any(each._asked for each in exporter._outlets):
        time.sleep(0.1)
    time.sleep(1.0)
    print("ready", flush=True)
    sys.stdin.readline()
    exec(happens)
time.sleep(3600)
"""

Value = Callable[..., float | None]
URGENT: dict[str, Callable[[Value], bool]] = {
    'exporter.run.begin(RunFacts(algorithm="grpo", step=0, output_dir="out"))': (
        lambda value: value("rl_run_state", state="running") == 1.0
    ),
    'exporter.log({"reward": math.nan}, step=2)': (
        lambda value: value("rl_condition", condition="nonfinite_reward", severity="critical") == 1.0
    ),
    'sink.observe("rl_grad_norm", [math.nan]); sink.advance(StepUpdate(step=3))': (
        lambda value: value("rl_condition", condition="nonfinite", severity="critical") == 1.0
    ),
    "sink.saved(3)": lambda value: value("rl_last_checkpoint_step") == 3.0,
    'exporter.run.end(RuntimeError("planted"))': lambda value: value("rl_run_state", state="failed") == 1.0,
}
"""What happens: the beginning, a NaN in a line and in a step without one, a checkpoint, the end. How it is known."""


def _kept(path: Path) -> Value:
    """What the file says; None of anything where there is none."""
    found = saved_state.read_saved_state(path) if path.exists() else None
    return found.snapshot.value if found else lambda *_, **__: None


@pytest.mark.slow
@pytest.mark.waits
def test_it_has_left_before_a_kill(tmp_path: Path) -> None:
    """The state before it has arrived and nobody is awake when it happens, so that nothing else brings it."""
    path = tmp_path / "out" / state_file.STATE_FILE
    variables = {
        "RLEXPORTER_STATE_FILE": "on",
        "RLEXPORTER_STATE_INTERVAL_SECONDS": str(INTERVAL_SECONDS),
        "OTEL_METRIC_EXPORT_INTERVAL": str(INTERVAL_SECONDS * 1000),
        "PYTHONPATH": str(ROOT),
    }
    command, pipe = [sys.executable, "-c", CHILD, *URGENT], subprocess.PIPE
    with collector(HTTP) as at:
        variables["RLEXPORTER_OTLP"] = at.address
        child = subprocess.Popen(command, env=environ | variables, cwd=tmp_path, stdin=pipe, stdout=pipe, text=True)
        try:
            assert child.stdin
            assert child.stdout
            for number, arrived in enumerate(URGENT.values()):
                assert child.stdout.readline() == "ready\n"
                eventually(lambda: at.pushes)
                assert path.exists() is bool(number), "the folder is known when the run begins"
                assert not arrived(_kept(path))
                assert not arrived(at.pushes[-1].value)

                print(file=child.stdin, flush=True)
                eventually(lambda arrived=arrived: arrived(_kept(path)) and arrived(at.pushes[-1].value), 60.0)
        finally:
            child.kill()
            child.communicate()

    assert child.returncode == -signal.SIGKILL
    assert arrived(_kept(path))
    assert not list(path.parent.glob("*.part"))


def test_a_disk_that_hangs_does_not_hold_up_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes line after line, urgent or not, while a write has not returned; then the last one is written."""
    gate, writing = threading.Event(), threading.Event()

    def write(path: Path, text: str) -> None:
        writing.set()
        gate.wait()
        write_whole(path, text)

    path = tmp_path / "state.json"
    exporter = Exporter(run="r", algorithm="grpo", port=0, state_file=StateFile(path, interval=INTERVAL_SECONDS))
    gate.set()
    monkeypatch.setattr("rlexporter.outputs.state_file.write_whole", write)
    exporter.start()
    gate.clear()
    writing.clear()
    exporter.run.sink.saved(0)
    assert writing.wait(60.0)
    for step in range(1, 101):
        exporter.log({"loss": math.nan if step % 2 else 0.5}, step=step)
        exporter.run.sink.saved(step)
    assert not gate.is_set()
    assert _kept(path)("rl_step") is None
    gate.set()
    eventually(lambda: _kept(path)("rl_last_checkpoint_step") == 100, 60.0)
    exporter.close()


@pytest.mark.waits
def test_the_file_is_no_older_than_its_interval(tmp_path: Path) -> None:
    """Also while nothing happens, so that its time says when the process was last alive; of an ended run it stays."""
    path = tmp_path / "state.json"
    exporter = Exporter(run="r", algorithm="grpo", port=0, state_file=StateFile(path, interval=1)).start()
    exporter.log({"loss": 0.5}, step=1)
    eventually(lambda: _kept(path)("rl_step") == 1)
    for _ in range(2):
        before = path.stat().st_mtime_ns
        eventually(lambda old=before: path.stat().st_mtime_ns > old)
    exporter.end()
    eventually(lambda: _kept(path)("rl_run_state", state="finished") == 1.0)
    ended = path.stat().st_mtime_ns
    exporter.close()

    assert path.stat().st_mtime_ns == ended
