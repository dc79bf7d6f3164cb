"""What a page or a runbook says of a condition beside its summary and remedies. No training reads it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Words(NamedTuple):
    """The words on one condition, in English."""

    meaning: str
    """The observation, and why it matters."""
    causes: tuple[str, ...]
    """The usual causes, the likeliest first."""
    source: str
    """The origin of the limits."""


@cache
def words() -> Mapping[str, Words]:
    """Return the words on each condition, by its name, from ``words.toml``."""
    given = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
    return {name: Words(own["meaning"], tuple(own["causes"]), own["source"]) for name, own in given.items()}
