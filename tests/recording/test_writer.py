"""The recording: what goes into a run comes out of the file, line by line, and nothing of it disturbs training."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlexporter import Exporter
from rlexporter.catalog import NAMED
from rlexporter.model.errors import SetupError
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.recording import writer


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _without_time(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


def test_a_run_is_written_line_by_line(tmp_path: Path) -> None:
    """Numbers that are none, arrays and counts included; another run is appended."""
    path = tmp_path / "deep" / "run.jsonl"
    scores = np.array([0.5, 1.5])
    with Exporter(run="first", port=0, record=str(path), linger=0) as exporter:
        exporter.run.begin(RunFacts(algorithm="grpo", info={"trainer": "GRPOTrainer"}, hyperparameters={"beta": 0.04}))
        exporter.run.sink.observe("rl_policy_ratio_dist", [0.9, 1.1, math.nan])
        exporter.run.sink.observe("rl_reward_function_dist", [2.0], labels=("length",))
        exporter.run.sink.undefined("rl_reward_dist", 2)
        exporter.run.sink.values("kl", [0.25, math.nan])
        exporter.run.sink.advance(StepUpdate(step=1, duration=0.5))
        line = {"loss": math.nan, "reward": None, "scores": scores, "t": torch.ones(2), "n": np.float32(0.5), "o": {}}
        exporter.log(line, step=1)
        scores[:] = 0
        exporter.observe("kl_per_token", torch.tensor([0.5]))
    with Exporter(run="second", port=0, record=str(path), linger=0):
        pass
    events = _lines(path)

    assert [event["event"] for event in events] == ["meta", "state", "step", "log", "part", "state", "state"]
    meta, running, step, log, part, finished, _ = _without_time(events)
    assert (meta["run"], meta["algorithm"], meta["trainer"], meta["config"]) == (
        *("first", "grpo", "GRPOTrainer"),
        {"beta": 0.04},
    )
    assert meta["bounds"]["rl_policy_ratio_dist"] == list(NAMED["rl_policy_ratio_dist"].bounds)
    assert running == {"event": "state", "state": "running", "exception": ""}
    assert (step["global_step"], step["duration"], step["undefined"]) == (1, 0.5, {"rl_reward_dist": 2})
    assert step["values"]["kl"][0] == 0.25
    assert math.isnan(step["values"]["kl"][1])
    ratio = step["seen"]["rl_policy_ratio_dist"]
    assert (sum(ratio["counts"]), ratio["positive_sum"], ratio["nan"]) == (2, 2.0, 1)
    assert (ratio["min"], ratio["max"]) == (0.9, 1.1)
    assert step["seen"]['rl_reward_function_dist{reward_function="length"}']["max"] == 2.0
    assert math.isnan(log["logs"].pop("loss"))
    assert log["logs"] == {"reward": None, "scores": [0.5, 1.5], "t": [1.0, 1.0], "n": 0.5, "o": {}}
    assert log["global_step"] == 1
    assert part["seen"]["rl_kl_per_token_dist"]["positive_sum"] == 0.5
    assert finished == {"event": "state", "state": "finished", "exception": ""}
    assert events[-1]["state"] == "finished"
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
    """Training goes on, and so does the recording once there is room again."""
    with Exporter(run="r", port=0, record="/dev/full", linger=0) as exporter:
        exporter.log({"loss": 1.0}, step=1)
        recorder = exporter.run.sink.recorder
        assert recorder
        recorder.close()
        assert exporter.snapshot.value("rlexporter_errors_total", where="record")
        assert exporter.snapshot.value("rl_loss") == 1.0


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
