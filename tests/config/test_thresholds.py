"""Limits that a person sets: by argument, environment, file; what is wrong with them is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlexporter import Exporter
from rlexporter.config import parsers
from rlexporter.config.settings import Settings
from rlexporter.model.errors import SetupError
from tests.conditions.planted import Planted


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"entropy_low": 0.2}, {("entropy_low", "warning"): 0.2}),
        ("entropy_low=0.2", {("entropy_low", "warning"): 0.2}),
        ("entropy_low = off , kl_jump=4", {("entropy_low", "warning"): None, ("kl_jump", "warning"): 4.0}),
        ({"entropy_low": False}, {("entropy_low", "warning"): None}),
        ({"ratio_high": 3.0}, {("ratio_high", "warning"): 3.0, ("ratio_high", "critical"): 15.0}),
        ("ratio_high.critical=50", {("ratio_high", "critical"): 50.0}),
        ({"ratio_high": {"warning": False}}, {("ratio_high", "warning"): None}),
        ({"kl_negative": -2}, {("kl_negative", "warning"): -2.0}),
        ("run_stalled=1800", {("run_stalled", ""): 1800.0}),
        ("nonfinite=off", {("nonfinite", "critical"): None}),
    ],
)
def test_what_is_given_is_meant(given: Any, meant: dict[tuple[str, str], Any]) -> None:
    """A number is that of the mildest severity; the others keep their proportion."""
    found = parsers.thresholds(given)
    assert {key: found[key] for key in meant} == meant


def test_the_proportion_is_kept_for_each_kind_of_number() -> None:
    """A limit that depends on the estimator: one number for whichever it is."""
    found = parsers.thresholds({"kl_high": 6.0})

    assert found["kl_high", "warning"] == 6.0
    assert found["kl_high", "critical"] == pytest.approx({"k1": 20.0, "k3": 10.0, "sequence": 30.0})


def test_a_file(tmp_path: Path) -> None:
    """TOML, with numbers, false, and one limit a severity."""
    file = tmp_path / "limits.toml"
    file.write_text("[thresholds]\nkl_high = 0.5\nlength_high = { warning = 4 }\nentropy_low = false\n")

    found = parsers.thresholds(str(file))
    assert found["kl_high", "warning"] == 0.5
    assert found["length_high", "warning"] == 4.0
    assert found["entropy_low", "warning"] is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("kl_hihg=1", "there is no condition 'kl_hihg'; did you mean kl_high"),
        ({"frobnicate": 1}, "there is no condition 'frobnicate'; alerts/runbooks/README.md lists them"),
        ("kl_high=fast", "kl_high must be a number, or off, not 'fast'"),
        ("kl_high", "'kl_high' must look like kl_high=0.5"),
        ({"kl_high": True}, "kl_high must be a number, or false for off, not True"),
        ({"kl_high": float("nan")}, "kl_high must be a finite number, not nan"),
        ({"entropy_low": {"critical": 1}}, "entropy_low has no severity 'critical'; it has warning"),
        ("run_stalled=0", "run_stalled must be a finite number above 0, not '0'"),
        ("run_stalled=off", "run_stalled cannot be off"),
        ("missing.toml", "No such file"),
        (7, "must be a mapping"),
    ],
)
def test_what_cannot_be_meant_is_said(given: Any, said: str) -> None:
    """The name, what is wrong, and what is expected."""
    with pytest.raises(ValueError, match=re.escape(said)):
        parsers.thresholds(given)


@pytest.mark.parametrize("text", ["[thresholds\n", "kl_high = 1\n", 'thresholds = "high"\n'])
def test_a_file_that_is_none(tmp_path: Path, text: str) -> None:
    """No TOML, or no table."""
    file = tmp_path / "limits.toml"
    file.write_text(text)
    with pytest.raises(SetupError, match=r"argument thresholds=.*limits\.toml.*(no TOML|no table)"):
        Settings.load({"thresholds": str(file)})


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named when it is wrong; an argument wins over it."""
    monkeypatch.setenv("RLEXPORTER_THRESHOLDS", "kl_high=7")
    assert Settings.load({}).thresholds["kl_high", "warning"] == 7.0
    assert Settings.load({"thresholds": {"kl_jump": 3}}).thresholds == {
        ("kl_jump", "warning"): 3.0,
        ("kl_jump", "critical"): 5.0,
    }

    monkeypatch.setenv("RLEXPORTER_THRESHOLDS", "kl_highest=7")
    with pytest.raises(SetupError, match=r"environment variable RLEXPORTER_THRESHOLDS='kl_highest=7'.*kl_high"):
        Exporter()


def test_a_limit_is_in_force() -> None:
    """The threshold that is served is the one that was set, and what is off is neither judged nor served."""
    run = Planted("grpo", "kl_high=0.01,entropy_low=off").healthy(10)

    assert run.snapshot.value("rl_threshold", condition="kl_high", severity="warning") == 0.01
    assert run.began[("kl_high", "warning")] == 4
    assert run.snapshot.value("rl_threshold", condition="entropy_low", severity="warning") is None
    assert run.snapshot.value("rl_condition_judged", condition="entropy_low") is None
    assert run.snapshot.value("rl_condition_events_total", condition="entropy_low", severity="warning") is None
