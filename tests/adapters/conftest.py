"""Fixtures of the tests of adapters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlexporter.exporter import serving
from tests.adapters.broken import Clock


@pytest.fixture(autouse=True)
def _closed_at_the_end() -> Iterator[None]:
    """What a test of this folder attaches is closed when the test ends, so that no test has to say so."""
    yield
    for exporter in serving():
        exporter.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which phases and steps are timed, of exporters that begin after this."""
    made = Clock()
    monkeypatch.setattr("time.perf_counter", made)
    monkeypatch.setattr("rlexporter.feed.feed.PhaseTimer.__init__.__defaults__", (made,))
    return made
