"""The history of a run: a curve of each number by step, its pace, and its histograms some steps ago; bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from math import inf
from threading import RLock
from typing import NamedTuple

from rlexporter.catalog.metrics import NAMED
from rlexporter.model.histogram import Histogram, Nonfinite
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import Snapshot
from rlexporter.status.curve import Curve, HeatMap, Point
from rlexporter.status.earlier import EarlierRun

RECENT_STEPS = 50
"""The steps that count as the last ones."""

_MOST_POINTS = 975_000
"""The points of all curves: 16 bytes each, and an eighth more where arrays have room to grow."""
_LONGEST = 3000
_SHORTEST = 8
_MOST_CURVES = 4000
_MOST_HEAT_MAPS = 64
"""They take 1.7 MB at most: 96 columns of 25 buckets, of 8 bytes each, and what Python needs for an array."""
_APART = 5
"""The steps between two states of the histograms."""
_PACE_SECONDS = 60.0
_GOLDEN = 0.618
"""Its multiples, without their whole parts, are spread evenly: so are the moments in which curves are thinned."""

_STEP = Series(NAMED["rl_step"])
_STEPS_DONE = Series(NAMED["rl_steps_total"])
_TIME = Series(NAMED["rl_last_step_timestamp_seconds"])
_CHECKPOINT = Series(NAMED["rl_last_checkpoint_step"])
_EVALUATION = NAMED["rl_eval_timestamp_seconds"]
_MOST_MARKS = 500


class Mark(NamedTuple):
    """What happened in a step: ``kind`` is `checkpoint` or `evaluation`."""

    kind: str
    step: int


class Earlier(NamedTuple):
    """The histograms at an earlier step. ``steps``: how long ago that is; None if it is not known."""

    buckets: Mapping[Series, Histogram]
    steps: int | None


class History:
    """The history of one process. One thread at a time calls `see`; any thread may call the others meanwhile.

    The curve of a gauge has its value at each step. That of a histogram has the mean of what was counted since the
    point before; one that mirrors a gauge has none where the gauge has one. A run that begins again, at an earlier
    step, begins a new history.
    """

    def __init__(self) -> None:
        self.earlier: EarlierRun | None = None
        """Another run, to compare this one with."""
        self._lock = RLock()  # SIGTERM may interrupt who holds it, and have the page of the run made
        self._seen: Snapshot | None = None
        self._step = -inf
        self._curves: dict[Series, Curve] = {}
        self._heat_maps: dict[Series, HeatMap] = {}
        self._histograms: dict[Series, Histogram] = {}
        self._states: deque[tuple[int, Mapping[Series, Histogram]]] = deque()
        self._pace: deque[tuple[float, float]] = deque(maxlen=1000)  # a recording may have no times
        self._marks: deque[Mark] = deque(maxlen=_MOST_MARKS)
        self._happened: dict[str, float] = {}

    def see(self, snapshot: Snapshot) -> None:
        """Add what has changed since the last snapshot."""
        samples = snapshot.samples
        step = samples.get(_STEP)
        if step is None or snapshot is self._seen:
            return
        with self._lock:
            if step < self._step:
                self._begin_again(snapshot, int(step))
            self._seen, self._step = snapshot, step
            time = samples.get(_TIME)
            if time is not None and not (self._pace and step == self._pace[-1][1]):
                self._pace.append((time, step))
                while len(self._pace) > 2 and self._pace[1][0] <= time - _PACE_SECONDS:
                    self._pace.popleft()
            saved = samples.get(_CHECKPOINT)
            evaluated = max((samples[each] for each in samples if each.metric is _EVALUATION), default=None)
            for kind, sign, at in (("checkpoint", saved, saved), ("evaluation", evaluated, int(step))):
                if sign is not None and at is not None and self._happened.get(kind) != sign:
                    self._happened[kind] = sign
                    self._marks.append(Mark(kind, int(at)))
            most = self._most
            for series, logged in snapshot.steps.items():
                curve = self._curves.get(series) or self._new(series)
                if curve is not None and logged > curve.last_step and series in samples:
                    curve.add(logged, samples[series], most)
            self._add_histograms(snapshot, int(step))

    def curve(self, series: Series) -> list[Point]:
        """Return the points of ``series``; none for one that is unknown."""
        with self._lock:
            curve = self._curves.get(series)
            return curve.points() if curve is not None else []

    def series(self, name: str) -> list[Series]:
        """Return the series of the metric ``name`` that have a curve, sorted by their labels.

        A name with labels, such as ``rl_signal{signal="kl"}``, is that of one series.
        """
        name, _, labels = name.partition("{")
        with self._lock:
            named = [series for series in self._curves if series.metric.series == name]
        if labels:
            wanted = labels.removesuffix("}")
            named = [each for each in named if labelled(each.metric.labels, each.labels) == wanted]
        return sorted(named, key=lambda series: series.labels)

    def heat_maps(self) -> list[tuple[Series, HeatMap]]:
        """Return a copy of the heat map of each histogram, sorted by name and labels; at most 64."""
        with self._lock:
            found = [(series, heat_map.copy()) for series, heat_map in self._heat_maps.items()]
        return sorted(found, key=lambda each: (each[0].metric.series, each[0].labels))

    def marks(self) -> list[Mark]:
        """Return the checkpoints and evaluations, at most the last 500, in their order."""
        with self._lock:
            return list(self._marks)

    def past(self, step: int | None) -> Earlier:
        """Return the histograms about 50 steps before ``step``; none if the run had not begun then."""
        with self._lock:
            if step is None or not self._states:
                return Earlier({}, None)
            at, buckets = self._states[0]
            return Earlier(buckets, max(0, step - at))

    def steps_per_second(self) -> float | None:
        """Return the pace over the last minute, or the last steps where they take longer; None if it is unknown."""
        with self._lock:
            if len(self._pace) < 2:
                return None
            (began, first), (ended, last) = self._pace[0], self._pace[-1]
            return (last - first) / (ended - began) if ended > began else None

    def _begin_again(self, snapshot: Snapshot, step: int) -> None:
        """Forget the curves. Histograms count on, so that their current state is where the run begins."""
        for kept in (self._curves, self._heat_maps, self._states, self._pace, self._marks):
            kept.clear()
        self._states.append((step, snapshot.buckets))

    @property
    def _most(self) -> int:
        """Return the most points of one curve."""
        return max(_SHORTEST, min(_LONGEST, _MOST_POINTS // max(1, len(self._curves))))

    def _add_histograms(self, snapshot: Snapshot, step: int) -> None:
        most = self._most
        for series, counted in snapshot.buckets.items():
            before = self._histograms.get(series)
            if counted is before or step <= self._newest(series):
                continue
            fresh = since(counted, before)
            if not (fresh.count or fresh.nonfinite):
                continue
            self._histograms[series] = counted
            gauge = Series(NAMED[series.metric.of], series.labels) if series.metric.of else None
            if gauge not in self._curves and (curve := self._curves.get(series) or self._new(series)) is not None:
                curve.add(step, fresh.mean, most)
            if fresh.count and (heat_map := self._heat_map(series, counted.bounds)) is not None:
                heat_map.add(step, fresh)
        if not self._states:  # histograms count from the start of the process
            self._states.append((step - int(snapshot.samples.get(_STEPS_DONE, 0)), {}))
        if step - self._states[-1][0] >= _APART:
            self._states.append((step, snapshot.buckets))
        while len(self._states) > 1 and self._states[1][0] <= step - RECENT_STEPS:
            self._states.popleft()

    def _newest(self, series: Series) -> float:
        """Return the last step that what ``series`` counts was added for."""
        curve, heat_map = self._curves.get(series), self._heat_maps.get(series)
        return max(curve.last_step if curve else -inf, heat_map.last_step if heat_map else -inf)

    def _heat_map(self, series: Series, bounds: tuple[float, ...]) -> HeatMap | None:
        """Return the heat map of ``series``; None if there are too many. One of other bounds begins anew."""
        found = self._heat_maps.get(series)
        if found is not None and found.bounds == bounds:
            return found
        if found is None and len(self._heat_maps) >= _MOST_HEAT_MAPS:
            return None
        found = self._heat_maps[series] = HeatMap(bounds)
        return found

    def _new(self, series: Series) -> Curve | None:
        if len(self._curves) >= _MOST_CURVES:
            return None
        curve = self._curves[series] = Curve(1.0 - len(self._curves) * _GOLDEN % 1.0 / 2)
        return curve


def labelled(names: Iterable[str], values: Iterable[str]) -> str:
    """Return labels as `History.series` has them behind the name of a metric."""
    return ", ".join(f'{name}="{value}"' for name, value in zip(names, values, strict=True))


def since(now: Histogram, before: Histogram | None) -> Histogram:
    """Return what ``now`` counts and ``before`` does not; all of it if ``before`` is not an earlier state of ``now``.

    Its smallest and largest value are those of the whole.
    """
    if before is None or before.bounds != now.bounds or before.count > now.count:
        return now
    bad, had = now.nonfinite, before.nonfinite
    return Histogram(
        now.bounds,
        tuple(mine - its for mine, its in zip(now.counts, before.counts, strict=True)),
        now.positive_sum - before.positive_sum,
        now.negative_sum - before.negative_sum,
        now.minimum,
        now.maximum,
        Nonfinite(bad.nan - had.nan, bad.positive - had.positive, bad.negative - had.negative),
    )
