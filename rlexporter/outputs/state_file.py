"""File with the last state of a run, which survives a killed process; `rlexporter replay` serves it.

JSON: ``event`` (`snapshot`), ``version``, ``time``, ``labels``, ``samples`` and ``buckets`` by series, ``bounds``;
``framework`` and ``family``, of which the log keys are; ``incidents``, all that has gone wrong;
``reasons``, why signals cannot be measured; ``good_folder`` and ``earlier_folder``, where good checkpoints are.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlexporter.atomic_file import of_rank, read_regular, set_aside, write_whole
from rlexporter.config.parsers import ON
from rlexporter.model.condition import Severity
from rlexporter.model.errors import SetupError, UnreadableError
from rlexporter.model.incident import Incident, Standing
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.outputs.periodic import Ticker
from rlexporter.recording import codec
from rlexporter.version import __version__

if TYPE_CHECKING:
    from rlexporter.outputs import Served

STATE_FILE = "_rlexporter_state.json"
"""Name of the file beside the checkpoints. The leading underscore keeps it out of uploads to the hub."""
_MOST_BYTES = 64_000_000
"""A larger file is no state: one of a run with 10,000 keys has a few megabytes."""


def keeper(setting: str, seconds: float, run: Served, failed: Callable[[Exception], None]) -> Ticker:
    """Return a ticker that keeps the file, at most ``seconds`` old. Raises SetupError if it cannot be written.

    ``setting``: `on` or a path; ``failed``: takes the errors of later writes.

    The file of a killed process that is there is kept under another name. While the run lasts the file is written even
    if nothing has changed: its time says when the process was last alive.
    """
    written: tuple[Path, Snapshot] | None = None

    def write() -> None:
        nonlocal written
        file, now = _path(setting, run), run.current()
        if file is None:
            return
        if written is None or written[0] != file:
            set_aside(file, f"{file.stem}.previous{file.suffix}")
        elif written[1] is now and now.state is not None and now.state.over:
            return
        write_whole(file, text(now))
        written = file, now

    try:
        write()
    except OSError as error:
        raise SetupError(
            f"cannot keep the state in {_path(setting, run)}: {error.strerror} (argument state_file, "
            "RLEXPORTER_STATE_FILE)"
        ) from None
    return Ticker("state", seconds, write, failed, last=write)


def _path(setting: str, run: Served) -> Path | None:
    """Return the path of the file; None while a run that has not begun may still name its folder of checkpoints."""
    if setting != ON:
        return of_rank(setting, run.rank)
    if not run.output_dir and run.state is RunState.STARTING:
        return None
    return of_rank(Path(run.output_dir or ".") / STATE_FILE, run.rank)


def text(snapshot: Snapshot) -> str:
    """Return ``snapshot`` as JSON, with NaN and Infinity as Python's json writes them."""
    state = {
        "event": "snapshot",
        "version": __version__,
        "time": time.time(),
        "framework": snapshot.framework,
        "family": snapshot.family,
        "incidents": [asdict(incident) for incident in snapshot.incidents],
        "reasons": {**snapshot.reasons},
        "good_folder": snapshot.good_folder,
        "earlier_folder": snapshot.earlier_folder,
        "labels": snapshot.labels,
        "samples": snapshot.samples,
        "buckets": snapshot.buckets,
        "bounds": {series.metric.series: counted.bounds for series, counted in snapshot.buckets.items()},
    }
    return json.dumps(codec.plain(state)) + "\n"


@dataclass(frozen=True, slots=True)
class SavedState:
    """The snapshot of a run at ``time``, in seconds since the epoch."""

    time: float
    snapshot: Snapshot

    @property
    def state(self) -> RunState:
        return self.snapshot.state or RunState.STARTING


def read_saved_state(path: str | Path) -> SavedState | None:
    """Return the state in a file, None if it holds none; unknown series are left out. Raises UnreadableError."""
    try:
        saved = json.loads(read_regular(path, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(saved, dict) or saved.get("event") != "snapshot":
        return None
    try:
        return SavedState(float(saved["time"]), _snapshot(saved))
    except Exception as error:  # noqa: BLE001 - a foreign file can be wrong in any way
        raise UnreadableError(f"{path}: is no state of a run: {type(error).__name__}: {error}") from None


def _snapshot(saved: dict[str, Any]) -> Snapshot:
    samples = {codec.series(text): float(value) for text, value in saved["samples"].items()}
    return Snapshot(
        labels={str(name): str(value) for name, value in saved["labels"].items()},
        samples={series: value for series, value in samples.items() if series is not None},
        buckets=codec.parse(saved["buckets"], saved["bounds"]),
        incidents=tuple(map(_incident, saved.get("incidents", ()))),
        reasons=dict(saved.get("reasons", {})),
        framework=str(saved.get("framework", "")),
        family=str(saved.get("family", "")),
        good_folder=str(saved.get("good_folder", "")),
        earlier_folder=str(saved.get("earlier_folder", "")),
    )


def _incident(fields: dict[str, Any]) -> Incident:
    return Incident(**{**fields, "severity": Severity(fields["severity"]), "standing": Standing(fields["standing"])})
