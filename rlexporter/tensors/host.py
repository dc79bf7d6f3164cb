"""Counts values in host memory exactly, with numpy.

A handful of values is counted one by one, without numpy. Up to 2048 are sorted, so that one search for all bounds
finds every count. More are taken in chunks that stay in the cache, and each chunk is compared with the bounds between
its smallest and its largest value: 1 to 3 ns an element for 24 bounds, where a search for each element's bucket takes
ten or more.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from rlexporter.model.histogram import NONE, Histogram, Nonfinite
from rlexporter.tensors.bounds import edges, rounded_down

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_CHUNK = 131_072
_FEW = 2048
"""The number of values up to which sorting is faster than comparing with each bound."""
_HANDFUL = 32
"""The number of values up to which Python is faster than the dozen calls of numpy that sorting takes."""
_NAMES = {4: "float32", 8: "float64"}
"""The dtypes that are counted, by their size: asking numpy for a name takes longer than to sort."""


def count(values: Any, bounds: tuple[float, ...], mask: Any = None) -> Histogram:
    """Count the ``values`` for which ``mask`` is true (all of them without a mask).

    ``values``: a tensor, array or list of any shape and real dtype; the shape of ``mask`` broadcasts to theirs. A value
    belongs to the first bound that is not below it. NaN and infinities are counted apart, in no bucket and no sum, and
    so are negative values where no bound is negative (TRL pads with -1). Raises what torch and numpy raise for values
    that are not real numbers.
    """
    counted = [_count(chunk, chosen, bounds) for chunk, chosen in _chunks(values, mask)]
    return sum(counted[1:], counted[0]) if counted else Histogram.empty(bounds)


def few(values: Any, mask: Any = None) -> Array | list[float] | None:
    """Return a copy of the ``values`` that `count` would count, to be counted later; None for many.

    The copy is an array of one dimension, or a list if there is only a handful. Takes and raises what `count` does.
    Between two operations of a model each call of torch or numpy costs several times what it costs in a loop, so this
    makes as few as it can.
    """
    import numpy as np

    if not hasattr(values, "detach"):
        if mask is None and type(values) is list and len(values) <= _HANDFUL:
            with contextlib.suppress(TypeError):  # not a list of numbers
                return [*map(float, values)]
        kept = _plain(_flat(values))
        if kept.size > _FEW:
            return None
        kept = kept.reshape(np.shape(values))
    elif (size := values.numel()) > _FEW:
        return None
    elif size <= _HANDFUL and not values.dtype.is_complex and (mask is None or hasattr(mask, "expand")):
        if mask is None:
            return _numbers(values)
        same = mask if mask.shape == values.shape else mask.expand(values.shape)
        return [*itertools.compress(_numbers(values), _numbers(same))]
    else:
        kept = _plain(_array(values))
    return kept.flatten() if mask is None else kept.ravel()[_flat_mask(mask, kept.shape)]


def _numbers(tensor: Any) -> list[float]:
    """Return the numbers of a tensor of any shape as a list."""
    numbers = (tensor if tensor.dim() < 2 else tensor.flatten()).tolist()
    return numbers if isinstance(numbers, list) else [numbers]


def _array(tensor: Any) -> Array:
    """Return a tensor as an array of its shape, which shares its memory where it can."""
    try:
        array: Array = tensor.numpy(force=True)
    except TypeError:  # numpy knows no bfloat16
        array = tensor.float().numpy(force=True)
    return array


def count_few(parts: list[Array | list[float]], bounds: tuple[float, ...]) -> Histogram:
    """Count what `few` has returned, all of it together; sort it in place. Never raises."""
    import numpy as np

    part = parts[0]
    if len(parts) > 1:
        part = np.concatenate([np.array(each, np.float64) if isinstance(each, list) else each for each in parts])
    return _count_handful(part, bounds) if isinstance(part, list) else _count_few(part, bounds)


def mean(values: Any) -> float:
    """Return the mean of a tensor, array or list, NaN and infinities included."""
    import numpy as np

    flat = _flat(values)
    with np.errstate(invalid="ignore"):  # the sum of opposite infinities is NaN, which needs no warning
        return float(_plain(flat).mean(dtype=np.float64))


def _count(chunk: Array, chosen: Array | None, bounds: tuple[float, ...]) -> Histogram:
    if len(chunk) > _FEW:
        return _count_many(chunk, chosen, bounds)
    return _count_few(chunk.copy() if chosen is None else chunk[chosen], bounds)


def _count_handful(values: list[float], bounds: tuple[float, ...]) -> Histogram:
    """Count ``values`` one by one."""
    import numpy as np

    total, low = sum(values), min(values, default=0.0)
    if total - total != 0 or (low < 0 and bounds and bounds[0] >= 0):
        return _count_few(np.array(values, np.float64), bounds)
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    if not values:
        return Histogram(bounds, tuple(counts))
    negative = -sum([value for value in values if value < 0]) if low < 0 else 0
    positive = sum([value for value in values if value > 0]) if negative else total
    return Histogram(bounds, tuple(counts), float(positive), float(negative), float(low), float(max(values)))


def _count_few(values: Array, bounds: tuple[float, ...]) -> Histogram:
    """Count ``values``, which are sorted in place: numpy's methods alone, as its functions are Python around them."""
    import numpy as np

    values.sort()  # NaN comes last
    ends = values.searchsorted(_edges(bounds, _NAMES[values.itemsize]), "right").tolist()
    counts = tuple(map(operator.sub, ends[2:-1], ends[1:-2]))
    first, last, count = ends[1], ends[-2], len(values)
    nonfinite = Nonfinite(count - ends[-1], ends[-1] - last, ends[0]) if ends[0] or last < count else NONE
    if first == last:
        return Histogram(bounds, counts, nonfinite=nonfinite, outside=first - ends[0])
    low, high = values.item(first), values.item(last - 1)
    below = bisect_left(values, 0.0, first, last) if low < 0 else first
    negative_sum = -float(np.add.reduce(values[first:below], dtype=np.float64)) if below > first else 0.0
    positive_sum = float(np.add.reduce(values[below:last], dtype=np.float64)) if below < last else 0.0
    return Histogram(bounds, counts, positive_sum, negative_sum, low, high, nonfinite, first - ends[0])


def _count_many(chunk: Array, chosen: Array | None, bounds: tuple[float, ...]) -> Histogram:
    import numpy as np

    first, left_out = 0, 0
    if chosen is not None:
        first, left_out = int(chosen.argmax()), len(chosen) - int(np.count_nonzero(chosen))
    if left_out == len(chunk):
        return Histogram.empty(bounds)
    filled = chunk if chosen is None else _filled(chunk, chosen, first)
    low, high = float(filled.min()), float(filled.max())  # NaN if the chunk holds one
    if not isfinite(low) or not isfinite(high) or (low < 0 and bounds and bounds[0] >= 0):
        return _count_odd(chunk if chosen is None else chunk[chosen], bounds)
    filling = float(filled[first])
    counts = _bucket_counts(filled, bounds, low, high)
    counts[bisect_left(bounds, filling)] -= left_out
    negative_sum, positive_sum = _sums(filled, low, high)
    positive_sum -= left_out * max(filling, 0.0)
    negative_sum += left_out * min(filling, 0.0)
    return Histogram(bounds, tuple(counts), positive_sum, negative_sum, low, high)


def _sums(chunk: Array, low: float, high: float) -> tuple[float, float]:
    """Return how far the finite values between ``low`` and ``high`` lie below zero, and above it, in float64.

    Where they lie on both sides, both follow from their sum and the sum of their distances, which takes half as long as
    splitting them does; the difference of the two would lose a side that is a millionth of the other.
    """
    import numpy as np

    total = float(chunk.sum(dtype=np.float64))
    if low >= 0 or high <= 0:
        return max(-total, 0.0), max(total, 0.0)
    distance = float(np.abs(chunk).sum(dtype=np.float64))
    if distance - abs(total) > 1e-6 * distance:
        return (distance - total) / 2, (distance + total) / 2
    return -float(np.minimum(chunk, 0).sum(dtype=np.float64)), float(np.maximum(chunk, 0).sum(dtype=np.float64))


def _count_odd(chunk: Array, bounds: tuple[float, ...]) -> Histogram:
    """Count a chunk that holds values that belong into no bucket."""
    import numpy as np

    finite = np.isfinite(chunk)
    nan, positive = int(np.isnan(chunk).sum()), int(np.isposinf(chunk).sum())
    nonfinite = Nonfinite(nan, positive, len(chunk) - int(finite.sum()) - nan - positive)
    inside = chunk[finite & (chunk >= 0) if bounds and bounds[0] >= 0 else finite]
    plain = _count_many(inside, None, bounds) if len(inside) else Histogram.empty(bounds)
    return plain._replace(nonfinite=nonfinite, outside=int(finite.sum()) - len(inside))


def _filled(chunk: Array, chosen: Array, first: int) -> Array:
    """Return the chunk with the first chosen value in place of every value that is not chosen.

    It works on bits, since NaN times zero is NaN: copying the chosen values together takes twice as long.
    """
    import numpy as np

    bits = chunk.view(np.int32 if chunk.itemsize == 4 else np.int64)
    filled = bits ^ bits[first]
    filled *= chosen
    filled ^= bits[first]
    plain: Array = filled.view(chunk.dtype)
    return plain


def _bucket_counts(chunk: Array, bounds: tuple[float, ...], low: float, high: float) -> list[int]:
    """Count finite values between ``low`` and ``high`` by comparing them with the bounds in between."""
    import numpy as np

    first, last = bisect_left(bounds, low), bisect_left(bounds, high)
    limits = _limits(bounds, chunk.dtype.name)
    below = np.empty(len(chunk), dtype=bool)
    at_most = [0] * first
    for limit in limits[first:last]:
        np.less_equal(chunk, limit, out=below)
        at_most.append(int(np.count_nonzero(below)))
    at_most += [len(chunk)] * (len(bounds) + 1 - last)
    return [later - earlier for earlier, later in itertools.pairwise([0, *at_most])]


@lru_cache(maxsize=512)
def _limits(bounds: tuple[float, ...], dtype: str) -> Array:
    import numpy as np

    return np.array(rounded_down(bounds, dtype), dtype=dtype)


@lru_cache(maxsize=512)
def _edges(bounds: tuple[float, ...], dtype: str) -> Array:
    import numpy as np

    return np.array(edges(bounds, dtype), dtype=dtype)


def _chunks(values: Any, mask: Any) -> Iterator[tuple[Array, Array | None]]:
    """Yield the values as float32 or float64 arrays that fit into the cache, each with its mask (None: all count)."""
    import numpy as np

    flat = _flat(values)
    chosen = None if mask is None else _flat_mask(mask, np.shape(values))
    for start in range(0, len(flat), _CHUNK):
        part = slice(start, start + _CHUNK)
        yield _plain(flat[part]), None if chosen is None else chosen[part]


def _flat(values: Any) -> Any:
    """Return the values in one dimension, on the host, detached, and still in their own dtype."""
    if hasattr(values, "detach"):
        flat = values.detach().reshape(-1)
        return flat if flat.device.type == "cpu" else flat.cpu()
    import numpy as np

    return np.asarray(values, dtype=None if isinstance(values, np.ndarray) else np.float64).ravel()


def _flat_mask(mask: Any, shape: tuple[int, ...]) -> Array:
    import numpy as np

    plain = (_array(mask) if hasattr(mask, "detach") else np.asarray(mask)).astype(bool, copy=False)
    return (plain if plain.shape == shape else np.broadcast_to(plain, shape)).ravel()


def _plain(part: Any) -> Array:
    """Return the values as float32 or float64, whichever holds their dtype exactly."""
    import numpy as np

    if hasattr(part, "detach"):
        kind = str(part.dtype).removeprefix("torch.")
        if kind in ("bfloat16", "float16"):
            part = part.float()
        elif kind not in ("float32", "float64"):
            part = part.double()
        array: Array = part.numpy()
        return array
    if part.dtype.char in "fd" and part.dtype.isnative:  # nearly always, and `errstate` costs more than all the rest
        return part  # type: ignore[no-any-return]
    if part.dtype.kind not in "fiub":
        raise TypeError(f"{part.dtype} is no real number")
    narrow = part.dtype.kind == "f" and part.dtype.itemsize <= 4
    with np.errstate(over="ignore"):  # a long double above every float64 counts as an infinity
        plain: Array = part.astype(np.float32 if narrow else np.float64, copy=False)
    return plain
