"""Outputs of a run's snapshots other than the endpoint, if its settings enable them: each is a ticker.

Each third-party library is imported in exactly one file, once the output is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from rlexporter.model.errors import OTLP, needed_by
from rlexporter.outputs import notebook

if TYPE_CHECKING:
    from rlexporter.outputs.periodic import Ticker
    from rlexporter.run.run import Run


def wanted(run: Run, port: int) -> Iterator[tuple[str, Callable[[], Ticker]]]:
    """Yield, per enabled output, its name for errors and a maker of its ticker, which may raise SetupError."""
    settings = run.settings
    if settings.state_file:
        from rlexporter.outputs import state_file

        yield "state", partial(state_file.keeper, settings.state_file, run)
    if settings.discovery_dir:
        from rlexporter.outputs import discovery

        failed = partial(run.errors.add, "discovery")
        yield "discovery", partial(discovery.announcer, settings, port, lambda: (run.known_as, run.rank), failed)
    if run.rank == 0 and (settings.notify or notebook.kernel() is not None):
        yield "notify", partial(_notifier, run, port)
    if settings.otlp:
        yield "otlp", partial(_pusher, settings.otlp, run)


def _notifier(run: Run, port: int) -> Ticker:
    from rlexporter.outputs import courier, discovery, notify, services

    settings = run.settings
    receivers: list[courier.Receiver] = [notebook.Cell()] if notebook.kernel() is not None else []
    receivers += services.services(settings.notify)
    reachable = bool(settings.advertise) or not discovery.is_loopback(settings.host)
    address = f"{'https' if settings.tls_cert_file else 'http'}://{discovery.target(settings, port)}"
    page, failed = notify.Page(address, reachable), partial(run.errors.add, "notify")
    return notify.Notifier(receivers, run.current, page, failed, warnings=settings.notify_warnings)


def _pusher(setting: str, run: Run) -> Ticker:
    with needed_by("push by OTLP", OTLP):
        from rlexporter.outputs import otlp

        return otlp.pusher(setting, lambda: run.current() if run.known_as else None, partial(run.errors.add, "otlp"))
