"""Counts on a real GPU. `make gpu` runs this."""

from __future__ import annotations

import gc
import json
import sys

import pytest
import torch

from rlexporter.catalog.metrics import NAMED
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series
from rlexporter.model.sink import NotSeenError
from rlexporter.tensors import device, host
from rlexporter.tensors.device import DeviceTally
from rlexporter.tensors.tally import Tally
from tests.programs import printed
from tests.tools import ROOT
from tests.waits import watched_by_cuda

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU with CUDA on this machine")

RATIO = Series(NAMED["rl_policy_ratio_dist"])
REWARD = Series(NAMED["rl_reward_dist"])
LENGTH = Series(NAMED["rl_completion_length_dist"])


def _values(size: int, seed: int = 0) -> torch.Tensor:
    values = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3
    values[:4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])[:size]
    return values


def _arrived(tally: DeviceTally | Tally) -> tuple[int, dict[Series, Histogram]]:
    """The last step that has arrived, and all that has arrived with it."""
    torch.cuda.synchronize()
    parts = tally.arrived() if isinstance(tally, Tally) else list(iter(tally.arrived, None))
    whole: dict[Series, Histogram] = {}
    for _, part in parts:
        for series, counted in part.items():
            whole[series] = whole[series] + counted if series in whole else counted
    return parts[-1][0], whole


def _same(found: Histogram, values: torch.Tensor, times: int = 1) -> None:
    once = host.count(values, found.bounds)
    assert found.counts == tuple(times * count for count in once.counts)
    assert (found.minimum, found.maximum, found.outside) == (once.minimum, once.maximum, times * once.outside)
    assert found.nonfinite.by_kind() == tuple((kind, times * count) for kind, count in once.nonfinite.by_kind())
    assert (found.positive_sum, found.negative_sum) == pytest.approx(
        (times * once.positive_sum, times * once.negative_sum), rel=1e-9
    )


@pytest.fixture(params=["one kernel", "torch's operations"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of counting; the first where Triton is, which torch brings with CUDA."""
    if request.param == "one kernel":
        pytest.importorskip("triton")
        assert DeviceTally("cuda")._kernel is not None
    else:
        monkeypatch.setattr(device, "_kernel", lambda _: None)
    return str(request.param)


def _odd(dtype: torch.dtype, size: int) -> torch.Tensor:
    """Every class of every histogram, zeros of both signs, and numbers that are hardly any."""
    values = (_values(size) * 2).to(dtype)
    if dtype.is_floating_point:
        few = torch.tensor([5e-8, -5e-8, 1e-40, -1e-40, 0.0, 1e30, -1e30, torch.finfo(dtype).max], dtype=dtype)
        values[4:12] = few[: max(size - 4, 0)]
    return values


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("size", [1, 33, 1024, 100_003])
@pytest.mark.parametrize("series", [RATIO, REWARD, LENGTH], ids=lambda series: series.metric.series)
def test_the_counts_are_those_of_the_host(way: str, series: Series, size: int, dtype: torch.dtype) -> None:
    """Bucket for bucket: whole tensors and columns, odd addresses, masks of both kinds and of one column."""
    values, mask = _odd(dtype, size), torch.rand(size) < 0.7
    table = torch.stack([values, values.flip(0)], 1)
    cases: list[tuple[torch.Tensor, torch.Tensor | None]] = [
        (values, None),
        (values, mask),
        (values, mask.long()),
        (values[1:], mask[1:]),
        (table[:, 1], None),
        (table, mask.unsqueeze(1)),
        (values[0], None),
    ]
    tally, expected = DeviceTally("cuda"), Histogram.empty(series.metric.bounds)
    there = [(each.cuda(), None if chosen is None else chosen.cuda()) for each, chosen in cases]
    with watched_by_cuda():
        for (each, chosen), (its, its_mask) in zip(cases, there, strict=True):
            tally.add(series, its, its_mask)
            expected = expected + host.count(each, series.metric.bounds, chosen)
        tally.flush(1)
    found = _arrived(tally)[1][series]
    sums = found.positive_sum, found.negative_sum
    assert sums == pytest.approx((expected.positive_sum, expected.negative_sum), rel=1e-9)
    assert found._replace(positive_sum=0, negative_sum=0) == expected._replace(positive_sum=0, negative_sum=0)


def test_nothing_waits(way: str) -> None:
    """CUDA itself raises on a wait, from the first call on; the counts are those of the host."""
    values = _values(1200)
    there = values.cuda()
    mask = torch.ones_like(there, dtype=torch.int64)
    tally = DeviceTally("cuda")
    with watched_by_cuda():
        for step in range(1, 4):
            tally.add(REWARD, there, mask)
            tally.add(REWARD, there)
            tally.flush(step)
    step, found = _arrived(tally)
    assert step == 3
    _same(found[REWARD], values, 6)


@pytest.mark.parametrize("size", [1, 100_003, (1 << 24) + 3])
def test_programs_at_once_lose_nothing(way: str, size: int) -> None:
    """Of the smallest and the largest number of programs, time and again."""
    values, tally = _values(size), DeviceTally("cuda")
    there = values.cuda()
    for _ in range(300):
        tally.add(REWARD, there)
    tally.flush(1)
    _same(_arrived(tally)[1][REWARD], values, 300)


def test_no_memory_is_held(way: str) -> None:
    """After the first steps neither the tensors in use nor what torch keeps from the device grow."""
    tally, there = DeviceTally("cuda"), _values(300_000).cuda()
    mask = there > 0

    def steps(count: int) -> tuple[int, int]:
        for step in range(count):
            for series in (RATIO, REWARD):
                tally.add(series, there, mask)
                tally.add(series, there)
            tally.flush(step)
            tally.arrived()
        torch.cuda.synchronize()
        gc.collect()
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    assert steps(10) == steps(1000)


def test_a_stream_of_ones_own(way: str) -> None:
    """What is computed there is counted there, behind it, while the default stream is busy."""
    values, tally, stream = _values(50_000), DeviceTally("cuda"), torch.cuda.Stream()
    there = values.cuda()
    torch.cuda.synchronize()
    torch.cuda._sleep(50_000_000)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        doubled = there * 2
        tally.add(REWARD, doubled)
        tally.flush(5)
    step, found = _arrived(tally)
    assert step == 5
    _same(found[REWARD], values * 2)


def test_two_streams_at_once(way: str) -> None:
    """Each counts a series of its own, hundreds of times, without waiting for the other."""
    tally, streams = DeviceTally("cuda"), [torch.cuda.Stream() for _ in range(2)]
    values = [_values(400_000, seed) for seed in (1, 2)]
    there = [each.cuda() for each in values]
    torch.cuda.synchronize()
    for _ in range(300):
        for series, each, stream in zip((RATIO, REWARD), there, streams, strict=True):
            with torch.cuda.stream(stream):
                tally.add(series, each)
    torch.cuda.synchronize()
    tally.flush(1)
    _, found = _arrived(tally)
    for series, each in zip((RATIO, REWARD), values, strict=True):
        _same(found[series], each, 300)


@pytest.mark.parametrize("counted_before", [False, True])
def test_a_graph_that_is_captured_is_not_counted(way: str, counted_before: bool) -> None:
    """Counting is refused, with the reason, a flush waits for the next, and the graph is as without us."""
    tally, static = Tally(), torch.zeros(5000, device="cuda")
    if counted_before:
        tally.add(REWARD, static + 1)
    warm, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(warm):
        static * 2 + 1
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = static * 2 + 1
        with pytest.raises(NotSeenError, match="CUDA graph"):
            tally.add(REWARD, out)
        tally.flush(1)
    static.fill_(3.0)
    graph.replay()
    torch.cuda.synchronize()
    assert out.tolist() == [7.0] * 5000

    tally.add(REWARD, out)  # beside the graph, after a replay
    tally.flush(2)
    step, found = _arrived(tally)
    assert step == 2
    assert (found[REWARD].count, found[REWARD].maximum) == (10_000 if counted_before else 5000, 7.0)
    graph.replay()
    tally.flush(3)
    torch.cuda.synchronize()
    assert all(seen == {} for _, seen in tally.arrived())


_DIES = """
import json
import torch
from rlexporter.catalog.metrics import NAMED
from rlexporter.model.metric import Series
from rlexporter.tensors.device import DeviceTally

tally = DeviceTally("cuda")
series = Series(NAMED["rl_reward_dist"])
for step in (1, 2):
    tally.add(series, torch.full((1000,), float(step), device="cuda"))
    tally.flush(step)
index = torch.tensor([7], device="cuda")
torch.zeros(3, device="cuda")[index]  # the assert
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    said = str(error)
parts = list(iter(tally.arrived, None))
try:
    tally.add(series, torch.ones(3, device="cuda"))
except RuntimeError:
    pass
print(json.dumps([said, [[step, found[series].count, found[series].positive_sum] for step, found in parts]]))
"""


def test_the_last_step_survives_a_device_assert() -> None:
    """The device is lost to the process, which ends as usual; what it had counted before is in the host's memory."""
    said, parts = json.loads(printed(sys.executable, "-c", _DIES, PYTHONPATH=str(ROOT)).splitlines()[-1])
    assert "assert" in said
    assert parts == [[1, 1000, 1000.0], [2, 1000, 2000.0]]
