"""Counting on an accelerator: the same counts as on the host, without a wait for the device.

There is no GPU on most machines that run this: the same code counts on the CPU, and on tensors that only pretend to be
on a GPU and refuse every read by the host. `test_gpu.py` has what needs a real one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from rlexporter.catalog.metrics import NAMED
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series
from rlexporter.tensors import device, host
from rlexporter.tensors.device import DeviceTally
from tests.waits import Watch

RATIO = Series(NAMED["rl_policy_ratio_dist"])
REWARD = Series(NAMED["rl_reward_dist"])
LENGTH = Series(NAMED["rl_completion_length_dist"])
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32]


def _values(dtype: torch.dtype, size: tuple[int, ...] = (30, 40)) -> torch.Tensor:
    torch.manual_seed(0)
    values = (torch.randn(size) * 3).to(dtype)
    if dtype.is_floating_point:
        values[0, :6] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 5e-8, -5e-8], dtype=dtype)
    return values


def _plain(found: Histogram) -> Histogram:
    """With sums that compare: their last digits depend on the order of adding."""
    return found._replace(positive_sum=round(found.positive_sum, 6), negative_sum=round(found.negative_sum, 6))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("series", [RATIO, REWARD, LENGTH], ids=lambda series: series.metric.series)
def test_the_counts_are_those_of_the_host(
    series: Series, dtype: torch.dtype, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bucket for bucket, whichever way of counting the size asks for."""
    monkeypatch.setattr(device, "_LARGE", 0 if large else 1 << 18)
    values, tally = _values(dtype), DeviceTally("cpu")
    mask = torch.rand(30, 1) < 0.7
    tally.add(series, values, mask)
    tally.add(series, values)
    tally.flush(7)
    step, found = tally.arrived() or (0, {})
    bounds = series.metric.bounds

    assert step == 7
    assert _plain(found[series]) == _plain(host.count(values, bounds, mask) + host.count(values, bounds))


def test_counts_are_exact_beyond_what_float32_holds() -> None:
    """2**24 + 1 is the first whole number that it rounds."""
    many, tally = (1 << 24) + 1, DeviceTally("cpu")
    tally.add(LENGTH, torch.ones(many))
    tally.flush(1)

    assert (tally.arrived() or (0, {}))[1][LENGTH].count == many


def test_a_huge_value_does_not_spoil_later_sums() -> None:
    """Each part has its own: the difference of two totals of 1e30 would be 0."""
    tally = DeviceTally("cpu")
    sums = []
    for values in ([1e30, -1e30], [1.5, -0.5]):
        tally.add(REWARD, torch.tensor(values, dtype=torch.float64))
        tally.flush(1)
        found = (tally.arrived() or (0, {}))[1][REWARD]
        sums.append((found.positive_sum, found.negative_sum))

    assert sums == [(1e30, 1e30), (1.5, 0.5)]


class _Offered(dict[int, int]):
    """Runs ``meanwhile`` when a reader has read a flush, and before it can take it."""

    meanwhile: Callable[[], None] | None = None

    def pop(self, *args: Any) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().pop(*args)


_VALUES = st.lists(
    st.sampled_from([-8.0, -1.5, -0.25, 0.0, 0.5, 1.0, 3.0, 40.0, float("nan"), float("inf")]), max_size=4
)
_ADD = st.tuples(st.just("add"), st.sampled_from([REWARD, RATIO, LENGTH]), _VALUES)
_FLUSH = st.tuples(st.just("flush"), _VALUES)
_READ = st.tuples(st.just("read"), st.booleans(), st.integers(0, 3), _VALUES)


class _Model:
    """A tally, and beside it what the host counts of the values that each flush was the first to send."""

    def __init__(self) -> None:
        self.tally = DeviceTally("cpu")
        self.offered = self.tally._offered = _Offered()
        self.sent: list[dict[Series, Histogram]] = [{}]
        self.taken = 0

    def add(self, series: Series, values: list[float]) -> None:
        self.tally.add(series, torch.tensor(values, dtype=torch.float64))
        counted = host.count(values, series.metric.bounds)
        self.sent[-1][series] = self.sent[-1].get(series, Histogram.empty(series.metric.bounds)) + counted

    def flush(self, values: list[float]) -> None:
        """Send what there is; then count these."""
        self.tally.flush(len(self.sent))
        self.sent.append({})
        self.add(REWARD, values)

    def read(self, late: bool, flushes: int, values: list[float]) -> None:
        """``late``: the newest copy is under way; ``flushes``: that many come while the reader reads.

        The oldest part that is whole comes first.
        """
        newest = len(self.sent) - 1
        unread = range(max(newest - 1, self.taken + 1, 1), newest + 1)
        under_way = self.tally._buffers[newest % 2]
        (whole,) = under_way[:1].tolist()

        def meanwhile() -> None:
            under_way[0] = whole
            for i in range(flushes):
                self.flush([value + i for value in values])

        if late:
            under_way[0] = -1.0
        self.offered.meanwhile = meanwhile
        found = self.tally.arrived()
        if self.offered.meanwhile is not None:  # there was nothing to take
            self.offered.meanwhile = None
            meanwhile()
        whole_ones = [] if late and len(unread) == 1 else [flush for flush in unread if flush > len(self.sent) - 3]
        expected = (whole_ones[0], self._part(whole_ones[0])) if whole_ones else None
        assert found == expected

    def _part(self, flush: int) -> dict[Series, Histogram]:
        part: dict[Series, Histogram] = {}
        for sent in self.sent[self.taken : flush]:
            for series, counted in sent.items():
                part[series] = part[series] + counted if series in part else counted
        self.taken = flush
        return {series: counted for series, counted in part.items() if _anything(counted)}


def _anything(counted: Histogram) -> bool:
    return bool(counted.count or counted.nonfinite or counted.outside)


_SENT: tuple[Any, ...] = ("flush", [])
_IS_READ: tuple[Any, ...] = ("read", False, 0, [])
_UNDER_WAY: tuple[Any, ...] = ("read", True, 0, [])


def _added(*values: float) -> tuple[Any, ...]:
    return "add", REWARD, list(values)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(_ADD, _FLUSH, _READ), max_size=30))
@example([_added(1.0), _SENT, _IS_READ, _added(2.0, 2.0), _SENT, _added(0.5), _SENT, _IS_READ, _IS_READ])
@example([_added(1.0, 1.0), _SENT, _added(1.0), _SENT, _UNDER_WAY, _IS_READ])
@example([_added(1.0, 3.0), _SENT, _SENT, _IS_READ, _added(-2.0, 2.0), _SENT, _SENT, _SENT, _IS_READ])
@example([_added(), _SENT, _IS_READ])
def test_every_part_is_what_the_host_counts(steps: list[Any]) -> None:
    """However flushes and reads follow each other, and wherever a flush comes in between: counts, sums and extremes.

    A step that nobody fetched is in the next one; a copy that is under way is not trusted, but the one before it;
    extremes wait for a reader like counts, since GRPO flushes twice a step; an empty tensor is nothing.
    """
    model = _Model()
    for name, *args in steps:
        getattr(model, name)(*args)
    model.flush([])
    model.read(False, 0, [])
    model.read(False, 0, [])


def test_a_reader_in_another_thread_gets_whole_parts() -> None:
    """Flush i sends one value more, which is i: extremes, count and sum of a part all say which flushes it holds."""
    tally = DeviceTally("cpu")
    one = [torch.full((1,), float(i)) for i in range(2001)]
    parts: list[Histogram] = []

    def train() -> None:
        for i in range(1, 2001):
            tally.add(REWARD, one[i])
            tally.flush(i)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        thread = Thread(target=train)
        thread.start()
        while thread.is_alive():
            parts += [found[1][REWARD] for found in [tally.arrived()] if found]
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    parts += [found[REWARD] for _, found in iter(tally.arrived, None)]

    last = 0.0
    for part in parts:
        assert (part.minimum, part.maximum) == (last + 1, last + part.count)
        assert part.positive_sum == sum(range(int(part.minimum), int(part.maximum) + 1))
        last = part.maximum
    assert last == 2000


def test_nothing_of_the_tensor_is_kept() -> None:
    """Neither its memory nor its graph."""
    import gc
    import weakref

    tally = DeviceTally("cpu")
    leaf = torch.ones(100, requires_grad=True)
    value = leaf * 2
    gone = weakref.ref(value)
    tally.add(RATIO, value, value > 0)
    del value
    gc.collect()

    assert gone() is None


def test_too_many_series_are_an_error() -> None:
    """For the caller to count; memory does not grow."""
    tally = DeviceTally("cpu")
    for i in range(64):
        tally.add(Series(RATIO.metric, (str(i),)), torch.ones(1))
    with pytest.raises(OverflowError, match="more than 64"):
        tally.add(RATIO, torch.ones(1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nothing_waits_for_a_pretended_gpu(dtype: torch.dtype) -> None:
    """Counting and sending pass where every read by the host is refused."""
    with FakeTensorMode(), Watch() as watch:
        tally = DeviceTally("cuda")
        values = torch.empty(8, 128, device="cuda").to(dtype)
        mask = torch.ones(8, 128, device="cuda", dtype=torch.int64)
        for _ in range(2):
            tally.add(REWARD, values, mask)
            tally.add(LENGTH, values)
            tally.flush(1)

    assert watch.calls.count("copy_") == 2
    with FakeTensorMode(), Watch(), pytest.raises(AssertionError, match="_local_scalar_dense"):
        torch.ones(1, device="cuda").item()
    with FakeTensorMode(), Watch(), pytest.raises(AssertionError, match="waits"):
        torch.ones(1, device="cuda").cpu()
