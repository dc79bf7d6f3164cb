"""Devices, pipes, sockets, folders and links in the place of each file that we write: none is replaced."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlexporter import Exporter, StateFile
from rlexporter.commands import main
from rlexporter.model.errors import SetupError
from rlexporter.model.step import RunFacts
from rlexporter.outputs import discovery
from rlexporter.outputs.state_file import STATE_FILE
from rlexporter.run.identity import RUN_FILE
from rlexporter.status.page import PAGE_FILE
from tests.planted import PLANTED, UNREADABLE, unchanged
from tests.served import errors
from tests.tools import eventually

SETTINGS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "state_file": ("given", lambda path: path),
    "record": ("given", lambda path: path),
    "discovery": (discovery.name("r", 0), lambda path: path.parent),
}
"""The name of the file that a setting writes, and the value by which it does."""
LATER = {"state": STATE_FILE, "identity": RUN_FILE, "event": PAGE_FILE}
"""The files of a run that names its folder later, by where their errors are counted."""


def _plant(path: Path, planted: str) -> Callable[[], bool]:
    PLANTED[planted][1](path)
    return unchanged(path)


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("setting", SETTINGS)
def test_at_the_start_it_is_a_setup_error(tmp_path: Path, setting: str, planted: str) -> None:
    """It says what is there, and by which setting; inside a trainer it is counted, and all else is served."""
    name, value = SETTINGS[setting]
    stays = _plant(tmp_path / name, planted)
    exporter = Exporter(run="r", port=0, **{setting: value(tmp_path / name)})
    with pytest.raises(SetupError, match=f"it is {PLANTED[planted][0]}, not a regular file.*RLEXPORTER_"):
        exporter.start()
    exporter.start(fallback=True)
    exporter.log({"reward": 1.0})
    exporter.close()

    assert stays()
    assert errors(exporter) >= 1
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("planted", PLANTED)
def test_what_the_old_state_would_be_moved_over_stays(tmp_path: Path, planted: str) -> None:
    """And so does the old state."""
    (tmp_path / "state.json").write_text("old")
    stays = _plant(tmp_path / "state.previous.json", planted)
    with pytest.raises(SetupError, match="not a regular file"):
        Exporter(run="r", port=0, state_file=tmp_path / "state.json").start()

    assert stays()
    assert (tmp_path / "state.json").read_text() == "old"


@pytest.mark.parametrize("planted", PLANTED)
def test_in_a_folder_that_is_named_later(tmp_path: Path, planted: str, caplog: pytest.LogCaptureFixture) -> None:
    """Training begins and ends; each file is counted, and told once with what is in its way."""
    stays = [_plant(tmp_path / name, planted) for name in LATER.values()]
    exporter = Exporter(run="r", port=0, linger=0, state_file=StateFile(True, interval=1)).start()
    exporter.run.begin(RunFacts(algorithm="grpo", step=0, output_dir=str(tmp_path)))
    exporter.log({"reward": 1.0}, step=1)
    eventually(lambda: exporter.snapshot.value("rlexporter_errors_total", where="state"))
    exporter.end()
    exporter.close()

    assert all(stay() for stay in stays)
    assert exporter.state.value == "finished"
    for where in LATER:
        assert exporter.snapshot.value("rlexporter_errors_total", where=where), where
        told = [each for each in caplog.records if each.message.startswith(f"{where} failed")]
        assert [each.levelno for each in told] == [logging.WARNING]
        assert f"it is {PLANTED[planted][0]}" in told[0].message


@pytest.mark.parametrize("planted", PLANTED)
def test_a_report(tmp_path: Path, planted: str, capsys: pytest.CaptureFixture[str]) -> None:
    """So is a history for promtool."""
    log = Path(__file__).parents[1] / "data/runs/grpo-healthy_multi-0.jsonl"
    stays = _plant(tmp_path / "out.html", planted)
    for command in (["report", str(log), "-o"], ["replay", str(log), "--openmetrics"]):
        assert main.main([*command, str(tmp_path / "out.html")]) == 2
        assert f"it is {PLANTED[planted][0]}, not a regular file" in capsys.readouterr().err
        assert stays()


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("name", ["alerts/rlexporter.rules.yml", "alerts/runbooks", "alerts", ""])
def test_a_pack(tmp_path: Path, planted: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All files are written, or none; a folder on the way may be a link to one."""
    path = tmp_path / "site" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if planted == "folder" and not path.name.endswith(".yml"):
        return
    stays = _plant(path, planted)

    assert main.main(["generate", "--out", str(tmp_path / "site")]) == 2
    assert "rlexporter: " in capsys.readouterr().err
    assert stays()
    written = [each for each in tmp_path.rglob("*.yml") if stat.S_ISREG(each.lstat().st_mode)]
    assert not [each for each in written if not each.name.startswith("kept-")]


def test_a_pack_behind_links(tmp_path: Path) -> None:
    """That of a home on another disk, written twice."""
    (tmp_path / "disk/alerts").mkdir(parents=True)
    (tmp_path / "site").symlink_to("disk")
    (tmp_path / "disk/grafana").symlink_to(tmp_path / "disk/alerts")
    for _ in range(2):
        assert main.main(["generate", "--out", str(tmp_path / "site")]) == 0
    assert (tmp_path / "disk/alerts/rlexporter.rules.yml").is_file()


@pytest.mark.parametrize("planted", UNREADABLE)
def test_a_log_that_is_none(tmp_path: Path, planted: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody waits for it, and no more is read than there is memory for; in a folder it is passed over."""
    path = tmp_path / "run.jsonl"
    UNREADABLE[planted][1](path)
    if planted != "folder":
        for command in ("check", "report", "replay"):
            assert main.main([command, str(path)]) == 3
            assert "not a regular file" in capsys.readouterr().err
        assert main.main(["report", __file__, "--compare", str(path)]) == 3
    for name in ("checkpoint-9/trainer_state.json", "events.out.tfevents.1", "trainer_log.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        UNREADABLE[planted][1](tmp_path / name)
    assert main.main(["check", str(tmp_path)]) == 3
    assert "is a folder without a log" in capsys.readouterr().err


@pytest.mark.parametrize("planted", UNREADABLE)
def test_what_is_to_compare_with(tmp_path: Path, planted: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A person is told what it is."""
    path = tmp_path / "page.html"
    UNREADABLE[planted][1](path)
    log = Path(__file__).parents[1] / "data/runs/grpo-healthy_multi-0.jsonl"
    assert main.main(["report", str(log), "-o", str(tmp_path / "out.html"), "--compare", str(path)]) == 2
    assert "not a regular file" in capsys.readouterr().err
    assert main.main(["status", "1", "--token-file", str(path)]) == 3
    assert "not a regular file" in capsys.readouterr().err
    assert main.main(["status", "https://127.0.0.1:1", "--ca-file", str(path)]) == 3
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        '{"run": ["r"], "attempt": 1}',
        '{"run": "r", "attempt": 1e999}',
        '{"run": "r", "attempt": [1]}',
        "[" * 100_000,
        '{"run": 1' + "0" * 400 + ', "attempt": 1}',
        "\udcff\udcfe",
        "x" * 1_000_000,
    ],
    ids=lambda text: text[:30],
)
def test_rubbish_in_the_place_of_a_name(tmp_path: Path, text: str) -> None:
    """It is no name, and is written over."""
    (tmp_path / RUN_FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    (tmp_path / "checkpoint-1").mkdir()
    exporter = Exporter(port=0, linger=0).start()
    exporter.run.begin(
        RunFacts(algorithm="grpo", step=0, output_dir=str(tmp_path), resumed_from=str(tmp_path / "checkpoint-1"))
    )
    exporter.log({"reward": 1.0}, step=1)
    exporter.close()

    assert errors(exporter) == 0
    assert json.loads((tmp_path / RUN_FILE).read_text()) == {"run": exporter.name, "attempt": 1}
    assert exporter.name in (tmp_path / RUN_FILE).read_text()
