"""Short forms for the tables of frameworks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rlexporter.model.framework import FrameworkKey


def feeds(
    series: str, *names: str, families: tuple[str, ...] = (), scale: float = 1.0, nothing: float | None = None
) -> Iterator[FrameworkKey]:
    """Yield the keys ``names``, which all feed ``series``; of a line that has several the last one is served."""
    for name in names:
        yield FrameworkKey(name, series, families, scale, nothing)


def no_metric(*names: str) -> Iterator[FrameworkKey]:
    """Yield the keys ``names``, which are no metrics: they stand for what rlexporter knows otherwise."""
    return feeds("", *names)


def statistics(series: str, name: str, *suffixes: str) -> Iterator[FrameworkKey]:
    """Yield ``name/mean``, ``name/min``... for each suffix; they feed the series with that suffix after ``series``."""
    for suffix in suffixes or ("mean", "min", "max"):
        yield FrameworkKey(f"{name}/{suffix}", f"{series}{suffix}")


def below(prefix: str, keys: Iterable[FrameworkKey]) -> Iterator[FrameworkKey]:
    """Yield ``keys`` with ``prefix`` before their names."""
    for key in keys:
        yield replace(key, name=prefix + key.name)
