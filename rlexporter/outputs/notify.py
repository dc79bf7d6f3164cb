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
from math import inf
from typing import Protocol

from rlexporter.catalog.conditions import CONDITION_NAMED
from rlexporter.model.condition import Severity
from rlexporter.model.errors import NOTIFY, SetupError, needed_by
from rlexporter.model.incident import ACT, FINE, LOOK
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.outputs.periodic import Ticker, unlogged
from rlexporter.status.samples import Samples
from rlexporter.status.steps import ADDRESS, PID
from rlexporter.status.verdict import Verdict, is_stalled, verdict

LOOK_SECONDS = 2.0
GATHER_SECONDS = 60.0
"""After a message, what goes wrong is gathered for so long, and is one message.

So long does the first one wait, too, if it is of what something else may explain that is certain only later.
"""
_FORETOLD = frozenset(name for condition in CONDITION_NAMED.values() for name in condition.foretold_by)
AN_HOUR, MOST = 3600.0, 6
"""At most so many messages an hour; the last of them is kept for the end of the run."""
TRIES = 4
"""How often a message is sent to an address that does not take it: at once, and 2, 8 and 32 seconds later."""
PATIENCE_SECONDS = 10.0
"""The most seconds that the end of a run waits for its last message."""
_LOGGERS = ("apprise", "urllib3.connectionpool", "urllib3.util.retry")
"""Loggers to which a plugin of apprise and its library write addresses."""


class NotifyError(Exception):
    """A message that was not taken. It names the kind of receiver, and no part of its address: that is a secret."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent. ``word``: fine, look or act; ``last``: True for that of the end of the run."""

    word: str
    title: str
    body: str
    last: bool = False


class Receiver(Protocol):
    """Somewhere that messages go."""

    kind: str
    """A word for the log, which holds no secret."""

    def send(self, message: Message) -> bool:
        """Send ``message``, in at most a few seconds; return False if it was not taken. Never raises."""


class Service:
    """One address. Raises SetupError if apprise is missing, or cannot use it; ``place``: which of the setting it is."""

    def __init__(self, address: str, place: int) -> None:
        with needed_by("sending messages", NOTIFY):
            import apprise

        self.kind = address.partition("://")[0]
        """The part before `://`, such as `slack`; nothing else of an address is ever told."""
        asset = apprise.AppriseAsset(app_id="rlexporter", app_url="")
        with unlogged(_LOGGERS):
            found = apprise.Apprise.instantiate(address, asset=asset) if "://" in address else None
        if found is None:
            raise SetupError(
                f"RLEXPORTER_NOTIFY: address {place} is none that apprise can use (it is not shown, as it may hold a "
                "secret): write it as github.com/caronc/apprise says, such as discord://ID/TOKEN or ntfy://TOPIC"
            )
        self._plugin = found
        kinds = apprise.NotifyType
        self._kinds = {ACT: kinds.FAILURE, LOOK: kinds.WARNING, FINE: kinds.SUCCESS}

    def send(self, message: Message) -> bool:
        """Send ``message``, in at most a few seconds; return False if it was not taken."""
        kind = self._kinds[message.word]
        try:
            with unlogged(_LOGGERS):  # the plugin itself, since `Apprise` sends on another thread, which would be heard
                return bool(self._plugin.notify(body=message.body, title=message.title, notify_type=kind))
        except Exception:  # noqa: BLE001 - a hundred plugins fail in as many ways, and may say with which address
            return False


def services(addresses: Sequence[str]) -> list[Service]:
    """Return the service at each address. Raises SetupError for one that cannot be used."""
    return [Service(each, place) for place, each in enumerate(addresses, 1)]


def trial(addresses: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Send a message of no run to each address; yield its kind, and if it was taken. Raises SetupError."""
    message = Message(LOOK, "rlexporter: a test", "If a run needs you, it says so here.")
    for each in services(addresses):
        yield each.kind, each.send(message)


@dataclass(frozen=True, slots=True)
class Page:
    """Where the page of the run is: a URL without the slash at its end. ``reachable``: from other machines."""

    address: str
    reachable: bool


@dataclass(slots=True)
class _Sending:
    """A message on its way to one receiver."""

    message: Message
    receiver: Receiver
    tries: int = 0
    due: float = -inf


class Notifier(Ticker):
    """Looks at the run every two seconds, within one after `wake`, and at the end; sends what has not been told."""

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
        self._receivers, self._snapshot, self._page, self._clock = receivers, snapshot, page, clock
        self._severities = (Severity.CRITICAL, Severity.WARNING) if warnings else (Severity.CRITICAL,)
        self._told: set[object] = set()
        self._sent: deque[float] = deque(maxlen=MOST)
        """When the last messages were made."""
        self._sending: list[_Sending] = []

    def look(self) -> float | None:
        """Send what is new, and what was not taken before; return the seconds until the next look."""
        now, snapshot = self._clock(), self._snapshot()
        new = {key: ripe for key, ripe in news(snapshot, now, self._severities) if key not in self._told}
        last = any(key[0] == "end" for key in new)
        if any(new.values()) and self._may_tell(now, last):
            self._told.update(new)
            self._sent.append(now)
            message = told(snapshot, now, self._page, [str(key[1]) for key in new if key[0] == "incident"])
            message = replace(message, last=last)
            self._sending += [_Sending(message, each) for each in self._receivers]
        self._deliver(now)
        return min([LOOK_SECONDS, *(max(each.due - now, 0.1) for each in self._sending)])

    def _may_tell(self, now: float, of_end: bool) -> bool:
        """Return True if a message may be made now: one of the end of the run if any may."""
        lately = [at for at in self._sent if at > now - AN_HOUR]
        if of_end:
            return len(lately) < MOST
        return len(lately) < MOST - 1 and not (lately and lately[-1] > now - GATHER_SECONDS)

    def _deliver(self, now: float) -> None:
        for each in [each for each in self._sending if each.due <= now]:
            self._sending.remove(each)
            if each.receiver.send(each.message):
                continue
            each.tries += 1
            each.due = now + 2.0 * 4 ** (each.tries - 1)
            self._sending += [each] if each.tries < TRIES else []
            left = "it is tried again" if each.tries < TRIES else "it is given up"
            self._failed(NotifyError(f"{each.receiver.kind} did not take a message; {left}"))

    def _finish(self) -> None:
        """Look once more, and try once more whatever was not taken."""
        for each in self._sending:
            each.due = -inf
        self.look()


def news(snapshot: Snapshot, now: float, severities: Sequence[Severity]) -> Iterator[tuple[tuple[object, ...], bool]]:
    """Yield what is worth a message, as keys that stay the same while it is the same, and if it is ripe for one.

    A cause that becomes known after what follows from it was told is told too, however severe it is itself.
    """
    samples, state = Samples(snapshot), snapshot.state
    start = samples.value("rl_run_start_timestamp_seconds")
    causes = {incident.cause for incident in snapshot.incidents if incident.severity in severities}
    for incident in snapshot.incidents:
        if incident.speaks and (incident.severity in severities or incident.condition in causes):
            ripe = incident.condition not in _FORETOLD or now - incident.time >= GATHER_SECONDS
            yield ("incident", incident.condition, incident.subject, incident.severity, start), ripe
    if is_stalled(samples, now):
        yield ("stuck", samples.value("rl_last_step_timestamp_seconds")), True
    if state is not None and state.over and (samples.value("rl_steps_total") or state is RunState.FAILED):
        yield ("end", state, start), True


def told(snapshot: Snapshot, now: float, page: Page, new: Sequence[str] = ()) -> Message:
    """Return the message on a run as it is ``now``: the sentence and the steps of its page.

    ``new``: conditions that it is sent for.
    """
    samples = Samples(snapshot)
    said = verdict(samples, now)
    step = f", step {samples.step}" if samples.step is not None else ""
    also = [CONDITION_NAMED[name].summary for name in new if name not in said.conditions[:1]]
    lines = "\n".join(_lines(said, also, page))
    return Message(said.word, f"{said.word}: {snapshot.labels.get('run', '')}{step}", lines)


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
