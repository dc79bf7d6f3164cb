"""What is counted between two steps, on whatever device it lies.

Tensors on the host are counted at once, those on a CUDA device there. Other accelerators (MPS, XPU) have no
page-locked copies that are known not to wait: their tensors are brought to the host, which waits.
"""

from __future__ import annotations

from typing import Any

from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series
from rlexporter.tensors import host
from rlexporter.tensors.device import DeviceTally

Seen = dict[Series, Histogram]


class Tally:
    """Only the thread that trains calls `add` and `take`; any thread may call `arrived`, one at a time."""

    def __init__(self) -> None:
        self._host: Seen = {}
        self._devices: dict[str, DeviceTally] = {}

    def add(self, series: Series, values: Any, mask: Any = None) -> None:
        """Count the values for which ``mask`` is true. Raises what torch and numpy raise for what they cannot read."""
        if on_gpu(values):
            self._on(values.device).add(series, values, mask)
            return
        counted = host.count(values, series.metric.bounds, mask)
        have = self._host.get(series)
        self._host[series] = have + counted if have else counted

    def take(self, step: int) -> Seen:
        """What was counted on the host since the last call; what was counted on devices is sent on its way."""
        taken, self._host = self._host, {}
        self.flush(step)
        return taken

    def flush(self, step: int) -> None:
        """Send what was counted on devices on its way to the host, as part of ``step``."""
        for device in self._devices.values():
            device.flush(step)

    def arrived(self) -> list[tuple[int, Seen]]:
        """What has come from devices since the last call, with the step that it belongs to."""
        return [found for device in tuple(self._devices.values()) if (found := device.arrived()) is not None]

    def _on(self, device: Any) -> DeviceTally:
        name = str(device)
        if name not in self._devices:
            self._devices[name] = DeviceTally(device)
        return self._devices[name]


def on_gpu(values: Any) -> bool:
    """True for a tensor on a CUDA (or ROCm) device."""
    return getattr(getattr(values, "device", None), "type", "") == "cuda"
