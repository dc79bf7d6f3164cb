"""The page that a real training leaves beside its checkpoints, and the line that tells of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rlexporter
from rlexporter.status.page import PAGE_FILE, held
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.planted import PLANTED, unchanged
from tests.served import errors

pytestmark = REAL_TRAINERS


def _told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if " is over: " in line]


def test_how_it_ended(tmp_path: Path, any_port: None, capsys: pytest.CaptureFixture[str]) -> None:
    """By an exception, which goes on; then, in the same folder, as it should."""
    faulty = [ValueError("boom")]

    def reward(completions: list[str], **_: Any) -> list[float]:
        if faulty and trainer.state.global_step == 2:
            raise faulty.pop()
        return tiny.letters(completions)

    trainer = tiny.grpo(tmp_path, rewards=[reward])
    page = Path(trainer.args.output_dir) / PAGE_FILE
    exporter = rlexporter.attach(trainer)
    with pytest.raises(ValueError, match="boom"):
        trainer.train()

    (told,) = _told(capsys)
    assert told.startswith(f"rlexporter: run {exporter.name} is over: act. The run has failed with ValueError")
    assert told.endswith(f"Its page: {page}")
    assert '"state": "failed"' in page.read_text()
    exporter.close()

    again = tiny.grpo(tmp_path)
    exporter = rlexporter.attach(again)
    again.train()
    exporter.close()

    assert len(_told(capsys)) == 1
    assert '"state": "finished"' in page.read_text()
    assert exporter.name in page.read_text()
    beside = held(page.read_text())["history"]["earlier"]
    assert (beside["word"], beside["step"]) == ("act", 2)
    assert errors(exporter) == 0


@pytest.mark.parametrize("planted", ["pipe", "folder", "zero", "link"])
def test_a_place_that_is_taken(
    tmp_path: Path, any_port: None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, planted: str
) -> None:
    """The training begins, and ends as it should; what is there stays, is counted and told once."""
    trainer = tiny.grpo(tmp_path, max_steps=1)
    page = Path(trainer.args.output_dir) / PAGE_FILE
    page.parent.mkdir(parents=True, exist_ok=True)
    name, plant = PLANTED[planted]
    plant(page)
    stays = unchanged(page)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    exporter.close()

    assert _told(capsys) == []
    assert stays()
    assert [*page.parent.glob("*.part")] == []
    assert errors(exporter) == 1
    assert [f"it is {name}, not a regular file" in record.message for record in caplog.records] == [True]


def test_not_wanted(tmp_path: Path, any_port: None, capsys: pytest.CaptureFixture[str]) -> None:
    """`report=False` leaves no file and no line."""
    trainer = tiny.grpo(tmp_path, max_steps=1)
    exporter = rlexporter.attach(trainer, report=False)
    trainer.train()
    exporter.close()

    assert _told(capsys) == []
    assert [*tmp_path.rglob(PAGE_FILE)] == []
