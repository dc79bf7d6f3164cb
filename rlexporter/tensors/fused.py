"""Counts a tensor on a GPU with one kernel that reads it once, where torch's own operations launch some 26 kernels.

Needs Triton, which torch brings with CUDA. A kernel is compiled for each kind of tensor, which takes half a second
where Triton has not kept it from another run. `Kernel` does so when it is made, and leaves other kinds to torch: no
later call compiles anything.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

ROOM = 32
"""The edges that the kernel searches, in five halvings: at most 28 of a histogram, and NaN."""
_DTYPES = (torch.float32, torch.bfloat16)
_BLOCK, _WARPS = 1024, 8
_PROGRAMS = 8
"""Of each multiprocessor: each adds once to the counts that all share."""
_MOST = 1 << 30
"""The most elements of a tensor: for more Triton would compile with a wider number."""
_ALIGNED = 16
"""Bytes: for a tensor that begins between them Triton would compile with narrower reads."""


class Kernel:
    """The kernel, compiled for tensors of float32 and bfloat16 on ``device``, with and without a mask.

    Raises whatever Triton raises where it cannot compile, for want of a C compiler for example.
    """

    room = ROOM

    def __init__(self, device: Any) -> None:
        if not isinstance(_count, triton.JITFunction):
            raise TypeError("TRITON_INTERPRET is set, and an interpreted kernel waits for the device")
        self._most_programs = _PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count
        with torch.cuda.device(device):
            edges = torch.zeros(ROOM, dtype=torch.float32, device=device)
            counts = torch.zeros(ROOM, dtype=torch.float64, device=device)
            mask = torch.zeros(ROOM, dtype=torch.bool, device=device)
            for dtype in _DTYPES:
                values = torch.zeros(ROOM, dtype=dtype, device=device)
                for each in (None, mask):
                    if not self.takes(values, each):
                        raise TypeError("these tensors only pretend to be on a GPU")
                    self.count(values, each, edges, 0, counts, counts)

    def takes(self, values: Any, mask: Any) -> bool:
        """Return True if `count` was compiled for ``values`` and ``mask``: flat tensors, or None for the mask.

        Those of other classes than torch's own may have no memory to read, or a part of it only.
        """
        return (
            type(values) is torch.Tensor
            and values.dtype in _DTYPES
            and values.numel() < _MOST
            and (mask is None or type(mask) is torch.Tensor)
            and torch.cuda.current_device() == values.device.index
        )

    def count(self, values: Any, mask: Any, edges: Any, above: int, counts: Any, piece: Any) -> None:
        """Add the ``values`` for which ``mask`` is true: classes to ``counts``, sums and extremes to ``piece``.

        ``mask``: of booleans; ``edges``: those of `bounds.edges` in float32, then NaN, `ROOM` in all; ``above``: the
        class of infinity.
        """
        values, mask = _whole(values), None if mask is None else _whole(mask)
        size = values.numel()
        programs = min(-(-size // _BLOCK), self._most_programs)
        _count[(programs,)](
            values,
            values if mask is None else mask.view(torch.uint8),
            edges,
            counts,
            piece,
            size,
            above,
            masked=mask is not None,
            block=_BLOCK,
            num_warps=_WARPS,
        )


def _whole(tensor: Any) -> Any:
    """Return ``tensor``, or a copy if it has gaps or an odd address, like a column."""
    if tensor.is_contiguous() and tensor.data_ptr() % _ALIGNED == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


@triton.jit(do_not_specialize=["size", "above"], do_not_specialize_on_alignment=["counts", "piece"])  # type: ignore[untyped-decorator] # triton is not checked
def _count(values, mask, edges, counts, piece, size, above, masked: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add the classes of ``values`` to ``counts``, and sums and extremes of the finite ones to ``piece``."""
    middle, lower, upper = tl.load(edges + 15), tl.load(edges + 7), tl.load(edges + 23)
    histogram = tl.zeros((32,), tl.int32)
    positive = tl.zeros((block,), tl.float64)
    negative = tl.zeros((block,), tl.float64)
    low = tl.full((block,), float("inf"), tl.float32)
    high = tl.full((block,), float("-inf"), tl.float32)
    for at in range(tl.program_id(0) * block, size, tl.num_programs(0) * block):
        places = at + tl.arange(0, block)
        chosen = places < size
        if masked:
            chosen = chosen & (tl.load(mask + places, mask=chosen, other=0) != 0)
        x = tl.load(values + places, mask=chosen, other=0.0).to(tl.float32)
        found = tl.where(middle < x, 16, 0)
        found += tl.where(tl.where(middle < x, upper, lower) < x, 8, 0)
        for bit in tl.static_range(3):
            half = 4 >> bit
            found += tl.where(tl.load(edges + found + half - 1) < x, half, 0)
        finite = chosen & (x == x) & (found >= 2) & (found < above)
        histogram += tl.histogram(tl.where(chosen, tl.where(x == x, found, above + 1), 31), 32)
        exact = tl.where(finite, x, 0.0).to(tl.float64)
        positive += tl.where(x > 0, exact, 0.0)
        negative -= tl.where(x > 0, 0.0, exact)
        low = tl.minimum(low, tl.where(finite, x, float("inf")))
        high = tl.maximum(high, tl.where(finite, x, float("-inf")))
    classes = tl.arange(0, 32)
    any_there = (classes <= above + 1) & (histogram > 0)
    tl.atomic_add(counts + classes, histogram.to(tl.float64), mask=any_there, sem="relaxed")
    tl.atomic_add(piece, tl.sum(positive), sem="relaxed")
    tl.atomic_add(piece + 1, tl.sum(negative), sem="relaxed")
    tl.atomic_min(piece + 2, tl.min(low).to(tl.float64), sem="relaxed")
    tl.atomic_max(piece + 3, tl.max(high).to(tl.float64), sem="relaxed")
