"""Checkers that are programs of npm, run by node: `make tools` fetches them where npm is."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools import REQUIRED, TOOLS


def require_node(name: str) -> Path:
    """The folder of a package in .tools; the test is skipped where it or node is missing, and fails in CI."""
    if not (TOOLS / name).exists() or not shutil.which("node"):
        reason = f"no {name} in .tools, or no node: `make tools` fetches it where npm is"
        (pytest.fail if REQUIRED else pytest.skip)(reason)
    return TOOLS / name


def evaluated(name: str, script: str, given: Any) -> list[str]:
    """The lines that a script prints which imports a package, and reads ``given`` as JSON."""
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, timeout=600, cwd=require_node(name)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
