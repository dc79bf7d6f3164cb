"""File with the last state of a run, which survives a killed process; `rlexporter replay` serves it.

JSON: ``event`` (`snapshot`), ``version``, ``time``, ``labels``, ``samples`` and ``buckets`` by series, ``bounds``;
``framework`` and ``family``, of which the log keys are; ``incidents``, all that has gone wrong;
``reasons``, why signals cannot be measured; ``good_folder`` and ``earlier_folder``, where good checkpoints are.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rlexporter.atomic_file import of_rank, set_aside, write_whole
from rlexporter.config.parsers import ON
from rlexporter.model.errors import SetupError
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.outputs.periodic import Ticker
from rlexporter.recording import codec
from rlexporter.version import __version__

if TYPE_CHECKING:
    from rlexporter.outputs import Served

STATE_FILE = "_rlexporter_state.json"
"""Name of the file beside the checkpoints. The leading underscore keeps it out of uploads to the hub."""


def ticker(run: Served, port: int) -> Ticker:
    """Return a ticker that keeps the file. Raises SetupError if it cannot be written.

    The file of a killed process that is there is kept under another name. While the run lasts the file is written even
    if nothing has changed: its time says when the process was last alive.
    """
    setting = run.settings.state_file or ""
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
    return Ticker("state", run.settings.state_interval, write, partial(run.errors.add, "state"), last=write)


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
