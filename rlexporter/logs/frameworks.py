"""The frameworks that are read where they log, and that nobody watches: their tables, as `frameworks.toml` has them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlexporter.model.metric import Framework, FrameworkKey

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def tables(text: str) -> Iterator[Framework]:
    """Yield the frameworks of a file like `frameworks.toml`, in its order."""
    for name, told in tomllib.loads(text).items():
        yield Framework(
            name=name,
            title=told["title"],
            marks=frozenset(told["marks"]),
            critic=frozenset(told.get("critic", ())),
            source=told["source"],
            keys=tuple(key for key_name, fed in told["keys"].items() for key in _keys(key_name, fed)),
        )


def _keys(name: str, fed: str | Mapping[str, Any]) -> Iterator[FrameworkKey]:
    """Yield the key ``name`` once for each series that it feeds."""
    if isinstance(fed, str):
        yield FrameworkKey(name, fed)
    elif "series" in fed:
        yield FrameworkKey(name, **fed)
    else:
        for family, series in fed.items():
            yield FrameworkKey(name, series, (family,))


TABLES = tuple(tables(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")))
