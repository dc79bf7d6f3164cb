"""Receivers of messages on loopback, and a run that has something to tell."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from math import nan
from typing import Any

from rlexporter import Exporter
from tests.tools import answering

HEALTHY = {"loss": 0.1, "grad_norm": 1.0, "reward": 0.5, "kl": 0.01}
BAD = {**HEALTHY, "loss": nan}
Asked = tuple[str, Any]


@contextmanager
def receiver(status: Callable[[int], int] = lambda _: 200, wait: float = 0.0) -> Iterator[tuple[int, list[Asked]]]:
    """A loopback port, and what was posted there; ``status``: of the answer to the first, second ... request."""
    asked: list[Asked] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        asked.append((request.path, json.loads(body)))
        time.sleep(wait)
        request.send_response(status(len(asked)))
        request.end_headers()

    with answering(answer) as port:
        yield port, asked


@contextmanager
def running(address: str, **settings: Any) -> Iterator[Exporter]:
    """A run with ten healthy steps, and one bad one."""
    given = {"run": "mine", "algorithm": "grpo", "port": 0, "linger": 0, "notify": address, **settings}
    exporter = Exporter(**given).start()
    try:
        for step in range(1, 11):
            exporter.log(HEALTHY, step=step)
        exporter.log(BAD, step=11)
        yield exporter
    finally:
        exporter.close()


def failures(exporter: Exporter) -> float:
    """How many messages were not taken."""
    return exporter.snapshot.value("rlexporter_errors_total", where="notify") or 0.0
