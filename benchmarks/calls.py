"""The way of a log line through the code, counted: `python -m benchmarks.calls`.

Of a GRPO line of 15 keys at step 120, when every key is known and every signal judged: the Python functions of ours
that are called, their files, and how often the way leaves one file for another. Nothing is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import FrameType

import rlexporter
from rlexporter import Exporter

_PACKAGE = f"{Path(rlexporter.__file__).parent}/"
_STEPS = 120
READS = "feed/log_lines.py"
"""The file in which the first key of a line is read."""


@dataclass(frozen=True)
class Way:
    """The calls of one act, each as file and function, in their order."""

    calls: list[tuple[str, str]]

    @property
    def files(self) -> list[str]:
        """Return the files that it enters, in the order in which it first does."""
        return list(dict.fromkeys(file for file, _ in self.calls))

    @property
    def changes(self) -> int:
        """Return how often it goes from one file to another."""
        return sum(1 for _ in groupby(self.calls, lambda call: call[0])) - 1

    def before(self, file: str) -> list[str]:
        """Return the functions that are called before ``file`` is entered, each once."""
        entered = next(place for place, (at, _) in enumerate(self.calls) if at == file)
        return list(dict.fromkeys(name for _, name in self.calls[:entered]))


def line(step: int) -> dict[str, float]:
    """Return the line of a healthy GRPO run at ``step``."""
    return {
        "loss": 0.5 + 0.01 * (step % 7),
        "reward": 1.0 + 0.01 * (step % 5),
        "reward_std": 0.3 + 0.01 * (step % 3),
        "kl": 0.05 + 0.001 * (step % 4),
        "entropy": 0.9 + 0.01 * (step % 6),
        "grad_norm": 1.0 + 0.1 * (step % 3),
        "learning_rate": 1e-6,
        "completions/mean_length": 100.0 + step % 9,
        "completions/clipped_ratio": 0.1,
        "frac_reward_zero_std": 0.1 * (step % 3),
        "clip_ratio/region_mean": 0.02,
        "num_tokens": 1000.0 * step,
        "epoch": 0.1 * step,
        "rewards/a/mean": 0.5 + 0.01 * (step % 4),
        "rewards/a/std": 0.2 + 0.01 * (step % 3),
    }


def way(act: Callable[[], object]) -> Way:
    """Return the calls of our functions that ``act`` makes on this thread."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_PACKAGE):
            name = getattr(code, "co_qualname", code.co_name)  # of Python 3.11 and later
            calls.append((code.co_filename.removeprefix(_PACKAGE), name))

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return Way(calls)


def of_a_line() -> Way:
    """Return the way of a line of a run that has logged for a while."""
    exporter = Exporter(run="calls", algorithm="grpo")
    for step in range(1, _STEPS):
        exporter.log(line(step), step=step)
    found = way(lambda: exporter.log(line(_STEPS), step=_STEPS))
    exporter.close()
    return found


if __name__ == "__main__":
    found = of_a_line()
    before = found.before(READS)
    print(f"a line of {len(line(1))} keys: {len(found.calls)} calls, {len(found.files)} files, {found.changes} changes")
    print(f"before its first key is read: {len(before)} functions: {', '.join(before)}")
    for file in found.files:
        functions = list(dict.fromkeys(name for place, name in found.calls if place == file))
        print(f"  {file:24} {sum(place == file for place, _ in found.calls):4}  {', '.join(functions)}")
