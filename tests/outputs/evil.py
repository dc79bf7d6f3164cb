"""Receivers that do not answer as they should, on loopback: real sockets, each connection on a thread of its own."""

from __future__ import annotations

import contextlib
import gzip
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

Behavior = Callable[[socket.socket, threading.Event], None]
"""What is done with a connection, until the event is set."""
OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def listening(behavior: Behavior) -> Iterator[int]:
    """The loopback port of a server that does ``behavior`` with each connection; it ends with the block."""
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            behavior(connection, over)

    def accept() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.settimeout(0.1)
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            over.set()
            acceptor.join()


def request(connection: socket.socket) -> bytes:
    """Read a request with its body."""
    read = b""
    while b"\r\n\r\n" not in read:
        part = connection.recv(65536)
        if not part:
            return read
        read += part
    head, _, body = read.partition(b"\r\n\r\n")
    length = int(re.findall(rb"(?i)\r\ncontent-length: *(\d+)", head)[0])
    while len(body) < length:
        body += connection.recv(65536)
    return body


def drip(connection: socket.socket, over: threading.Event, what: Iterable[bytes]) -> None:
    """Send ``what`` part by part, at a pace that no time-out of a socket notices."""
    for part in what:
        connection.sendall(part)
        if over.wait(0.2):
            return


@dataclass(frozen=True)
class Bytewise:
    """The bytes of a text, and the last one for ever."""

    text: bytes

    def __iter__(self) -> Iterator[bytes]:
        for place in range(len(self.text)):
            yield self.text[place : place + 1]
        while True:
            yield self.text[-1:]


def flood(connection: socket.socket, over: threading.Event, what: bytes) -> None:
    """Send ``what`` as fast as it is read, without end."""
    while not over.is_set():
        connection.sendall(what)


def _asked(answer: Callable[[socket.socket, threading.Event], object]) -> Behavior:
    """Read a request, and answer it so."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        request(connection)
        answer(connection, over)

    return behave


def _dripping(head: bytes, what: Iterable[bytes]) -> Behavior:
    """Begin an answer with ``head``, and go on part by part; ``what`` can be gone through again."""

    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        drip(connection, over, what)

    return _asked(answer)


def _flooding(head: bytes, what: bytes) -> Behavior:
    """Begin an answer with ``head``, and go on without end."""

    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        flood(connection, over, what)

    return _asked(answer)


def _reset(connection: socket.socket, over: threading.Event) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def _bomb(connection: socket.socket, over: threading.Event) -> None:
    """Some megabytes, which are a gigabyte in memory once they are unpacked."""
    packed = gzip.compress(bytes(1 << 30), 1)
    connection.sendall(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)


def _nothing(connection: socket.socket, over: threading.Event) -> None:
    over.wait()


CHUNKED, LONG = b"Transfer-Encoding: chunked\r\n\r\n", b"Content-Length: 1073741824\r\n\r\n"
EVIL: dict[str, Behavior] = {
    "hangs": _asked(_nothing),
    "hangs at once": _nothing,
    "drips its status": _dripping(b"HTTP/1.1 200 ", Bytewise(b"OK")),
    "drips its headers": _dripping(OK, Bytewise(b"X-A: b\r\nX-Long: y")),
    "drips its body": _dripping(OK + LONG, Bytewise(b"x")),
    "drips a body of any length": _dripping(OK + b"Connection: close\r\n\r\n", Bytewise(b"x")),
    "drips chunks": _dripping(OK + CHUNKED, [b"1\r\nx\r\n"] * 100_000),
    "continues for ever": _flooding(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "sends 1 GB": _flooding(OK + LONG, bytes(1 << 20)),
    "sends chunks without end": _flooding(OK + CHUNKED, b"100000\r\n" + bytes(1 << 20) + b"\r\n"),
    "sends a line without end": _flooding(OK + CHUNKED, b"0" * (1 << 20)),
    "sends a bomb": _asked(_bomb),
    "resets": _asked(_reset),
    "closes": _asked(lambda connection, over: None),
    "says nothing that is HTTP": _asked(lambda connection, over: connection.sendall(b"\0\xff" * 1000)),
}
"""By what they do, of HTTP."""
EVIL_MAIL: dict[str, Behavior] = {
    "hangs": _nothing,
    "drips its greeting": lambda connection, over: drip(connection, over, Bytewise(b"220-evil.example.org ")),
    "greets without end": lambda connection, over: flood(connection, over, (b"220-" + b"x" * 4000 + b"\r\n") * 100),
    "closes": lambda connection, over: None,
}
"""The same of SMTP."""


def taking_mail(after: float, mails: list[str]) -> Behavior:
    """A mail server that greets ``after`` some seconds, so that no mail is sent before; it keeps those that come."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        over.wait(after)
        with connection.makefile("rw", newline="\r\n") as file:
            print("220 slow.example.org", file=file, flush=True)
            for line in file:
                data = line.upper().startswith("DATA")
                print("354 go on" if data else "250 fine", file=file, flush=True)
                if data:
                    mails.append("".join(iter(file.readline, ".\r\n")))
                    print("250 taken", file=file, flush=True)

    return behave
