"""Logs for tests: written as JSON lines, and read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlexporter.logs import reader
from rlexporter.logs.reader import Recording

ONE_LINE = '{"step": 1, "kl": 0.5}\n'


def jsonl(*lines: Mapping[str, object]) -> str:
    """The lines of a file, one object each."""
    return "".join(json.dumps(line) + "\n" for line in lines)


def flat(path: Path, *lines: Mapping[str, object]) -> Path:
    """Write the file ``path``; that path."""
    path.write_text(jsonl(*lines))
    return path


def read(path: Path, text: str, algorithm: str = "") -> Recording:
    """What is read from a file with this text, whose line ends stay what they are."""
    path.write_bytes(text.encode())
    return reader.read(path, algorithm)


def logged(found: Recording) -> list[tuple[int, dict[str, Any]]]:
    """The log lines of a recording, each with its step."""
    return [(event.step, dict(event.logs)) for event in found.events if event.logs is not None]
