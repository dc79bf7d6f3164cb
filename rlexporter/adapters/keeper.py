"""Keeps copies of good checkpoints while a training goes on, as `keep_good` asks for.

Two are kept: the newest that has proven itself, and a newer one that has not yet. So there is always one from before a
fault that takes long to show. They are copies, since a later attempt writes its checkpoints over those of an earlier
one; a thread makes them, and links hold the files of a checkpoint meanwhile that the trainer may delete.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

from rlexporter.adapters import folders
from rlexporter.adapters.folders import Mark
from rlexporter.model.checkpoint import GoodCheckpoints

_KEPT = 2
_MOST_SOURCES = 16
_PIECE_BYTES = 8 * 2**20
PATIENCE_SECONDS = 30.0
"""The most seconds that the end of a training waits for a copy."""


class Keeper:
    """Keeps copies of the checkpoints of one training.

    ``who`` returns the name and the attempt of the run, which is known by the first checkpoint. ``failed`` gets what
    could not be done. The training thread calls everything here.
    """

    def __init__(
        self,
        who: Callable[[], tuple[str, int]],
        failed: Callable[[Exception], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._who, self._run, self._attempt = who, "", 0
        self._failed = failed
        self.changed = changed
        """Called where other folders are there than before."""
        self._parent: Path | None = None
        self._sources: dict[int, Path] = {}
        """The newest checkpoints of the trainer, by step."""
        self._kept: dict[int, Path] = {}
        """The copies of this attempt."""
        self._marks: dict[int, Mark] = {}
        self._copy: _Copy | None = None
        self._earlier: dict[Path, Mark] = {}
        """The copies of attempts before."""

    @property
    def names(self) -> Mapping[int, str]:
        """Return where the checkpoints of this attempt are, by step: the copy where there is one."""
        own = {step: path.name for step, path in self._sources.items() if path.is_dir()}
        return {**own, **{step: self._name(path) for step, path in self._kept.items()}}

    @property
    def earlier(self) -> str:
        """Return the name of the newest copy that an earlier attempt kept, or an empty string."""
        known = self._earlier
        newest = max(known, key=lambda path: (known[path].proven, known[path].step), default=None)
        return "" if newest is None else self._name(newest)

    def begin(self, folder: Path, *, apart: bool = False) -> None:
        """Keep copies in ``folder``, in one of our own if they are to be ``apart``; find those of attempts before."""
        self._parent = folder / folders.APART if apart else folder
        self._run, self._attempt = self._who()
        for path, mark in folders.marked(self._parent, self._run, "good"):
            if path.name.startswith("."):  # of a process that was killed
                self._remove(path)
            else:
                self._earlier[path] = mark

    def saved(self, step: int, source: Path) -> None:
        """Note that the trainer has written a checkpoint of ``step`` at ``source``; other ranks may still write."""
        self._sources = {known: path for known, path in self._sources.items() if path != source}
        self._sources[step] = source
        while len(self._sources) > _MOST_SOURCES:
            del self._sources[min(self._sources)]
        if self._parent is None:
            self.begin(source.parent)

    def step_done(self, step: int, good: GoodCheckpoints) -> None:
        """Take what is known of the checkpoints after ``step`` was judged; all ranks have written those before it."""
        if not (self._sources or self._kept):
            return
        self._end_copy(good)
        for kept in [kept for kept in self._kept if good.doubtful is not None and kept >= good.doubtful]:
            self._drop(kept)
        settled = good.doubtful is not None  # what is left is older than what went wrong
        for kept in [kept for kept in self._kept if settled or step - kept >= good.horizon]:
            mark = self._marks[kept]
            if not mark.proven:
                self._marks[kept] = mark = replace(mark, proven=True)
                try:
                    mark.write(self._kept[kept])
                except OSError as error:
                    self._failed(error)
        if settled:
            return
        proven = max((kept for kept, mark in self._marks.items() if mark.proven), default=None)
        if proven is not None:  # what is older is not needed any more, also of attempts before
            for kept in [kept for kept in self._kept if kept < proven]:
                self._drop(kept)
            for path in [path for path, mark in self._earlier.items() if mark.step < proven]:
                del self._earlier[path]
                self._remove(path)
                self.changed()
        newest = max((each for each in good.steps if each in self._sources and each < step), default=-1)
        if self._copy is None and len(self._kept) < _KEPT and newest > max(self._kept, default=-1):
            assert self._parent is not None
            copy = _Copy(self._sources[newest], self._parent, Mark("good", self._run, self._attempt, newest))
            copy.start()
            self._copy = copy

    def close(self, good: GoodCheckpoints) -> None:
        """Wait for the copy that is being made, for half a minute at most; what is not done by then is removed."""
        if self._copy is not None:
            self._copy.wait(PATIENCE_SECONDS)
            self._end_copy(good)

    def _end_copy(self, good: GoodCheckpoints) -> None:
        """Give the copy that was made its name if its checkpoint is still good; else remove it."""
        copy = self._copy
        if copy is None or not copy.done:
            return
        self._copy, step = None, copy.mark.step
        if copy.error is not None:
            self._give_up(step, copy.error)
        elif step in good.steps:
            try:
                path = copy.publish()
            except OSError as error:
                self._give_up(step, error)
            else:
                self._kept[step], self._marks[step] = path, copy.mark
                self.changed()
        copy.discard(self._failed)  # where it has got its name there is nothing left

    def _give_up(self, step: int, error: Exception) -> None:
        """Copy this checkpoint no more: else it would be tried in each step."""
        self._sources.pop(step, None)
        self._failed(error)

    def _drop(self, step: int) -> None:
        self._remove(self._kept.pop(step))
        del self._marks[step]
        self.changed()

    def _remove(self, path: Path) -> None:
        mark = folders.mark_of_ours(path, self._run)
        if mark is None:
            self._failed(PermissionError(f"{path} is left as it is: something in it is not of rlexporter"))
            return
        try:
            folders.remove(path, mark)
        except OSError as error:
            self._failed(error)

    def _name(self, path: Path) -> str:
        return f"{folders.APART}/{path.name}" if path.parent.name == folders.APART else path.name


class _Copy:
    """A copy that is being made, under a name that nobody takes for that of a checkpoint."""

    def __init__(self, source: Path, parent: Path, mark: Mark) -> None:
        self.mark = mark
        self.error: Exception | None = None
        self._source, self._parent = source, parent
        self._part = parent / f".good-checkpoint-{mark.step}.{os.getpid()}.part"
        self._stops = Event()
        self._thread = Thread(target=self._run, name="rlexporter-keep", daemon=True)

    @property
    def done(self) -> bool:
        """Return True if it is over, with or without an error."""
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for its end, and end it if that takes longer than ``seconds``."""
        self._thread.join(seconds)
        self._stops.set()
        self._thread.join(seconds)

    def publish(self) -> Path:
        """Give it the name of a good checkpoint; return the path. Raises OSError."""
        name = f"good-checkpoint-{self.mark.step}"
        path = self._parent / folders.numbered(name, folders.free_number(self._parent, name))
        self._part.rename(path)
        return path

    def discard(self, failed: Callable[[Exception], None]) -> None:
        """Remove what there is of it."""
        try:
            if self._part.is_dir():
                folders.remove(self._part, self.mark)
        except OSError as error:
            failed(error)

    def _run(self) -> None:
        try:
            self._make()
        except Exception as error:  # noqa: BLE001 - the thread's end: the training thread takes it
            self.error = error

    def _make(self) -> None:
        files = folders.sizes(self._source)
        folders.need_room(self._source, sum(files.values()), copies=2)  # the trainer's next one is to fit too
        self.mark = replace(self.mark, files=files)
        self._part.mkdir(parents=True)
        self.mark.write(self._part)
        known = {name: _identity(self._source / name) for name in files}
        linked = {name: self._linked(name) for name in files}
        for name, held in linked.items():
            _copy_file(held, self._part / name, self._stops)
        changed = [name for name, held in linked.items() if _identity(held) != known[name]]
        for place, _, names in os.walk(self._part / folders.HELD, topdown=False):
            for name in names:
                Path(place, name).unlink()
            os.rmdir(place)
        if changed:
            raise OSError(f"{self._source / changed[0]} has changed while it was copied")

    def _linked(self, name: str) -> Path:
        """Return a second name of a file, by which it stays if the trainer deletes it; the first where links fail."""
        source, held = self._source / name, self._part / folders.HELD / name
        for path in (held, self._part / name):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, held, follow_symlinks=False)
        except OSError:
            return source
        return held


def _copy_file(source: Path, target: Path, stops: Event) -> None:
    """Copy a file with its times; without taking room, where a file system can. Raises OSError, also once ``stops``."""
    with open(source, "rb") as old, open(target, "xb") as new:
        copied = 0
        with contextlib.suppress(OSError, AttributeError):  # another file system, or not Linux
            while not stops.is_set() and (count := os.copy_file_range(old.fileno(), new.fileno(), _PIECE_BYTES)):
                copied += count
        old.seek(copied)
        new.seek(copied)
        while not stops.is_set() and (piece := old.read(_PIECE_BYTES)):
            new.write(piece)
        if stops.is_set():
            raise OSError(f"the copy of {source} took too long, and was given up")
        new.flush()
        os.fsync(new.fileno())
    shutil.copystat(source, target)


def _identity(path: Path) -> tuple[int, int]:
    known = path.stat()
    return known.st_size, known.st_mtime_ns
