"""What waits for the end of a step is counted as it was when it was given, and waits in bounded memory."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from rlexporter.catalog.metrics import NAMED
from rlexporter.model.metric import Series
from rlexporter.tensors.tally import Tally

RATIO = Series(NAMED["rl_policy_ratio_dist"])
REWARD = Series(NAMED["rl_reward_dist"])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", [3, 5000])
def test_what_is_changed_in_place_afterwards_counts_as_it_was(size: int, masked: bool) -> None:
    """A trainer may reuse its buffers before the step ends, and its mask as well."""
    tally, values, mask = Tally(), torch.full((size,), 2.0), torch.ones(size, dtype=torch.long)

    tally.add(RATIO, values, mask if masked else None)
    values.fill_(7.0)
    mask.zero_()
    found = tally.take(1)[RATIO]

    assert (found.count, found.positive_sum, found.maximum) == (size, 2.0 * size, 2.0)


def test_parts_of_a_step_are_counted_together() -> None:
    """Of any number, dtype and size: 40 micro-batches and a large one. Nothing is left for the next step."""
    tally, expected = Tally(), []
    for number in range(40):
        values = torch.linspace(0.5, 1.5, 3 + number, dtype=(torch.float32, torch.float64, torch.bfloat16)[number % 3])
        tally.add(RATIO, values)
        expected += values.double().tolist()
    large = np.linspace(0.1, 3.0, 10_000)
    tally.add(RATIO, large)
    tally.add(REWARD, [1.0, float("nan"), float("-inf")])
    expected += large.tolist()

    found = tally.take(1)

    assert found[RATIO].count == len(expected)
    assert found[RATIO].counts[10] == sum(0.99 < value <= 0.999 for value in expected)
    assert found[RATIO].counts[11] == sum(0.999 < value <= 1.0 for value in expected)
    assert found[RATIO].positive_sum == pytest.approx(sum(expected))
    assert (found[REWARD].count, found[REWARD].nonfinite.nan, found[REWARD].nonfinite.negative) == (1, 1, 1)
    assert tally.take(2) == {}


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "mask", "counted"),
    [
        (torch.tensor(1.5), None, [1.5]),
        (torch.tensor(1.5), torch.tensor(False), []),
        (torch.tensor([[-2.5]]), torch.ones(1, 1), [-2.5]),
        (torch.tensor(NAN), None, [NAN]),
        (torch.tensor(-INF, dtype=torch.bfloat16), None, [-INF]),
        (torch.tensor(7), None, [7.0]),
        (torch.tensor(2.5, requires_grad=True), None, [2.5]),
        (0.5, None, [0.5]),
        (np.float64(3.25), np.bool_(True), [3.25]),
        (torch.tensor([1.0, -2.0, 3.0]).bfloat16(), torch.tensor([1.0, 0.0, 2.0]).bfloat16(), [1.0, 3.0]),
        (torch.arange(6.0).reshape(2, 3).T, torch.tensor([[1], [0], [1]]), [0.0, 3.0, 2.0, 5.0]),
        (torch.arange(6.0, requires_grad=True) * 2, torch.arange(6) > 3, [8.0, 10.0]),
        ([[1.0, NAN], [INF, 4.0]], [True, False], [1.0, INF]),
        (np.array([1, 2, 3], dtype=np.float16), None, [1.0, 2.0, 3.0]),
        (torch.tensor([]), None, []),
    ],
    ids=lambda value: None if isinstance(value, list) else str(value).replace("\n", ""),
)
def test_a_few_values_count_as_what_they_are(values: Any, mask: Any, counted: list[float]) -> None:
    """Of any type, dtype and shape, with any mask that broadcasts to it; one number as well as several."""
    tally = Tally()
    tally.add(REWARD, values, mask)
    found = tally.take(1)[REWARD]
    finite = [value for value in counted if abs(value) < INF]

    assert list(found.counts) == [
        sum(low < value <= high for value in finite) for low, high in pairwise([-INF, *REWARD.metric.bounds, INF])
    ]
    assert (found.positive_sum, found.negative_sum) == (
        sum(value for value in finite if value > 0),
        -sum(value for value in finite if value < 0),
    )
    assert (found.minimum, found.maximum) == (min(finite, default=INF), max(finite, default=-INF))
    assert found.nonfinite.by_kind() == (
        ("nan", sum(value != value for value in counted)),
        ("+inf", counted.count(INF)),
        ("-inf", counted.count(-INF)),
    )


def test_a_negative_number_where_none_can_be_is_in_no_bucket() -> None:
    """TRL pads with -1; one of them alone as well as among others."""
    lengths = Series(NAMED["rl_completion_length_dist"])
    for values in (torch.tensor(-1), torch.tensor([-1.0, 5.0])):
        tally = Tally()
        tally.add(lengths, values)
        found = tally.take(1)[lengths]
        assert (found.outside, found.count, found.negative_sum) == (1, values.numel() - 1, 0.0)


def test_a_step_that_does_not_end_needs_no_more_memory() -> None:
    """A loop may observe for hours before it logs."""
    tally, values = Tally(), np.ones(2000)

    def grown(times: int) -> int:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(times):
            tally.add(RATIO, values)
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        grown(100)
        assert grown(2000) < 1e6  # all of them would be 32 MB
    finally:
        tracemalloc.stop()
    assert tally.take(1)[RATIO].count == 2100 * 2000
