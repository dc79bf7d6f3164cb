"""What newcomers start with: a copy of this checkout, what its first pages say, a shell that knows nothing of us."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.docs.code_blocks import blocks
from tests.tools import ROOT

_FIRST_PAGES = ("README.md", "docs/start.md")
_TEXT = "\n".join((ROOT / page).read_text() for page in _FIRST_PAGES)


def said(words: str) -> str:
    """``words``, which the README or the page that it begins with must have."""
    assert words in _TEXT, words
    return words


def first_example(filled: dict[str, str]) -> str:
    """The first block of Python of the README that trains; ``filled``: what a reader writes for each of its `...`."""
    text = next(each.text for each in blocks("python") if each.page == "README.md" and "Trainer" in each.text)
    for dots, own in filled.items():
        assert dots in text, dots
        text = text.replace(dots, own)
    assert "..." not in text
    return text


def copy(folder: Path) -> None:
    """Make ``folder`` what a clone of this checkout is: no environment, no tools, no caches."""
    made = shutil.ignore_patterns(".venv*", ".tools", ".git", ".work", "dist", "*_cache", "__pycache__", ".hypothesis")
    shutil.copytree(ROOT, folder, ignore=made)


def environment(**more: str) -> dict[str, str]:
    """The variables of a shell in which nobody has set one of ours, or of Python's; and ``more``."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("RLEXPORTER_", "PYTHON"))}
    return own | more


def run(folder: Path, environ: dict[str, str], *command: str, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    """What a command in ``folder`` says, as text; ``seconds``: after which it is given up."""
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=seconds, check=False
    )
