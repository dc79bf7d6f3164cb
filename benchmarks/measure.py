"""Timing of alternatives in turn: A B C A B C ..., so that a machine that slows down slows all of them."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Figure:
    """Microseconds a call: the median over rounds, and the middle half of them."""

    median: float
    low: float
    high: float

    def times(self, factor: float) -> Figure:
        """Of as many calls."""
        return Figure(self.median * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        return f"{self.median:.1f} ({self.low:.1f} to {self.high:.1f})"


def side_by_side(
    calls: Mapping[str, Callable[[], object]], *, rounds: int = 25, seconds: float = 0.02, wall: bool = False
) -> dict[str, Figure]:
    """Time of each call, in rounds of about ``seconds`` each, one after the other in every round.

    Thread-CPU time, or with ``wall`` that of a clock: of calls that use several threads.
    """
    clock = time.perf_counter if wall else time.thread_time
    repeats = {name: _repeats(call, seconds, clock) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(_time(call, repeats[name], clock))
    return {name: _figure(found) for name, found in times.items()}


def ratios(figures: Mapping[str, Figure], ours: str) -> dict[str, float]:
    """How many times longer than ours each of the others takes, by medians."""
    return {name: figure.median / figures[ours].median for name, figure in figures.items() if name != ours}


def cpu_of(name: str) -> float:
    """CPU seconds of a thread of this process, of Linux."""
    thread = next(each for each in threading.enumerate() if each.name.startswith(name))
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(") ")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _figure(times: list[float]) -> Figure:
    ordered = sorted(times)
    return Figure(median(ordered), ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4])


def _repeats(call: Callable[[], object], seconds: float, clock: Callable[[], float]) -> int:
    once = max(_time(call, 3, clock) * 1e-6, 1e-7)
    return max(1, int(seconds / once))


def _time(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    gc.collect()
    gc.disable()
    start = clock()
    for _ in range(repeats):
        call()
    spent = clock() - start
    gc.enable()
    return spent / repeats * 1e6
