"""What may go wrong around taps, and a clock that tells the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlexporter.adapters.taps import wrap


def fail(*_: Any, **__: Any) -> None:
    """Stands for whatever of ours has a fault."""
    raise ZeroDivisionError("planted")


def remove(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every trainer be without the method ``name``, as another version of TRL might be."""

    def missing(owner: Any, method: str, around: Callable[..., Any]) -> Any:
        if method == name:
            raise AttributeError(method)
        return wrap(owner, method, around)

    monkeypatch.setattr("rlexporter.adapters.taps.wrap", missing)


class Clock:
    """Takes the place of `time.perf_counter`: a microsecond passes with each look at it, and what `wait` says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
