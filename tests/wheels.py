"""The wheel of this checkout, and environments in which it is installed."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

from tests.programs import printed
from tests.tools import ROOT


def build(folder: Path) -> Path:
    """The wheel, in ``folder``; what it is built with is installed here, so nothing is fetched."""
    printed(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment in ``folder``: it has ``wheel``, and beside it what is installed here.

    No file of the checkout is reached from there: an editable install counts in the environment that has it only.
    """
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    pip = ("pip", "--python", python, "--quiet", "install", "--no-deps", "--no-index", wheel)
    printed(sys.executable, "-m", *pip, cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
    return python
