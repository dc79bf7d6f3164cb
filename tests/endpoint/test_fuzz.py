"""Requests of every kind, right and wrong, over real sockets: no 5xx, and nothing for who has no token."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, unquote

import pytest

from rlexporter import Exporter
from tests.endpoint.test_auth import METHODS, PATHS, TOKEN, put
from tests.endpoint.test_tls import Files
from tests.endpoint.wire import ask, connect
from tests.served import errors

RUNS = [500, pytest.param(10_000, marks=pytest.mark.soak)]
RIGHT = f"Authorization: Bearer {TOKEN}"

NAMES = ["rl_step", "rl_reward_mean", "rl_reward_dist_bucket", "no", "*", "", "%00", "%ff", "%C3%28"]
QUERIES = ["name[]", "name%5B%5D=rl_step", "&&&=&;", "name[]=" + "x" * 9000, "?" * 50, "a=b#c"]
TARGETS = ["*", "", "/../../etc/passwd", "/%2e%2e/", "/%00", "/%6civez", "http://x/metrics", "x:443", "/" + "a" * 9000]
VERSIONS = ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9", "HTTP/1.1 x", "", "x"]
HEADERS = {
    "Accept": [
        *(
            "text/plain; version=0.0.4",
            "text/plain;version=1.0.0;escaping=dots",
            "text/plain; version=a.b",
            "*/*",
            ";=,",
        ),
        *(f"application/openmetrics-text; version={each}" for each in ("1.0.0", "0.0.1", "2.0.0", "1.x", "", "-1")),
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    ],
    "Accept-Encoding": ["gzip", "gzip;q=0", "br", "*", ",,;", "identity"],
    "Authorization": ["Basic eA==", "Bearer x", f"Bearer {TOKEN}x", "Bearer", "", "\xff"],
    "Connection": ["close", "keep-alive", "Upgrade\r\nUpgrade: websocket", "close, x"],
    "Content-Length": ["0", "00", "5", "-1", "5, 5", "5, 6", "1e3", "9" * 19, "9" * 5000, "\xb2"],
    "Transfer-Encoding": ["chunked", "gzip, chunked", "identity", "chunked, chunked"],
    "Upgrade": ["websocket", "h2c"],
    "Expect": ["100-continue", "x"],
    "Host": ["", "other", "a b"],
    "Cookie": ["token=1", "\xff" * 100, "y" * 3000, "y" * 20000],
}
BODIES = ["x", "hello", "5\r\nhello\r\n0\r\n\r\n", "zz\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "\0" * 5000]
HELLOS = [b"", b"\x16\x03\x01\x01\x00", b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03"]


@pytest.mark.parametrize("count", RUNS)
def test_whatever_is_asked_for(tmp_path: Path, count: int) -> None:
    """Of somebody who may: each kind of answer comes, none of them says that something broke."""
    with _fuzzed(tmp_path) as (exporter, seen):
        for seed in range(count):
            found = exchanged(exporter, random_request(Random(seed), RIGHT))
            assert not [status for status in _statuses(found) if status >= 500], f"seed {seed}"
            seen.update(_statuses(found))
        assert {200, 400, 401, 404, 405, 413} <= set(seen)
        assert seen[200] > count / 10


@pytest.mark.parametrize("count", RUNS)
def test_who_has_no_token_learns_nothing(tmp_path: Path, count: int, caplog: pytest.LogCaptureFixture) -> None:
    """401 to every request, 421 under another name, 400 to what is none; and whether the process lives.

    Nothing of it is in the log.
    """
    with caplog.at_level(1), _fuzzed(tmp_path) as (exporter, seen):
        for seed in range(count):
            text = random_request(Random(seed))
            found = exchanged(exporter, text)
            lives = "/livez" in unquote(text.decode("latin-1"))
            assert set(_statuses(found)) <= ({200, 400, 401, 413, 421} if lives else {400, 401, 421}), f"seed {seed}"
            assert b"rl_" not in found
            assert b"rlexporter" not in found
            seen.update(_statuses(found))
        assert {200, 400, 401} <= set(seen)
        assert seen[401] > count / 5
    assert TOKEN not in caplog.text
    ours = ("uvicorn", "rlexporter")
    assert not [each for each in caplog.records if each.name.startswith(ours) or each.levelno > logging.DEBUG]


@pytest.mark.parametrize("count", RUNS)
def test_whatever_is_sent_to_tls(tmp_path: Path, count: int) -> None:
    """What is no handshake ends the connection, and nothing else."""
    files = Files(tmp_path)
    with Exporter(run="test", port=0, linger=0, **files.settings(mutual=True)) as exporter:
        for seed in range(count // 5):
            random = Random(seed)
            sent = random.choice(HELLOS) + random.randbytes(random.randrange(400))
            assert b"HTTP" not in exchanged(exporter, sent), f"seed {seed}"
        assert errors(exporter) == 0


def random_request(random: Random, *credentials: str) -> bytes:
    """Something like a request; now and then cut off, changed in one place, or no such thing at all."""
    method = "GET" if random.random() < 0.6 else random.choice([*METHODS, "get", "G", "", "\0", "X" * 5000])
    version = "HTTP/1.1" if random.random() < 0.9 else random.choice(VERSIONS)
    lines = [f"{method} {_target(random)} {version}"]
    lines += ["Host: localhost"] if random.random() < 0.9 else []
    for _ in range(random.choice([0, 0, 0, 1, 1, 2, 3])):
        name = random.choice([*HEADERS, *["Accept"] * 5])
        lines.append(f"{name}: {random.choice(HEADERS[name])}")
    if random.random() < 0.05:
        lines.append(random.choice(["no colon", f"{_word(random)}: {_word(random)}", ": x", " folded", "X :y"]))
    body = random.choice(BODIES) if random.random() < 0.2 else ""
    text = "\r\n".join([*lines, *credentials, "", body]).encode("latin-1")
    place = random.randrange(len(text))
    match random.randrange(30):
        case 0:
            return text[:place]
        case 1:
            return text[:place] + random.randbytes(random.randrange(4)) + text[place + 1 :]
        case 2:
            return random.randbytes(random.randrange(1, 300))
    return text


def _target(random: Random) -> str:
    path = random.choice([*PATHS, *TARGETS, f"/{_word(random)}", *["/metrics"] * 15, *["/livez"] * 3])
    names = "&".join(f"name[]={random.choice(NAMES)}" for _ in range(random.choice([1, 3, 120])))
    query = random.choice(["", "", "", names, f"{_word(random)}={_word(random)}", random.choice(QUERIES)])
    return f"{path}?{query}" if query else path


def _word(random: Random) -> str:
    return quote("".join(chr(random.randrange(1, 0xD800)) for _ in range(random.randrange(1, 12))))


@contextlib.contextmanager
def _fuzzed(folder: Path) -> Iterator[tuple[Exporter, Counter[int]]]:
    """An exporter with a token, and how often it has answered what; it has to be well afterwards."""
    with Exporter(run="test", port=0, linger=0, token_file=put(folder / "token", TOKEN)) as exporter:
        exporter.log({"reward": 1.5, "mine": 2.0, "rewards/f/mean": 1.0}, step=3)
        yield exporter, Counter()
        assert b'rl_reward_mean{rank="0",run="test"} 1.5' in ask(exporter, "GET", "/metrics", RIGHT).body
        assert errors(exporter) == 0


def exchanged(exporter: Any, text: bytes) -> bytes:
    """Everything that comes back for it."""
    found = b""
    with connect(exporter) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(text)
        sock.shutdown(socket.SHUT_WR)
        while data := sock.recv(1 << 16):
            found += data
    return found


def _statuses(found: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", found)]
