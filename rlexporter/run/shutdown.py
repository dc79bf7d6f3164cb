"""Handles the end of the process: exit, SIGTERM, fork. The only file that touches the interpreter's hooks.

At exit the final state is served until every scraper seen lately has fetched it. SIGTERM handlers are chained: ours
notes the state and hands on to the one that was there; only where that was the default, which kills, is the final
state served first, and the process then dies of the signal as it would have.

An exit hook cannot see a SystemExit. The one trace is whether the outermost frame of the main thread has returned. So
`sys.exit` is not replaced, and every SystemExit counts as one, even that of `sys.exit(main())` with the status 0.
"""

from __future__ import annotations

import atexit
import contextlib
import dis
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from rlexporter.terminal import shown

SIGTERM_GRACE_SECONDS = 25.0
"""The time to end after SIGTERM: Kubernetes and torchrun kill after 30 seconds."""

_POLL_SECONDS = 0.05


@dataclass(frozen=True, eq=False)
class Ending:
    """How ``of`` ends with the process."""

    of: Any
    exit: Callable[[BaseException | None], None]
    """Notes that the interpreter ends, by an error or without one."""
    preempt: Callable[[], None]
    """Notes that the process was told to end."""
    patience: Callable[[], float]
    """Returns the most seconds to wait for scrapers that have not seen the final state; 0 if there are none."""
    close: Callable[[], None]
    abandon: Callable[[], None]
    """Lets go of what a forked child inherited."""


_live: list[Ending] = []
_displaced: list[Any] = []
"""The SIGTERM handlers that ours was put in front of, oldest first."""
_closing: list[Ending] = []
"""What is being closed, or is at its end: a SIGTERM waits for that."""
_held = False
"""True if there was one."""
_told: set[Ending] = set()
"""Those of whom it was said that they wait: a thread may wait for one already when the process ends."""
_script: FrameType | None = None
"""The outermost frame of the main thread while anything is registered. It holds the variables of a module, which live
as long as the process anyway, and of no function."""


def register(ending: Ending) -> None:
    """End ``ending`` when this process ends."""
    global _script
    if not _live:
        atexit.register(_at_exit)
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None and frame.f_back is not None:
            frame = frame.f_back
        _script = frame
    if ending not in _live:
        _live.append(ending)
    chain_sigterm()


def unregister(ending: Ending) -> None:
    """Forget ``ending``, which has ended. With the last one every hook is removed."""
    global _script
    _told.discard(ending)
    if ending in _live:
        _live.remove(ending)
    if not _live:
        atexit.unregister(_at_exit)
        _script = None
        _restore_sigterm()


@contextlib.contextmanager
def closing(ending: Ending) -> Iterator[None]:
    """Close ``ending`` in the block, and forget it after that; a SIGTERM meanwhile waits, as in `holding`."""
    with holding(ending):
        try:
            yield
        finally:
            unregister(ending)


@contextlib.contextmanager
def holding(ending: Ending) -> Iterator[None]:
    """Let a SIGTERM wait until the block is over, which does something at the end of ``ending``.

    A launcher sends one to the ranks that are left as soon as another has died, in the middle of their own end. The
    block must not take longer than the grace of `SIGTERM_GRACE_SECONDS`.
    """
    global _held
    _closing.append(ending)
    try:
        yield
    finally:
        _closing.remove(ending)
        if _held and not _closing:
            _held = False
            os.kill(os.getpid(), signal.SIGTERM)


def live() -> Iterable[Ending]:
    """Return what is registered now."""
    return tuple(_live)


def chain_sigterm() -> None:
    """Put our handler in front of the current one. Does nothing if it is there already, or off the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return
    current = signal.getsignal(signal.SIGTERM)
    if current not in (_on_sigterm, signal.SIG_IGN, None):
        if current in _displaced:
            _displaced.remove(current)
        _displaced.append(current)
        signal.signal(signal.SIGTERM, _on_sigterm)


def unchain_sigterm() -> None:
    """Forget handlers that a training installed for its own duration."""
    del _displaced[1:]


def wait(endings: Iterable[Ending], limit: float = float("inf")) -> None:
    """Wait until every scraper has seen the final state, at most ``limit`` seconds; Ctrl-C ends the wait."""
    endings = tuple(endings)
    patience = min(limit, max((ending.patience() for ending in endings), default=0.0))
    if patience <= 0:
        return
    until = time.monotonic() + patience
    untold = set(endings) - _told
    _told.update(untold)
    with contextlib.suppress(KeyboardInterrupt):
        if untold:
            say(f"serving the final state until it has been scraped, at most {patience:.0f} s; Ctrl-C ends it")
        while time.monotonic() < until and any(ending.patience() > 0 for ending in endings):
            time.sleep(_POLL_SECONDS)


def outstanding() -> BaseException | None:
    """Return the exception that ends the interpreter, or None. For exit hooks.

    A SystemExit is a new one, without the status of the original.
    """
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        return error
    return None if _script is None or _returned(_script) else SystemExit()


def say(text: str) -> None:
    """Print one line for the user at the terminal."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"rlexporter: {shown(text)}", file=sys.stderr, flush=True)


def _returned(frame: FrameType) -> bool:
    """Return True if a frame ended by a return, and not by an exception."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN_")


def _at_exit() -> None:
    error = outstanding()
    for ending in live():
        ending.exit(error)
    _close_all()


def _close_all(limit: float = float("inf")) -> None:
    endings = live()
    wait(endings, limit)
    for ending in endings:
        ending.close()


def _on_sigterm(signum: int, frame: FrameType | None) -> None:
    global _held
    if _closing:
        _held = True
        return
    previous = _displaced[-1] if _displaced else signal.SIG_DFL
    for ending in live():
        ending.preempt()
    if callable(previous):
        previous(signum, frame)
        return
    _close_all(SIGTERM_GRACE_SECONDS)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _restore_sigterm() -> None:
    if _displaced and threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGTERM) is _on_sigterm:
            signal.signal(signal.SIGTERM, _displaced[0])
        _displaced.clear()


def _in_child() -> None:
    """Clean up in a forked child, which has copies of the sockets and of the hooks, but none of the threads."""
    global _script, _held
    for ending in _live:
        ending.abandon()
    for exporters in (_live, _closing, _told):
        exporters.clear()
    _script, _held = None, False
    atexit.unregister(_at_exit)
    _restore_sigterm()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
