"""Actors of Ray: most frameworks train in one, whose process is killed when its driver ends."""

from __future__ import annotations

import sys

from rlexporter.exporter import linger
from rlexporter.integrations.logged_run import LoggedRun


def linger_in_actor(run: LoggedRun | None) -> None:
    """Serve the end of ``run`` for a while before this returns, if this is an actor: no exit of it will do so."""
    if run is not None and _is_actor():
        linger(run.exporter)


def _is_actor() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
