"""Coroutine functions as rewards: each TRL tells them from others in its own way, and awaits what it takes for one."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from typing import Any

import pytest

from rlexporter.adapters.rewards import Watched, watch

NONE = contextlib.nullcontext


async def judged(completions: list[str], scale: float = 1.0) -> list[float | None]:
    """A judge on a server, say, that has no answer for what is empty."""
    await asyncio.sleep(0)
    return [scale * len(each) if each else None for each in completions]


class Judge:
    """One with a state, which is awaited when it is called."""

    async def __call__(self, completions: list[str]) -> list[float | None]:
        """Judge them as the function does."""
        return await judged(completions)


@pytest.mark.parametrize(
    "function", [judged, functools.partial(judged, scale=1.0), Judge()], ids=["plain", "partial", "object"]
)
def test_it_is_a_coroutine_function_for_all_of_them(function: Any) -> None:
    """By `inspect`, as TRL up to 1.10 asks, and when it is awaited it gives the same."""
    reports: list[list[bool]] = []
    watched = watch(function, lambda none, _: reports.append(none), NONE)

    assert inspect.iscoroutinefunction(watched)
    assert asyncio.run(watched(completions=["ab", ""])) == [2.0, None]
    assert reports == [[False, True]]


def test_its_name_stays() -> None:
    """Logs and messages have it."""
    assert watch(judged, lambda *_: None, NONE).__name__ == "judged"


def test_a_function_that_is_none_is_called_as_before() -> None:
    """And is no coroutine function."""
    watched = watch(lambda completions: [1.0], lambda *_: None, NONE)
    assert type(watched) is Watched
    assert not inspect.iscoroutinefunction(watched)
    assert watched(completions=["a"]) == [1.0]
