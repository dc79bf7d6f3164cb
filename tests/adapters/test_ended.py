"""However a training ends, its newest good checkpoint trains on, and no suspect one is resumed from by itself."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.adapters.ended import BAD_STEP, ENDS, STEPS
from tests.adapters.marks import REAL_TRAINERS
from tests.tools import ROOT, launched

pytestmark = [*REAL_TRAINERS, pytest.mark.soak]
STATUS = {"exception": 1, "SIGTERM": -signal.SIGTERM, "Ctrl-C": 1} | {
    end: -signal.SIGKILL for end in ENDS if end.startswith("kill")
}


def test_what_is_left_of_a_training_trains_on(tmp_path: Path) -> None:
    """After each of twelve ends: also where it is killed while it writes, or where the disk is full."""
    command = [sys.executable, "-m", "tests.adapters.ended", str(tmp_path / "runs")]
    with launched(command, tmp_path, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1") as process:
        assert process.wait(1800) == 0, (tmp_path / "err").read_text()[-3000:]
    found = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines() if line.startswith('{"end"')]
    assert [each["end"] for each in found] == [*ENDS]
    for each in found:
        assert each["status"] == STATUS.get(each["end"], 0), each
        assert each["resumed"] == 0, each
        assert (each["step"], each["healthy"], each["errors"]) == (STEPS + 3, True, 0), each
        assert each["newest"] in each["after"], "it stays until a later one has proven itself"
        assert each["hidden"] == [], "nothing half is left"
        step = int(each["newest"].split("-")[2])
        assert 0 < step <= (STEPS if each["end"] in ("finished", "disk full at the copy") else BAD_STEP - 1), each
        taken = int(each["taken"].split("-")[1])
        assert each["taken"].startswith("checkpoint-")
        assert taken != BAD_STEP, each
