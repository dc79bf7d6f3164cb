"""Trackio, local: what is served is what Trackio's own database holds."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.loggers.watched import no_errors, run

pytest.importorskip("trackio")

SCRIPT = """
import numpy as np
import trackio
trackio.init(project="p", name="mine", config={"beta": 0.5})
for step in range(1, 4):
    ratios = trackio.Histogram(np.array([1.0, 1.1, 3.0]))
    trackio.log({"loss": 0.5 + step, "reward": 0.25 * step, "mine": 2.0, "policy_ratio": ratios, "note": "text"})
trackio.finish()
"""


def _rows(folder: Path) -> list[tuple[int, dict[str, Any]]]:
    with sqlite3.connect(folder / "p.db") as base:
        rows = base.execute("SELECT step, metrics FROM metrics ORDER BY step").fetchall()
    return [(step, json.loads(metrics)) for step, metrics in rows]


def test_lines(tmp_path: Path) -> None:
    """Trackio counts the steps; a histogram under a name of ours is counted from what it was made of."""
    done = run(SCRIPT, tmp_path, "--from", "trackio", TRACKIO_DIR=str(tmp_path / "kept"), HF_HUB_OFFLINE="1")

    assert no_errors(done)
    assert done.runs == {"mine"}
    step, line = _rows(tmp_path / "kept")[-1]
    assert (done["rl_step"], done["rl_steps_total"]) == (step, 3) == (2, 3)
    assert (done["rl_loss"], done["rl_reward_mean"]) == (line["loss"], line["reward"]) == (3.5, 0.75)
    assert done.logged() == {"mine": 2.0}
    assert done.counts("rl_policy_ratio_dist", 1.0, 1.2, 2.0, 5.0) == [3, 6, 6, 9]
    assert done.settings()["beta"] == 0.5
    assert done.served["rl_run_state", "finished"] == 1
