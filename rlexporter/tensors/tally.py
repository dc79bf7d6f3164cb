"""Counts the tensors of a step, on whatever device they are.

Large tensors on the host are counted at once. Small ones wait, as copies, for the end of the step: one after the other
they take half as long as between two operations of the model. Tensors on a CUDA device are counted there. Other
accelerators (MPS, XPU) are not known to have page-locked copies that do not wait: their tensors are copied to the host,
which waits.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series
from rlexporter.model.sink import NotSeenError
from rlexporter.tensors import host

if TYPE_CHECKING:
    from rlexporter.tensors.device import DeviceTally

Seen = dict[Series, Histogram]
_WAITING = 16
"""The most small tensors of a series that wait to be counted: 256 KiB at most."""


class Tally:
    """Counts since the last step. `add` and `take` are for the training thread, `arrived` for any, one at a time."""

    def __init__(self) -> None:
        self._host: Seen = {}
        self._few: dict[Series, list[Any]] = {}
        self.devices: dict[str, DeviceTally] = {}
        """The counts on devices, by the name of the device."""

    def add(self, series: Series, values: Any, mask: Any = None) -> None:
        """Count the ``values`` for which ``mask`` is true. Raises what torch and numpy raise for unreadable ones.

        Raises NotSeenError while a CUDA graph is captured: a replay would count into what is long sent.
        """
        if on_gpu(values):
            if _capturing():
                raise NotSeenError("it is computed inside a CUDA graph, and a graph cannot be counted")
            device = str(values.device)
            if device not in self.devices:
                from rlexporter.tensors.device import DeviceTally

                self.devices[device] = DeviceTally(values.device)
            self.devices[device].add(series, values, mask)
            return
        few = host.few(values, mask)
        if few is None:
            self._add(series, host.count(values, series.metric.bounds, mask))
            return
        waiting = self._few.setdefault(series, [])
        waiting.append(few)
        if len(waiting) >= _WAITING:
            self._count(series, self._few.pop(series))

    def take(self, step: int) -> Seen:
        """Return the counts on the host since the last call, and start to copy those on devices."""
        waiting, self._few = self._few, {}
        for series, parts in waiting.items():
            self._count(series, parts)
        taken, self._host = self._host, {}
        self.flush(step)
        return taken

    def flush(self, step: int) -> None:
        """Start to copy the counts on devices to the host, as those of ``step``; not while a CUDA graph is captured."""
        if self.devices and _capturing():
            return
        for device in self.devices.values():
            device.flush(step)

    @property
    def under_way(self) -> bool:
        """Return True if counts of a device have not been returned by `arrived` yet. For any thread."""
        return any(device.under_way for device in tuple(self.devices.values()))

    def arrived(self) -> list[tuple[int, Seen]]:
        """Return the counts that have arrived from devices since the last call, each with its step, oldest first."""
        return [step for device in tuple(self.devices.values()) for step in iter(device.arrived, None)]

    def _count(self, series: Series, parts: list[Any]) -> None:
        self._add(series, host.count_few(parts, series.metric.bounds))

    def _add(self, series: Series, counted: Histogram) -> None:
        have = self._host.get(series)
        self._host[series] = have + counted if have else counted


def _capturing() -> bool:
    torch = sys.modules["torch"]
    return torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())


def on_gpu(values: Any) -> bool:
    """Return True for a tensor on a CUDA (or ROCm) device."""
    return bool(getattr(values, "is_cuda", False))
