"""The brake: what `on_critical` asks for when a run becomes critical. A checkpoint, or the end of the training."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.config.parsers import orders
from rlexporter.config.settings import Settings
from rlexporter.feed.feed import Feed
from rlexporter.model.condition import Severity
from rlexporter.model.incident import Incident, Standing
from rlexporter.model.sink import SAVE, STOP, Orders
from rlexporter.run import shutdown


class Brake:
    """Turns the incidents of a run into orders, each incident once: the `Brake` of `rlexporter.model.sink`."""

    def __init__(self, settings: Settings, feed: Feed) -> None:
        self._asked, self._patience = settings.on_critical, settings.on_critical_patience
        self._only = settings.on_critical_for
        self._feed = feed
        self._done: set[tuple[str, str, int]] = set()
        self.stops = False
        """True once the training was told to stop."""

    def begin(self) -> None:
        """Forget what an earlier training was told."""
        self._done.clear()
        self.stops = False

    def orders(self, *, saves: str = "saves a checkpoint", stops: str = "stops the training") -> Orders:
        """Return what is asked for after the step that was judged last. An error of a user's function asks nothing.

        ``saves``, ``stops``: what is said to be done then; empty for what cannot be done.
        """
        asked: set[str] = set()
        able = {word: does for word, does in ((SAVE, saves), (STOP, stops)) if does}
        for incident in self._new() if self._asked else ():
            self._done.add(_key(incident))
            with self._feed.guard("on_critical"):
                given = self._asked if isinstance(self._asked, tuple) else _answer(self._asked(incident))
                words, why = (
                    [word for word in able if word in given],
                    CONDITION_NAMED[incident.condition].says(incident.subject),
                )
                if words:
                    does = " and ".join(able[word] for word in words)
                    shutdown.say(f"on_critical {does} in step {self._feed.step}: {why}")
                asked.update(words)
        return Orders(SAVE in asked, STOP in asked, self._verdict() if asked else "")

    def _verdict(self) -> str:
        """Return what the page of the run says now: the cause first, since when, and what to do first."""
        from rlexporter.status.samples import Samples
        from rlexporter.status.verdict import verdict

        samples = Samples(self._feed.snapshot)
        found = verdict(samples, time.time())
        return "\n".join([found.text, *(step.text for step in found.steps[:1])])

    def obeyed(self, orders: Orders) -> None:
        self.stops |= orders.stop

    def _new(self) -> Iterator[Incident]:
        """Yield what is critical, is nobody's symptom, has lasted for long enough, and was not asked about yet."""
        for incident in self._feed.snapshot.incidents:
            severe = incident.speaks and incident.severity is Severity.CRITICAL
            if severe and self._is_meant(incident) and _key(incident) not in self._done:
                lasts = incident.standing is Standing.HOLDS and self._feed.step - incident.step >= self._patience
                if lasts or not self._patience:
                    yield incident

    def _is_meant(self, incident: Incident) -> bool:
        if self._only:
            return incident.condition in self._only
        return callable(self._asked) or CONDITION_NAMED[incident.condition].stops


def _answer(given: object) -> tuple[str, ...]:
    """Return the words that a function of the user's gave; None and "" are none. Raises ValueError for others."""
    return () if given is None else orders(given)


def _key(incident: Incident) -> tuple[str, str, int]:
    return incident.condition, incident.subject, incident.step
