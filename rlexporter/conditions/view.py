"""What signals are computed from: the data of a step, and the memory of those before; and how they are declared."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from rlexporter.conditions.past import Blindness, CumulativeSum, Doubt, Envelope, Levels, Pace, Past, Streak, Varied
from rlexporter.model.condition import Read, Signal, Source
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Kind, Series
from rlexporter.model.snapshot import AnomalyCounts

ROUNDING = 1e-6
"""The relative difference below which two numbers count as equal."""
MAX_FUNCTIONS = 100
ASIDE = frozenset(("eval", "save"))
"""The phases that are not part of a step."""


@dataclass(slots=True)
class LineNumbers:
    """The numbers of a log line, by the gauges that they feed."""

    numbers: dict[str, float] = field(default_factory=dict)
    """The finite numbers of gauges without labels, by Prometheus name."""
    functions: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """The numbers of gauges with labels, by Prometheus name and labels (joined by /); None if None was logged."""

    def note(self, targets: Iterable[Series], value: float | None) -> None:
        """Take the ``value`` of a key that feeds ``targets``; None if None was logged."""
        for metric, labels in targets:
            if metric.kind is not Kind.GAUGE:
                continue
            if labels:
                self.functions.setdefault(metric.series, {})["/".join(labels)] = value
            elif value is not None and isfinite(value):
                self.numbers[metric.series] = value

    def forget(self, targets: Iterable[Series]) -> None:
        """Drop the numbers of a key that feeds ``targets``."""
        for metric, labels in targets:
            if labels:
                self.functions.get(metric.series, {}).pop("/".join(labels), None)
            else:
                self.numbers.pop(metric.series, None)


@dataclass(slots=True)
class View:
    """The data of one step, or of one log line of it."""

    step: int
    advanced: bool
    """True if this is the first data of the step."""
    gap: float | None
    """The seconds that the step took, or since the line before."""
    span: int
    """The number of steps that the logged numbers are of: more than 1 where the trainer logs every tenth step."""
    anomalies: AnomalyCounts
    numbers: dict[str, float] = field(default_factory=dict)
    functions: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    seen: Mapping[Series, Histogram] = field(default_factory=dict)
    counted: dict[str, Histogram] = field(default_factory=dict)
    """The histograms of tensors, for metrics without labels, by Prometheus name."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """The seconds spent in each phase of the step, where this process measured them."""
    stalled: tuple[float, str] | None = None
    """The seconds without a step, if the run counted as hung before this one, and the phase that took most of them."""

    def __post_init__(self) -> None:
        """Put corrected means in place of logged ones."""
        for series, counted in self.seen.items():
            if not series.labels:
                self.counted[series.metric.series] = counted
            elif series.metric.series == "rl_corrected_mean" and counted.count:
                self.numbers[series.labels[0]] = counted.finite_mean


def value_range(counted: Histogram) -> float | None:
    """Return the largest minus the smallest value; None if they are unknown."""
    width = counted.maximum - counted.minimum
    return width if isfinite(width) else None


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
    fresh: dict[str, float] = field(default_factory=dict)
    """The values of the signals that have one in the current step."""
    new: Callable[[str], float | None] = field(init=False)
    """Returns the value of a signal in the current step; None without one."""
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
    levels: Levels = field(default_factory=Levels)
    """The levels of the reward."""
    totals: Past = field(default_factory=Past)
    """Score and penalty together, where the trainer logs that beside the reward; and its levels."""
    total_levels: Levels = field(default_factory=Levels)
    first_rewards: tuple[float, float] | None = None
    """The median of the first rewards, and their spread."""
    where: str = ""
    """The series that the current signal was read at, where that varies."""
    about: Mapping[str, int] | None = None
    """What the current signal is about, where it is of several things: reward functions, each with the step since when.

    The step is 0 where it is the one since which the signal itself has been beyond its limit. An empty name stands for
    the only one there is, as for the reward of PPO.
    """
    window: int = 0
    """The observations that the value of the current signal is computed from; 0 for those that the signal declares."""
    envelopes: defaultdict[str, Envelope] = field(default_factory=lambda: defaultdict(Envelope))
    """The extremes of the rewards of each reward function so far."""
    pushed: bool = False
    """True if all gradients since the weights were last looked at were not zero, and there was one."""
    looks: int = 0
    """The number of times that weights were compared with what they were."""
    moved: bool = False
    """True if a weight has ever changed."""
    offsets: deque[float] = field(default_factory=lambda: deque(maxlen=20))
    """Mean log-probability plus mean entropy of the last rollouts."""
    above: CumulativeSum = field(default_factory=CumulativeSum)
    """What of them is above 0, and below it."""
    below: CumulativeSum = field(default_factory=CumulativeSum)
    zeros: defaultdict[str, Past] = field(default_factory=lambda: defaultdict(Past))
    """The share of rewards that are exactly 0, of each reward function and, by an empty name, of the reward."""
    groups: defaultdict[str, Blindness] = field(default_factory=lambda: defaultdict(Blindness))
    """Of each reward function, how it has told the completions of a prompt apart."""
    lowest: float = float("inf")
    """The lowest reward so far that is not far below all before it, and the highest."""
    highest: float = float("-inf")
    rewards: int = 0
    """The number of rewards so far."""
    shortest: float = float("inf")
    """The lowest mean length of the prompts of a step."""
    weights: dict[str, float] = field(default_factory=dict)
    """The weight of each reward function."""
    lost_weights: dict[str, int] = field(default_factory=dict)
    """The reward functions whose weight has become 0, each with the step of that."""
    anew: set[str] = field(default_factory=set)
    """The signals whose past ends with this step, as what they measure is another thing from now on."""
    pace: Pace = field(default_factory=Pace)
    again: bool = False
    """True if what the current signal says is worse than what was said while its limit held: it is told again."""
    nonfinite_place: float | None = None
    """The place in a step of what was first NaN in the steps in a row that have any; None if the last had none."""
    tapped: bool = False
    """True if reward functions are tapped, so that None and NaN are told apart."""

    def __post_init__(self) -> None:
        """Read the values of a step at one place, step after step."""
        self.new = self.fresh.get

    @property
    def subject(self) -> tuple[str, int]:
        """Return what the current signal is about in a few words, and the step since which that is so, or 0."""
        if not self.about:
            return "", 0
        names = [*filter(None, self.about)]
        return ", ".join(names[:3]) + (" and more" if names[3:] else ""), min(self.about.values())

    def begin_anew(self, name: str, past: Past) -> None:
        """Forget the numbers of the signal ``name``, which has another ``past`` from now on."""
        self.past[name] = past
        if name == "reward":
            self.levels, self.first_rewards = Levels(), None


Derive = Callable[[View, Memory], "float | None"]
"""A function that computes a number from a step and from the past of other signals; None if the step has none."""


class Declared:
    """Collects the derived signals, in the order of evaluation."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.functions: dict[str, Derive] = {}

    def signal(
        self,
        name: str,
        *,
        unit: str = "",
        of: str = "",
        after: tuple[str, ...] = (),
        reads: tuple[str, ...] | None = None,
        rests: bool = False,
        window: int = 1,
    ) -> Callable[[Derive], Derive]:
        """Declare the decorated function as the signal ``name``, in ``unit``.

        ``of``: its main input, whose variant and series it shares. ``after``: further signals that it reads. All of
        them must be declared before it: `ordered` checks that. ``reads``: as `Source.reads`; ``of`` if not given.
        ``rests``, ``window``: as in `Signal`.
        """
        wants = ((of,) if of else ()) if reads is None else reads

        def declare(function: Derive) -> Derive:
            self.signals.append(
                Signal(name, unit, (Source(name, Read.DERIVED, reads=wants),), of, after, rests, window)
            )
            self.functions[name] = function
            return function

        return declare

    def source(self, function: Derive) -> Derive:
        """Declare ``function`` as the `Read.DERIVED` source of its name, not as a signal of its own."""
        self.functions[function.__name__] = function
        return function


def ordered(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """Return the ``signals`` in the order of evaluation, which is their own.

    Raises:
        ValueError: a name is declared twice, or a signal before one that it is computed from.
    """
    known: set[str] = set()
    for signal in signals:
        if signal.name in known:
            raise ValueError(f"the signal {signal.name} is declared twice")
        missing = [name for name in (signal.of, *signal.after) if name and name not in known]
        if missing:
            raise ValueError(f"declare the signal {signal.name} after {' and '.join(missing)}: it is computed from it")
        known.add(signal.name)
    return tuple(signals)
