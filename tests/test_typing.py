"""The public names as a type checker sees them in a user's file."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from rlexporter import Exporter
from rlexporter.config.arguments import SettingArguments
from rlexporter.config.settings import Settings

GOOD = """
from typing import Any
import rlexporter

def train(trainer: Any) -> None:
    exporter = rlexporter.attach(trainer, port=9751, labels={"team": "llm"}, ranks="all")
    callback = rlexporter.RLExporterCallback(linger=10.0)
    with rlexporter.Exporter(run="mine", thresholds={"kl_high": 0.5}, state_file=True) as exporter:
        exporter.log({"reward": 1.0, "kl": None}, step=1)
        exporter.observe("policy_ratio", [1.0], reward_function="x")
        port: int | None = exporter.port
"""
WRONG = {
    "attach(trainer, prot=1)": 'Unexpected keyword argument "prot"',
    'attach(trainer, port="9750")': '"port"',
    'Exporter(ranks="some")': '"ranks"',
    "RLExporterCallback(runs=3)": 'Unexpected keyword argument "runs"',
}


@pytest.mark.slow
def test_a_mistyped_setting_is_found(tmp_path: Path) -> None:
    """In strict mode, one error for each line that is wrong, and none in a file where nothing is."""
    pytest.importorskip("mypy")
    (tmp_path / "good.py").write_text(GOOD)
    wrong = "".join(f"    rlexporter.{call}\n" for call in WRONG)
    (tmp_path / "wrong.py").write_text(
        f"from typing import Any\nimport rlexporter\ndef f(trainer: Any) -> None:\n{wrong}"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--follow-imports=silent",
            "good.py",
            "wrong.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[:2] for line in found] == [["wrong.py", str(i)] for i in range(4, 8)], done.stdout
    assert all(text in line for line, text in zip(found, WRONG.values(), strict=True)), found


def test_every_setting_can_be_given() -> None:
    """The arguments that a type checker knows are the settings that there are."""
    assert set(SettingArguments.__annotations__) == {each.name for each in fields(Settings)}


def test_an_exporter_shows_what_a_user_needs() -> None:
    """A dozen names at most."""
    public = {name for name in {*dir(Exporter), *vars(Exporter())} if not name.startswith("_")}
    assert public == {"close", "end", "log", "name", "observe", "port", "run", "snapshot", "start", "state", "url"}
    assert all(inspect.getdoc(getattr(Exporter, name)) for name in public - {"run"})
