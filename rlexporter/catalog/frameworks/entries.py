"""Short forms for the tables of frameworks."""

from __future__ import annotations

from collections.abc import Iterator

from rlexporter.model.framework import FrameworkKey


def feeds(series: str, *names: str, families: tuple[str, ...] = (), scale: float = 1.0) -> Iterator[FrameworkKey]:
    """Yield the keys ``names``, which all feed ``series``; of a line that has several the last one is served."""
    for name in names:
        yield FrameworkKey(name, series, families, scale)


def no_metric(*names: str) -> Iterator[FrameworkKey]:
    """Yield the keys ``names``, which are no metrics: they stand for what rlexporter knows otherwise."""
    return feeds("", *names)


def statistics(series: str, name: str, *suffixes: str) -> Iterator[FrameworkKey]:
    """Yield ``name/mean``, ``name/min``... for each suffix; they feed the series with that suffix after ``series``."""
    for suffix in suffixes or ("mean", "min", "max"):
        yield FrameworkKey(f"{name}/{suffix}", f"{series}{suffix}")
