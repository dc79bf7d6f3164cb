"""Access to a caller's local variables, without keeping the others alive."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

_MAX_FRAMES = 60


def callers() -> Iterator[FrameType]:
    """Yield the frames above the caller's own, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def local(frame: FrameType, name: str) -> Any:
    """Return the value of the local variable ``name`` of ``frame``; None if there is none."""
    return variables(frame, (name,)).get(name)


def variables(frame: FrameType, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of the local variables ``names`` that ``frame`` has.

    Up to Python 3.12, reading ``f_locals`` leaves a copy of all local variables in the frame. The copy would keep
    tensors and graphs alive until the function returns, so it is cleared.
    """
    found = frame.f_locals
    chosen = {name: found[name] for name in names if name in found}
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        found.clear()
    return chosen
