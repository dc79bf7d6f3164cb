"""Outputs of a run's snapshots other than the endpoint, if its settings enable them: each is a ticker.

Each third-party library is imported in exactly one file, once the output is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from rlexporter.model.errors import OTLP, needed_by
from rlexporter.outputs import notebook

if TYPE_CHECKING:
    from rlexporter.config.settings import Settings
    from rlexporter.model.snapshot import RunState, Snapshot
    from rlexporter.outputs.periodic import Ticker


class Served(Protocol):
    """What an output reads of a run. Any thread may read all of it."""

    @property
    def known_as(self) -> str:
        """The name of the run; empty while it depends on whether the run resumes a checkpoint."""

    @property
    def rank(self) -> int:
        """The label ``rank``."""

    @property
    def state(self) -> RunState:
        """The state of the run."""

    @property
    def output_dir(self) -> str | None:
        """The folder of the checkpoints; None if unknown."""

    def current(self) -> Snapshot:
        """Return what is served now."""


def wanted(
    settings: Settings, run: Served, port: int, failed: Callable[[str, Exception], None]
) -> Iterator[tuple[str, Callable[[], Ticker]]]:
    """Yield, per enabled output, its name for errors and a maker of its ticker, which may raise SetupError.

    ``port``: that of the endpoint; ``failed``: takes the name of an output and an error of its own.
    """
    if settings.state_file:
        from rlexporter.outputs import state_file

        keeper, interval = state_file.keeper, settings.state_interval
        yield "state", partial(keeper, settings.state_file, interval, run, partial(failed, "state"))
    if settings.discovery_dir:
        from rlexporter.outputs import discovery

        announcer, lost = discovery.announcer, partial(failed, "discovery")
        yield "discovery", partial(announcer, settings, port, lambda: (run.known_as, run.rank), lost)
    if run.rank == 0 and (settings.notify or notebook.kernel() is not None):
        yield "notify", partial(_notifier, settings, run, port, partial(failed, "notify"))
    if settings.otlp:
        yield "otlp", partial(_pusher, settings.otlp, run, partial(failed, "otlp"))


def _notifier(settings: Settings, run: Served, port: int, failed: Callable[[Exception], None]) -> Ticker:
    from rlexporter.outputs import courier, discovery, notify, services

    receivers: list[courier.Receiver] = [notebook.Cell()] if notebook.kernel() is not None else []
    receivers += services.services(settings.notify)
    reachable = bool(settings.advertise) or not discovery.is_loopback(settings.host)
    address = f"{'https' if settings.tls_cert_file else 'http'}://{discovery.target(settings, port)}"
    page = notify.Page(address, reachable)
    return notify.Notifier(receivers, run.current, page, failed, warnings=settings.notify_warnings)


def _pusher(setting: str, run: Served, failed: Callable[[Exception], None]) -> Ticker:
    with needed_by("push by OTLP", OTLP):
        from rlexporter.outputs import otlp

        return otlp.pusher(setting, lambda: run.current() if run.known_as else None, failed)
