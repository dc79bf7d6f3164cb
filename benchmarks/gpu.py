"""Counts on a GPU: time on the device, time of the thread that calls, and kernels a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch

from benchmarks.ratios import RATIO, bucketize, mask_of, ratios_of
from rlexporter.catalog.metrics import NAMED
from rlexporter.model.metric import Kind, Series
from rlexporter.tensors.device import DeviceTally

_SIZES = (65_536, 1 << 20, 16 << 20, 64 << 20)
_MEASURED = Path(__file__).parent / "gpu_h200.md"
_CALLS, _ROUNDS = 20, 15
_SERIES = Series(NAMED["rl_policy_ratio_dist"])
_ADDS = 12
"""The tensors that a step of GRPO counts."""


def rows() -> Iterator[str]:
    """The lines of two Markdown tables; without a GPU, what was measured on one."""
    if not torch.cuda.is_available():
        yield from _MEASURED.read_text().splitlines()
        return
    yield f"{torch.cuda.get_device_name()}, which copies {_copied():.0f} GB/s (read and written). A read: the sum of"
    yield "the same tensor, in the same run. Ratios with a mask that leaves four of five; microseconds.\n"
    yield "| elements | device | a read | ratio | GB/s | `bucketize` + `bincount` | thread | kernels a call |"
    yield "|---" * 8 + "|"
    for dtype in (torch.float32, torch.bfloat16):
        for size in _SIZES:
            yield from _sized(size, dtype)
    yield f"\nA step: {_ADDS} calls with 8 x 512 values, then a flush; microseconds of the thread that calls.\n"
    yield "| | thread | on the device |"
    yield "|---|---|---|"
    for way, kernel in (("one kernel", True), ("torch's operations", False)):
        device, thread = _times(_step(kernel=kernel))
        yield f"| {way} | {thread:.0f} | {device:.0f} |"


def _sized(size: int, dtype: torch.dtype) -> Iterator[str]:
    values, mask = ratios_of(size, dtype).cuda(), mask_of(size).cuda()
    edges = torch.tensor(RATIO, dtype=dtype, device="cuda")
    read, _ = _times(lambda: values.sum(dtype=torch.float32))
    theirs, _ = _times(lambda: bucketize(values, mask, edges))
    tally = DeviceTally("cuda")

    def ours() -> None:
        tally.add(_SERIES, values, mask)

    device, thread = _times(ours)
    speed = size * (values.element_size() + mask.element_size()) / device / 1e3
    kind = str(dtype).removeprefix("torch.")
    yield (
        f"| {size:,} {kind} | {device:.0f} | {read:.0f} | {device / read:.1f} | "
        f"{speed:.0f} | {theirs:.0f} | {thread:.0f} | {_kernels(ours)} |"
    )


def _step(*, kernel: bool) -> Callable[[], None]:
    tally = DeviceTally("cuda")
    if not kernel:
        tally._kernel = None
    names = [name for name, metric in NAMED.items() if metric.kind is Kind.HISTOGRAM and metric.bounds][:_ADDS]
    values, mask = ratios_of(4096, torch.float32).view(8, 512).cuda(), mask_of(4096).view(8, 512).cuda()

    def step() -> None:
        for name in names:
            tally.add(Series(NAMED[name]), values, mask)
        tally.flush(1)

    return step


def _copied() -> float:
    """The bandwidth of a copy of 1 GiB, in GB/s."""
    large = torch.zeros(1 << 28, device="cuda")
    other = torch.empty_like(large)
    device, _ = _times(lambda: other.copy_(large))
    return 2 * 4 * (1 << 28) / device / 1e3


def _times(call: Callable[[], object]) -> tuple[float, float]:
    """Microseconds a call, by medians: of the device, and of the thread, which does not wait for it."""
    call()
    on_device, in_thread = [], []
    for _ in range(_ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(20_000_000)  # calls queue up behind this, so that the device is never idle between them
        start.record()
        began = time.thread_time()
        for _ in range(_CALLS):
            call()
        in_thread.append(1e6 * (time.thread_time() - began) / _CALLS)
        end.record()
        torch.cuda.synchronize()
        on_device.append(1e3 * start.elapsed_time(end) / _CALLS)
    return median(on_device), median(in_thread)


def _kernels(call: Callable[[], object]) -> int:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())
