"""What strangers cost who scrapes with a token, and the training: scrapes on new connections beside one attack each."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import trustme

from benchmarks.measure import cpu_of
from benchmarks.pages import running
from rlexporter import TLS

if TYPE_CHECKING:
    from rlexporter import Exporter

_SCRAPES = 100
_PAUSE_SECONDS = 0.2

_ATTACKER = """
import asyncio, contextlib, socket, ssl, sys
port, attack, address = int(sys.argv[1]), sys.argv[2], sys.argv[3]
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

def hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()

HELLO = hello()

async def connection():
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind((address, 0))
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock

async def half():
    "A handshake that stops half-way."
    with contextlib.suppress(OSError):
        with await connection() as sock:
            await asyncio.get_running_loop().sock_sendall(sock, HELLO)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(until_shut(sock), 10)

async def until_shut(sock):
    while await asyncio.get_running_loop().sock_recv(sock, 1 << 16):
        pass

async def slow():
    "The beginning of a handshake, byte by byte, again and again."
    while True:
        with contextlib.suppress(OSError):
            with await connection() as sock:
                for byte in HELLO:
                    await asyncio.get_running_loop().sock_sendall(sock, bytes([byte]))
                    await asyncio.sleep(1)
        await asyncio.sleep(0.01)

async def wrong():
    "Requests with a wrong token, as fast as they are answered."
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, local_addr=(address, 0))
            while True:
                writer.write(b"GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\nAuthorization: Bearer x\\r\\n\\r\\n" * 4)
                if not await reader.read(1 << 20):
                    break

async def knock():
    "New connections, as fast as they are taken."
    while True:
        with contextlib.suppress(OSError):
            with await connection() as sock:
                await asyncio.get_running_loop().sock_sendall(sock, HELLO)

async def every(seconds, kind):
    running = set()
    while True:
        task = asyncio.create_task(kind())
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(seconds)

async def main():
    tasks = {
        "half": lambda: [every(1 / 64, half), *(slow() for _ in range(200))],
        "halves": lambda: [every(1 / 640, half)],
        "wrong": lambda: [wrong() for _ in range(20)],
        "knock": lambda: [knock() for _ in range(8)],
    }[attack]()
    print("attacking", flush=True)
    await asyncio.gather(*tasks)

asyncio.run(main())
"""
_SCRAPER = """
import http.client, json, ssl, sys, time
port, count, pause, authority, address = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:]
context = ssl.create_default_context(cafile=authority)
def connection():
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context, source_address=(address, 0))
def scrape(connection):
    began = time.monotonic()
    try:
        connection.request("GET", "/metrics", headers={"Authorization": "Bearer s3cret", "User-Agent": "Prometheus/3"})
        answer = connection.getresponse()
        whole = answer.status == 200 and b"rl_step" in answer.read()
    except (OSError, http.client.HTTPException) as error:
        print(repr(error), file=sys.stderr)
        connection.close()
        return None
    return time.monotonic() - began if whole else None
kept, found = connection(), {"new": [], "kept": []}
scrape(kept)
print("scraping", flush=True)
sys.stdin.readline()
for _ in range(count):
    one = connection()
    found["new"].append(scrape(one))
    one.close()
    found["kept"].append(scrape(kept))
    time.sleep(pause)
print(json.dumps(found))
"""


_ATTACKS = {
    "nobody": ("", ""),
    "64 handshakes a second that stop half-way, and 200 slow ones": ("half", "127.0.0.1"),
    "the same, from another address": ("half", "127.0.0.2"),
    "20 that bring a wrong token, as fast as they are answered": ("wrong", "127.0.0.1"),
    "640 half handshakes a second, from another address": ("halves", "127.0.0.2"),
    "8 that connect as fast as they can, from another address": ("knock", "127.0.0.2"),
}
"""Who attacks, how, and from which address; who scrapes is at 127.0.0.1."""
_FIRST_SECONDS = 25.0
"""Until what may be used at once is used up."""


class Scrapes(NamedTuple):
    """Seconds of each scrape on a new connection, and on one that was opened before; None if it was lost."""

    new: list[float | None]
    kept: list[float | None]


class Beside(NamedTuple):
    """What goes on beside an attack: scrapes, milliseconds a step, CPU milliseconds a second of the endpoint."""

    scrapes: Scrapes
    step: float
    endpoint: float


def rows() -> Iterator[str]:
    """The lines of a Markdown table."""
    yield (
        "| who attacks | lost on new connections; answered in | lost on a kept one; answered in "
        "| a step: ms | endpoint: CPU ms a second |"
    )
    yield "|---|---|---|---|---|"
    for what, (attack, address) in _ATTACKS.items():
        found = beside(attack, address)
        yield (
            f"| {what} | {_said(found.scrapes.new)} | {_said(found.scrapes.kept)} "
            f"| {found.step:.1f} | {found.endpoint:.0f} |"
        )


def beside(attack: str, address: str, scrapes: int = _SCRAPES, first: float = _FIRST_SECONDS) -> Beside:
    """Train, and be scraped, while somebody at ``address`` attacks; nobody if ``attack`` is empty."""
    from rlexporter import Exporter

    with secured() as (settings, authority), Exporter(run="bench", port=0, linger=0, **settings) as exporter:
        port = exporter.port or 0
        attacks = attacked(port, attack, address) if attack else contextlib.nullcontext()
        with ThreadPoolExecutor(1) as pool, scraper(port, authority, scrapes) as scrape, attacks:
            _train(exporter, lambda began: time.monotonic() - began > first)
            before, began = cpu_of("rlexporter-http"), time.monotonic()
            scraped = pool.submit(scrape)
            steps = _train(exporter, lambda _: scraped.done())
            took, used = time.monotonic() - began, cpu_of("rlexporter-http") - before
    return Beside(scraped.result(), 1e3 * took / steps, 1e3 * used / took)


def _train(exporter: Exporter, done: Callable[[float], bool]) -> int:
    """Compute with torch and Python, and log, until it is ``done`` in a time that began now; return the steps."""
    import torch

    weights, began, steps = torch.randn(256, 256), time.monotonic(), 0
    line = {"reward": 1.0, **{f"mine/{number}": 1.0 for number in range(100)}}
    while not done(began):
        steps += 1
        for _ in range(40):
            weights = torch.tanh(weights @ weights / 16)
        sum(number * number for number in range(50_000))
        exporter.log(line)
    return steps


@contextlib.contextmanager
def secured() -> Iterator[tuple[dict[str, Any], str]]:
    """Yield settings of an exporter with TLS and a token, and the file of who signed its certificate."""
    with tempfile.TemporaryDirectory() as folder:
        authority, token = trustme.CA(), Path(folder) / "token"
        authority.cert_pem.write_to_path(f"{folder}/authority")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(f"{folder}/own")
        Path(f"{folder}/own").chmod(0o600)
        token.touch(0o600)
        token.write_text("s3cret")
        yield {"token_file": str(token), "tls": TLS(f"{folder}/own")}, f"{folder}/authority"


def attacked(port: int, attack: str, address: str) -> contextlib.AbstractContextManager[None]:
    """Let somebody at ``address`` attack: `half`, `halves`, `wrong` or `knock`."""
    return running(_ATTACKER, str(port), attack, address)


@contextlib.contextmanager
def scraper(port: int, authority: str, count: int) -> Iterator[Callable[[], Scrapes]]:
    """Yield a function that scrapes so often, on new connections and on one that was opened before."""
    command = [sys.executable, "-c", _SCRAPER, str(port), str(count), str(_PAUSE_SECONDS), authority, "127.0.0.1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603 - our own
        assert process.stdout
        process.stdout.readline()
        yield lambda: Scrapes(**json.loads(process.communicate("\n")[0]))


def _said(times: list[float | None]) -> str:
    answered = sorted(1e3 * each for each in times if each is not None)
    lost = f"{len(times) - len(answered)} of {len(times)}"
    return f"{lost}; {median(answered):.0f} ms, at most {answered[-1]:.0f}" if answered else lost
