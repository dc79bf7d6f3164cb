"""Ways out of the process beside the endpoint, where they are asked for: each a ticker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rlexporter.model import RunState
from rlexporter.run import Run
from rlexporter.ticker import Ticker


def wanted(run: Run, port: int) -> Iterator[tuple[str, Callable[[], Ticker]]]:
    """Of the settings of a run that is served on ``port``: where an error comes from, and what makes the ticker.

    That raises SetupError for what a person has to change first.
    """
    settings = run.settings
    if settings.state_file:
        from rlexporter.outputs import state

        def path() -> str:
            begun = run.state is not RunState.STARTING
            return state.path(settings.state_file, run.output_dir, run.rank, begun=begun)

        yield "state", partial(state.keeper, run.current, path, partial(run.failed, "state"))
    if settings.discovery_dir:
        from rlexporter.outputs import discovery

        make = partial(discovery.announcer, settings, port, lambda: (run.name, run.rank))
        yield "discovery", partial(make, partial(run.failed, "discovery"))
    if settings.otlp:
        from rlexporter.outputs import otlp

        yield "otlp", partial(otlp.pusher, settings.otlp, run.current, partial(run.failed, "otlp"))
