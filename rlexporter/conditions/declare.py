"""How signals and conditions are declared: each once, beside the code that computes it.

@signal("reward_gain", "spreads", of="reward")
class RewardGain: ...                       a number with a past of its own: one object a run

condition("reward_plateau", "RLRewardPlateau", Family.PLATEAU, "reward_gain").when(
    level(warning(0.5, MOSTLY), below=True), "The reward has not risen since the run began."
)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

from rlexporter.conditions.view import Compute
from rlexporter.model.condition import Condition, Family, Measured, Read, Signal, Source

if TYPE_CHECKING:
    from typing_extensions import Unpack

PPO = ("ppo", "ppo-legacy")
GROUP = ("grpo", "rloo", "async-grpo")
GROUPS = ("grpo", "rloo")
"""Those whose rollouts and losses are seen at the tensor."""
TRAINERS = (*GROUP, *PPO)

SIGNALS: list[Signal] = []
COMPUTED: dict[str, Callable[[], Compute]] = {}
"""By the name of a signal or of a source: makes what computes it in one run."""
C = TypeVar("C", bound=Callable[..., Any])


def mean(series: str, variant: str = "", algorithms: tuple[str, ...] = ()) -> Source:
    """Make a source: the mean of what was seen in a step."""
    return Source(series, Read.MEAN, variant, algorithms)


def derived(name: str, *reads: str, variant: str = "") -> Source:
    """Make a source that a function ``name`` computes of the series ``reads``."""
    return Source(name, Read.DERIVED, variant, reads=reads)


def read(name: str, unit: str, *sources: Source | str, after: tuple[str, ...] = ()) -> None:
    """Declare a signal that is read at the first of ``sources`` with a value; a string is a series and its value.

    ``after``: signals that are computed before it.
    """
    read_at = tuple(Source(each) if isinstance(each, str) else each for each in sources)
    SIGNALS.append(Signal(name, unit, read_at, after=after))


def signal(
    name: str,
    unit: str = "",
    *,
    of: str = "",
    after: tuple[str, ...] = (),
    reads: tuple[str, ...] | None = None,
    window: int = 1,
) -> Callable[[C], C]:
    """Declare what is decorated as the signal ``name``: a function, or a class of which each run has an object.

    Where it is a class without ``keeps = True``, its past ends when its main input is read elsewhere.

    ``of``: its main input, whose variant and series it shares. ``after``: further signals that it reads. ``reads``: as
    `Source.reads`; ``of`` if not given. ``window``: as in `Signal`.
    """
    wants = ((of,) if of else ()) if reads is None else reads

    def declare(computed: C) -> C:
        SIGNALS.append(Signal(name, unit, (derived(name, *wants),), of, after, window))
        COMPUTED[name] = _maker(computed)
        return computed

    return declare


def source(name: str) -> Callable[[C], C]:
    """Declare what is decorated as the source ``name`` of a signal that has others too."""

    def declare(computed: C) -> C:
        COMPUTED[name] = _maker(computed)
        return computed

    return declare


def _maker(computed: Callable[..., Any]) -> Callable[[], Compute]:
    return computed if isinstance(computed, type) else lambda: computed


class Texts(TypedDict, total=False):
    """The fields of `Condition` that an entry may state after what is judged."""

    about: str
    related: tuple[str, ...]
    foretold_by: tuple[str, ...]
    level: str
    stops: bool


class Begun(NamedTuple):
    """The first half of a condition, which `when` completes."""

    name: str
    alert: str
    family: Family
    signal: str
    algorithms: tuple[str, ...] = ()

    def when(self, detector: Measured, summary: str, /, **texts: Unpack[Texts]) -> Condition:
        """Make the condition that holds while the ``detector`` finds the signal beyond a limit."""
        return Condition(**self._asdict(), detector=detector, summary=summary, **texts)


condition = Begun
"""Begins the entry of a condition: ``condition(name, alert, family, signal, algorithms).when(level(...), summary)``."""
