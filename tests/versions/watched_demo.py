"""`rlexporter demo` that waits for those who watch it: nothing that is over in seconds is missed on any machine.

Its reward function takes as long as one that asks a model. Where WATCHED_DEMO names a folder, it also waits until
somebody has seen that the run is healthy, and once more until somebody has seen that it is not: `seen` in that folder.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlexporter import Exporter
from rlexporter.commands.main import main
from rlexporter.demo import quiet, tiny
from rlexporter.exporter import serving

FOLDER = "WATCHED_DEMO"
HEALTHY, CRITICAL = "healthy", "critical"
"""What may be seen: the run at the step `SHOWN`, and something critical in it."""
SHOWN = 40
_SECONDS = 0.25
"""The time of a call. GRPO makes one for two steps."""


def seen(folder: Path, what: str) -> None:
    """Let the run go on that waits for this."""
    (folder / what).touch()


def _wait(what: str, is_there: Callable[[Exporter], bool]) -> None:
    folder = os.environ.get(FOLDER)
    while folder and not (Path(folder) / what).exists() and any(map(is_there, serving())):
        time.sleep(0.05)


def _is_shown(exporter: Exporter) -> bool:
    return (exporter.snapshot.value("rl_step") or 0) >= SHOWN


def _is_critical(exporter: Exporter) -> bool:
    found = [s for s, value in exporter.snapshot.samples.items() if s.metric.series == "rl_condition" and value]
    return any("critical" in series.labels for series in found)


_plain = tiny.letter_reward


@functools.wraps(_plain)
def _watched(prompts: list[str], completions: list[str], **rest: Any) -> list[float]:
    time.sleep(_SECONDS)
    _wait(HEALTHY, _is_shown)
    _wait(CRITICAL, _is_critical)
    return _plain(prompts, completions, **rest)


if __name__ == "__main__":
    tiny.letter_reward = _watched
    tiny.REWARDS = (_watched, *tiny.REWARDS[1:])
    quiet()
    raise SystemExit(main())
