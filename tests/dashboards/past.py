"""Runs of the past for a Prometheus: played on a clock of their own, and written as blocks."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.feed.feed import Feed
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.outputs.prometheus import Backfill
from rlexporter.tensors import host
from tests.tools import require_tools

END = 1_800_000_000.0
SCRAPE = 15.0


class Past:
    """A process of a run that began ``seconds`` before the end, and of which every scrape is kept.

    ``served``: the series that are kept; with all of them the back-fill takes ten times as long.
    """

    def __init__(self, run: str, seconds: float, served: Collection[str], instance: str = "a", **facts: Any) -> None:
        self.now = self._scraped = END - seconds
        self._served = served
        self._store = Feed(CATALOG, clock=lambda: self.now)
        self._history = Backfill({"job": "rlexporter", "instance": instance})
        self._store.begin(RunFacts(**{"algorithm": "grpo", "step": 0, **facts}), {"run": run, "rank": "0"})
        self._store.enter(RunState.RUNNING)

    def step(
        self,
        logs: Mapping[str, float],
        step: int,
        duration: float,
        *,
        clock: float | None = None,
        seen: Mapping[str, Any] | None = None,
    ) -> None:
        """Play one step, by the clock or another time that it takes; ``seen``: values of tensors."""
        self.scrape(self.now + duration)
        self.now += duration if clock is None else clock
        counted = {Series(NAMED[name]): host.count(values, NAMED[name].bounds) for name, values in (seen or {}).items()}
        self._store.record(logs, step, StepUpdate(step=step, duration=duration, seen=counted))

    def scrape(self, until: float = END) -> None:
        """Scrape every 15 seconds until that time, at most until the end."""
        while self._scraped < min(until, END):
            now = self._store.snapshot
            samples = {each: value for each, value in now.samples.items() if each.metric.series in self._served}
            buckets = {each: found for each, found in now.buckets.items() if each.metric.series in self._served}
            self._history.add(replace(now, samples=samples, buckets=buckets), self._scraped)
            self._scraped += SCRAPE

    def text(self) -> Iterator[bytes]:
        """All scrapes, as OpenMetrics."""
        return self._history.text()


def blocks(data: Path, text: Iterable[bytes]) -> None:
    """Add a text of OpenMetrics to the data of a Prometheus."""
    with tempfile.NamedTemporaryFile(suffix=".om") as file:
        file.writelines(text)
        file.flush()
        made = ["tsdb", "create-blocks-from", "--max-block-duration=30d", "openmetrics", file.name, str(data)]
        command = [str(require_tools("3") / "promtool"), *made]  # it reads all of the text once a block
        subprocess.run(command, check=True, capture_output=True)
