"""What a logger's own histogram was made of: these classes keep counts in bins of their own choice only."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

_KEPT = "_rlexporter_values"


def keep_values(histogram: Any) -> None:
    """Let each ``histogram(sequence)`` remember its sequence until it is logged; of `np_histogram=` there is none."""
    build = histogram.__init__
    if getattr(build, "_rlexporter", False):
        return

    @functools.wraps(build)
    def build_kept(self: Any, sequence: Any = None, *args: Any, **kwargs: Any) -> None:
        build(self, sequence, *args, **kwargs)
        if sequence is not None:
            vars(self)[_KEPT] = sequence

    vars(build_kept)["_rlexporter"] = True
    histogram.__init__ = build_kept


def raw(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``line`` with the values that histograms were made of in their place. Each is counted once."""
    return {key: value if type(value) is float else _taken(value) for key, value in line.items()}


def _taken(value: Any) -> Any:
    return vars(value).pop(_KEPT) if hasattr(value, _KEPT) else value
