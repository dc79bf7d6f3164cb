"""The transport of a connection, as the protocols behind the gate see it: two may want it to read, or to rest."""

from __future__ import annotations

import asyncio
from typing import Any


class Outside(asyncio.Transport):
    """Passes everything on to ``transport``, which reads while neither its owner nor the gate wants it to rest."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._paused = self._held = False

    def hold(self, held: bool) -> None:
        """Have nothing read while ``held``, whatever the protocols say."""
        self._held = held
        self._flow()

    def pause_reading(self) -> None:
        self._paused = True
        self._flow()

    def resume_reading(self) -> None:
        self._paused = False
        self._flow()

    def _flow(self) -> None:
        if self._paused or self._held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)
