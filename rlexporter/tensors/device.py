"""Counts values exactly on an accelerator: one kernel a call or a few, one copy a flush, and no wait for the device.

Only the training thread calls `add` and `flush`. Counts accumulate in one small tensor on the device. Each flush copies
it, without waiting, into one of two buffers of page-locked host memory, with a sequence number at both ends. `arrived`
reads host memory only, and trusts a buffer whose numbers agree, so it works even after the device has failed.

Counts only grow, so a reader subtracts the counts that it read before. Sums and extremes cannot be subtracted: they
accumulate in three pieces that take turns, and each flush begins a new piece. A flush carries the values since the
flush before it, the values between the two flushes before it, and older values that were not read yet. Only the newest
two flushes can be read, so the newer pieces of a flush are always exactly what its reader has not seen. Whoever pops a
flush from ``_offered`` owns it: the reader, to read it, or the writer, to give it up and use its buffer again.
"""

from __future__ import annotations

import ctypes
import logging
import math
import weakref
from typing import Any

from rlexporter.model.histogram import MOST_BOUNDS, Histogram, Nonfinite
from rlexporter.model.metric import Series
from rlexporter.tensors.bounds import edges

logger = logging.getLogger("rlexporter")

# A slot holds the counts of one series, in the order of `edges`: minus infinity, outside (negative, where no bound is),
# one for each bound, above them, infinity, NaN. The three pieces follow.
_MAX_CLASSES = MOST_BOUNDS + 5
_POSITIVE, _NEGATIVE, _LOW, _HIGH = range(4)
_PIECE = 4
"""The numbers in a piece: two sums and two extremes."""
_PIECES = 3
_WIDTH = _MAX_CLASSES + _PIECES * _PIECE
_CAPACITY = 64
_LARGE = 1 << 18
"""The number of elements from which atomic additions beat comparing with every class at once."""
_EXACT = 1 << 24
"""The most elements that are counted at once: `torch.histc` counts in float32, which is exact up to here."""


class DeviceTally:
    """The counts of at most 64 series on one device. ``device``: any device that torch knows."""

    def __init__(self, device: Any) -> None:
        import torch

        with torch.inference_mode(mode=False):
            self._state = torch.zeros(_CAPACITY * _WIDTH + 2, dtype=torch.float64, device=device)
            self._slots = self._state.narrow(0, 1, _CAPACITY * _WIDTH).view(_CAPACITY, _WIDTH)
            self._ends = self._state.as_strided((2,), (_CAPACITY * _WIDTH + 1,))
            self._classes = torch.arange(_MAX_CLASSES, dtype=torch.int32, device=device).unsqueeze(1)
            # Those of an accelerator are page-locked: else a copy would wait.
            pinned = self._state.device.type == "cuda" and torch.cuda.is_available()
            shape, dtype = self._state.shape, self._state.dtype
            self._buffers = [torch.zeros(shape, dtype=dtype, pin_memory=pinned) for _ in range(2)]
        weakref.finalize(self, _keep_if_lost, self._buffers)
        self._pieces = [self._slots.narrow(1, start, _PIECE) for start in range(_MAX_CLASSES, _WIDTH, _PIECE)]
        for piece in self._pieces:
            _clear(piece)
        self._slot_of: dict[Series, int] = {}
        self._edges: dict[tuple[tuple[float, ...], Any, int], Any] = {}
        self._kernel = _kernel(self._state.device)
        self._flushes = 0
        self._added = False
        """True if something was counted since the last flush."""
        self._offered: dict[int, int] = {}
        """The step of each flush that may be read: at most the newest two."""
        self._read: tuple[int, list[float]] = (0, [0.0] * (_CAPACITY * _WIDTH))
        """The last flush that was read, and its slots."""

    def add(self, series: Series, values: Any, mask: Any = None) -> None:
        """Count the ``values`` for which ``mask`` is true; its shape broadcasts to theirs.

        Raises: OverflowError for too many series, and whatever torch raises for values that are not real.
        """
        import torch

        if not values.numel():
            return
        self._added = True
        if series not in self._slot_of:
            if len(self._slot_of) == _CAPACITY:
                raise OverflowError(f"more than {_CAPACITY} histograms on one device")
            self._slot_of[series] = len(self._slot_of)
        slot, bounds = self._slots.select(0, self._slot_of[series]), series.metric.bounds
        piece = slot.narrow(0, _MAX_CLASSES + (self._flushes + 1) % _PIECES * _PIECE, _PIECE)
        with torch.no_grad():
            x = values.detach().reshape(-1)
            x = x if x.is_floating_point() else x.double()
            chosen = None if mask is None else mask.detach().expand_as(values).reshape(-1).bool()
            if self._kernel is not None and self._kernel.takes(x, chosen):
                ends = self._edges_of(bounds, torch.float32, self._kernel.room)
                self._kernel.count(x, chosen, ends, len(bounds) + 3, slot, piece)
                return
            index = torch.bucketize(x, self._edges_of(bounds, x.dtype), out_int32=True)
            if chosen is not None:
                index = torch.where(chosen, index, -1)
            slot.narrow(0, 0, len(bounds) + 5).add_(self._count(index, len(bounds) + 5))
            inside = (index >= 2) & (index <= len(bounds) + 2)
            finite = torch.where(inside, x, 0.0)
            piece.select(0, _POSITIVE).add_(finite.clamp(min=0).sum(dtype=torch.float64))
            if not bounds or series.metric.signed:
                piece.select(0, _NEGATIVE).sub_(finite.clamp(max=0).sum(dtype=torch.float64))
            low, high = piece.select(0, _LOW), piece.select(0, _HIGH)
            torch.minimum(low, torch.where(inside, x, math.inf).amin().double(), out=low)
            torch.maximum(high, torch.where(inside, x, -math.inf).amax().double(), out=high)

    def flush(self, step: int) -> None:
        """Start to copy the counts so far to the host, as those of ``step``. Does not wait."""
        flush = self._flushes + 1
        self._ends.fill_(flush)
        was_read = self._offered.pop(flush - 2, None) is None
        self._buffers[flush % 2].copy_(self._state, non_blocking=True)
        self._flushes, self._added = flush, False
        self._offered[flush] = step
        oldest, older = self._pieces[(flush - 2) % _PIECES], self._pieces[(flush - 1) % _PIECES]
        if not was_read:
            _merge(older, oldest)
        _clear(oldest)

    @property
    def under_way(self) -> bool:
        """Return True if there are counts, or a flush without any, that `arrived` has not returned. For any thread."""
        return self._added or self._flushes > self._read[0]

    def arrived(self) -> tuple[int, dict[Series, Histogram]] | None:
        """Return the oldest step whose counts have arrived and are still here, with its new counts; None if none have.

        Any thread may call this, one at a time.
        """
        last, before = self._read
        for flush in sorted(self._offered):
            buffer = self._buffers[flush % 2]
            if flush <= last or buffer[:: len(buffer) - 1].tolist() != [flush, flush]:
                continue
            now = buffer[1:-1].tolist()
            step = self._offered.pop(flush, None)
            if step is not None:  # None: the writer has reclaimed the buffer and may have changed it meanwhile
                self._read = (flush, now)
                return step, self._grown(before, now, range(max(last + 1, flush - 2), flush + 1))
        return None

    def _grown(self, before: list[float], now: list[float], flushes: range) -> dict[Series, Histogram]:
        """Return the counts between two reads. ``flushes``: those whose pieces hold their sums and extremes."""
        grown = {}
        for series, slot in tuple(self._slot_of.items()):
            start = slot * _WIDTH
            counts = slice(start, start + _MAX_CLASSES)
            if now[counts] != before[counts]:
                starts = [start + _MAX_CLASSES + flush % _PIECES * _PIECE for flush in flushes]
                pieces = [now[at : at + _PIECE] for at in starts]
                grown[series] = _buckets(series.metric.bounds, before[counts], now[counts], pieces)
        return grown

    def _edges_of(self, bounds: tuple[float, ...], dtype: Any, room: int = 0) -> Any:
        """Return the edges as a tensor, made by filling it: a copy from the host would wait for the device.

        NaN follows them up to ``room``.
        """
        import torch

        key = (bounds, dtype, room)
        if key not in self._edges:
            ends = edges(bounds, str(dtype).removeprefix("torch."))
            with torch.inference_mode(mode=False):
                made = torch.full((max(len(ends), room),), math.nan, dtype=dtype, device=self._state.device)
                for i, edge in enumerate(ends):
                    made.select(0, i).fill_(edge)
            self._edges[key] = made
        return self._edges[key]

    def _count(self, index: Any, classes: int) -> Any:
        """Count how often each class occurs in ``index``; -1 belongs to no class."""
        import torch

        if index.numel() < _LARGE or torch.are_deterministic_algorithms_enabled():
            return (index == self._classes.narrow(0, 0, classes)).sum(1)
        if index.numel() > _EXACT:
            return sum(self._count(part, classes).double() for part in index.split(_EXACT))
        return torch.histc(index.float() + 0.5, bins=classes, min=0, max=classes)


def _kernel(device: Any) -> Any:
    """Return a kernel that counts on ``device``; None where there is none, and torch's own operations must do."""
    import torch

    if device.type != "cuda" or torch.version.hip:
        return None
    try:
        from rlexporter.tensors.fused import Kernel

        return Kernel(device)
    except Exception as error:  # noqa: BLE001 - Triton is missing, old, or has no compiler at hand: whatever that raises
        logger.info("tensors on %s are counted by torch's own operations: %s", device, error)
        return None


def _merge(into: Any, piece: Any) -> None:
    import torch

    for column, merge in ((_LOW, torch.minimum), (_HIGH, torch.maximum)):
        merge(into.select(1, column), piece.select(1, column), out=into.select(1, column))
    into.narrow(1, _POSITIVE, 2).add_(piece.narrow(1, _POSITIVE, 2))


def _clear(piece: Any) -> None:
    piece.narrow(1, _POSITIVE, 2).zero_()
    piece.select(1, _LOW).fill_(math.inf)
    piece.select(1, _HIGH).fill_(-math.inf)


def _keep_if_lost(buffers: list[Any]) -> None:
    """Never free the buffers of a device that has failed: torch would ask it, and end the process in place of an error.

    Called when their tally goes, or when the interpreter exits.
    """
    import torch

    if not buffers[0].is_pinned():
        return
    try:
        torch.cuda.Event().record()
    except RuntimeError:
        for buffer in buffers:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(buffer))


def _buckets(bounds: tuple[float, ...], before: list[float], now: list[float], pieces: list[list[float]]) -> Histogram:
    counts = [int(b - a) for a, b in zip(before, now, strict=True)]
    above = len(bounds) + 3
    return Histogram(
        bounds,
        tuple(counts[2:above]),
        sum(piece[_POSITIVE] for piece in pieces),
        sum(piece[_NEGATIVE] for piece in pieces),
        min(piece[_LOW] for piece in pieces),
        max(piece[_HIGH] for piece in pieces),
        Nonfinite(nan=counts[above + 1], positive=counts[above], negative=counts[0]),
        counts[1],
    )
