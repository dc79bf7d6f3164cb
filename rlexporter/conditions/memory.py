"""What derived signals remember of a run, beside the past of each signal: bounded."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlexporter.conditions.past import Past

ROUNDING = 1e-6
"""Differences below this, in proportion, are none."""
MAX_FUNCTIONS = 100
MAX_KEYS = 500


@dataclass(slots=True)
class Memory:
    """What derived signals remember of a run, beside the past of each signal."""

    past: dict[str, Past]
    variant: dict[str, str] = field(default_factory=dict)
    """Signal -> what kind of number it is."""
    resumed: bool = False
    """What is first now was not first in the run."""
    fresh: set[str] = field(default_factory=set)
    """Signals that the step under way has brought."""
    episode: float = 0.0
    functions: dict[str, Past] = field(default_factory=dict)
    """The mean of each reward function."""
    flat_for: dict[str, int] = field(default_factory=dict)
    """For how many observations a reward function has told no completion from another."""
    given: dict[str, int] = field(default_factory=dict)
    """How often in a row a reward function has given numbers; -1 once it gave none, early or often."""
    where: str = ""
    """The series that the signal under way was about, where that is not always the same."""
    keys: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Log key -> last line that had it, how many had it, longest pause; of those in ``shape`` as of line ``since``."""
    shape: tuple[str, ...] = ()
    """The keys of the last line."""
    since: int = 0
    """The first line that had just these keys."""
    absent: list[tuple[int, int, int]] = field(default_factory=list)
    """Of ``keys``, what is known of those that the last line did not have."""
    lines: int = 0
    tapped: bool = False
    """Whether reward functions are watched, so that None and NaN are told apart."""

    def new(self, name: str) -> float | None:
        """The value of a signal, where this step brought one."""
        return self.past[name].newest if name in self.fresh else None
