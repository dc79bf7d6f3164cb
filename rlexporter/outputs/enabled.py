"""Ways out of the process beside the endpoint, where they are asked for: each a ticker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from rlexporter.config.settings import Settings
from rlexporter.model.installed import OTLP, needed_by
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.outputs.periodic import Ticker


class Source(Protocol):
    """The run that is told of. Every one of these may be asked on any thread."""

    @property
    def settings(self) -> Settings:
        """How it is told of."""

    @property
    def name(self) -> str:
        """The name of the run, as it is known now."""

    @property
    def rank(self) -> int:
        """The rank of this process."""

    @property
    def state(self) -> RunState:
        """The state that the run is in."""

    @property
    def output_dir(self) -> str | None:
        """Where its checkpoints go, if anybody said."""

    def current(self) -> Snapshot:
        """Return what is served now."""

    def failed(self, where: str, error: Exception) -> None:
        """Count an error of the exporter's own."""


def wanted(run: Source, port: int) -> Iterator[tuple[str, Callable[[], Ticker]]]:
    """Of the settings of a run that is served on ``port``: where an error comes from, and what makes the ticker.

    That raises SetupError for what a person has to change first.
    """
    settings = run.settings
    if settings.state_file:
        from rlexporter.outputs import state_file

        def path() -> str:
            begun = run.state is not RunState.STARTING
            return state_file.path(settings.state_file, run.output_dir, run.rank, begun=begun)

        yield "state", partial(state_file.keeper, run.current, path, partial(run.failed, "state"))
    if settings.discovery_dir:
        from rlexporter.outputs import discovery

        make = partial(discovery.announcer, settings, port, lambda: (run.name, run.rank))
        yield "discovery", partial(make, partial(run.failed, "discovery"))
    if settings.otlp:
        yield "otlp", partial(_pusher, settings.otlp, run)


def _pusher(setting: str, run: Source) -> Ticker:
    with needed_by("push by OTLP", OTLP):
        from rlexporter.outputs import otlp

        return otlp.pusher(setting, run.current, partial(run.failed, "otlp"))
