"""The page of a run that is over: kept beside its checkpoints, and told in one line."""

from __future__ import annotations

import json
import logging
import math
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rlexporter import Exporter, Rank
from rlexporter.catalog.metrics import CATALOG
from rlexporter.model.errors import SetupError
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.run import shutdown
from rlexporter.status import document, page
from rlexporter.status.page import PAGE_FILE
from tests.conftest import fetch
from tests.served import errors
from tests.tools import ROOT, eventually

MOST_BYTES = 2_000_000
KILLED = """
import os, signal, sys
from rlexporter import Exporter
from rlexporter.catalog.metrics import CATALOG
from rlexporter.model.step import RunFacts

exporter = Exporter(run="r", port=0, state_file=sys.argv[2]).start()
exporter.run.begin(RunFacts(output_dir=sys.argv[1]))
exporter.log({"reward": 1.0}, step=1)
os.kill(os.getpid(), signal.SIGTERM)
"""


def _train(
    folder: Path | None, steps: int = 3, error: BaseException | None = None, loss: float = 0.5, **settings: Any
) -> Exporter:
    """A training that has ended; nothing is closed yet."""
    exporter = Exporter(**{"run": "r", "algorithm": "grpo", "port": 0, **settings}).start()
    exporter.run.begin(RunFacts(output_dir=str(folder) if folder else None))
    for step in range(1, steps + 1):
        exporter.log({"reward": 1.0, "grad_norm": 1.0, "loss": loss}, step=step)
    exporter.end(error)
    return exporter


def _kept(folder: Path) -> dict[str, Any]:
    """What the page holds."""
    found = re.search(r'<script type="application/json" id="data">(.*)</script>', (folder / PAGE_FILE).read_text())
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def _told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    said = capsys.readouterr()
    assert said.out == ""
    return [line for line in said.err.splitlines() if "is over" in line]


def test_the_end_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page has the verdict of that line, and every step, however fast they were."""
    exporter = _train(tmp_path, loss=math.nan)
    exporter.end()
    exporter.close()

    data = _kept(tmp_path)
    verdict = data["status"]["verdict"]
    told = f"rlexporter: run r is over: {verdict['word']}. {verdict['text']} Its page: {tmp_path / PAGE_FILE}"
    assert _told(capsys) == [told]
    assert verdict["word"] == "act"
    assert data["status"]["run"]["state"] == "finished"
    steps = {curve["series"]: curve["steps"] for curve in data["history"]["curves"]}
    assert steps["rl_reward_mean"] == [1, 2, 3]
    assert errors(exporter) == 0


@pytest.mark.parametrize(
    ("error", "state"), [(None, "finished"), (ValueError("no"), "failed"), (KeyboardInterrupt(), "stopped")]
)
def test_a_later_training_replaces_it(tmp_path: Path, error: BaseException | None, state: str) -> None:
    """Whatever is there; nothing else is left in the folder."""
    (tmp_path / PAGE_FILE).write_text("something else stood here")
    _train(tmp_path, error=error).close()

    assert _kept(tmp_path)["status"]["run"]["state"] == state
    assert "something else stood here" not in (tmp_path / PAGE_FILE).read_text()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["_rlexporter_run.json", PAGE_FILE]


def test_a_second_train_of_one_exporter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is told again."""
    exporter = _train(tmp_path, error=ValueError("no"))
    exporter.run.begin(RunFacts(output_dir=str(tmp_path)))
    exporter.log({"reward": 1.0}, step=1)
    exporter.end()
    exporter.close()

    assert _kept(tmp_path)["status"]["run"]["state"] == "finished"
    assert len(_told(capsys)) == 2


@pytest.mark.parametrize(
    "settings", [{"report": False}, {"rank": Rank(1, world_size=2), "ranks": "all"}, {"steps": 0}], ids=str
)
def test_who_keeps_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any]) -> None:
    """The setting says so, another rank does, or there is nothing to show."""
    _train(tmp_path, **settings).close()

    assert not (tmp_path / PAGE_FILE).exists()
    assert _told(capsys) == []


def test_a_run_that_only_follows_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `tail` and `replay` do: the folder is that of somebody else's training."""
    exporter = Exporter(run="r", port=0).start()
    exporter.run.prepare(RunFacts(output_dir=str(tmp_path)))
    exporter._run.enter(RunState.RUNNING)
    exporter.log({"reward": 1.0}, step=1)
    exporter._run.enter(RunState.FINISHED)
    exporter.end()
    exporter.close()

    assert list(tmp_path.iterdir()) == []
    assert _told(capsys) == []


def test_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`RLEXPORTER_REPORT=0`."""
    monkeypatch.setenv("RLEXPORTER_REPORT", "0")
    _train(tmp_path).close()

    assert not (tmp_path / PAGE_FILE).exists()


def test_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """None is made: not for a run that has none, nor where it has been removed."""
    monkeypatch.chdir(tmp_path)
    _train(None).close()
    exporter = _train(tmp_path / "out", steps=0)
    (tmp_path / "out" / "_rlexporter_run.json").unlink()
    (tmp_path / "out").rmdir()
    exporter.run.begin(RunFacts())
    exporter.log({"reward": 1.0}, step=1)
    exporter.end()
    exporter.close()

    assert list(tmp_path.iterdir()) == []
    assert _told(capsys) == []


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), RuntimeError("odd")], ids=repr)
def test_a_page_that_cannot_be_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """It costs the training nothing. A folder that forbids it is no error of ours; anything else counts as one."""

    def fail(*_: Any) -> None:
        raise error

    caplog.set_level(logging.INFO, "rlexporter")
    monkeypatch.setattr(page, "write_whole", fail)
    exporter = _train(tmp_path)
    exporter.close()

    assert _told(capsys) == []
    expected = (logging.INFO, 0) if isinstance(error, OSError) else (logging.WARNING, 1)
    assert [record.levelno for record in caplog.records] == [expected[0]]
    assert errors(exporter) == expected[1]


def test_no_sign_of_a_name_reaches_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It stays one line."""
    _train(tmp_path, run="a\x1b[31m\u202eb").close()

    (told,) = _told(capsys)
    assert told.startswith("rlexporter: run a\\u001b[31m\\u202eb is over: ")


def test_a_process_that_is_told_to_end(tmp_path: Path) -> None:
    """Its state is kept first, then the page; it still dies of the signal."""
    state = tmp_path / "state.json"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(state)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == -signal.SIGTERM, done.stderr
    assert _kept(tmp_path)["status"]["run"]["state"] == "preempted"
    assert done.stderr.count("run r is over: ") == 1
    assert state.stat().st_mtime_ns <= (tmp_path / PAGE_FILE).stat().st_mtime_ns
    assert [each.name for each in tmp_path.glob("*.part")] == []


def test_a_signal_waits_for_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is handed on when it is whole."""
    seen: list[bool] = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append((tmp_path / PAGE_FILE).exists()))

    def interrupted(*arguments: Any, **options: Any) -> dict[str, Any]:
        signal.raise_signal(signal.SIGTERM)
        return kept(*arguments, **options)

    kept = document.kept
    monkeypatch.setattr(document, "kept", interrupted)
    try:
        _train(tmp_path).close()
    finally:
        signal.signal(signal.SIGTERM, before)

    assert seen == [True]


@pytest.mark.slow
@pytest.mark.parametrize("most", [MOST_BYTES, 600_000])
def test_a_long_run_has_a_small_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Of 10,000 steps, with everything that GRPO logs; where there are too many curves, each has fewer points."""
    monkeypatch.setattr(page, "_MOST_BYTES", most)
    exporter = Exporter(run="r", algorithm="grpo", port=0).start()
    exporter.run.begin(RunFacts(algorithm="grpo", output_dir=str(tmp_path)))
    server = exporter._server
    assert server
    known = [key.name for metric in CATALOG for key in metric.keys if "grpo" in key.algorithms]
    keys = [re.sub("{.*?}", "a", name) for name in known]
    for step in range(1, 10_001):
        exporter.run.sink.observe("rl_reward_dist", [math.sin(step), 1.0])
        exporter.run.sink.log({key: math.sin(step / 7) for key in keys}, update=StepUpdate(step=step))
        if step % 100 == 0:
            server.note()
    exporter.end()
    exporter.close()

    assert 100_000 < (tmp_path / PAGE_FILE).stat().st_size < most
    curves = _kept(tmp_path)["history"]["curves"]
    assert {curve["steps"][-1] for curve in curves if curve["series"] != "rl_signal"} == {10_000}
    assert [each.name for each in threading.enumerate() if each.name.startswith("rlexporter")] == []
    assert list(shutdown.live()) == []


def _beside(exporter: Exporter) -> Any:
    return json.loads(fetch(f"{exporter.url}/api/history?earlier=1")[1])["earlier"]


def test_the_run_before_in_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compared with unless the settings say no; not while there is none, nor if the file is something else."""

    def begun() -> Any:
        exporter = Exporter(run="second", port=0).start()
        exporter.run.begin(RunFacts(output_dir=str(tmp_path)))
        found = _beside(exporter)
        exporter.close()
        assert errors(exporter) == 0
        return found

    monkeypatch.setenv("RLEXPORTER_REPORT", "0")
    assert begun() is None
    _train(tmp_path, run="first", report=True).close()
    assert begun()["name"] == "first"
    exporter = Exporter(run="second", port=0).start()
    for folder, expected in ((tmp_path, True), (tmp_path / "another", False)):
        exporter.run.begin(RunFacts(output_dir=str(folder)))
        eventually(lambda expected=expected: (_beside(exporter) is not None) is expected)
    exporter.close()
    monkeypatch.setenv("RLEXPORTER_COMPARE", "off")
    assert begun() is None
    monkeypatch.delenv("RLEXPORTER_COMPARE")
    for text in ("", "<html>", (tmp_path / PAGE_FILE).read_text().replace('"curves"', '"lines"')):
        (tmp_path / PAGE_FILE).write_text(text)
        assert begun() is None


def test_a_run_that_is_named(tmp_path: Path) -> None:
    """By its page, before anything is served; what is no page ends the setup with what to do."""
    _train(tmp_path, run="first").close()
    file = tmp_path / PAGE_FILE
    with Exporter(run="second", port=0, linger=0, compare=file) as exporter:
        assert _beside(exporter)["name"] == "first"
        exporter.run.begin(RunFacts(output_dir=str(tmp_path / "elsewhere")))
        assert _beside(exporter)["name"] == "first"
    file.write_text("{}")
    before = threading.active_count()
    with pytest.raises(SetupError, match=r"is no page of a run; `rlexporter report LOG -o PAGE\.html` makes one"):
        Exporter(run="third", port=0, compare=str(file)).start()
    with pytest.raises(SetupError, match=r"cannot read .*: No such file"):
        Exporter(run="third", port=0, compare=tmp_path / "none.html").start()
    assert threading.active_count() == before
