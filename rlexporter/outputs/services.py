"""The services of `apprise`, which bring a message to a person. The only file that knows it, and `requests` in it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import local
from typing import Any

from rlexporter.model.errors import NOTIFY, SetupError, needed_by
from rlexporter.model.incident import ACT, FINE, LOOK
from rlexporter.outputs.courier import SEND_SECONDS, Courier, Message
from rlexporter.outputs.periodic import unlogged
from rlexporter.outputs.plain_text import PlainText

ANSWER_BYTES = 1 << 20
"""The most bytes of an answer that are read; none is longer that is not a fault, and what is read stays in memory."""
_LOGGERS = ("apprise", "urllib3.connection", "urllib3.connectionpool", "urllib3.poolmanager", "urllib3.util.retry")
"""Loggers to which a plugin of apprise and its library write addresses."""
_METHODS = frozenset(("request", "get", "post", "put", "patch", "delete", "head", "options"))
_POLL_SECONDS = 0.05


class Service:
    """One address. Raises SetupError if apprise is missing, or cannot use it; ``place``: which of the setting it is."""

    def __init__(self, address: str, place: int) -> None:
        with needed_by("sending messages", NOTIFY):
            import apprise

            if tuple(map(int, apprise.__version__.split(".")[:2])) < (2, 0):
                raise ImportError(f"apprise {apprise.__version__} is too old", name="apprise")
        self.kind = address.partition("://")[0]
        """The part before `://`, such as `slack`; nothing else of an address is ever told."""
        asset = apprise.AppriseAsset(app_id="rlexporter", app_url="", http_redirects=False)
        with unlogged(_LOGGERS):
            found = apprise.Apprise.instantiate(address, asset=asset) if "://" in address else None
        if found is None:
            raise SetupError(
                f"RLEXPORTER_NOTIFY: address {place} is none that apprise can use (it is not shown, as it may hold a "
                "secret): write it as github.com/caronc/apprise says, such as discord://ID/TOKEN or ntfy://TOPIC"
            )
        self._plugin = found
        self._form = found.resolve_format(apprise.NotifyFormat.TEXT)
        declared: tuple[Any, ...] = (found.protocol, found.secure_protocol)
        schemes = frozenset(scheme for each in declared for scheme in ([each] if isinstance(each, str) else each or ()))
        self._text = PlainText(schemes, self._form.value, found.title_maxlen, found.body_maxlen)
        untouched = found.overflow_mode is apprise.OverflowMode.UPSTREAM  # else the address says what it wants
        self._longer = apprise.OverflowMode(self._text.longer) if untouched else found.overflow_mode
        kinds = apprise.NotifyType
        self._kinds = {ACT: kinds.FAILURE, LOOK: kinds.WARNING, FINE: kinds.SUCCESS}
        _bound_answers(found)

    def send(self, message: Message) -> bool:
        """Send ``message``; return False if it was not taken."""
        try:
            with _alone():  # the plugin itself: `Apprise` sends on another thread, which would be heard
                taken = self._plugin.notify(
                    body=self._text.body(message.body),
                    title=self._text.title(message.title),
                    notify_type=self._kinds[message.word],
                    body_format=self._form,
                    overflow=self._longer,
                )
                return bool(taken)
        except Exception:  # noqa: BLE001 - a hundred plugins fail in as many ways, and may say with which address
            return False


def services(addresses: Sequence[str]) -> list[Service]:
    """Return the service at each address. Raises SetupError for one that cannot be used."""
    return [Service(each, place) for place, each in enumerate(addresses, 1)]


def trial(addresses: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Send a message of no run to all addresses at once; yield the kind of each, and if it was taken.

    Raises SetupError.
    """
    message = Message(LOOK, "rlexporter: a test", "If a run needs you, it says so here.")
    found = services(addresses)
    couriers = [Courier(each, lambda _: None) for each in found]
    for courier in couriers:
        courier.bring(message)
        courier.stop(SEND_SECONDS)
        courier.start()
    for service, courier in zip(found, couriers, strict=True):
        while not courier.gone:
            for each in couriers:
                each.watch()
            time.sleep(_POLL_SECONDS)
        yield service.kind, courier.taken == 1


class _Local(local):
    sending = False
    """True while this thread sends a message of ours."""


_here = _Local()


@contextmanager
def _alone() -> Iterator[None]:
    """Keep what this thread sends in the block out of the log, and its answers short."""
    _here.sending = True
    try:
        with unlogged(_LOGGERS):
            yield
    finally:
        _here.sending = False


def _bound_answers(plugin: Any) -> None:
    """Have ``plugin`` read no more of an answer than `ANSWER_BYTES`: requests would read on for as long as it comes."""
    import requests

    for module in {sys.modules[each.__module__] for each in type(plugin).__mro__}:
        if getattr(module, "requests", None) is requests:
            module.requests = _Http(requests)  # type: ignore[attr-defined]


class _Http:
    """The library `requests` as a plugin finds it. Whoever else uses that plugin in this process is not affected."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        return partial(_asked, found) if _here.sending and name in _METHODS else found


def _asked(method: Callable[..., Any], *args: Any, headers: Any = None, **options: Any) -> Any:
    """Make a request whose answer is short, and not compressed: a short one could become a long one."""
    headers = {**(headers or {}), "Accept-Encoding": "identity"}
    return method(*args, headers=headers, hooks={"response": _shorten}, **options)


def _shorten(response: Any, **_: object) -> None:
    response.raw = _Short(response.raw)


class _Short:
    """What urllib3 received, of which no more than `ANSWER_BYTES` is read."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, amount: int, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield parts of at most ``amount`` bytes, as they came. Raises what requests raises of a broken answer."""
        left = ANSWER_BYTES
        for part in self._raw.stream(amount, decode_content=False):
            left -= len(part)
            if left < 0:
                import requests

                self._raw.close()
                raise requests.ConnectionError("an answer without end")
            yield part
