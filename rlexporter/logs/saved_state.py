"""Reads the last state of a run, as `rlexporter.outputs.state_file` writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlexporter.atomic_file import read_regular
from rlexporter.model.condition import Severity
from rlexporter.model.errors import UnreadableError
from rlexporter.model.incident import Incident, Standing
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.recording import codec

_MOST_BYTES = 64_000_000
"""A larger file is no state: one of a run with 10,000 keys has a few megabytes."""


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
