"""What TLS costs the memory of a training: asyncio's own, and the endpoint's.

Each server is a process of its own that has imported TRL, so that its garbage collector has as much to look after as
in a training. Clients are in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import trustme

from rlexporter.endpoint.tls_protocol import TLSProtocol

_AT_REST = 128
_KNOCKS = 4000
_AT_ONCE = 100
_HALF_A_HELLO = b"\x16\x03\x01\x01\x00"
_PAGE_BYTES = 4096
_STAY_SECONDS = 0.15

_Visit = Callable[[int, str, int], contextlib.ExitStack]


def rows() -> Iterator[str]:
    """The lines of a Markdown table: megabytes that a server grows by."""
    yield "| | asyncio | rlexporter |"
    yield "|---|---|---|"
    yield f"| {_AT_REST} connections at rest | {_both(_rest, _AT_REST, 'gc')} |"
    yield f"| {_KNOCKS:,} handshakes that were left | {_both(_knock, _KNOCKS, 'gc')} |"
    yield f"| the same, without a garbage collector | {_both(_knock, _KNOCKS, 'no-gc')} |"


def _both(visit: _Visit, count: int, collector: str) -> str:
    return " | ".join(f"{_growth(kind, visit, count, collector):.0f}" for kind in ("asyncio", "rlexporter"))


def _growth(kind: str, visit: _Visit, count: int, collector: str) -> float:
    """Megabytes that a server of this kind grows by when it is visited."""
    with tempfile.TemporaryDirectory() as folder:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(f"{folder}/authority")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(f"{folder}/own")
        command = [sys.executable, "-m", "benchmarks.knocks", kind, collector, f"{folder}/own"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:  # noqa: S603 - our own
            assert server.stdin
            assert server.stdout
            port = int(server.stdout.readline())
            visit(port, f"{folder}/authority", 2).close()  # what is needed once
            before = _megabytes(server.pid)
            with visit(port, f"{folder}/authority", count):
                after = _megabytes(server.pid)
            server.stdin.close()
    return after - before


def _rest(port: int, authority: str, count: int) -> contextlib.ExitStack:
    """Connect, and stay."""
    context = ssl.create_default_context(cafile=authority)
    stack = contextlib.ExitStack()
    for _ in range(count):
        raw = socket.create_connection(("127.0.0.1", port))
        stack.enter_context(context.wrap_socket(raw, server_hostname="127.0.0.1"))
    return stack


def _knock(port: int, authority: str, count: int) -> contextlib.ExitStack:
    """Begin a handshake, and go; so many times."""
    for begun in range(0, count, _AT_ONCE):
        with contextlib.ExitStack() as stack:
            for _ in range(min(_AT_ONCE, count - begun)):
                stack.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(_HALF_A_HELLO)
            time.sleep(_STAY_SECONDS)
    time.sleep(_STAY_SECONDS)
    return contextlib.ExitStack()


def _megabytes(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6


def _serve(kind: str, collector: str, own: str) -> None:
    """Be a server until standard input ends, on a thread beside one that makes and drops objects."""
    for name in ("transformers.trainer", "trl.trainer.grpo_trainer"):
        importlib.import_module(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    if collector == "no-gc":
        gc.disable()
    threading.Thread(target=lambda: asyncio.run(_answer(kind, context)), daemon=True).start()
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.wait(0.005):
        _ = [{} for _ in range(1500)]


async def _answer(kind: str, context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    if kind == "asyncio":
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=context)
    else:
        server = await loop.create_server(lambda: TLSProtocol(context, asyncio.Protocol), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
