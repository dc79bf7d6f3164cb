"""What strangers cost who scrapes with a token, and the training: scrapes on new connections beside one attack each."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import trustme

from benchmarks.pages import Loop, loop, running, spread

_SCRAPES = 100
_PAUSE_SECONDS = 0.2
_TOKEN = "s3cret"

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
port, authority, count, pause, address = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
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


class Beside(NamedTuple):
    """What an attack does to who scrapes: seconds of each scrape on new connections and on a kept one, None if lost."""

    new: list[float | None]
    kept: list[float | None]


@contextlib.contextmanager
def secured() -> Iterator[tuple[dict[str, Any], str]]:
    """Yield settings of an exporter with TLS and a token, and the file of who signed its certificate."""
    with tempfile.TemporaryDirectory() as folder:
        authority, token = trustme.CA(), Path(folder) / "token"
        authority.cert_pem.write_to_path(f"{folder}/authority")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(f"{folder}/own")
        Path(f"{folder}/own").chmod(0o600)
        token.touch(0o600)
        token.write_text(_TOKEN)
        yield {"token_file": str(token), "tls_cert_file": f"{folder}/own"}, f"{folder}/authority"


@contextlib.contextmanager
def attacked(attack: str, address: str, port: int) -> Iterator[None]:
    """Let somebody at ``address`` attack the endpoint."""
    with running(_ATTACKER, str(port), attack, address):
        yield


@contextlib.contextmanager
def scraper(port: int, authority: str, count: int = _SCRAPES, address: str = "127.0.0.1") -> Iterator[Any]:
    """Yield a function that scrapes so often, on a new connection and on one that was opened before, from ``address``."""
    command = [sys.executable, "-c", _SCRAPER, str(port), authority, str(count), str(_PAUSE_SECONDS), address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603 - our own
        assert process.stdout
        process.stdout.readline()
        yield lambda: Beside(**json.loads(process.communicate("\n")[0]))


def _said(times: list[float | None]) -> str:
    answered = sorted(1e3 * each for each in times if each is not None)
    if not answered:
        return f"{len(times)} of {len(times)}"
    return f"{len(times) - len(answered)} of {len(times)}; {median(answered):.0f} ms, longest {answered[-1]:.0f} ms"


if __name__ == "__main__":
    from benchmarks.measure import cpu_of
    from rlexporter import Exporter
    import time
    attack, address, who = sys.argv[1], sys.argv[2], sys.argv[3]
    with secured() as (settings, authority), Exporter(run="bench", port=0, linger=0, **settings) as exporter:
        exporter.log({"reward": 1.0, **{f"k{i}": 1.0 for i in range(150)}}, step=1)
        with scraper(exporter.port, authority, int(sys.argv[5]), who) as scrape, attacked(attack, address, exporter.port):
            time.sleep(float(sys.argv[4]))
            cpu, at = cpu_of("rlexporter-http"), time.monotonic()
            found = scrape()
            cpu, at = cpu_of("rlexporter-http") - cpu, time.monotonic() - at
        print("new", _said(found.new), "| kept", _said(found.kept), f"| cpu {1e3 * cpu / at:.0f} ms/s", "errors", exporter.snapshot.value("rlexporter_errors_total", where="scrape"))
