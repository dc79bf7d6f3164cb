"""Hours of samples, handed to a real Prometheus in a minute or two through its remote-write interface.

What it holds is then what scrapes would have left: the same series, in the same chunks, at their own times.
"""

from __future__ import annotations

import http.client
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

OPTION = "--web.enable-remote-write-receiver"
_BLOCK = 60
"""Samples of a series in one request: a server takes no sample that is an hour older than its newest."""

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Course:
    """A series of each target: its labels, in which ``{}`` is the number of the target, and its samples."""

    labels: Labels
    values: np.ndarray[Any, np.dtype[np.float64]]


def write(port: int, courses: Sequence[Course], targets: int, times: Sequence[float]) -> None:
    """Hand ``courses`` of so many targets to the server on ``port``, in the order of time, one sample at each time."""
    moments = [round(1000 * each) for each in times]
    frames = [_samples(each, moments) for each in courses]
    heads = [[_labels(each.labels, number) for each in courses] for number in range(targets)]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    for start in range(0, len(moments), _BLOCK):
        part = [frame[start : start + _BLOCK].tobytes() for frame in frames]
        for head in heads:
            _post(connection, b"".join(_request(head, part)))
    connection.close()


def _post(connection: http.client.HTTPConnection, body: bytes) -> None:
    headers = {"Content-Type": "application/x-protobuf", "X-Prometheus-Remote-Write-Version": "0.1.0"}
    connection.request("POST", "/api/v1/write", _snappy(body), {**headers, "Content-Encoding": "snappy"})
    answer = connection.getresponse()
    said = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{answer.status}: {said.decode()}")


def _request(heads: Sequence[bytes], samples: Sequence[bytes]) -> Iterator[bytes]:
    """The parts of a `prometheus.WriteRequest`: `repeated TimeSeries timeseries = 1`."""
    for head, part in zip(heads, samples, strict=True):
        yield b"\x0a" + _varint(len(head) + len(part))
        yield head
        yield part


def _labels(labels: Labels, number: int) -> bytes:
    """`repeated Label labels = 1` of a `TimeSeries`, in the order of their names."""
    found = b""
    for name, value in sorted(labels.items()):
        pair = _text(b"\x0a", name) + _text(b"\x12", value.replace("{}", str(number)))
        found += b"\x0a" + _varint(len(pair)) + pair
    return found


def _samples(course: Course, moments: Sequence[int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """`repeated Sample samples = 2` of a `TimeSeries`, a row each: `double value = 1; int64 timestamp = 2`."""
    times = [_varint(each) for each in moments]
    size = 10 + len(times[0])
    rows = [b"\x12" + _varint(size) + b"\x09" + bytes(8) + b"\x10" + each for each in times]
    found: np.ndarray[Any, np.dtype[np.uint8]] = np.array(bytearray(b"".join(rows))).reshape(len(rows), size + 2)
    found[:, 3:11] = course.values.astype("<f8").view(np.uint8).reshape(-1, 8)
    return found


def _text(tag: bytes, text: str) -> bytes:
    return tag + _varint(len(text.encode())) + text.encode()


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _snappy(body: bytes) -> bytes:
    """``body`` in Snappy's format, not compressed: one literal."""
    return _varint(len(body)) + b"\xfc" + struct.pack("<I", len(body) - 1) + body
