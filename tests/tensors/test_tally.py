"""What waits for the end of a step is counted as it was when it was given, and waits in bounded memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from rlexporter.catalog import NAMED
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
