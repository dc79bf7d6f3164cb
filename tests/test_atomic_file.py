"""Files in a folder in which others may write: what is replaced, what is read, and what never is."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlexporter.atomic_file import (
    UnfitFileError,
    of_rank,
    open_regular,
    open_to_append,
    read_regular,
    set_aside,
    write_whole,
)
from tests.planted import PLANTED, UNREADABLE, unchanged


def _append(path: Path) -> None:
    with open_to_append(path) as file:
        file.write(b"new")


WRITERS: dict[str, Callable[[Path], None]] = {
    "write": lambda path: write_whole(path, "new"),
    "append": _append,
    "set aside": lambda path: set_aside(path, "other"),
}


@pytest.mark.parametrize("how", WRITERS)
@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_no_regular_file_stays(tmp_path: Path, planted: str, how: str) -> None:
    """It is neither replaced nor written through nor moved. The error says what it is, and nothing is left."""
    path = tmp_path / "state.json"
    name, plant = PLANTED[planted]
    plant(path)
    stays, before = unchanged(path), sorted(tmp_path.iterdir())

    with pytest.raises(UnfitFileError) as caught:
        WRITERS[how](path)

    assert caught.value.strerror == f"it is {name}, not a regular file"
    assert stays()
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("planted", PLANTED)
def test_what_a_file_would_be_moved_over_stays(tmp_path: Path, planted: str) -> None:
    """So does the file."""
    (tmp_path / "state.json").write_text("old")
    PLANTED[planted][1](tmp_path / "previous")
    stays = unchanged(tmp_path / "previous")

    with pytest.raises(UnfitFileError):
        set_aside(tmp_path / "state.json", "previous")

    assert stays()
    assert (tmp_path / "state.json").read_text() == "old"


@pytest.mark.parametrize("planted", UNREADABLE)
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, planted: str) -> None:
    """At once, whoever writes to the pipe or not, and however much comes from the device."""
    path = tmp_path / "page.html"
    UNREADABLE[planted][1](path)

    for read in (lambda: read_regular(path, 10), lambda: open_regular(path)):
        with pytest.raises(UnfitFileError, match="not a regular file"):
            read()


def test_what_is_put_in_the_way_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the opening a pipe takes the place of the file: it is closed at once."""
    path = tmp_path / "page.html"
    path.write_text("a page")
    looked = os.stat

    def swap(*arguments: object, **options: object) -> os.stat_result:
        found = looked(*arguments, **options)  # type: ignore[arg-type]
        path.unlink()
        os.mkfifo(path)
        return found

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", swap)
        with pytest.raises(UnfitFileError, match="a pipe"):
            read_regular(path, 10)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("planted", ["null", "pipe", "link", "dangling"])
def test_what_is_put_there_while_the_file_is_written(tmp_path: Path, planted: str) -> None:
    """The last look is after the writing: it stays too, and the partial file goes."""
    path = tmp_path / "state.json"
    path.write_text("old")

    def content() -> Iterator[bytes]:
        path.unlink()
        PLANTED[planted][1](path)
        yield b"new"

    with pytest.raises(UnfitFileError, match=PLANTED[planted][0]):
        write_whole(path, content())

    assert not stat.S_ISREG(os.lstat(path).st_mode)
    assert not list(tmp_path.glob("*.part"))


def test_the_folder_stays_the_one_that_was_looked_at(tmp_path: Path) -> None:
    """A link that takes its place while the file is written leads nowhere else."""
    folder, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "state.json").write_text("mine")

    def content() -> Iterator[bytes]:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(elsewhere)
        yield b"new"

    write_whole(folder / "state.json", content())

    assert (elsewhere / "state.json").read_text() == "mine"
    assert (tmp_path / "moved" / "state.json").read_text() == "new"


def test_a_folder_on_the_way_may_be_a_link(tmp_path: Path) -> None:
    """As /var/run is, and many a home; what is missing below it is made."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to("disk")

    write_whole(tmp_path / "home" / "out" / "state.json", "new")
    _append(tmp_path / "home" / "out" / "run.jsonl")

    assert sorted(each.name for each in (tmp_path / "disk" / "out").iterdir()) == ["run.jsonl", "state.json"]


def test_a_file_behind_a_link_is_read(tmp_path: Path) -> None:
    """As Kubernetes links the files of a Secret."""
    (tmp_path / "data").write_text("token")
    (tmp_path / "token").symlink_to("data")

    assert read_regular(tmp_path / "token", 5) == b"token"


@pytest.mark.parametrize("size", [4, 5, 1 << 40])
def test_no_more_is_read_than_allowed(tmp_path: Path, size: int) -> None:
    """However much there is: a terabyte of nothing too."""
    path = tmp_path / "page.html"
    with path.open("wb") as file:
        file.truncate(size)

    if size == 4:
        assert read_regular(path, 4) == bytes(4)
    else:
        with pytest.raises(UnfitFileError, match="it has more than"):
            read_regular(path, 4)


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    """What is behind it stays as it was, and the file is written beside it."""
    kept, target = tmp_path / "kept", tmp_path / "state.json"
    kept.write_text("mine")
    (tmp_path / f"state.json.{os.getpid()}.part").symlink_to(kept)

    write_whole(target, "new")

    assert kept.read_text() == "mine"
    assert target.read_text() == "new"
    assert not target.is_symlink()
    assert sorted(tmp_path.iterdir()) == [kept, target]


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path) -> None:
    """The old file is whole."""

    def full() -> Iterator[bytes]:
        yield b"ne"
        raise OSError("no space left on device")

    target = tmp_path / "state.json"
    write_whole(target, "old")
    with pytest.raises(OSError, match="no space"):
        write_whole(target, full())

    assert target.read_text() == "old"
    assert [*tmp_path.iterdir()] == [target]


def test_a_link_that_is_planted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the write: the write fails, and what is behind the link stays as it was."""
    kept, partial = tmp_path / "kept", tmp_path / f"state.json.{os.getpid()}.part"
    kept.write_text("mine")
    opened = os.open

    def planted(path: str, flags: int, *rest: int, **options: int) -> int:
        if str(path).endswith(".part"):
            partial.symlink_to(kept)
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", planted)
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "state.json", "new")

    assert kept.read_text() == "mine"


@pytest.mark.parametrize("path", ["/", "..", "."])
def test_a_path_without_a_name(path: str) -> None:
    """It is a folder, for every rank."""
    for rank in (0, 1):
        with pytest.raises(UnfitFileError, match="a folder"):
            write_whole(of_rank(path, rank) if path != ".." else Path(path), "new")


def test_readers_see_one_or_the_other(tmp_path: Path) -> None:
    """Never a part, while another thread writes without a pause."""
    path, done = tmp_path / "state.json", threading.Event()
    texts = ["a" * 100_000, "b" * 200_000]
    write_whole(path, texts[0])

    def write() -> None:
        while not done.is_set():
            for text in texts:
                write_whole(path, text)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert {read_regular(path, 1_000_000).decode() for _ in range(200)} <= set(texts)
    finally:
        done.set()
        writer.join()
