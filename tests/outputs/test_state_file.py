"""The last state of a killed process: written whole, kept, and served again."""

from __future__ import annotations

import json
import math
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlexporter import Exporter, Rank
from rlexporter.commands import main
from rlexporter.logs import saved_state
from rlexporter.model.snapshot import RunState
from rlexporter.outputs import state_file
from tests.conftest import fetch
from tests.served import errors
from tests.tools import ROOT, eventually, free_port, said_until, served

LINES: list[dict[str, float]] = [
    {"loss": 0.5, "kl": 0.1, "reward": -1.5, "rewards/length/mean": 2.0},
    {"loss": math.nan, "kl": math.inf},
]


def _run(path: Path, **settings: Any) -> Exporter:
    """A GRPO run of two log lines and some rewards that keeps its state."""
    exporter = Exporter(run="kept", algorithm="grpo", port=0, state_file=path, **settings)
    exporter.start()
    for step, line in enumerate(LINES, 1):
        exporter.log(line, step=step)
    exporter.observe("reward", [-3.0, -0.5, 0.25, math.nan])
    exporter.observe("reward_function", [1.0], reward_function='a "b"\\c\n{d}=,')
    return exporter


def _served(text: str) -> dict[str, str]:
    """Samples of a scrape, but for what the exporter counts of itself."""
    lines = [line for line in text.splitlines() if line.startswith("rl_")]
    return dict(line.rsplit(" ", 1) for line in lines)


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_served_is_served_again(tmp_path: Path, killed: bool) -> None:
    """Every series with its value: NaN, infinities and histograms of negative values too.

    The file of a killed process says nothing of an end: who replays it sees a failed run.
    """
    path = tmp_path / "state.json"
    exporter = _run(path)
    if not killed:
        exporter.end()
    expected, left = _served(fetch(f"{exporter.url}/metrics")[1]), state_file.text(exporter.snapshot)
    exporter.close()
    if killed:
        path.write_text(left)
        expected['rl_run_state{rank="0",run="kept",state="running"}'] = "0.0"
        expected['rl_run_state{rank="0",run="kept",state="failed"}'] = "1.0"
        expected['rl_run_exception_info{exception="Killed",rank="0",run="kept"}'] = "1.0"
    kept = saved_state.read_saved_state(path)
    assert kept
    assert kept.state is (RunState.RUNNING if killed else RunState.FINISHED)

    text, said = _replayed(path)

    assert _served(text) == expected
    assert (", running" if killed else "run kept: finished after step 2") in said
    assert "1 in rl_loss" in said


def _replayed(path: Path) -> tuple[str, str]:
    """What `rlexporter replay` serves of this file, and what it says."""
    port = free_port()
    script = ["-u", "-m", "rlexporter", "replay", str(path), "--port", str(port), "--linger", "600"]
    replay = subprocess.Popen([sys.executable, *script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert replay.stdout
    try:
        text = eventually(lambda: served(port))
        said = said_until("Ctrl-C ends it", replay.stdout)
    finally:
        replay.send_signal(signal.SIGINT)
        rest, _ = replay.communicate(timeout=600)
    return text, said + rest


def test_the_next_process_keeps_what_the_killed_one_left(tmp_path: Path) -> None:
    """Under another name; what a whole run leaves is small."""
    path = tmp_path / "state.json"
    path.write_text('{"of": "the killed one"}')
    _run(path).close()

    assert json.loads((tmp_path / "state.previous.json").read_text()) == {"of": "the killed one"}
    assert json.loads(path.read_text())["event"] == "snapshot"
    assert 1000 < path.stat().st_size < 200_000


def test_each_rank_has_its_own(tmp_path: Path) -> None:
    """And its own recording."""
    settings = {"rank": Rank(3, world_size=4), "ranks": "all", "record": str(tmp_path / "run.jsonl")}
    _run(tmp_path / "state.json", **settings).close()

    assert sorted(each.name for each in tmp_path.iterdir()) == ["run.rank3.jsonl", "state.rank3.json"]


def test_a_full_disk_costs_the_file_only(tmp_path: Path) -> None:
    """Training goes on, the error is counted, and the old file stays whole. The limit on file sizes is the real one."""
    path = tmp_path / "state.json"
    exporter = _run(path)
    outlet = exporter._outlets[0]
    eventually(lambda: saved_state.read_saved_state(path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        exporter.log({"loss": 0.25}, step=3)
        outlet.wake()
        eventually(lambda: (exporter.snapshot.value("rlexporter_errors_total", where="state") or 0) >= 1)
        assert saved_state.read_saved_state(path)
        eventually(lambda: [each.name for each in tmp_path.iterdir()] == ["state.json"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    exporter.close()

    kept = saved_state.read_saved_state(path)
    assert kept
    assert kept.snapshot.value("rl_loss") == 0.25
    assert errors(exporter) == exporter.snapshot.value("rlexporter_errors_total", where="state")


def test_a_place_where_nothing_can_be_written_costs_a_training_nothing(tmp_path: Path) -> None:
    """It goes on without the file; a person's start fails: see tests/test_exporter.py."""
    (tmp_path / "file").touch()
    exporter = Exporter(run="r", port=0, state_file=tmp_path / "file" / "state.json")
    exporter.start(fallback=True)
    exporter.log({"loss": 1.0})
    exporter.close()
    assert exporter.snapshot.value("rlexporter_errors_total", where="state") == 1


@pytest.mark.parametrize(
    "text", ['{"event": "snapshot"}', '{"event": "snapshot", "time": 1, "labels": {}, "samples": {"rl_step": "x"}}']
)
def test_a_file_that_is_none_is_refused_with_a_reason(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the status of a file that cannot be read."""
    path = tmp_path / "state.json"
    path.write_text(text)

    assert main.main(["replay", str(path)]) == 3
    assert f"{path}: is no state of a run" in capsys.readouterr().err


def test_check_says_that_it_is_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what it is."""
    path = tmp_path / "state.json"
    _run(path).close()

    assert main.main(["check", str(path)]) == 3
    assert "this is the last state of a run and not its course: `rlexporter replay`" in capsys.readouterr().err


def test_only_what_the_catalogue_has_is_read(tmp_path: Path) -> None:
    """A file of another version."""
    path = tmp_path / "state.json"
    _run(path).close()
    found = json.loads(path.read_text())
    found["samples"]["rl_of_the_future"] = 1
    found["bounds"]["rl_reward_dist"] = [0.0, 1.0]
    path.write_text(json.dumps(found))

    kept = saved_state.read_saved_state(path)
    assert kept
    names = {series.metric.series for series in (*kept.snapshot.samples, *kept.snapshot.buckets)}
    assert "rl_of_the_future" not in names
    assert "rl_reward_dist" not in names
    assert "rl_reward_function_dist" in names
