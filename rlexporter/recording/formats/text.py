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
_CONTROL = frozenset(range(32)) - frozenset(b"\0\b\t\n\f\r\x1b")


def decoded(path: Path, content: bytes) -> str:
    """Return the text in ``content``; broken characters are replaced, as a console leaves them. Raises UnreadableError.

    PowerShell redirects output as UTF-16, and a log that was truncated while it was written begins with zeros.
    """
    for magic, said in _PACKED.items():
        if content.startswith(magic):
            raise UnreadableError(f"{path}: {said}")
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    head = content[:_LOOKED_AT]
    if 20 * sum(byte in _CONTROL for byte in head) > len(head):
        raise UnreadableError(f"{path}: is binary: {UNDERSTOOD}")
    text = content.replace(b"\0", b"").decode("utf-8-sig", "replace")
    if not text.strip():
        raise UnreadableError(f"{path}: is empty: {UNDERSTOOD}")
    return text
