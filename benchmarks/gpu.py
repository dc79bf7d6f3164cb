"""The same on a GPU: time on the device, time of the thread that calls, and kernels a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

import torch

from benchmarks.tensors import RATIO, bucketize, mask_of, ratios_of
from rlexporter.catalog import NAMED
from rlexporter.model.metric import Series
from rlexporter.tensors.device import DeviceTally

_SIZES = (8192, 65_536, 1_048_576, 16_777_216)
_CALLS, _ROUNDS = 20, 15


def rows() -> Iterator[str]:
    """The lines of a Markdown table, or the reason why there is none."""
    if not torch.cuda.is_available():
        yield "Not measured: this machine has no GPU with CUDA."
        return
    yield f"{torch.cuda.get_device_name()}. One read: the sum of the same tensor, in the same run; microseconds.\n"
    yield "| elements | on the device | one read | ratio | `bucketize` + `bincount` | thread | kernels a call |"
    yield "|---|---|---|---|---|---|---|"
    for dtype in (torch.float32, torch.bfloat16):
        for size in _SIZES:
            yield _row(size, dtype)


def _row(size: int, dtype: torch.dtype) -> str:
    values, mask = ratios_of(size, dtype).cuda(), mask_of(size).cuda()
    edges = torch.tensor(RATIO, dtype=dtype, device="cuda")
    tally, series = DeviceTally("cuda"), Series(NAMED["rl_policy_ratio_dist"])

    def ours() -> None:
        tally.add(series, values, mask)

    device, thread = _times(ours)
    read, _ = _times(lambda: values.sum(dtype=torch.float32))
    theirs, _ = _times(lambda: bucketize(values, mask, edges))
    kind = str(dtype).removeprefix("torch.")
    return (
        f"| {size:,} {kind} | {device:.0f} | {read:.0f} | {device / read:.1f} | {theirs:.0f} | {thread:.0f} | "
        f"{_kernels(ours)} |"
    )


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
