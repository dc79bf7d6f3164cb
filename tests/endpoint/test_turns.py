"""How often open pages ask, by the clock of the test."""

from __future__ import annotations

import pytest

from rlexporter.endpoint.turns import Turns


def _asked(pages: int, seconds: float) -> dict[int, list[float]]:
    """Let so many pages begin within a second, and ask when they are told to; return the times of each."""
    turns, due = Turns(), {page: 100.0 + page / pages for page in range(pages)}
    times: dict[int, list[float]] = {page: [] for page in range(pages)}
    while min(due.values()) < 100.0 + seconds:
        page = min(due, key=lambda each: due[each])
        times[page].append(due[page])
        due[page] += turns.seconds(due[page])
    return times


@pytest.mark.parametrize(("pages", "every"), [(1, 2.0), (8, 2.0), (16, 4.0), (64, 16.0), (500, 30.0)])
def test_each_page_gets_its_turn(pages: int, every: float) -> None:
    """All together ask four times a second, until each waits for half a minute."""
    asked = _asked(pages, 300.0)
    for times in asked.values():
        assert (times[-1] - times[1]) / (len(times) - 2) == pytest.approx(every, rel=0.25)


def test_a_page_that_closes_gives_its_turn_back() -> None:
    """Those that stay ask more often within half a minute."""
    turns = Turns()
    assert [turns.seconds(100.0) for _ in range(64)][-1] == pytest.approx(18, abs=1)
    assert turns.seconds(118.0) == 2
