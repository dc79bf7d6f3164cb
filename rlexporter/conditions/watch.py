"""A run under watch: what each step brings goes to the judge, and what the judge finds into the next snapshot."""

from __future__ import annotations

from collections.abc import Mapping

from rlexporter.buckets import Buckets
from rlexporter.conditions.judge import Judge, Verdict
from rlexporter.conditions.stall import MINIMUM, Patience
from rlexporter.conditions.view import Reader, View
from rlexporter.draft import Draft, News
from rlexporter.feed import StepUpdate
from rlexporter.model import Series
from rlexporter.resolve import Resolver


class Watch:
    """Watches one run, on its step clock. ``stalled``: seconds without a step that are always allowed."""

    def __init__(self, judge: Judge, stalled: float | None = None) -> None:
        self._judge = judge
        self._stalled = stalled or MINIMUM
        self._patience = Patience(self._stalled)
        self._reader = Reader(lambda key: ())
        self._news = News()
        self._seen: dict[Series, Buckets] = {}
        self._step: int | None = None
        self._time: float | None = None
        self.first: dict[tuple[str, str], tuple[int, Verdict]] = {}
        """By condition and severity: the step in which it began for the first time, and how."""

    def begin(
        self, draft: Draft, algorithm: str, resolver: Resolver, *, sequence_level: bool = False, resumed: bool = False
    ) -> None:
        """A run begins: nothing of an earlier one counts."""
        self._judge.begin(algorithm, sequence_level=sequence_level, resumed=resumed)
        self._reader = Reader(resolver.resolve)
        self._step = self._time = None
        self._patience = Patience(self._stalled)
        self.phase(draft, "")
        draft.clear("rl_condition")
        draft.clear("rl_condition_judged")
        draft.clear("rl_threshold")
        for condition, limit in self._judge.limits:
            draft.set("rl_condition_judged", 0.0, condition.name)
            draft.keep("rl_condition_events_total", condition.name, limit.severity.value)

    def phase(self, draft: Draft, name: str) -> None:
        """This part of a step is under way: how long may it take?"""
        draft.set("rl_stall_after_seconds", self._patience.limit(name))

    def note(self, news: News, seen: Mapping[Series, Buckets]) -> None:
        """What was counted between two steps; it belongs to the next one that is judged."""
        self._news.add(news)
        for series, counted in seen.items():
            have = self._seen.get(series)
            self._seen[series] = have + counted if have else counted

    @property
    def pending(self) -> bool:
        """Whether something was counted since the last step that was judged."""
        return bool(self._seen or self._news.nonfinite or self._news.undefined)

    def pause(self, now: float) -> None:
        """Something that is no step has taken its time until now: an evaluation."""
        self._time = now

    def look(
        self, news: News, logs: Mapping[str, object], update: StepUpdate | None, step: int, now: float
    ) -> list[Verdict]:
        """Judge a line, and the step update that belongs to it."""
        self.note(news, update.seen if update is not None else {})
        advanced = step != self._step
        gap = update.duration if update is not None and update.duration is not None else self._gap(now)
        if advanced and gap is not None:
            self._patience.step(gap)
        for phase, seconds in update.phases.items() if update is not None else ():
            self._patience.phase(phase, seconds)
        view = View(step, advanced, gap, self._news, seen=self._seen)
        self._news, self._seen = News(), {}
        self._step, self._time = step, now
        verdicts = self._judge.step(self._reader.read(view, logs, update))
        for verdict in verdicts:
            if verdict.began:
                self.first.setdefault((verdict.condition.name, verdict.limit.severity.value), (step, verdict))
        return verdicts

    def heard(self, signal: str) -> bool:
        """Whether a signal has ever come."""
        return self._judge.past(signal).count > 0

    def needs(self, signal: str) -> bool:
        """Whether a condition of this run is judged by a signal."""
        return any(condition.signal == signal for condition, _ in self._judge.limits)

    def _gap(self, now: float) -> float | None:
        return None if self._time is None else now - self._time

    def write(self, draft: Draft, verdicts: list[Verdict], step: int, now: float) -> None:
        """What has changed of each condition, as samples."""
        self.phase(draft, "")
        for condition, limit, threshold, active, began, value, _ in verdicts:
            labels = (condition.name, limit.severity.value)
            draft.set("rl_condition_judged", 1.0, condition.name)
            draft.set("rl_condition", float(active), *labels)
            draft.set("rl_threshold", threshold, *labels)
            if began:
                draft.add("rl_condition_events_total", 1, *labels)
                draft.set("rl_condition_last_event_timestamp_seconds", now, *labels)
                draft.set("rl_condition_last_event_step", step, *labels)
                draft.set("rl_condition_last_event_value", value, *labels)
