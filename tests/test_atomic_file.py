"""Files that other processes may read meanwhile, in a folder in which others may write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlexporter.atomic_file import write_whole


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


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old file is whole."""

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    target = tmp_path / "state.json"
    write_whole(target, "old")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_whole(target, "new")

    assert target.read_text() == "old"
    assert [*tmp_path.iterdir()] == [target]


def test_a_link_that_is_planted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the write: the write fails, and what is behind the link stays as it was."""
    kept, partial = tmp_path / "kept", tmp_path / f"state.json.{os.getpid()}.part"
    kept.write_text("mine")
    unlink = Path.unlink

    def planted(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        if missing_ok:
            partial.symlink_to(kept)

    monkeypatch.setattr(Path, "unlink", planted)
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "state.json", "new")

    assert kept.read_text() == "mine"
