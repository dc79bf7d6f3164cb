"""A few curves of real runs, so that a fresh clone can check what docs/alerts.md says of many.

tests/data/real_curves.json has numbers only, of three digits, with the repository, path and commit that they are from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlexporter import recording
from rlexporter.commands.recorded_alerts import judge
from tests.conftest import DATA

CURVES: list[dict[str, Any]] = json.loads((DATA / "real_curves.json").read_text())
_EXPECTED = {
    "fl448341": {("RLRewardDrop", "critical", 41)},
    "Nithin2311": {("RLGradientNonFinite", "critical", 289), ("RLKLNonFinite", "critical", 289)},
    "Sunshine535-03": {("RLRewardDrop", "critical", 95), ("RLTruncation", "critical", 115)},
    "Sunshine535-11": {
        ("RLRewardDrop", "critical", 50),
        ("RLTruncation", "critical", 75),
        ("RLRewardFlat", "critical", 140),
    },
}


def _alerts(curve: dict[str, Any], folder: Path) -> set[tuple[str, str, int]]:
    columns = curve["numbers"]
    lines = [
        {"step": step} | {key: float(column[i]) for key, column in columns.items() if column[i] is not None}
        for i, step in enumerate(curve["steps"])
    ]
    file = folder / "run.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {(each.alert, each.severity, each.step) for each in judge(recording.read(file, "grpo")).alerts}


def test_every_curve_says_where_it_is_from() -> None:
    """They are other people's: a repository, a path in it, a commit."""
    assert all(len(each["commit"]) >= 7 for each in CURVES)
    assert all(each["repository"].count("/") == 1 and each["path"] for each in CURVES)
    assert sum(len(column) for each in CURVES for column in each["numbers"].values()) < 3500


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: f"{curve['label']} {curve['name']}")
def test_a_run_that_broke_is_critical_and_one_that_learned_is_not(curve: dict[str, Any], tmp_path: Path) -> None:
    """The reward fell lastingly, completions ran into the limit, or the gradient was NaN.

    Not with half of the groups flat, or gradients of 0 beside rewards that differ; one warns, at entropy 0.02.
    """
    broken = curve["label"] == "broken"
    severities = ("critical",) if broken else ("critical", "warning")
    expected = _EXPECTED[curve["name"]] if broken else set(map(tuple, curve["warnings"]))
    assert {each for each in _alerts(curve, tmp_path) if each[1] in severities} == expected
