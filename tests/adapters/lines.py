"""A callback that keeps the log lines of a training."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

_TIMED = ("runtime", "per_second", "step_time")


class Lines(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Keeps what every other callback sees."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.logs.append(dict(logs))

    def untimed(self) -> list[dict[str, Any]]:
        """Return the lines without what another training of the same kind logs differently: times."""
        return [{k: v for k, v in line.items() if not any(word in k for word in _TIMED)} for line in self.logs]
