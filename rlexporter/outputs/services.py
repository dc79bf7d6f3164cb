"""Services that take messages, by `apprise`: Slack, Discord, Telegram, e-mail, ntfy, PagerDuty, webhooks and more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apprise

from rlexporter.model.errors import SetupError
from rlexporter.model.incident import ACT, FINE
from rlexporter.outputs.notify import Message
from rlexporter.outputs.periodic import unlogged

_LOGGERS = ("apprise", "urllib3.connectionpool", "urllib3.util.retry")
"""Loggers to which a plugin and its library write addresses."""
_KINDS = {ACT: apprise.NotifyType.FAILURE, FINE: apprise.NotifyType.SUCCESS}


class Service:
    """One address. Raises SetupError if apprise cannot use it; ``place``: which one of the setting it is."""

    def __init__(self, address: str, place: int) -> None:
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

    def send(self, message: Message) -> bool:
        """Send ``message``, in at most a few seconds; return False if it was not taken."""
        kind = _KINDS.get(message.word, apprise.NotifyType.WARNING)
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
    message = Message("look", "rlexporter: a test", "If a run needs you, it says so here.")
    for each in services(addresses):
        yield each.kind, each.send(message)
