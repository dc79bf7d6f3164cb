"""What makes the host wait for a device: found at the dispatcher, which needs no device, or by CUDA itself."""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
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


@contextlib.contextmanager
def waits_of_the_trainer() -> Iterator[list[str]]:
    """Collect where this thread waits for the GPU inside the block, each as the files and lines that led to it."""
    found: list[str] = []
    thread = threading.get_ident()

    def keep(message: Any, *_: Any) -> None:
        if "synchronizing" in str(message) and threading.get_ident() == thread:
            stack = traceback.extract_stack(sys._getframe(1))
            found.append(" < ".join(f"{each.filename}:{each.lineno}" for each in reversed(stack)))

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(warnings, "showwarning", keep)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
