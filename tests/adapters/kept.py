"""Values that a test kept, counted by numpy; and the histograms of a scrape, read as text.

Nothing of rlexporter is used here: it is the measure that the served histograms are held against.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


class SavedState:
    """Values by the name of the series that must hold them, copied when they were there."""

    def __init__(self) -> None:
        self.values: dict[str, list[Any]] = {}

    def add(self, name: str, values: Any, mask: Any = None) -> None:
        array = np.array(
            values.detach().cpu().to(torch.float64) if torch.is_tensor(values) else values, dtype=np.float64
        )
        chosen = None if mask is None else np.array(mask.detach().cpu() if torch.is_tensor(mask) else mask) > 0
        self.values.setdefault(name, []).append(array.ravel() if chosen is None else array[chosen])

    def histogram(self, name: str, bounds: list[float]) -> list[int]:
        """Cumulative counts at each bound, and of all finite values."""
        values = np.concatenate(self.values[name])
        finite = values[np.isfinite(values)]
        return [int(np.count_nonzero(finite <= bound)) for bound in bounds] + [len(finite)]

    def nonfinite(self, name: str) -> int:
        values = np.concatenate(self.values[name])
        return int(np.count_nonzero(~np.isfinite(values)))


def buckets(text: str) -> Iterator[tuple[str, list[float], list[int]]]:
    """Name (with its function), bounds and cumulative counts of each histogram in a scrape, read as text."""
    found: dict[str, list[tuple[float, int]]] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("_bucket{")
        if line.startswith("#") or not rest:
            continue
        labels, value = rest.rsplit("} ", 1)
        pairs = dict(part.split("=", 1) for part in labels.replace('"', "").split(","))
        key = f"{name}/{pairs['reward_function']}" if "reward_function" in pairs else name
        found.setdefault(key, []).append((float(pairs["le"]), int(float(value))))
    for name, pairs_found in found.items():
        pairs_found.sort()
        yield name, [bound for bound, _ in pairs_found[:-1]], [count for _, count in pairs_found]


def assert_counted(text: str, kept: SavedState, *besides: str) -> None:
    """Every histogram of the scrape ``text`` is that of what was ``kept``, bucket for bucket, and has something in it.

    ``besides``: those that nothing was kept of.
    """
    served = {name: (bounds, counts) for name, bounds, counts in buckets(text)}

    assert set(served) - {"rl_step_duration_seconds", *besides} == set(kept.values)
    for name in kept.values:
        bounds, counts = served[name]
        assert counts == kept.histogram(name, bounds), name
        assert counts[-1] > 0, name
