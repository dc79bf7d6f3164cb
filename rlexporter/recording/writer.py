"""Writes a run's steps and log lines as JSON lines, which `replay` and `check` read.

Each line is one object, with NaN and Infinity as Python's json writes them. ``event`` is its kind:

  meta   time, global_step (at which it takes over), run, algorithm, framework, judged_as, trainer, info (labels of
         ``rl_run_info``), steps_planned, totals (that were restored), config (numeric settings), bounds (of each
         histogram)
  log    time, global_step, logs (as the trainer logged them; arrays as lists)
  step   time, global_step, duration, phases, values (by log key, before averaging), undefined, seen
  part   global_step, undefined, seen (counts that came from a device after their step, or before a step broke off),
         last (of those from a device: true if no more were on their way)
  state  time, state, exception

``awaits`` is true for a log line or step whose counts were on their way from a device: it was judged with the last
part. ``seen`` maps a series to its exact counts. A thread of its own writes, so training never waits for the disk.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from io import FileIO
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from rlexporter.atomic_file import open_to_append
from rlexporter.model.errors import SetupError
from rlexporter.model.metric import Kind, Metric
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.model.values import is_array
from rlexporter.recording.codec import plain

_MAX_WAITING = 10_000
_CLOSE_SECONDS = 5.0


class Recorder:
    """Appends to ``path``, and hands errors of writing to ``failed``. Raises SetupError for an unusable path."""

    def __init__(self, path: str, failed: Callable[[Exception], None]) -> None:
        try:
            # Unbuffered: a killed process loses no finished line, and a forked one has nothing to write twice.
            self._file = open_to_append(Path(path))  # closed by the writing thread
            self._torn = _is_torn(self._file)
        except OSError as error:
            raise SetupError(
                f"cannot record to {path}: {error.strerror} (argument record, RLEXPORTER_RECORD)"
            ) from None
        self._path = path
        self._failed = failed
        self._queue: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._thread = Thread(target=self._write, name="rlexporter-record", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the system may refuse another thread
            self._file.close()
            raise

    def meta(self, run: str, facts: RunFacts, catalog: Iterable[Metric]) -> None:
        """Record that a training begins."""
        bounds = {metric.series: metric.bounds for metric in catalog if metric.kind is Kind.HISTOGRAM}
        about = {"run": run, "trainer": facts.info.get("trainer", "")}
        about |= {name: getattr(facts, name) for name in ("algorithm", "framework", "judged_as")}
        start = {"global_step": facts.step, "steps_planned": facts.steps_planned, "totals": dict(facts.totals)}
        config = dict(facts.hyperparameters)
        self._put("meta", **about, **start, info=dict(facts.info), config=config, bounds=bounds)

    def log(self, step: int, logs: Mapping[str, object], *, awaits: bool = False) -> None:
        """Record a log line. Arrays are copied: a trainer may reuse their memory."""
        waits = {"awaits": True} if awaits else {}
        self._put("log", global_step=step, logs={key: _copied(value) for key, value in logs.items()}, **waits)

    def step(self, update: StepUpdate, *, awaits: bool = False) -> None:
        """Record a finished step."""
        waits = {"awaits": True} if awaits else {}
        self._put(
            "step",
            global_step=update.step,
            duration=update.duration,
            phases=update.phases,
            values=update.values,
            undefined=update.undefined,
            seen=update.seen,
            **waits,
        )

    def part(self, update: StepUpdate, *, last: bool | None = None) -> None:
        """Record part of a step: counts that came late from a device, or were pending when the run broke off.

        ``last``: for counts of a device, True if no more were on their way.
        """
        if update.seen or update.undefined:
            more = {} if last is None else {"last": last}
            self._put("part", global_step=update.step, undefined=update.undefined, seen=update.seen, **more)

    def state(self, state: RunState, exception: str) -> None:
        """Record the new state of the run."""
        self._put("state", state=state.value, exception=exception)

    def close(self) -> None:
        """Write the waiting lines, within a few seconds."""
        self._queue.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _put(self, event: str, **fields: Any) -> None:
        if self._queue.qsize() >= _MAX_WAITING:
            self._failed(OverflowError("the disk is too slow: a line was not recorded"))
        else:
            self._queue.put({"event": event, "time": time.time(), **fields})

    def _write(self) -> None:
        with self._file:
            while (event := self._queue.get()) is not None:
                self._line(event)

    def _line(self, event: dict[str, Any]) -> None:
        try:
            if not os.fstat(self._file.fileno()).st_nlink:
                raise FileNotFoundError(f"the recording {self._path} was removed: it goes on in no file")
            line = (json.dumps(plain(event)) + "\n").encode()
            left = b"\n" + line if self._torn else line  # a line that a full disk has cut off is ended first
            while left:
                written = self._file.write(left)
                if not written:
                    raise OSError(f"{self._path} takes no more")
                self._torn = written < len(left)
                left = left[written:]
        except Exception as error:  # noqa: BLE001 - a full disk must not end the thread
            self._failed(error)


def _is_torn(file: FileIO) -> bool:
    """Return True if the last line of ``file`` has no end, as a killed process or a full disk leaves it."""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def _copied(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach().clone()
    return value.copy() if is_array(value) else value
