"""HTTP by hand, over real sockets: what a stranger sends, and what comes back."""

from __future__ import annotations

import http.client
import select
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rlexporter import Exporter


@dataclass(frozen=True)
class Answer:
    """One answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def connect(exporter: Exporter, host: str = "127.0.0.1", *, room: int = 0) -> socket.socket:
    """A connection to the endpoint, from ``host``; ``room``: bytes that it takes before they are read."""
    assert exporter.port
    sock = socket.socket()
    try:
        sock.settimeout(20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if room:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        if host != "127.0.0.1":
            sock.bind((host, 0))  # this looks long for a port that nobody used lately
        sock.connect(("127.0.0.1", exporter.port))
    except BaseException:
        sock.close()
        raise
    return sock


def request(method: str = "GET", path: str = "/metrics", *headers: str) -> bytes:
    """The head of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def read(sock: socket.socket, method: str = "GET") -> Answer | None:
    """The next answer; None where the connection was ended instead."""
    found = http.client.HTTPResponse(sock, method=method)
    try:
        found.begin()
        return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
    except (ConnectionError, http.client.IncompleteRead):
        return None
    finally:
        found.close()


def ask(exporter: Exporter, method: str = "GET", path: str = "/metrics", *headers: str) -> Answer:
    """The answer to one request on a connection of its own."""
    with connect(exporter) as sock:
        sock.sendall(request(method, path, *headers))
        found = read(sock, method)
    assert found is not None
    return found


def ended(sock: socket.socket) -> bool:
    """Wait for the end of a connection; whatever comes before is dropped.

    In a thread of its own: OpenSSL 3.6 answers an end without a goodbye with an alert, and where the other side has
    shut the socket, the error of that alert stays with the thread. Python 3.14 then takes it for one of the next
    connection that the thread reads.
    """
    with ThreadPoolExecutor(1) as alone:
        return alone.submit(_ended, sock).result()


def _ended(sock: socket.socket) -> bool:
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def readable(sock: socket.socket, milliseconds: int = 0) -> bool:
    """Whether something has come, or the end of the connection."""
    poll = select.poll()  # select() takes no descriptor above 1023, and a long test run has many open
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(milliseconds))


def accepted(port: int | None) -> int:
    """How many connections the server on this port holds, as the kernel counts them."""
    return sum(holds for holds, _ in _sockets(port))


def unsent(port: int | None) -> int:
    """How many bytes the kernel keeps for clients of this port, in connections that nobody holds any more too."""
    return sum(waiting for _, waiting in _sockets(port))


def _sockets(port: int | None) -> list[tuple[bool, int]]:
    """Of each connection that the server on this port has accepted: whether a process holds it, and bytes not sent."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [row for row in rows if row[1].endswith(f":{port:04X}") and row[3] != "0A"]
    return [(row[9] != "0", int(row[4].split(":")[0], 16)) for row in ours]
