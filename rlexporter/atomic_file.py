"""Files in folders in which others may write: written whole, and read with a limit.

What is written goes over a regular file or over nothing: never over a device, a pipe, a socket, a folder or a link, and
never through a link. A folder on the way may be a link. What is read is a regular file, or a link to one, and is opened
without waiting for anybody.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from io import BufferedWriter, FileIO
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class UnfitFileError(OSError):
    """A path does not name what can be read or replaced here; ``strerror`` says what it names, without the path."""


def of_rank(path: str | Path, rank: int) -> Path:
    """Return the path for ``rank``, so that processes that share a folder do not overwrite each other's file."""
    path = Path(path)
    return path if rank == 0 or not path.name else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def write_whole(path: Path, content: str | Iterable[bytes]) -> None:
    """Write ``content`` to ``path`` in one piece: a reader sees the old file or the new one.

    Raises: UnfitFileError if something else than a regular file is there; OSError. The partial file is then removed,
    whatever ends it.
    """
    check_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _folder(path.parent) as (prefix, at):
        target, partial = f"{prefix}{path.name}", f"{prefix}{path.name}.{os.getpid()}.part"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=at)  # of a process of the same number, or a link that somebody has planted
        try:
            with _created(partial, at) as file:
                file.writelines([content.encode()] if isinstance(content, str) else content)
            _check_replaceable(path, target, at)  # again: writing may have taken long
            os.replace(partial, target, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial, dir_fd=at)
            raise


def set_aside(path: Path, name: str) -> None:
    """Rename the file ``path``, if it is there, to ``name`` in the same folder.

    Raises: UnfitFileError if one of the two is something else than a regular file; OSError.
    """
    with contextlib.suppress(FileNotFoundError), _folder(path.parent) as (prefix, at):
        source, target = f"{prefix}{path.name}", f"{prefix}{name}"
        _check_replaceable(path, source, at)
        _check_replaceable(path.with_name(name), target, at)
        os.replace(source, target, src_dir_fd=at, dst_dir_fd=at)


def check_replaceable(path: Path) -> None:
    """Raise UnfitFileError if something else than a regular file is at ``path``. OSError if nobody can tell."""
    _check_replaceable(path, str(path), None)


def open_to_append(path: Path) -> FileIO:
    """Open ``path``, a regular file or nothing yet, unbuffered, to be read and appended to. Raises as `write_whole`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    check_replaceable(path)  # first: opening a device may already do something
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _NO_WAITING | _NO_LINK
    return _regular(os.open(path, flags, 0o666), path, "ab+")


def open_regular(path: str | os.PathLike[str]) -> FileIO:
    """Open the regular file ``path``, or the one that it links to, unbuffered, for reading. Waits for nobody.

    Raises: UnfitFileError if it is something else; OSError.
    """
    _refuse_unless_regular(os.stat(path).st_mode, path)  # first: opening a device may already do something
    return _regular(os.open(path, os.O_RDONLY | _NO_WAITING), path, "rb")


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of the regular file ``path``, or of the one that it links to. Waits for nobody.

    Raises: UnfitFileError if it is something else, or has more than ``most`` bytes; OSError.
    """
    with open_regular(path) as file:
        return read_up_to(file, most)


def read_up_to(file: FileIO, most: int) -> bytes:
    """Return what is left of ``file``. Raises UnfitFileError if that is more than ``most`` bytes; OSError."""
    content = bytearray()
    while len(content) <= most and (piece := file.read(min(most + 1 - len(content), 1 << 20))):
        content += piece
    if len(content) > most:
        raise UnfitFileError(errno.EFBIG, f"it has more than {_size(most)}", str(file.name))
    return bytes(content)


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[tuple[str, int | None]]:
    """Yield a prefix for names in ``folder``, and a descriptor of it: it stays this one, whatever its path names later.

    None where a system knows no such descriptors.
    """
    if os.open not in os.supports_dir_fd:
        yield f"{folder}{os.sep}", None
        return
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        yield "", descriptor
    finally:
        os.close(descriptor)


def _created(name: str, at: int | None) -> BufferedWriter:
    """Create a file that is not there, and follow no link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_WAITING | _NO_LINK
    return BufferedWriter(FileIO(os.open(name, flags, 0o666, dir_fd=at), "w"))


def _check_replaceable(path: Path, name: str, at: int | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        _refuse_unless_regular(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode, path)


def _regular(descriptor: int, path: str | os.PathLike[str], mode: str) -> FileIO:
    """Return the file that was opened as ``descriptor``; close it and raise UnfitFileError if it is no regular one."""
    try:
        _refuse_unless_regular(os.fstat(descriptor).st_mode, path)
        return FileIO(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_unless_regular(mode: int, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        raise UnfitFileError(errno.EINVAL, f"it is {kind}, not a regular file", os.fspath(path))


def _size(count: int) -> str:
    """Return a number of bytes in words: ``20 MB``."""
    return f"{count // 10**6} MB" if count >= 10**6 else f"{count // 1000} kB"
