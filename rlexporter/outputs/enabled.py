"""Outputs other than the endpoint, if the settings enable them: each is a ticker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from rlexporter.config.settings import Settings
from rlexporter.model.installed import OTLP, needed_by
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.outputs.periodic import Ticker


class Source(Protocol):
    """The run whose snapshots are put out. Every member may be used on any thread."""

    @property
    def settings(self) -> Settings:
        """Return the settings, which enable outputs."""

    @property
    def known_as(self) -> str:
        """Return the name of the run; "" while it depends on whether the run resumes a checkpoint."""

    @property
    def rank(self) -> int:
        """Return the rank of this process."""

    @property
    def state(self) -> RunState:
        """Return the state that the run is in."""

    @property
    def output_dir(self) -> str | None:
        """Return the folder of the run's checkpoints, None if it is unknown."""

    def current(self) -> Snapshot:
        """Return what is served now."""

    def failed(self, where: str, error: Exception) -> None:
        """Count an ``error`` of the exporter itself under ``where``."""


def wanted(run: Source, port: int) -> Iterator[tuple[str, Callable[[], Ticker]]]:
    """Yield, per enabled output, its name for errors and a maker of its ticker, which may raise SetupError."""
    settings = run.settings
    if settings.state_file:
        from rlexporter.outputs import state_file

        def path() -> str:
            begun = run.state is not RunState.STARTING
            return state_file.path(settings.state_file, run.output_dir, run.rank, begun=begun)

        make_keeper = partial(state_file.keeper, run.current, path, settings.state_interval)
        yield "state", partial(make_keeper, partial(run.failed, "state"))
    if settings.discovery_dir:
        from rlexporter.outputs import discovery

        make = partial(discovery.announcer, settings, port, lambda: (run.known_as, run.rank))
        yield "discovery", partial(make, partial(run.failed, "discovery"))
    if settings.otlp:
        yield "otlp", partial(_pusher, settings.otlp, run)


def _pusher(setting: str, run: Source) -> Ticker:
    with needed_by("push by OTLP", OTLP):
        from rlexporter.outputs import otlp

        return otlp.pusher(setting, lambda: run.current() if run.known_as else None, partial(run.failed, "otlp"))
