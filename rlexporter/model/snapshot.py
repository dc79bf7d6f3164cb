"""Snapshots: the state of a run at one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import Incident
from rlexporter.model.metric import Series

ON_CRITICAL = "on_critical"
"""What ended a run, in place of the class of an exception, if it was stopped because something was critical."""


class RunState(str, Enum):
    """The state of a run, served as ``rl_run_state{state}``: 1 for the current state, 0 for the others."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    PREEMPTED = "preempted"
    STOPPED = "stopped"

    @property
    def over(self) -> bool:
        """Return True once nothing more is expected from this ``train()``."""
        return self not in (RunState.STARTING, RunState.RUNNING)


@dataclass(slots=True)
class AnomalyCounts:
    """The numbers of values that were not finite or not given (None), by the Prometheus name of their metric."""

    nonfinite: defaultdict[str, int] = field(default_factory=partial(defaultdict, int))
    undefined: defaultdict[str, int] = field(default_factory=partial(defaultdict, int))

    def __bool__(self) -> bool:
        return bool(self.nonfinite or self.undefined)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a run at one moment. It never changes: a writer makes a new one and swaps the reference.

    ``steps`` holds the step of each sample; ``totals`` holds the last reading of each running total of the trainer,
    from which the counters of this process are computed. ``incidents`` are all that has gone wrong in the run, in the
    order in which a person should read them. ``framework`` and ``family`` say whose log keys feed it: those
    of this framework, as this algorithm of TRL means them. ``reasons`` are sentences: why a signal cannot be measured.
    ``good_folder`` is that of the newest good checkpoint, ``earlier_folder`` the newest that an attempt before has kept
    as good; both are empty where none is known. None of them is a series.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[Series, float] = field(default_factory=dict)
    steps: Mapping[Series, int] = field(default_factory=dict)
    buckets: Mapping[Series, Histogram] = field(default_factory=dict)
    totals: Mapping[Series, float] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    framework: str = ""
    family: str = ""
    good_folder: str = ""
    earlier_folder: str = ""

    @property
    def state(self) -> RunState | None:
        """Return the state of the run; None before it is known."""
        return next((state for state in RunState if self.value("rl_run_state", state=state.value)), None)

    def value(self, name: str, /, **labels: str) -> float | None:
        """Return the sample of the series ``name`` with exactly these ``labels``; None if there is none."""
        for series, value in self.samples.items():
            if series.metric.series == name and dict(zip(series.metric.labels, series.labels, strict=True)) == labels:
                return value
        return None
