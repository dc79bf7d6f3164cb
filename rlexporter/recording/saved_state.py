"""Reader of a run's last state from the file that `rlexporter.outputs.state_file` writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlexporter.model.condition import Severity
from rlexporter.model.incident import Incident, Standing
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.recording import codec
from rlexporter.recording.source import UnreadableError


@dataclass(frozen=True, slots=True)
class SavedState:
    """The snapshot of a run at ``time``, in seconds since the epoch."""

    path: Path
    time: float
    snapshot: Snapshot

    @property
    def state(self) -> RunState:
        """Return the state that the run was in."""
        return self.snapshot.state or RunState.STARTING


def read_saved_state(path: str | Path) -> SavedState | None:
    """Return the state in a file, None if it holds none; unknown series are left out. Raises UnreadableError."""
    path = Path(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("event") != "snapshot":
        return None
    try:
        return SavedState(path, float(found["time"]), _snapshot(found))
    except Exception as error:  # noqa: BLE001 - a foreign file can be wrong in any way
        raise UnreadableError(f"{path}: is no state of a run: {type(error).__name__}: {error}") from None


def _snapshot(found: dict[str, Any]) -> Snapshot:
    samples = {codec.series(text): float(value) for text, value in found["samples"].items()}
    return Snapshot(
        labels={str(name): str(value) for name, value in found["labels"].items()},
        samples={series: value for series, value in samples.items() if series is not None},
        buckets=codec.parse(found["buckets"], found["bounds"]),
        incidents=tuple(map(_incident, found.get("incidents", ()))),
        framework=str(found.get("framework", "")),
        family=str(found.get("family", "")),
    )


def _incident(found: dict[str, Any]) -> Incident:
    return Incident(**{**found, "severity": Severity(found["severity"]), "standing": Standing(found["standing"])})
