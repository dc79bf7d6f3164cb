"""Exact counts on an accelerator: a few kernels a call, nothing that waits for the device, and one copy a step.

Only the thread that trains calls `add` and `flush`. Counts gather in one small tensor on the device; each flush copies
it, without waiting, into one of two buffers of page-locked host memory, with a sequence number at both ends. Any
thread may call `arrived`, which reads host memory only, and trusts a buffer whose two numbers agree: so the counts of
the last step are there even where the device has failed since.
"""

from __future__ import annotations

import math
from threading import Lock
from typing import Any

from rlexporter.buckets import Buckets, Nonfinite
from rlexporter.model import Series
from rlexporter.tensors.bounds import edges

# A slot holds the counts of one series, in the order in which a search in its edges numbers them: minus infinity,
# outside (negative where no bound is), one for each bound, above them, infinity, NaN. Sums and extremes end it.
_MAX_CLASSES = 24 + 5
_POSITIVE, _NEGATIVE, _LOW, _HIGH = (_MAX_CLASSES + i for i in range(4))
_WIDTH = _MAX_CLASSES + 4
_CAPACITY = 64
_LARGE = 1 << 18
"""Elements from which on atomic additions are better than comparing with every class at once."""


class DeviceTally:
    """What is counted on one device, of at most 64 series. ``device``: any that torch knows."""

    def __init__(self, device: Any) -> None:
        import torch

        with torch.inference_mode(mode=False):
            self._state = torch.zeros(_CAPACITY * _WIDTH + 2, dtype=torch.float64, device=device)
            self._slots = self._state.narrow(0, 1, _CAPACITY * _WIDTH).view(_CAPACITY, _WIDTH)
            self._ends = self._state.as_strided((2,), (_CAPACITY * _WIDTH + 1,))
            self._classes = torch.arange(_MAX_CLASSES, dtype=torch.int32, device=device).unsqueeze(1)
            self._buffers = [_host_buffer(self._state) for _ in range(2)]
        self._forget_extremes()
        self._slot_of: dict[Series, int] = {}
        self._edges: dict[tuple[tuple[float, ...], Any], Any] = {}
        self._flushes = 0
        self._sent = [(0, 0), (0, 0)]
        self._lock = Lock()
        self._folded = 0
        self._last: dict[Series, list[float]] = {}

    def add(self, series: Series, values: Any, mask: Any = None) -> None:
        """Count the values for which ``mask`` is true; its shape broadcasts to theirs.

        Raises OverflowError when there are too many series, and what torch raises for values that are not real.
        """
        import torch

        if not values.numel():
            return
        slot, bounds = self._slot(series), series.metric.bounds
        with torch.no_grad():
            x = values.detach().reshape(-1)
            x = x if x.is_floating_point() else x.double()
            index = torch.bucketize(x, self._edges_of(bounds, x), out_int32=True)
            if mask is not None:
                index = torch.where(mask.detach().expand_as(values).reshape(-1).bool(), index, -1)
            slot.narrow(0, 0, len(bounds) + 5).add_(self._count(index, len(bounds) + 5))
            inside = (index >= 2) & (index <= len(bounds) + 2)
            finite = torch.where(inside, x, 0.0)
            slot.select(0, _POSITIVE).add_(finite.clamp(min=0).sum(dtype=torch.float64))
            if not bounds or series.metric.signed:
                slot.select(0, _NEGATIVE).sub_(finite.clamp(max=0).sum(dtype=torch.float64))
            low, high = slot.select(0, _LOW), slot.select(0, _HIGH)
            torch.minimum(low, torch.where(inside, x, math.inf).amin().double(), out=low)
            torch.maximum(high, torch.where(inside, x, -math.inf).amax().double(), out=high)

    def flush(self, step: int) -> None:
        """Send what was counted up to now, as that of ``step``, on its way to the host."""
        self._flushes += 1
        buffer = self._flushes % 2
        self._ends.add_(1)
        self._sent[buffer] = (self._flushes, step)
        self._buffers[buffer].copy_(self._state, non_blocking=True)
        self._forget_extremes()

    def arrived(self) -> tuple[int, dict[Series, Buckets]] | None:
        """The newest step whose counts have come, and what it added; None where nothing new has."""
        with self._lock:
            for (flush, step), buffer in sorted(zip(self._sent, self._buffers, strict=True), key=_newest, reverse=True):
                found = buffer.tolist()
                if found[0] == found[-1] == flush > self._folded:
                    self._folded = flush
                    return step, self._grown(found[1:-1])
        return None

    def _grown(self, slots: list[float]) -> dict[Series, Buckets]:
        grown = {}
        for series, slot in tuple(self._slot_of.items()):
            now = slots[slot * _WIDTH : (slot + 1) * _WIDTH]
            before = self._last.get(series, [0.0] * _WIDTH)
            if now[:_MAX_CLASSES] != before[:_MAX_CLASSES]:
                grown[series] = _difference(series.metric.bounds, before, now)
                self._last[series] = now
        return grown

    def _slot(self, series: Series) -> Any:
        if series not in self._slot_of:
            if len(self._slot_of) == _CAPACITY:
                raise OverflowError(f"more than {_CAPACITY} histograms on one device")
            self._slot_of[series] = len(self._slot_of)
        return self._slots.select(0, self._slot_of[series])

    def _edges_of(self, bounds: tuple[float, ...], x: Any) -> Any:
        """Made by filling: to bring them from the host would wait for the device."""
        import torch

        key = (bounds, x.dtype)
        if key not in self._edges:
            ends = edges(bounds, str(x.dtype).removeprefix("torch."))
            with torch.inference_mode(mode=False):
                made = torch.empty(len(ends), dtype=x.dtype, device=x.device)
                for i, edge in enumerate(ends):
                    made.select(0, i).fill_(edge)
            self._edges[key] = made
        return self._edges[key]

    def _count(self, index: Any, classes: int) -> Any:
        """How often each class occurs; -1 is none of them."""
        import torch

        if index.numel() < _LARGE or torch.are_deterministic_algorithms_enabled():
            return (index == self._classes.narrow(0, 0, classes)).sum(1)
        return torch.histc(index.float() + 0.5, bins=classes, min=0, max=classes)

    def _forget_extremes(self) -> None:
        self._slots.select(1, _LOW).fill_(math.inf)
        self._slots.select(1, _HIGH).fill_(-math.inf)


def _newest(sent: tuple[tuple[int, int], Any]) -> int:
    return sent[0][0]


def _host_buffer(like: Any) -> Any:
    """As large as ``like``, page-locked where it is on an accelerator: only then a copy does not wait."""
    import torch

    return torch.zeros(
        like.shape, dtype=like.dtype, pin_memory=like.device.type == "cuda" and torch.cuda.is_available()
    )


def _difference(bounds: tuple[float, ...], before: list[float], now: list[float]) -> Buckets:
    counts = [int(b - a) for a, b in zip(before[:_MAX_CLASSES], now[:_MAX_CLASSES], strict=True)]
    above = len(bounds) + 3
    return Buckets(
        bounds,
        tuple(counts[2:above]),
        max(now[_POSITIVE] - before[_POSITIVE], 0.0),
        max(now[_NEGATIVE] - before[_NEGATIVE], 0.0),
        now[_LOW],
        now[_HIGH],
        Nonfinite(nan=counts[above + 1], positive=counts[above], negative=counts[0]),
        counts[1],
    )
