"""Folders of checkpoints that are ours: suspect ones, and copies of good ones. Only what is ours is renamed or removed.

Such a folder has a file `_rlexporter_checkpoint.json`, written first: of which run, attempt and step it is, and the
sizes of the files that were put there. A folder is ours if that file says so, it belongs to this user, and nothing else
was added to it. All names begin in a way that no trainer looks for when it resumes or deletes checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rlexporter.atomic_file import read_regular, write_whole

MARK = "_rlexporter_checkpoint.json"
APART = "_rlexporter"
"""The folder for ours where the one around it is uploaded to a hub, which leaves out what begins with an underscore."""
HELD = ".held/"
"""Where links in a half copy hold the files of a checkpoint that a trainer may delete."""
_MOST_BYTES = 4_000_000
_MOST_NAMES = 9
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,15})")


class NoRoomError(Exception):
    """Reports that a disk is too full for a checkpoint of ours and another one of the trainer's."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the file in a folder of ours says."""

    kind: str
    """`good` or `suspect`."""
    run: str
    attempt: int
    step: int
    files: Mapping[str, int] = field(default_factory=dict)
    """The bytes of each file that was put there, by its path in the folder; empty before that is known."""
    proven: bool = False
    """True for a good one that is older than all that went wrong, or had time to show that nothing had."""

    def write(self, folder: Path) -> None:
        """Write the file. Raises OSError."""
        write_whole(folder / MARK, json.dumps(asdict(self)) + "\n")


def read_mark(folder: Path) -> Mark | None:
    """Return what the file in ``folder`` says; None for a folder that is no checkpoint of ours."""
    try:
        if folder.is_symlink():
            return None
        said = json.loads(read_regular(folder / MARK, _MOST_BYTES))
        files = {str(name): int(size) for name, size in said["files"].items()}
        proven = said.get("proven") is True
        return Mark(str(said["kind"]), str(said["run"]), int(said["attempt"]), int(said["step"]), files, proven)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def mark_of_ours(folder: Path, run: str) -> Mark | None:
    """Return the mark of a good checkpoint of ``run`` that may be removed; None for everything else.

    One to which somebody has added or changed a file, and one of another user, are theirs.
    """
    mark = read_mark(folder)
    if mark is None or (mark.kind, mark.run) != ("good", run):
        return None
    try:
        if hasattr(os, "geteuid") and folder.lstat().st_uid != os.geteuid():
            return None
        found = sizes(folder)
    except OSError:
        return None
    found = {name: size for name, size in found.items() if not name.startswith(MARK)}  # a half one of it too
    if folder.name.startswith("."):  # a half one: files may be shorter yet, or held by a second name
        found = {name.removeprefix(HELD): mark.files.get(name.removeprefix(HELD), -1) for name in found}
    return mark if found.items() <= mark.files.items() else None


def sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of each file in ``folder`` and the folders in it, by its path there.

    Raises OSError, also for what is neither a file nor a folder: a link, a pipe.
    """
    found: dict[str, int] = {}
    for place, folders, names in os.walk(folder, onerror=_raise):
        for name in (*folders, *names):
            path = Path(place, name)
            known = path.lstat()
            if stat.S_ISREG(known.st_mode):
                found[path.relative_to(folder).as_posix()] = known.st_size
            elif not stat.S_ISDIR(known.st_mode):
                raise OSError(f"{path} is neither a file nor a folder")
    return found


def free_number(parent: Path, name: str) -> int:
    """Return by which number ``name`` is free in ``parent``, as `numbered` says. Raises OSError if none is."""
    for number in range(1, _MOST_NAMES + 1):
        if not os.path.lexists(parent / numbered(name, number)):
            return number
    raise OSError(f"{parent} has {_MOST_NAMES} folders called {name} already")


def numbered(name: str, number: int) -> str:
    """Return ``name`` as it is for the first, and with the number behind it for others."""
    return name if number == 1 else f"{name}-{number}"


def need_room(parent: Path, size: int, copies: int) -> None:
    """Raise NoRoomError if the disk of ``parent`` has less than ``copies`` times ``size`` bytes, and a little."""
    free = shutil.disk_usage(parent).free
    wanted = copies * size + size // 10 + 2**20
    if free < wanted:
        raise NoRoomError(f"{parent} has {free / 1e9:.3g} GB free, and {wanted / 1e9:.3g} GB are needed")


def remove(folder: Path, mark: Mark) -> None:
    """Remove a folder of ours: first its name, so that nobody takes a half of it for a checkpoint. Raises OSError."""
    gone = folder.with_name(f".{folder.name.lstrip('.')}.{os.getpid()}.gone")
    folder.rename(gone)
    for name in (*mark.files, *(f"{HELD}{name}" for name in mark.files)):
        (gone / name).unlink(missing_ok=True)
    for path in gone.glob(f"{MARK}*"):
        path.unlink()
    for place, _, _ in os.walk(gone, topdown=False):
        with contextlib.suppress(OSError):  # somebody has put a file there in this moment
            os.rmdir(place)


def of_trainer(parent: Path) -> dict[int, str]:
    """Return the names of the checkpoints that a trainer of transformers has in ``parent``, by step."""
    try:
        with os.scandir(parent) as entries:
            named = [(_CHECKPOINT.fullmatch(entry.name), entry) for entry in entries]
            return {int(match[1]): entry.name for match, entry in named if match is not None and entry.is_dir()}
    except OSError:
        return {}


def marked(parent: Path, run: str, kind: str) -> Iterator[tuple[Path, Mark]]:
    """Yield the folders in ``parent`` that are marked as of this ``run`` and ``kind``, half ones too."""
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        return
    for name in names:
        mark = read_mark(parent / name) if f"{kind}-checkpoint-" in name else None
        if mark is not None and (mark.run, mark.kind) == (run, kind):
            yield parent / name, mark


def _raise(error: OSError) -> None:
    raise error
