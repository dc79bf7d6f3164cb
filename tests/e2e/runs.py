"""Starting trainings as processes, and what they logged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tools import ROOT, eventually

GIL_SECONDS = 6
"""For how long a training whose fault is `gil` holds it."""


@dataclass
class Training:
    """One running `tests.e2e.training`; as a context, it is gone at the end."""

    folder: Path
    port: int
    process: subprocess.Popen[str]

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What its trainer has logged so far."""
        file = self.folder / "log.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def output(self) -> str:
        """What it has printed."""
        return (self.folder / "output.txt").read_text()

    def wait_logged(self, count: int) -> None:
        """Wait until there are so many lines; fail with what it has printed if it ends before."""
        eventually(lambda: len(self.lines) >= count or self.process.poll() is not None)
        assert len(self.lines) >= count, (self.process.poll(), self.output[-2000:])

    def signal(self, number: int) -> None:
        """Send a signal between two steps: what it has logged by then, its callbacks have all seen."""
        (self.folder / "hold").touch()
        eventually((self.folder / "held").exists)
        self.process.send_signal(number)

    @property
    def name(self) -> str:
        """The name of its run."""
        return str(eventually(lambda: re.findall("^trainer_output.*$", self.output, re.MULTILINE))[0])


def start(folder: Path, port: int, how: str, *options: str) -> Training:
    """Start a training on this port."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("hold", "held"):
        (folder / name).unlink(missing_ok=True)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    out = (folder / "output.txt").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.training", str(folder), str(port), how, *options],
        stdout=out,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environ,
    )
    out.close()
    return Training(folder, port, process)
