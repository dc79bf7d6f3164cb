"""Many simulated targets in one process, and a Prometheus that scrapes them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.tools import Prometheus, require_tools, running


def targets(port: int, count: int) -> list[dict[str, Any]]:
    """The static configurations of ``count`` targets on this port, each at its own path and with its own instance."""
    return [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"__metrics_path__": f"/{number}", "instance": f"node-{number}:1"}}
        for number in range(count)
    ]


@contextlib.contextmanager
def answering(text: Callable[[int], str | None]) -> Iterator[int]:
    """Serve what ``text`` says of each number, at the path of that number, and hang up where it is None; the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                found = text(int(head.split(b" ", 2)[1].strip(b"/")))
                if found is None:
                    break
                body = found.encode()
                kind = b"Content-Type: text/plain; version=0.0.4"
                writer.write(b"HTTP/1.1 200 OK\r\n%b\r\nContent-Length: %d\r\n\r\n%b" % (kind, len(body), body))
                await writer.drain()
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@contextlib.contextmanager
def server(generation: str, folder: Path, port: int, config: Mapping[str, Any], *options: str) -> Iterator[Prometheus]:
    """Run a Prometheus with this configuration on ``port``; its files are in ``folder``."""
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config))
    command = [
        str(require_tools(generation) / "prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        *options,
    ]
    with running(command, folder, port):
        yield Prometheus(port)
