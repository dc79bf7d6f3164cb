"""Programs that tests ask: those that must succeed, and checkers of npm, which `make tools` fetches where npm is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools import REQUIRED, TOOLS


def printed(*command: str | Path, cwd: Path | None = None, given: str | None = None, **environ: str) -> str:
    """What a program prints that must succeed; ``given`` is what it reads, ``environ`` comes on top of our own."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        input=given,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def require_node(name: str) -> Path:
    """The folder of a package in .tools; the test is skipped where it or node is missing, and fails in CI."""
    if not (TOOLS / name).exists() or not shutil.which("node"):
        reason = f"no {name} in .tools, or no node: `make tools` fetches it where npm is"
        (pytest.fail if REQUIRED else pytest.skip)(reason)
    return TOOLS / name


def evaluated(name: str, script: str, given: Any) -> list[str]:
    """The lines that a script prints which imports a package, and reads ``given`` as JSON."""
    command = ("node", "--input-type=module", "--eval", script)
    return printed(*command, cwd=require_node(name), given=json.dumps(given)).splitlines()
