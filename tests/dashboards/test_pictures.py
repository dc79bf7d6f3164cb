"""The pictures of the README: there, small, and of two runs that do not look the same."""

from __future__ import annotations

import struct
import zlib

import pytest

from tests.tools import ROOT

pytestmark = pytest.mark.slow
IMAGES = ROOT / "docs/images"
NAMES = ("run-healthy", "run-broken", "run-broken-top", "fleet")


def _size(data: bytes) -> tuple[int, int]:
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_pictures_are_there_and_small() -> None:
    """They are as wide as a page, and nothing that a clone would feel."""
    found = {name: (IMAGES / f"{name}.png").read_bytes() for name in NAMES}

    assert {name for name, data in found.items() if _size(data)[0] != 1400} == set()
    assert {name for name, data in found.items() if len(data) >= 150_000} == set()


def test_healthy_and_broken_differ_in_red() -> None:
    """What is beyond its limit is red: there is far more of it in the picture of the broken run."""
    assert _reds("run-broken") > 1.5 * _reds("run-healthy")


def _reds(name: str) -> int:
    """Pixels of a palette image whose colour is a red."""
    data = (IMAGES / f"{name}.png").read_bytes()
    width, height = _size(data)
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        chunks[kind] = chunks.get(kind, b"") + data[at + 8 : at + 8 + length]
        at += 12 + length
    palette = chunks[b"PLTE"]
    red = {
        i
        for i in range(len(palette) // 3)
        if palette[3 * i] > 60 and palette[3 * i] > 1.5 * max(palette[3 * i + 1 : 3 * i + 3])
    }
    rows = zlib.decompress(chunks[b"IDAT"])
    depth = data[24]
    stride = 1 + (width * depth + 7) // 8
    assert len(rows) == stride * height
    assert depth == 8, "drawn with more than 16 colours"
    assert not {rows[y * stride] for y in range(height)} - {0}, "palette images are not filtered"
    return sum(pixel in red for y in range(height) for pixel in rows[y * stride + 1 : (y + 1) * stride])
