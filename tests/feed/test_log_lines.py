"""A line with the keys of an earlier one is read at a stroke: it must say what it says when each key is read alone."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from rlexporter import Exporter
from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.feed.log_lines import LogLine, LogLines
from rlexporter.model.metric import Framework, FrameworkKey, Kind
from rlexporter.recording.codec import series_text

PLAIN = {
    "loss": 0.25,
    "grad_norm": 1.5,
    "num_tokens": 4096.0,
    "kl": 0.125,
    "rewards/letters/mean": 0.5,
    "rewards/letters/std": 0.75,
    "rewards/length/mean": -2.0,
    "epoch": 1,
    "mine": 7.0,
}


class Odd:
    """Can be added to a float, and is none."""

    def __radd__(self, other: float) -> float:
        return other

    def __float__(self) -> float:
        raise RuntimeError("not today")


LINES: list[dict[str, Any]] = [
    PLAIN,
    {key: value * 2 for key, value in PLAIN.items()},
    {**PLAIN, "kl": math.nan, "loss": math.inf},
    {**PLAIN, "mine": "text"},
    {**PLAIN, "mine": None},
    {**PLAIN, "mine": Odd()},
    {**PLAIN, "kl": np.float64(0.5), "grad_norm": torch.tensor(2.0)},
    {**PLAIN, "kl": [1.0, 2.0]},
    {**PLAIN, "epoch": True},
    {**PLAIN, "epoch": 10**400},
    {**PLAIN, "loss": 1e308, "kl": 1e308},
    {**PLAIN, "completions/mean_length": 7.5},
    {"kl": 3, "loss": 1},
    dict(reversed(PLAIN.items())),
]


def _read(lines: LogLines, line: dict[str, Any]) -> list[str]:
    """Return all that a line says, as texts, since NaN is not what it is."""
    found: LogLine = lines.read(line)
    said = [f"{series_text(series)} = {value!r}" for series, value in found.values()]
    for targets, value, counted in found.numbers:
        for series in targets:
            sets = "=" if series.metric.kind is Kind.GAUGE else "+="
            said.append(f"{series_text(series)} {sets} {value!r}" + " counted" * (counted and not math.isfinite(value)))
    said += [f"{[*map(series_text, targets)]} undefined" for targets in found.undefined]
    said += [f"judged {name} = {value!r}" for name, value in found.judged.numbers.items()]
    said += [f"judged {name} {values!r}" for name, values in found.judged.functions.items() if values]
    return sorted(said)


def _lines() -> LogLines:
    lines = LogLines(CATALOG, 100, lambda key, value: "")
    lines.begin("grpo")
    return lines


@pytest.mark.parametrize(("first", "second"), [*itertools.product(LINES, LINES)])
def test_a_line_says_the_same_whatever_came_before_it(first: dict[str, Any], second: dict[str, Any]) -> None:
    """NaN, None, text, tensors, whole numbers, too large ones, another order, more keys and fewer."""
    known, fresh = _lines(), _lines()
    for line in (first, second, first):
        known.read(line)

    assert _read(known, second) == _read(fresh, second)


def test_nothing_is_computed_with_what_was_logged() -> None:
    """A tensor is no number to add: where there are weights on no device yet, torch would load its compiler for it."""
    lines, asked = _lines(), []

    class Tensor:
        def __radd__(self, other: float) -> float:
            asked.append(other)
            return other

    lines.read(PLAIN)
    lines.read({**PLAIN, "mine": Tensor()})

    assert asked == []


def test_plans_are_few() -> None:
    """Whatever is logged: each line with other keys."""
    lines = _lines()
    for number in range(50):
        lines.read({**PLAIN, f"mine/{number}": 1.0})
        lines.read({**PLAIN, f"mine/{number}": 1.0})
    (known,) = lines._known.values()
    assert 0 < len(known.plans) <= 16


def test_what_taps_count_is_not_counted_twice() -> None:
    """From the line on that follows, although its keys are those of the one before."""
    lines = _lines()
    lines.read(PLAIN)
    before = {targets[0].metric.series for targets, *_ in lines.read(PLAIN).numbers}
    lines.tapped.add("rl_grad_norm_dist")
    after = {targets[0].metric.series for targets, *_ in lines.read(PLAIN).numbers if targets}

    assert before - after == {"rl_grad_norm_dist"}


def test_a_unit_of_a_framework_is_kept() -> None:
    """A key that is logged in another unit is never one of those that are taken as they are."""
    share = FrameworkKey("share", "rl_clip_ratio_region_mean", scale=0.01)
    lines = LogLines(CATALOG, 100, lambda key, value: "")
    lines.begin("grpo", Framework(name="own", title="Own", keys=(share,), marks=frozenset(), source=""))
    for _ in range(3):
        found = lines.read({"share": 50.0, "loss": 1.0})
        assert {series.metric: value for series, value in found.values()}[NAMED["rl_clip_ratio_region_mean"]] == 0.5


@pytest.mark.parametrize(
    ("keys", "served", "dropped"),
    [
        (["k" * 200 + "a", "k" * 200 + "b"], 2, 0),
        (["k" * 127 + "a", "k" * 128], 2, 0),
        (["k" * 128, "k" * 129, "k" * 130], 3, 0),
        (["rewards/" + "f" * 300 + "1/mean", "rewards/" + "f" * 300 + "2/mean"], 2, 0),
        (["half \ud800 pair", "half \ud801 pair", "half ? pair"], 1, 2),
        ([math.nan], 1, 0),
    ],
    ids=ascii,
)
def test_keys_that_look_alike(keys: list[Any], served: int, dropped: int) -> None:
    """Each is a series of its own; one that would be shown just as another is dropped, and counted in each line."""
    with Exporter(run="r", port=0, linger=0) as exporter:
        for step in (1, 2):
            exporter.log({key: float(place) for place, key in enumerate(keys)}, step=step)
        snapshot = exporter.snapshot
    names = ("rl_logged_value", "rl_reward_function_mean")
    found = {series: value for series, value in snapshot.samples.items() if series.metric.series in names}

    assert len(found) == served
    assert len(set(found.values())) == served
    assert (snapshot.value("rlexporter_dropped_keys_total") or 0) == 2 * dropped
