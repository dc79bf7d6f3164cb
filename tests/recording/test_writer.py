"""The recording: what goes into a run comes out of the file, line by line, and nothing of it disturbs training."""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlexporter import Exporter
from rlexporter.logs import reader
from rlexporter.model.errors import SetupError
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.recording import writer
from tests.programs import printed
from tests.tools import ROOT, eventually


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_is_written_line_by_line(tmp_path: Path) -> None:
    """Each line as it was when it was logged, whatever it holds; another run is appended.

    test_reader.py has what is in the lines: it reads them back.
    """
    path = tmp_path / "deep" / "run.jsonl"
    scores, later = np.array([0.5, 1.5]), torch.ones(2)
    with Exporter(run="first", port=0, record=str(path), linger=0) as exporter:
        exporter.run.begin(RunFacts(algorithm="grpo", info={"trainer": "GRPOTrainer"}, hyperparameters={"beta": 0.04}))
        exporter.run.sink.advance(StepUpdate(step=1, duration=0.5))
        exporter.log({"reward": None, "scores": scores, "t": later, "n": np.float32(0.5), "o": {}}, step=1)
        scores[:] = 0
        later[:] = 0
        exporter.observe("kl_per_token", torch.tensor([0.5]))
    with Exporter(run="second", port=0, record=str(path), linger=0):
        pass
    events = _lines(path)

    assert [event["event"] for event in events] == ["meta", "state", "step", "log", "part", "state", "state"]
    assert [event["state"] for event in events if event["event"] == "state"] == ["running", "finished", "finished"]
    assert (events[0]["trainer"], events[0]["config"]) == ("GRPOTrainer", {"beta": 0.04})
    assert events[3]["logs"] == {"reward": None, "scores": [0.5, 1.5], "t": [1.0, 1.0], "n": 0.5, "o": {}}
    assert all(event["time"] > 1.7e9 for event in events)


def test_a_file_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    """Which, why, and by which setting; nothing is left running. A callback serves without it."""
    (tmp_path / "file").write_text("")
    exporter = Exporter(run="r", port=0, record=str(tmp_path / "file" / "run.jsonl"))

    with pytest.raises(SetupError, match=r"cannot record to .*run\.jsonl: .* \(argument record, RLEXPORTER_RECORD\)"):
        exporter.start()
    assert exporter.port is None

    assert exporter.start(fallback=True).url
    assert exporter.snapshot.value("rlexporter_errors_total", where="record") == 1
    exporter.close()


def test_a_disk_that_fails_is_counted(tmp_path: Path) -> None:
    """Training goes on, and so does the recording once there is room again. The limit on file sizes is the real one."""
    path = tmp_path / "run.jsonl"
    with Exporter(run="r", port=0, record=path, linger=0) as exporter:
        exporter.log({"loss": 1.0}, step=1)
        eventually(lambda: b'"event": "log"' in path.read_bytes())
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
        try:
            exporter.log({"loss": 2.0}, step=2)
            eventually(lambda: exporter.snapshot.value("rlexporter_errors_total", where="record"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        exporter.log({"loss": 3.0}, step=3)
        assert exporter.snapshot.value("rl_loss") == 3.0
    assert [event.logs["loss"] for event in reader.read(path).events if event.logs] == [1.0, 3.0]


CUT_OFF = """
import json, os, resource, sys
from rlexporter.logs import reader
from rlexporter.recording.writer import Recorder
from tests.tools import eventually

path, failed = sys.argv[1], []
recorder = Recorder(path, failed.append)
for step in range(1, 6):
    recorder.log(step, {"reward": 0.5})
eventually(lambda: open(path).read().count("\\n") == 5)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 30, hard))
for step in (6, 7):  # of which the first has room for 30 bytes
    recorder.log(step, {"reward": 0.5})
    eventually(lambda: len(failed) == step - 5)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
recorder.log(8, {"reward": 0.5})
recorder.close()
with open(path, "a") as file:
    file.write('{"event": "log", "glob')  # as a killed process leaves it
again = Recorder(path, failed.append)
again.log(9, {"reward": 0.5})
again.close()
found = reader.read(path, "grpo")
print(json.dumps([[event.step for event in found.events], found.notes, len(failed)]))
"""


def test_a_disk_that_is_full_once_costs_its_lines(tmp_path: Path) -> None:
    """The line that is cut off, and those that do not fit: later ones are read, and a reader says what it left out.

    The limit on the size of files stands for the disk: it lets the first part of a line through, and then nothing.
    """
    path = tmp_path / "run.jsonl"
    steps, [note], failed = json.loads(printed(sys.executable, "-c", CUT_OFF, str(path), cwd=ROOT))

    assert steps == [1, 2, 3, 4, 5, 8, 9]
    assert failed == 2
    assert re.fullmatch(r"left out 2 damaged lines: 6: is no JSON: .*; 8: is no JSON: .*", note)


def test_a_file_that_was_removed_is_said(tmp_path: Path) -> None:
    """It has no name any more, and what is written to it is nowhere."""
    path = tmp_path / "run.jsonl"
    with Exporter(run="r", port=0, record=str(path), linger=0) as exporter:
        exporter.log({"loss": 1.0}, step=1)
        eventually(lambda: path.read_text().count("\n") >= 2)
        path.unlink()
        exporter.log({"loss": 2.0}, step=2)
        eventually(lambda: exporter.snapshot.value("rlexporter_errors_total", where="record"))
        assert exporter.snapshot.value("rl_loss") == 2.0


def test_a_disk_that_is_too_slow_costs_lines_not_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit into the queue is counted; the log line itself is served."""
    monkeypatch.setattr(writer, "_MAX_WAITING", 3)
    gate = threading.Event()
    real = writer.Recorder._line

    def slow(self: writer.Recorder, event: dict[str, Any]) -> None:
        gate.wait(600)
        real(self, event)

    monkeypatch.setattr(writer.Recorder, "_line", slow)
    with Exporter(run="r", port=0, record=str(tmp_path / "run.jsonl"), linger=0) as exporter:
        for step in range(1, 11):
            exporter.log({"loss": float(step)}, step=step)
        assert exporter.snapshot.value("rl_loss") == 10.0
        assert (exporter.snapshot.value("rlexporter_errors_total", where="record") or 0) >= 6
        gate.set()
    assert len(_lines(tmp_path / "run.jsonl")) <= 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    """And what the parent wrote stands there once."""
    path = tmp_path / "run.jsonl"
    with Exporter(run="r", port=0, record=str(path), linger=0) as exporter:
        exporter.log({"loss": 1.0}, step=1)
        child = os.fork()
        if child == 0:  # pragma: no cover - in the child
            exporter.log({"loss": 2.0}, step=2)
            exporter.close()
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    logged = [event["logs"]["loss"] for event in _lines(path) if event["event"] == "log"]

    assert logged == [1.0]
    assert [thread.name for thread in threading.enumerate() if thread.name == "rlexporter-record"] == []
