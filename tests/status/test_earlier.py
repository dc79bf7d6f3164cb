"""The run that another is compared with, from the page that was kept of it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

from rlexporter.status import earlier
from rlexporter.status.page import held, page
from tests.page import documents


def test_it_has_the_curves_of_its_page() -> None:
    """Those that are drawn first, at the steps and values of the page, NaN as NaN; and how it ended."""
    data = documents.broken()
    run = earlier.of_page(held(page(data))).as_json()
    assert (run["name"], run["word"], run["step"]) == (documents.NAME, "act", data["status"]["run"]["step"])
    here, there = (
        {(each["series"], *each["labels"].values()): each for each in curves}
        for curves in (data["history"]["curves"], run["curves"])
    )
    drawn = [main for card in data["status"]["cards"] for main in card["main"]]
    drawn = [key for main in drawn if (key := (main["series"], *main["labels"].values())) in here]
    assert len(drawn) > 5
    for key in drawn:
        at = dict(zip(here[key]["steps"], here[key]["values"], strict=True))
        mine = list(zip(there[key]["steps"], there[key]["values"], strict=True))
        assert mine
        assert [value for _, value in mine] == [at[step] for step, _ in mine]
        assert len(mine) <= 250


def test_it_is_bounded() -> None:
    """A page may hold anything: there are at most 96 curves, of at most 250 points."""
    data = copy.deepcopy(documents.healthy())
    long = {"series": "rl_x", "steps": list(range(9000)), "values": [math.sin(i) for i in range(9000)]}
    data["history"]["curves"] += [{**long, "labels": {"n": str(i)}} for i in range(300)]
    run = earlier.of_page(data)
    assert len(run.curves) == 96
    assert max(len(steps) for _, _, steps, _ in run.curves) == 250


def _lost(data: dict[str, Any]) -> None:
    del data["history"]


def _odd(data: dict[str, Any]) -> None:
    data["history"]["curves"][0]["values"][0] = "x"


def _uneven(data: dict[str, Any]) -> None:
    data["history"]["curves"][0]["steps"].append(1)


def _empty(data: dict[str, Any]) -> None:
    data["status"]["run"]["step"] = None


@pytest.mark.parametrize("spoil", [_lost, _odd, _uneven, _empty])
def test_what_is_no_run(spoil: Callable[[dict[str, Any]], None]) -> None:
    """It is refused by an error that the reader of pages knows."""
    data = copy.deepcopy(documents.healthy())
    spoil(data)
    with pytest.raises((LookupError, TypeError, ValueError)):
        earlier.of_page(data)


@pytest.mark.parametrize("text", ["", "<html>", page(), '<script type="application/json" id="data">[1]</script>'])
def test_what_is_no_page_of_a_run(text: str) -> None:
    """The page of a live process holds no data."""
    with pytest.raises(ValueError, match="no run"):
        held(text)
