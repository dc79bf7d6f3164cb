"""What adapters hand over, and to whom: the seam between trainers and the core.

Adapters depend on this file and not on the run, so that they can feed anything that has these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rlexporter.model.step import RunFacts, StepUpdate


class NotSeenError(Exception):
    """Says that this run does not have a signal: the reason, and no error."""


class Sink(Protocol):
    """Takes what an adapter sees of a run.

    Every method is called on the training thread, but for `guard`, which any thread may use. None of them raises an
    error of its own into the trainer except `observe`, which stands inside `observing` or `guard`. None of them waits
    for a device or keeps a tensor.
    """

    def log(self, stats: Mapping[str, object], *, step: int | None = None, update: StepUpdate | None = None) -> None:
        """Take one log line, and the step update that belongs to it; both become visible in one change."""

    def advance(self, update: StepUpdate) -> None:
        """Note that a step is done for which no log line follows."""

    def saved(self, step: int) -> None:
        """Note that a checkpoint of ``step`` was written."""

    def observe(self, name: str, values: Any, mask: Any = None, labels: tuple[str, ...] = ()) -> None:
        """Count values of this step in the metric with the Prometheus name ``name``.

        ``values``: a tensor, array or list of any shape; ``mask``: which of them count, of a shape that broadcasts to
        it; ``labels``: those of the metric, in its order. They become visible with the step.

        Raises:
            LookupError: no metric is called so, or has so many labels.
            TypeError, ValueError, RuntimeError: the values are no real numbers.
        """

    def undefined(self, name: str, count: int) -> None:
        """Count values of the metric ``name`` that were not given (None)."""

    def values(self, key: str, numbers: list[float]) -> None:
        """Take the numbers of this step that the trainer is about to average under a log key."""

    def signal(self, name: str, reason: str = "", *, error: bool = False) -> None:
        """Say whether a signal can be seen in this run.

        ``reason``: why not, empty where it can be; ``error``: it should have been.
        """

    def observing(self, signal: str) -> AbstractContextManager[None]:
        """Let what is observed inside be this signal; where that fails, the signal is lost and nothing else.

        NotSeenError says that this run does not have it.
        """

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Count the time inside as that of a phase of the step."""

    def flush(self) -> None:
        """Bring what was counted on a device to safety before something that may fail."""

    def guard(self, where: str) -> AbstractContextManager[None]:
        """Keep errors inside away from the trainer: they are counted under ``where``, and logged once a kind."""

    def on_close(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` when the exporter is closed: what was wrapped is unwrapped."""


class TrainedRun(Protocol):
    """A run as the adapter of its trainer sees it. Only the training thread calls these."""

    @property
    def sink(self) -> Sink:
        """Where everything goes that is seen of it."""

    def prepare(self, facts: RunFacts) -> None:
        """Take over the facts of a run that may begin later."""

    def begin(self, facts: RunFacts) -> None:
        """Note that a training begins now, for the first time or again."""

    def end(self, error: BaseException | None = None) -> None:
        """Note that it has ended, by itself or by ``error``."""
