"""Decodes a file into text, or says what it is instead."""

from __future__ import annotations

import codecs
from pathlib import Path

from rlexporter.recording.source import UNDERSTOOD, UnreadableError

_PACKED = {
    b"\x1f\x8b": "is compressed (gzip): unpack it first",
    b"PK\x03\x04": "is an archive (zip): unpack it first",
    b":W&B": "is the file that W&B synchronises: export the run's history as CSV, or as JSON lines",
}
_LOOKED_AT = 8192
_ENOUGH = max(map(len, _PACKED))
"""The bytes that tell what a file is."""
_CONTROL = frozenset(range(32)) - frozenset(b"\0\b\t\n\f\r\x1b")


class Decoder:
    """Decodes a file that comes in pieces; broken characters are replaced, as a console leaves them.

    PowerShell redirects output as UTF-16, and a log that was truncated while it was written begins with zeros.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._head = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._wide = False

    def feed(self, content: bytes, *, last: bool = False) -> str:
        """Return the text of the next piece. ``last``: True for the end. Raises UnreadableError for what is no text."""
        if self._decoder is None:
            content = self._head + content
            if len(content) < _ENOUGH and not last:
                self._head = content
                return ""
            self._head = b""
            self._decoder = self._begun(content)
        return self._decoder.decode(content if self._wide else content.replace(b"\0", b""), last)

    def _begun(self, content: bytes) -> codecs.IncrementalDecoder:
        for magic, said in _PACKED.items():
            if content.startswith(magic):
                raise UnreadableError(f"{self._path}: {said}")
        self._wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if self._wide:
            return codecs.getincrementaldecoder("utf-16")("replace")
        head = content[:_LOOKED_AT]
        if 20 * sum(byte in _CONTROL for byte in head) > len(head):
            raise UnreadableError(f"{self._path}: is binary: {UNDERSTOOD}")
        return codecs.getincrementaldecoder("utf-8-sig")("replace")


def decoded(path: Path, content: bytes) -> str:
    """Return the text in the whole ``content`` of a file. Raises UnreadableError for what is none, or empty."""
    text = Decoder(path).feed(content, last=True)
    if not text.strip():
        raise UnreadableError(f"{path}: is empty: {UNDERSTOOD}")
    return text
