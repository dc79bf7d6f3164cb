"""Names a run. A name that the user gave stays as it is; a default one gets a short id, so that runs stay apart.

The id is shared by all ranks (that of the Slurm job, the elastic launch, the Kubernetes job), else random. The name is
stored beside the checkpoints, so that a resumed run keeps it wherever it continues.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from rlexporter.atomic_file import read_regular, write_whole

RUN_FILE = "_rlexporter_run.json"
"""The file beside the checkpoints. The leading underscore keeps it out of uploads to the hub."""

_MAX_ID = 24
_MOST_BYTES = 100_000
_POD_SUFFIX = re.compile(r"(-(master|worker|launcher|node|workers))?(-\d+)*(-[bcdfghjklmnpqrstvwxz2456789]{5})?$")


@dataclass(frozen=True, slots=True)
class Identity:
    """The name of a run, and the number of times a run of this name was started here."""

    name: str
    attempt: int = 1
    assumed: bool = field(default=False, compare=False)
    """True for a name that holds only if the run resumes a checkpoint."""


def given_name(run_name: str | None, output_dir: str | None) -> str | None:
    """Return the name that the user gave, or None if it is only a default.

    transformers 5 leaves it None, 4.x puts the whole output path there. Only the last part of a path is a name.
    """
    if not run_name or run_name == output_dir:
        return None
    return _last_part(run_name)


def shared_id(environ: Mapping[str, str]) -> str | None:
    """Return an id that all ranks of this launch share, and no other launch; an elastic restart is the same launch."""
    job = environ.get("SLURM_JOB_ID") or environ.get("TORCHELASTIC_RUN_ID")
    if (not job or job == "none") and "KUBERNETES_SERVICE_HOST" in environ:
        job = _POD_SUFFIX.sub("", environ.get("HOSTNAME", ""))
    if not job or job == "none":
        job = _of_launcher(environ)
    if not job:
        return None
    tidy = re.sub(r"[^\w.-]", "_", job)
    return tidy if len(tidy) <= _MAX_ID else sha256(job.encode()).hexdigest()[:8]


def _of_launcher(environ: Mapping[str, str]) -> str | None:
    """Return an id that torch's launcher shares with all ranks even if it got none, as from `accelerate launch`.

    On one machine this is the folder of the launcher, on several the address where the ranks meet.
    """
    size = environ.get("WORLD_SIZE", "1")
    if size == "1":
        return None
    folder, attempt, _ = environ.get("TORCHELASTIC_ERROR_FILE", "").partition("/attempt_")
    if attempt and environ.get("LOCAL_WORLD_SIZE") == size:
        return sha256(folder.encode()).hexdigest()[:8]
    meeting = f"{environ.get('MASTER_ADDR', '')}:{environ.get('MASTER_PORT', '')}"
    return sha256(meeting.encode()).hexdigest()[:8] if meeting != ":" else None


def fresh(base: str | None, environ: Mapping[str, str] | None = None) -> Identity:
    """Make a new name from a path or script name and an id, without touching the user's random generators."""
    environ = os.environ if environ is None else environ
    stem = _last_part(base or "") or Path(sys.argv[0] if sys.argv else "").stem or "run"
    return Identity(f"{stem}-{shared_id(environ) or secrets.token_hex(3)}", _attempt_of_job(environ))


def provisional(given: str | None, output_dir: str | None) -> Identity:
    """Return the identity of a run that may begin later, before it is known if it resumes a checkpoint.

    If the output folder holds checkpoints and a stored name, that run is assumed.
    """
    kept = _read(Path(output_dir)) if output_dir else None
    if given:
        return _counted(given, kept)
    if kept and output_dir and any(Path(output_dir).glob("checkpoint-*")):
        return replace(_counted(kept.name, kept), assumed=True)
    return fresh(output_dir)


def settle(assumed: Identity, given: str | None, output_dir: str | None, resumed_from: str | None) -> Identity:
    """Return the identity of a run that begins now. ``assumed``: the result of `provisional`.

    Without a given name, a resumed run takes the name stored beside its checkpoint, and a run that starts anew in the
    folder of another one gets a new name. The attempt counts on while the name stays the same.
    """
    kept = _read(Path(output_dir)) if output_dir else None
    if given:
        return _counted(given, kept)
    if resumed_from:
        kept = _read(Path(resumed_from).parent) or kept
        return _counted(kept.name, kept) if kept else assumed
    if shared_id(os.environ) or (kept and kept.name == assumed.name):  # with an id all ranks come to the same name
        return _counted(fresh(output_dir).name, kept)
    return assumed


def keep(identity: Identity, output_dir: str) -> None:
    """Write the identity beside the checkpoints, in one piece. Raises OSError if that fails."""
    text = json.dumps({"run": identity.name, "attempt": identity.attempt}) + "\n"
    write_whole(Path(output_dir) / RUN_FILE, text)


def _counted(name: str, kept: Identity | None) -> Identity:
    return Identity(name, kept.attempt + 1 if kept and kept.name == name else _attempt_of_job(os.environ))


def _attempt_of_job(environ: Mapping[str, str]) -> int:
    """Return which attempt this is of a Slurm job that was queued again, for a run of which nothing was kept."""
    restarts = environ.get("SLURM_RESTART_COUNT", "")
    return 1 + int(restarts) if restarts.isdecimal() else 1


def _read(folder: Path) -> Identity | None:
    try:
        kept = json.loads(read_regular(folder / RUN_FILE, _MOST_BYTES))
        name, attempt = kept["run"], kept["attempt"]
        return Identity(name, attempt) if isinstance(name, str) and isinstance(attempt, int) else None
    except Exception:  # noqa: BLE001 - others may write there; of what is no file at all `keep` says so
        return None


def _last_part(path: str) -> str:
    parts = [part for part in re.split(r"[/\\]", path) if part not in ("", ".", "..")]
    return parts[-1] if parts else ""
