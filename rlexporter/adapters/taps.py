"""Base of all taps: they wrap a method of one object, look at what goes through it, and never disturb it.

A tap that fails costs one signal: it is counted, logged once, and `rl_signal_available` says so. The trainer gets
the results and exceptions that it would get without taps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlexporter.adapters.arguments import Arguments
from rlexporter.adapters.instance import wrap
from rlexporter.catalog import TENSOR_SIGNALS
from rlexporter.model.sink import Sink


class Taps:
    """Taps on one trainer. Between two steps they hold no tensor of the trainer."""

    log_ends_step = False
    """True if this trainer logs a step before it says that the step has ended."""

    def __init__(self, trainer: Any, sink: Sink) -> None:
        self.trainer = trainer
        self.sink = sink
        self.argument = Arguments()

    def install(self) -> None:
        """Put every tap in place."""
        raise NotImplementedError

    def step_end(self) -> None:
        """Hand over what was kept for the end of the step."""

    def train_end(self) -> None:
        """Note that the training is over, however it ended."""

    def during(self, phase: str) -> Callable[..., Any]:
        """Return a wrapper for `tap` that counts the time of the method as time of ``phase``."""

        def around(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            with self.sink.phase(phase):
                return method(*args, **kwargs)

        return around

    def tap(self, owner: Any, name: str, around: Callable[..., Any], *signals: str) -> None:
        """Send calls of ``owner``'s method ``name`` through ``around``; without the method ``signals`` are lost."""
        try:
            self.sink.on_close(wrap(owner, name, around))
        except (AttributeError, TypeError):  # no such method, or an object that takes no attributes
            kind = type(owner).__name__
            for signal in signals:
                reason = f"{kind} has no {name}: another version of TRL than the taps were made for"
                self.sink.signal(signal, reason, error=True)


class NoTaps(Taps):
    """No taps, for a loop without an adapter: only its log lines are served, and each signal says so."""

    log_ends_step = True

    def install(self) -> None:
        """Wrap nothing, and mark every signal as lost."""
        for signal in TENSOR_SIGNALS:
            self.sink.signal(signal, f"no taps were made for the loop of this version's {type(self.trainer).__name__}")
