"""Copies of good checkpoints: which are kept, what is in them, and what is never touched. Real files, no trainer."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlexporter.adapters import folders, keeper
from rlexporter.adapters.folders import MARK, Mark
from rlexporter.adapters.keeper import Keeper
from rlexporter.model.checkpoint import GoodCheckpoints
from tests.tools import eventually

HORIZON = 20


class Training:
    """What a trainer does in a folder, as the keeper sees it. ``limit``: the checkpoints that it leaves there."""

    def __init__(self, folder: Path, *, run: str = "mine", attempt: int = 1, limit: int = 99) -> None:
        self.folder, self.limit = folder, limit
        folder.mkdir(exist_ok=True)
        self.failed: list[Exception] = []
        self.good: tuple[int, ...] = ()
        self.doubtful: int | None = None
        self.keeper = Keeper(lambda: (run, attempt), self.failed.append)
        self.keeper.begin(folder)
        self.step = 0

    def save(self, step: int, text: str = "weights") -> Path:
        """Write a checkpoint of ``step`` in place, as torch does; the next step judges it."""
        path = self.folder / f"checkpoint-{step}"
        (path / "global_step").mkdir(parents=True, exist_ok=True)
        for name in ("model.safetensors", "optimizer.pt", "global_step/rank_0.pt"):
            (path / name).write_text(f"{text} {step} {name}")
        own = sorted(folders.of_trainer(self.folder))
        for old in own[: -self.limit]:
            shutil.rmtree(self.folder / f"checkpoint-{old}")
        self.keeper.saved(step, path)
        self.to(step)
        self.good = (*self.good, step)
        self.to(step + 2)
        return path

    def write(self, step: int) -> None:
        """Write a checkpoint of one file, which no step has judged yet."""
        path = self.folder / f"checkpoint-{step}"
        path.mkdir()
        (path / "weights").write_text("weights")
        self.keeper.saved(step, path)

    def settle(self) -> None:
        """Wait for the copy that is being made."""
        copy = self.keeper._copy
        if copy is not None:
            eventually(lambda: copy.done)

    def to(self, step: int) -> None:
        """Train until ``step`` was judged."""
        for now in range(self.step, step + 1):
            self.keeper.step_done(now, GoodCheckpoints(self.good, self.doubtful, HORIZON))
            self.settle()
        self.step = step

    def wrong(self, since: int, step: int) -> None:
        """Something critical is certain in ``step``, and may have begun in ``since``."""
        self.good = tuple(each for each in self.good if each < since)
        self.doubtful = since
        self.to(step)

    @property
    def kept(self) -> list[str]:
        return names(self.folder)


def names(folder: Path) -> list[str]:
    """The folders of ours, and half ones."""
    return sorted(path.name for path in folder.iterdir() if "good-checkpoint" in path.name)


def tree(folder: Path) -> dict[str, str]:
    """The files in a folder, with what is in them."""
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_two_are_kept_until_the_newer_has_proven_itself(tmp_path: Path) -> None:
    """The older one stays for so long; then the next newer one is kept beside the one that is proven."""
    run = Training(tmp_path, limit=2)
    seen = []
    for step in range(10, 80, 10):
        run.save(step)
        seen.append(run.kept)
    assert seen[0] == ["good-checkpoint-10"]
    assert seen[1] == ["good-checkpoint-10", "good-checkpoint-20"]
    assert seen[2] == ["good-checkpoint-10", "good-checkpoint-20"]
    assert seen[3] == ["good-checkpoint-20", "good-checkpoint-30"], "20 has proven itself by 40"
    assert seen[5] == ["good-checkpoint-40", "good-checkpoint-50"]
    assert run.failed == []


def test_the_one_that_a_fault_may_have_spoiled_goes_and_the_older_one_stays(tmp_path: Path) -> None:
    """However long the fault lasts; nothing new is kept while it does."""
    run = Training(tmp_path)
    for step in (10, 20, 30, 40):
        run.save(step)
    assert run.kept == ["good-checkpoint-20", "good-checkpoint-30"]
    run.wrong(since=30, step=45)
    assert run.kept == ["good-checkpoint-20"]
    assert run.keeper.names == {10: "checkpoint-10", 20: "good-checkpoint-20", 30: "checkpoint-30", 40: "checkpoint-40"}
    run.save(50)
    run.good = run.good[:-1]
    run.to(200)
    assert run.kept == ["good-checkpoint-20"]
    kept = folders.read_mark(tmp_path / "good-checkpoint-20")
    assert kept is not None
    assert kept.proven
    run.doubtful = None  # it is over
    run.save(210)
    assert run.kept == ["good-checkpoint-20", "good-checkpoint-210"]


def test_both_stay_while_something_is_wrong(tmp_path: Path) -> None:
    """Both are older than it: nobody knows yet which of them will be wanted."""
    run = Training(tmp_path)
    run.save(10)
    run.save(20)
    run.wrong(since=25, step=60)
    assert run.kept == ["good-checkpoint-10", "good-checkpoint-20"]
    run.doubtful = None
    run.to(61)
    assert run.kept == ["good-checkpoint-20"]


def test_a_copy_shares_no_file_with_what_it_is_of(tmp_path: Path) -> None:
    """A later attempt writes its checkpoint over the old one, in place: every file of the copy stays as it was."""
    run = Training(tmp_path)
    path = run.save(10)
    kept = tmp_path / "good-checkpoint-10"
    before = tree(path)
    for name in before:
        with open(path / name, "r+") as file:
            file.write("spoiled")
    assert {name: text for name, text in tree(kept).items() if name != MARK} == before
    assert {os.stat(file).st_nlink for file in kept.rglob("*") if file.is_file()} == {1}
    assert (kept / "optimizer.pt").stat().st_mtime_ns != (path / "optimizer.pt").stat().st_mtime_ns


def test_what_the_trainer_deletes_meanwhile_is_copied_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links hold the files until they are copied; nothing is left of them."""
    begun, goes_on = threading.Event(), threading.Event()
    copy_file = keeper._copy_file

    def slowly(*args: object) -> None:
        begun.set()
        goes_on.wait(60)
        copy_file(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(keeper, "_copy_file", slowly)
    run = Training(tmp_path)
    path = tmp_path / "checkpoint-10"
    path.mkdir()
    (path / "model.safetensors").write_text("weights")
    run.keeper.saved(10, path)
    run.keeper.step_done(11, GoodCheckpoints((10,)))
    assert begun.wait(60)
    shutil.rmtree(path)
    goes_on.set()
    run.settle()
    run.keeper.step_done(12, GoodCheckpoints((10,)))
    assert tree(tmp_path / "good-checkpoint-10").keys() == {"model.safetensors", MARK}
    assert run.failed == []


@pytest.mark.parametrize(
    "theirs",
    ["good-checkpoint-2-backup", "good-checkpoint-final", "good-checkpoint-2", "my-good-checkpoint-1", "checkpoint-2"],
)
def test_a_folder_that_is_not_ours_is_never_removed(tmp_path: Path, theirs: str) -> None:
    """Whatever it is called: it has no file of ours."""
    (tmp_path / theirs).mkdir()
    (tmp_path / theirs / "weights").write_text("theirs")
    run = Training(tmp_path)
    for step in range(10, 120, 10):
        run.save(step)
    assert (tmp_path / theirs / "weights").read_text() == "theirs"
    assert len(run.kept) == 2 + ("good" in theirs)


def _marked(folder: Path, **said: object) -> Path:
    """A folder with a mark, and one file that it lists."""
    folder.mkdir()
    (folder / "weights").write_text("old")
    known = {"kind": "good", "run": "mine", "attempt": 1, "step": 4, "files": {"weights": 3}, **said}
    Mark(**known).write(folder)  # type: ignore[arg-type]
    return folder


def _added(folder: Path) -> None:
    (folder / "eval.json").write_text("{}")


def _changed(folder: Path) -> None:
    (folder / "weights").write_text("longer than it was")


def _linked(folder: Path) -> None:
    (folder / "link").symlink_to("/dev/zero")


def _piped(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def _unmarked(folder: Path) -> None:
    (folder / MARK).write_text("[]")


def _pipe_for_a_mark(folder: Path) -> None:
    (folder / MARK).unlink()
    os.mkfifo(folder / MARK)


@pytest.mark.parametrize("change", [_added, _changed, _linked, _piped, _unmarked, _pipe_for_a_mark])
def test_what_somebody_has_added_or_changed_is_theirs(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """A copy of an attempt before with anything in it that is not ours stays as it is, when a later one is proven."""
    old = _marked(tmp_path / "good-checkpoint-4")
    change(old)
    run = Training(tmp_path, attempt=2)
    for step in range(10, 100, 10):
        run.save(step)
    assert (old / "weights").exists()


@pytest.mark.parametrize("said", [{"run": "another"}, {"kind": "suspect"}, {"files": {}}])
def test_what_is_marked_as_of_another_run_is_never_removed(tmp_path: Path, said: dict[str, object]) -> None:
    """Nor a suspect one, nor one whose files are not known; nobody is sent to another run's."""
    old = _marked(tmp_path / "good-checkpoint-4", **said)
    run = Training(tmp_path, attempt=2)
    assert run.keeper.earlier == ("good-checkpoint-4" if "files" in said else "")
    for step in range(10, 100, 10):
        run.save(step)
    assert tree(old)["weights"] == "old"
    assert len(run.failed) == ("files" in said)


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ({}, True),
        ({"attempt": 9, "step": 7, "proven": True}, True),
        ({"run": "another"}, False),
        ({"kind": "suspect"}, False),
        ({"files": {}}, False),
        ({"files": {"weights": 4}}, False),
        ({"files": {"weights": 3, "gone": 5}}, True),
    ],
)
def test_only_what_the_mark_lists_is_ours(tmp_path: Path, said: dict[str, object], ours: bool) -> None:
    """Of this run, and good; a file that is gone already does not matter."""
    folder = _marked(tmp_path / "good-checkpoint-4", **said)
    assert (folders.mark_of_ours(folder, "mine") is not None) == ours
    (folder / folders.MARK).unlink()
    assert folders.mark_of_ours(folder, "mine") is None


def test_a_link_of_such_a_name_is_left_alone(tmp_path: Path) -> None:
    """Neither it nor what it leads to is touched."""
    elsewhere = _marked(tmp_path / "elsewhere")
    (tmp_path / "good-checkpoint-4").symlink_to(elsewhere)
    (tmp_path / "good-checkpoint-30").symlink_to("/nonexistent")
    run = Training(tmp_path, attempt=2)
    for step in range(10, 60, 10):
        run.save(step)
    assert tree(elsewhere)["weights"] == "old"
    assert (tmp_path / "good-checkpoint-4").is_symlink()
    assert (tmp_path / "good-checkpoint-30").is_symlink()
    assert "good-checkpoint-30-2" in run.kept, "its name is taken"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_folder_of_another_user_is_left_alone(tmp_path: Path) -> None:
    """It may be of the same run, in a folder that several share."""
    old = _marked(tmp_path / "good-checkpoint-4")
    os.chown(old, 12345, -1)
    run = Training(tmp_path, attempt=2)
    for step in range(10, 60, 10):
        run.save(step)
    assert tree(old)["weights"] == "old"


def test_the_copy_of_the_attempt_before_stays_until_a_later_one_is_proven(tmp_path: Path) -> None:
    """The first checkpoint of a second attempt is no reason to give up a good one of step 40."""
    first = Training(tmp_path)
    for step in (10, 20, 30, 40):
        first.save(step)
    first.keeper.close(GoodCheckpoints(first.good))
    assert first.kept == ["good-checkpoint-20", "good-checkpoint-30"]
    again = Training(tmp_path, attempt=2)
    assert again.keeper.earlier == "good-checkpoint-20", "it has proven itself"
    for step in range(1, 28, 5):
        again.save(step, "other")
        assert {"good-checkpoint-20", "good-checkpoint-30"} <= {*again.kept}, step
    again.save(35)
    again.to(54)
    assert "good-checkpoint-30" in again.kept
    assert again.keeper.earlier == "good-checkpoint-30"
    again.to(58 + HORIZON)
    assert not {"good-checkpoint-20", "good-checkpoint-30"} & {*again.kept}
    assert again.failed == []


def test_one_of_the_same_step_gets_another_name(tmp_path: Path) -> None:
    """Both stay, as neither is later."""
    Training(tmp_path).save(10)
    again = Training(tmp_path, attempt=2)
    again.save(10, "other")
    assert again.kept == ["good-checkpoint-10", "good-checkpoint-10-2"]
    assert again.keeper.names[10] == "good-checkpoint-10-2"
    assert "other 10 optimizer.pt" in tree(tmp_path / "good-checkpoint-10-2").values()
    again.to(10 + HORIZON + 1)
    assert again.kept == ["good-checkpoint-10", "good-checkpoint-10-2"], "proven, and no later"


@pytest.mark.parametrize("kill", ["links", "half", "copied", "marked"])
def test_what_a_killed_process_has_left_is_removed_by_the_next_attempt(tmp_path: Path, kill: str) -> None:
    """At whatever moment it was killed; nobody takes it for a checkpoint."""
    part = tmp_path / ".good-checkpoint-10.123.part"
    part.mkdir()
    if kill != "marked":
        (part / "weights").write_text("we" if kill in ("links", "half") else "weights")
        held = part / folders.HELD
        if kill != "copied":
            held.mkdir()
            (held / "weights").write_text("weights")
    Mark("good", "mine", 1, 10, {"weights": 7}).write(part)
    run = Training(tmp_path, attempt=2)
    assert names(tmp_path) == []
    assert run.failed == []
    assert run.keeper.earlier == ""


def test_a_half_copy_to_which_somebody_added_a_file_is_left_alone(tmp_path: Path) -> None:
    """Even that."""
    part = _marked(tmp_path / ".good-checkpoint-10.123.part")
    (part / "mine.txt").write_text("mine")
    run = Training(tmp_path, attempt=2)
    assert (part / "mine.txt").exists()
    assert "is left as it is" in str(run.failed[0])


def _full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))


def _refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir

    def refuse(path: Path, *args: object, **kwargs: object) -> None:
        if path.name.startswith(".good"):
            raise PermissionError(errno.EACCES, "read-only", str(path))
        mkdir(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", refuse)


def _fills(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(keeper, "_copy_file", fail)


@pytest.mark.parametrize("trouble", [_full, _refused, _fills])
def test_what_cannot_be_kept_is_told_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """A full disk, one that fills, a read-only folder: once a checkpoint, not in each step; older copies stay."""
    run = Training(tmp_path)
    run.save(10)
    before = tree(tmp_path / "good-checkpoint-10")
    trouble(monkeypatch)
    run.save(20)
    run.to(29)
    assert len(run.failed) == 1
    assert run.kept == ["good-checkpoint-10"]
    assert tree(tmp_path / "good-checkpoint-10") == before


def test_a_disk_that_takes_no_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy cannot be published, nor removed: both are told, and the one before stays."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    run = Training(tmp_path)
    run.save(10)
    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", refuse)
        broken.setattr(folders, "remove", refuse)
        run.save(20)
        assert [type(error) for error in run.failed] == [OSError, OSError]
        run.wrong(since=5, step=24)
        assert len(run.failed) == 3
    assert (tmp_path / "good-checkpoint-10").is_dir()


def test_that_one_is_proven_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And told once where the disk refuses it."""
    written = []

    def refuse(self: Mark, folder: Path) -> None:
        written.append(folder.name)
        raise OSError(errno.EIO, "input/output error")

    run = Training(tmp_path)
    run.save(10)
    monkeypatch.setattr(Mark, "write", refuse)
    run.to(10 + HORIZON - 1)
    assert written == []
    run.to(10 + HORIZON + 5)
    assert written == ["good-checkpoint-10"]
    assert len(run.failed) == 1


def test_a_checkpoint_is_copied_when_all_ranks_have_written_theirs(tmp_path: Path) -> None:
    """That is known in the step after it."""
    run = Training(tmp_path)
    run.write(10)
    for step, begins in ((10, False), (11, True)):
        run.keeper.step_done(step, GoodCheckpoints((10,), None, HORIZON))
        run.settle()
        assert bool(names(tmp_path)) == begins


def test_a_checkpoint_with_something_strange_in_it_is_not_kept(tmp_path: Path) -> None:
    """A pipe would make the copy wait for ever, a link could lead anywhere."""
    run = Training(tmp_path)
    for step, make in ((10, os.mkfifo), (20, lambda path: os.symlink("/etc", path))):
        path = tmp_path / f"checkpoint-{step}"
        path.mkdir()
        make(path / "strange")
        run.save(step)
    assert run.kept == []
    assert ["neither a file nor a folder" in str(error) for error in run.failed] == [True, True]


def test_a_checkpoint_that_changes_while_it_is_copied_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else writes it: nobody knows what was copied."""
    copy_file = keeper._copy_file

    def changing(source: Path, *args: object) -> None:
        copy_file(source, *args)  # type: ignore[arg-type]
        with open(source, "a") as file:
            file.write("more")

    monkeypatch.setattr(keeper, "_copy_file", changing)
    run = Training(tmp_path)
    run.save(10)
    assert run.kept == []
    assert "has changed while it was copied" in str(run.failed[0])


def test_without_links_it_is_copied_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems have none."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    run = Training(tmp_path)
    path = run.save(10)
    assert {name: text for name, text in tree(tmp_path / "good-checkpoint-10").items() if name != MARK} == tree(path)


def test_a_slow_copy_does_not_hold_up_the_end_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up, and what there is of it is removed; so is its thread."""

    def slow(source: Path, target: Path, stops: threading.Event) -> None:
        target.write_text("half")
        stops.wait(600)
        time.sleep(0.3)  # a disk that answers late
        raise OSError("given up")

    monkeypatch.setattr(keeper, "_copy_file", slow)
    monkeypatch.setattr(keeper, "PATIENCE_SECONDS", 2.0)
    run = Training(tmp_path)
    run.write(10)
    run.keeper.step_done(11, GoodCheckpoints((10,)))
    copy = run.keeper._copy
    assert copy is not None
    eventually(lambda: (tmp_path / copy._part.name / "weights").exists())
    run.keeper.close(GoodCheckpoints((10,)))
    assert run.kept == []
    assert not [thread for thread in threading.enumerate() if thread.name == "rlexporter-keep"]


def _held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Hold up each copy until this event is set."""
    goes_on, copied = threading.Event(), keeper._copy_file

    def late(source: Path, target: Path, stops: threading.Event) -> None:
        goes_on.wait(600)
        copied(source, target, stops)

    monkeypatch.setattr(keeper, "_copy_file", late)
    return goes_on


def test_one_copy_is_made_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer checkpoint waits for it: nothing would remove what there is of a copy that is forgotten."""
    goes_on = _held(monkeypatch)
    run = Training(tmp_path)
    for step in (10, 20):
        run.write(step)
        run.keeper.step_done(step + 1, GoodCheckpoints((10, 20), None, HORIZON))
    goes_on.set()
    run.keeper.close(GoodCheckpoints((10, 20)))
    assert run.kept == ["good-checkpoint-10"]
    assert run.failed == []


def test_what_goes_wrong_while_it_is_copied_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint was good when the copy began, and is not when it ends."""
    goes_on = _held(monkeypatch)
    run = Training(tmp_path)
    run.write(10)
    run.keeper.step_done(11, GoodCheckpoints((10,), None, HORIZON))
    run.keeper.step_done(12, GoodCheckpoints((), 9, HORIZON))
    assert run.keeper.names == {10: "checkpoint-10"}, "it is not there yet"
    goes_on.set()
    run.settle()
    run.keeper.step_done(13, GoodCheckpoints((), None, HORIZON))  # it is over: that makes no checkpoint good
    assert run.kept == []
    assert run.failed == []


def test_it_tells_of_each_change(tmp_path: Path) -> None:
    """Of what this attempt has, and of what is left of the one before: who asks later knows it already."""
    Training(tmp_path).save(10)
    later = Training(tmp_path, attempt=2)
    told: list[tuple[dict[int, str], str]] = []
    later.keeper.changed = lambda: told.append(({**later.keeper.names}, later.keeper.earlier))
    assert later.keeper.earlier == "good-checkpoint-10"
    for step in (20, 30, 40, 50):
        later.save(step)
        assert told[-1][0].items() <= {**later.keeper.names}.items()
        assert told[-1][1] == later.keeper.earlier
    assert later.keeper.earlier == ""
    assert later.kept == ["good-checkpoint-30", "good-checkpoint-40"]
    later.wrong(since=35, step=56)
    assert told[-1][0][40] == "checkpoint-40", "the copy is gone"


def test_where_everything_is_uploaded_they_are_apart(tmp_path: Path) -> None:
    """In a folder whose name keeps it out of uploads to the hub."""
    run = Training(tmp_path)
    run.keeper.begin(tmp_path, apart=True)
    run.save(10)
    assert run.kept == []
    assert names(tmp_path / folders.APART) == ["good-checkpoint-10"]
    assert run.keeper.names == {10: "_rlexporter/good-checkpoint-10"}


def test_removing_takes_the_name_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a good checkpoint must not look like one, whenever the process is killed."""
    old = _marked(tmp_path / "good-checkpoint-4")
    seen: list[Iterator[Path]] = []
    unlink = Path.unlink

    def watched(path: Path, *args: object, **kwargs: object) -> None:
        seen.append(iter([*tmp_path.glob("good-checkpoint-*")]))
        unlink(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "unlink", watched)
    mark = folders.mark_of_ours(old, "mine")
    assert mark is not None
    folders.remove(old, mark)
    assert [[*each] for each in seen if [*each]] == []
    assert [*tmp_path.iterdir()] == []
