"""Messages to a person: when something becomes critical, and when a run fails, is stuck or ends.

They go to a person's telephone or mail, by `apprise` (Slack, Discord, Telegram, e-mail, ntfy, PagerDuty, webhooks and
more), and into the notebook that trains. A message says what the page says first, so a cause comes before what follows
from it, and symptoms are left out.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.model.condition import Severity
from rlexporter.model.incident import Incident
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.outputs.address import is_loopback, target
from rlexporter.outputs.courier import Courier, Message, Receiver
from rlexporter.outputs.periodic import REST_SECONDS, Ticker
from rlexporter.status.samples import Samples
from rlexporter.status.steps import ADDRESS, PID
from rlexporter.status.verdict import Verdict, is_stalled, verdict
from rlexporter.terminal import shown

if TYPE_CHECKING:
    from rlexporter.outputs import Served

LOOK_SECONDS = 2.0
END_SECONDS = 1.5
"""An incident waits so long for the end of the run, which often follows from it: then both are one message."""
GATHER_SECONDS = 60.0
"""After a message, what goes wrong is gathered for so long, and is one message.

So long does the first one wait, too, if it is of what something else may explain that is certain only later.
"""
_FORETOLD = frozenset(name for condition in CONDITION_NAMED.values() for name in condition.foretold_by)
AN_HOUR, MOST = 3600.0, 6
"""At most so many messages an hour; the last of them is kept for the end of the run."""
PATIENCE_SECONDS = 10.0
"""The most seconds that the end of a run waits for its last message, for all receivers together."""
_SPARE_SECONDS = 0.5
"""Seconds of them that are left for what is under way to end, once it is cut."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Page:
    """Where the page of the run is: a URL without the slash at its end. ``reachable``: from other machines."""

    address: str
    reachable: bool


def ticker(run: Served, port: int) -> Ticker | None:
    """Return a ticker that sends messages to the receivers of the settings."""
    from rlexporter.outputs import services

    return notifier(run, port, services.services(run.settings.notify))


def notifier(run: Served, port: int, receivers: Sequence[Receiver]) -> Notifier | None:
    """Return a ticker that has messages sent to ``receivers``; None on ranks above 0, which send none."""
    if run.rank != 0:
        return None
    settings = run.settings
    address = f"{'https' if settings.tls_cert_file else 'http'}://{target(settings, port)}"
    page = Page(address, reachable=bool(settings.advertise) or not is_loopback(settings.host))
    failed = partial(run.errors.add, "notify")
    return Notifier(receivers, run.current, page, failed, warnings=settings.notify_warnings)


class Notifier(Ticker):
    """Looks at the run every two seconds, within one after `wake`, and at the end; has couriers bring what is new."""

    def __init__(
        self,
        receivers: Sequence[Receiver],
        snapshot: Callable[[], Snapshot],
        page: Page,
        failed: Callable[[Exception], None],
        warnings: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__("notify", LOOK_SECONDS, self.look, failed, last=self._finish, patience=PATIENCE_SECONDS)
        self.couriers = [Courier(each, failed) for each in receivers]
        self._snapshot, self._page, self._clock = snapshot, page, clock
        self._severities = (Severity.CRITICAL, Severity.WARNING) if warnings else (Severity.CRITICAL,)
        self._told: set[object] = set()
        self._held: dict[tuple[object, ...], float] = {}
        """What waits for the end of the run, and until when."""
        self._sent: deque[float] = deque(maxlen=MOST)
        """When the last messages were made."""
        self._ended: float | None = None
        """When the message of the end was made, by `time.monotonic`."""

    def start(self) -> None:
        for each in self.couriers:
            each.start()
        super().start()

    def stop(self, patience: float | None = None) -> None:
        """Send the last message, if there is one; `close` waits for it.

        Where ``patience`` is short, because others wait or the process will be killed, the last message has its ten
        seconds all the same, from when it was made: it may be the only word that anybody has of the run.
        """
        if patience is not None:
            made = time.monotonic() if self._ended is None else self._ended
            patience = max(patience, made + PATIENCE_SECONDS - time.monotonic())
        super().stop(patience)

    def look(self) -> float | None:
        """Have sent what is new; return the seconds until the next look."""
        busy = sum(each.watch() for each in self.couriers) > 0  # each of them
        now, snapshot = self._clock(), self._snapshot()
        if snapshot.state is None or not snapshot.state.over:
            self._ended = None  # a training after another one
        new = self._new(snapshot, now)
        ends = any(key[0] == "end" for key in new)
        ripe = self._closed or not all(new.values())
        if new and ripe and self._may_tell(now, ends or self._closed):
            self._told.update(new)
            self._held.clear()
            self._sent.append(now)
            if ends:
                self._ended = time.monotonic()
            message = told(snapshot, now, self._page, [str(key[1]) for key in new if key[0] == "incident"])
            message = replace(message, last=ends and len(new) == 1)
            for each in self.couriers:
                each.bring(message)
            busy = True
        return min([REST_SECONDS if busy else LOOK_SECONDS, *(wait for wait in new.values() if wait)])

    def _new(self, snapshot: Snapshot, now: float) -> dict[tuple[object, ...], float]:
        """Return what was not told, and the seconds that it should wait; what waits for the end may be over by then."""
        new = {key: wait for key, wait in news(snapshot, now, self._severities) if key not in self._told}
        explained = {incident.condition for incident in snapshot.incidents if incident.cause}
        for key, due in self._held.items():
            if key[1] not in explained:
                new.setdefault(key, due - now if 0.0 < due - now < END_SECONDS else 0.0)
        self._held = {key: now + wait for key, wait in new.items() if 0.0 < wait <= END_SECONDS}
        return new

    def _may_tell(self, now: float, at_end: bool) -> bool:
        """Return True if a message may be made now: one of the end of the run if any may."""
        lately = [at for at in self._sent if at > now - AN_HOUR]
        if at_end:
            return len(lately) < MOST
        return len(lately) < MOST - 1 and not (lately and lately[-1] > now - GATHER_SECONDS)

    def _finish(self) -> None:
        """Look once more, and wait until all receivers have what is new, or the time is over."""
        try:
            self.look()
        finally:
            for each in self.couriers:
                each.stop(self._until - _SPARE_SECONDS - time.monotonic())
            self._wait()

    def _wait(self) -> None:
        while left := [each for each in self.couriers if not each.gone]:
            for each in left:
                each.watch()
                if time.monotonic() > self._until - _SPARE_SECONDS / 2:  # it waits for what cannot be cut
                    each.give_up()
            time.sleep(_POLL_SECONDS)
        for each in self.couriers:
            each.close()


def news(snapshot: Snapshot, now: float, severities: Sequence[Severity]) -> Iterator[tuple[tuple[object, ...], float]]:
    """Yield what is worth a message, as keys that stay the same while it is the same, and the seconds it should wait.

    A cause that becomes known after what follows from it was told is told too, however severe it is itself.
    """
    samples, state = Samples(snapshot), snapshot.state
    start = samples.value("rl_run_start_timestamp_seconds")
    causes = {incident.cause for incident in snapshot.incidents if incident.severity in severities}
    for incident in snapshot.incidents:
        if incident.speaks and (incident.severity in severities or incident.condition in causes):
            yield ("incident", incident.condition, incident.subject, incident.severity, start), _wait(incident, now)
    if is_stalled(samples, now):
        yield ("stuck", samples.value("rl_last_step_timestamp_seconds")), 0.0
    if state is not None and state.over and (samples.value("rl_steps_total") or state is RunState.FAILED):
        yield ("end", state, start), 0.0


def _wait(incident: Incident, now: float) -> float:
    """Return the seconds that ``incident`` should wait for what explains or follows it; 0 if a clock was put back."""
    age, most = now - incident.time, GATHER_SECONDS if incident.condition in _FORETOLD else END_SECONDS
    return most - age if 0.0 <= age < most else 0.0


def told(snapshot: Snapshot, now: float, page: Page, new: Sequence[str] = ()) -> Message:
    """Return the message on a run as it is ``now``: the sentence and the steps of its page.

    ``new``: conditions that it is sent for.
    """
    samples = Samples(snapshot)
    said = verdict(samples, now)
    step = f", step {samples.step}" if samples.step is not None else ""
    subjects = {incident.condition: incident.subject for incident in snapshot.incidents}
    also = [CONDITION_NAMED[name].says(subjects.get(name, "")) for name in new if name not in said.conditions[:1]]
    title = f"{said.word}: {snapshot.labels.get('run', '')}{step}"
    return Message(said.word, shown(title), "\n".join(map(shown, _lines(said, also, page))))


def _lines(said: Verdict, also: Sequence[str], page: Page) -> Iterator[str]:
    yield said.text
    if also:
        yield f"Also: {' '.join(also)}"
    for place, step in enumerate(said.steps, 1):
        yield f"{place}. {step.text}"
        if step.command:
            yield f"   {step.command.replace(ADDRESS, page.address).replace(PID, str(os.getpid()))}"
    if page.reachable:
        yield f"{page.address}/"
