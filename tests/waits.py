"""What makes the host wait for a device: found at the dispatcher, which needs no device, or by CUDA itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):  # type: ignore[misc] # torch is not checked
    """Refuses whatever makes the host wait for a device: reads, copies that block, sizes that depend on values."""

    blocking = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "bincount", "item", "is_nonzero")

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self.calls.append(name)
        assert name not in self.blocking, name
        if name in ("copy_", "_to_copy", "_copy_from"):
            devices = {t.device.type for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)}
            target = kwargs.get("device")
            devices |= {torch.device(target).type} if target is not None else set()
            waits = len(devices) > 1 and not (kwargs.get("non_blocking") or any(arg is True for arg in args))
            assert not waits, f"{name} between {devices} waits"
        return func(*args, **kwargs)


@contextlib.contextmanager
def watched_by_cuda() -> Iterator[None]:
    """Have CUDA raise on every wait inside the block."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
