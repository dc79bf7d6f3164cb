"""The step that a line names itself, under a key that trainers use for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlexporter.catalog import STEP_KEYS


def step_in(line: Mapping[str, Any]) -> int | None:
    """Return the step that ``line`` names; None if it names none. A logger's own step counts its calls instead."""
    for key in STEP_KEYS:
        value = line.get(key)
        if isinstance(value, (int, float)) and value >= 0 and value == int(value):
            return int(value)
    return None
