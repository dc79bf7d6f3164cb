"""The bounded memory of derived signals, beside the past of each signal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlexporter.conditions.chance import Doubt, Streak
from rlexporter.conditions.envelope import Envelope, Varied
from rlexporter.conditions.past import Past

ROUNDING = 1e-6
"""The relative difference below which two numbers count as equal."""
MAX_FUNCTIONS = 100
MAX_KEYS = 500


@dataclass(slots=True)
class Memory:
    """The memory of derived signals: the past of each signal, and more."""

    past: dict[str, Past]
    variant: dict[str, str] = field(default_factory=dict)
    """The variant of each signal."""
    settings: Mapping[str, float] = field(default_factory=dict)
    """The numeric settings of the trainer, by name; empty if they are not known."""
    resumed: bool = False
    """True if the first step here is not the first one of the run."""
    fresh: set[str] = field(default_factory=set)
    """The signals that have a value in the current step."""
    span: int = 1
    """The number of steps that the logged numbers of the current step are of."""
    episode: float = 0.0
    functions: dict[str, Past] = field(default_factory=dict)
    """The means of each reward function."""
    varied: dict[str, Varied] = field(default_factory=dict)
    """The observations in which a reward function told completions apart."""
    flat_for: dict[str, int] = field(default_factory=dict)
    """The number of observations in a row in which a reward function gave all completions the same reward."""
    given: dict[str, int] = field(default_factory=dict)
    """The number of times a reward function has given a number; -1 if it gave none within its first 10."""
    evaluated: dict[tuple[str, ...], int] = field(default_factory=dict)
    """By data set and reward function, the rewards of its last evaluation that were not finite."""
    flat: Streak = field(default_factory=Streak)
    """The steps in which rewards did not differ."""
    same: Streak = field(default_factory=Streak)
    """Those of them in which they were also what they were in the step before."""
    dead: Doubt = field(default_factory=Doubt)
    """The steps in which the gradient was 0 although rewards differed."""
    best_reward: float | None = None
    """The highest level of the reward."""
    reward_path: float = 0.0
    """The sum of all differences between a reward and the one before it."""
    first_rewards: tuple[float, float] | None = None
    """The median of the first rewards, and their spread."""
    where: str = ""
    """The series that the current signal was read at, where that varies."""
    subject: str = ""
    """What the current signal is about, where it is of several things: a reward function."""
    subject_since: int = 0
    """The step since which that has been so, while there is a ``subject``."""
    keys: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By log key: the last line with it, their number, the longest pause; for keys in ``shape`` as of ``since``."""
    shape: tuple[str, ...] = ()
    """The keys of the last line."""
    since: int = 0
    """The first line of those in a row that had exactly the keys in ``shape``."""
    absent: list[tuple[int, int, int]] = field(default_factory=list)
    """The entries of ``keys`` for keys that the last line did not have."""
    lines: int = 0
    envelopes: dict[str, Envelope] = field(default_factory=dict)
    """The extremes of the rewards of each reward function so far."""
    pushed: bool = False
    """True if all gradients since the weights were last looked at were not zero, and there was one."""
    looks: int = 0
    """The number of times that weights were compared with what they were."""
    moved: bool = False
    """True if a weight has ever changed."""
    offsets: deque[float] = field(default_factory=lambda: deque(maxlen=20))
    """Mean log-probability plus mean entropy of the last rollouts."""
    tapped: bool = False
    """True if reward functions are tapped, so that None and NaN are told apart."""

    def about(self, subjects: Mapping[str, int]) -> None:
        """Say what the current signal is about: ``subjects``, each with the step since which it is so."""
        if subjects:
            names = [*filter(None, subjects)]
            self.subject = ", ".join(names[:3]) + (" and more" if names[3:] else "")
            self.subject_since = min(subjects.values())

    def new(self, name: str) -> float | None:
        """Return the value of the signal ``name`` in the current step; None without one."""
        return self.past[name].newest if name in self.fresh else None

    def begin_anew(self, name: str, past: Past) -> None:
        """Forget the numbers of the signal ``name``, which has another ``past`` from now on."""
        self.past[name] = past
        if name == "reward":
            self.best_reward = self.first_rewards = None
            self.reward_path = 0.0
