"""The services of `apprise`, which bring a message to a person. The only file that knows it, and `requests` below it.

Names in a message are anybody's: of a run, of a reward function. So a message is plain text, and is written for each
service in such a way that it shows every sign as it is, and calls nobody by a mention.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from math import inf
from threading import Thread, local
from typing import Any

from rlexporter.model.errors import NOTIFY, SetupError, needed_by
from rlexporter.model.incident import ACT, FINE, LOOK
from rlexporter.outputs.courier import SEND_SECONDS, Message, cut
from rlexporter.outputs.periodic import unlogged

ANSWER_BYTES = 1 << 20
"""The most bytes of an answer that are read; none is longer that is not a fault, and what is read stays in memory."""
_LOGGERS = (
    "apprise",
    "urllib3.connection",
    "urllib3.connectionpool",
    "urllib3.poolmanager",
    "urllib3.util.retry",
)
"""Loggers to which a plugin of apprise and its library write addresses."""
_EXACT = frozenset(
    [
        *("json", "jsons", "xml", "xmls", "form", "forms", "apprise", "apprises", "syslog"),  # read by programs
        *("mailto", "mailtos", "ntfy", "ntfys", "gotify", "gotifys", "pover", "pbul", "slack", "pagerduty", "opsgenie"),
    ]
)
"""The schemes of services that show plain text as it is, and call nobody because of it."""
_MARKDOWN = frozenset(
    [
        *("discord", "guilded", "mmost", "mmosts", "revolt", "ryver", "nctalk", "nctalks"),
        *("hassio", "hassios", "msteams", "workflow", "workflows"),
    ]
)
"""The schemes of services that take titles, and even plain text, for Markdown."""
_LEAST_SPLIT = 1000
"""The least limit of a service at which a longer message is sent in parts. Lower ones are those of text messages."""
_COUNT = len(" [10/10]")
"""The room in a title that apprise takes to say which part of a message it is."""
_METHODS = frozenset(("request", "get", "post", "put", "patch", "delete", "head", "options"))
_CALLS = re.compile(r"([@<])(?=\S)")
"""Where a mention may begin, of a person, a group or a channel."""
_APART = "\u200b"
"""A space without width: a sign before it begins nothing."""
_MARKS = re.compile(r"(https?://[\w.:/?=%-]+)|([\\*_~`|\[\]<>#&])")
"""An address, which is a link as it is; or a sign that Markdown may take for one of its own."""
_BLANKS = re.compile(r"^ | (?= )")


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
        self._target = found.resolve_format(apprise.NotifyFormat.TEXT)
        self._body, self._title = _writers(found, self._target.value)
        upstream = found.overflow_mode is apprise.OverflowMode.UPSTREAM and found.body_maxlen >= _LEAST_SPLIT
        self._overflow = apprise.OverflowMode.SPLIT if upstream else found.overflow_mode
        kinds = apprise.NotifyType
        self._kinds = {ACT: kinds.FAILURE, LOOK: kinds.WARNING, FINE: kinds.SUCCESS}
        _bound_answers(found)

    def send(self, message: Message) -> bool:
        """Send ``message``; return False if it was not taken."""
        try:
            with _alone():  # the plugin itself: `Apprise` sends on another thread, which would be heard
                taken = self._plugin.notify(
                    body=self._body(message.body),
                    title=self._title(message.title),
                    notify_type=self._kinds[message.word],
                    body_format=self._target,
                    overflow=self._overflow,
                )
                return bool(taken)
        except Exception:  # noqa: BLE001 - a hundred plugins fail in as many ways, and may say with which address
            return False


def services(addresses: Sequence[str]) -> list[Service]:
    """Return the service at each address. Raises SetupError for one that cannot be used."""
    return [Service(each, place) for place, each in enumerate(addresses, 1)]


def trial(addresses: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Send a message of no run to all addresses; yield the kind of each, and if it was taken. Raises SetupError."""
    message = Message(LOOK, "rlexporter: a test", "If a run needs you, it says so here.")
    found, taken, until = services(addresses), set[Service](), time.monotonic() + SEND_SECONDS

    def send(service: Service) -> None:
        if service.send(message):
            taken.add(service)

    threads = [Thread(target=send, args=(each,), daemon=True) for each in found]
    for thread in threads:
        thread.start()
    for thread, service in zip(threads, found, strict=True):
        thread.join(max(until - time.monotonic(), 0.0))
        cut(thread)
        yield service.kind, service in taken


def _writers(plugin: Any, target: str) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return what writes plain text for ``plugin``, in its format ``target``, and what writes a title for it."""
    declared = (plugin.protocol, plugin.secure_protocol)
    schemes = {scheme for each in declared for scheme in ((each,) if isinstance(each, str) else each or ())}
    marks = _literal if target == "markdown" or schemes & _MARKDOWN else _html if target == "html" else str

    def plain(text: str) -> str:
        return text if schemes & _EXACT else _CALLS.sub(rf"\1{_APART}", text)

    def marked(text: str) -> str:
        return marks(plain(text))

    def title(text: str) -> str:
        write = marked if plugin.title_maxlen <= 0 or schemes & _MARKDOWN else plain
        return _fitted(text, write, plugin.title_maxlen - _COUNT if plugin.title_maxlen > 0 else inf)

    return marked, title


def _fitted(text: str, write: Callable[[str], str], most: float) -> str:
    """Return ``text`` as ``write`` writes it, in at most ``most`` signs: what is too much is left out of its middle."""
    written, kept = write(text), len(text) // 2
    while len(written) > most and kept > 0:
        kept = max(kept - max(int(len(written) - most) // 16, 1), 0)
        written = write(f"{text[:kept]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - kept :]}")
    return written


def _literal(text: str) -> str:
    """Return Markdown that shows ``text`` as it is; addresses are links."""
    return _MARKS.sub(lambda found: found[1] or f"\\{found[2]}", text)


def _html(text: str) -> str:
    """Return HTML that shows ``text`` as it is, line by line; long lines are wrapped."""
    return "<br/>".join(_BLANKS.sub("&nbsp;", escape(line, quote=False)) for line in text.split("\n"))


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
