"""The step that a line names itself, under a key that trainers use for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYS = ("train/global_step", "training/global_step", "trainer/global_step", "global_step", "eval/global_step")
"""Keys of transformers, verl, Lightning, OpenRLHF and many loops; a logger's own step counts its calls."""


def step_in(line: Mapping[str, Any]) -> int | None:
    """Return the step that ``line`` names; None if it names none."""
    for key in _KEYS:
        value = line.get(key)
        if isinstance(value, (int, float)) and value >= 0 and value == int(value):
            return int(value)
    return None
