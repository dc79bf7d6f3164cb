"""Real servers for tests: Prometheus of two generations, unpacked by `make tools` into .tools/."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = ROOT / ".tools"
REQUIRED = os.environ.get("RLEXPORTER_REQUIRE_ALL") == "1"
GENERATIONS = ("2", "3")


def require_tools(generation: str) -> Path:
    """The folder of a generation's binaries; the test is skipped where they are missing, and fails in CI."""
    folder = TOOLS / f"prometheus-{generation}"
    if not (folder / "prometheus").exists():
        reason = f"no Prometheus {generation} in {folder}: `make tools` unpacks it on Debian"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


def promtool_lint(tools: Path, text: str) -> str:
    """What `promtool check metrics` says of a scrape."""
    done = subprocess.run(
        [str(tools / "promtool"), "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
    )
    return done.stdout + done.stderr


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    port: int

    def query(self, expression: str, **parameters: str) -> list[dict[str, Any]]:
        """The result of an instant query."""
        found: dict[str, Any] = self.get("query", query=expression, **parameters)
        return list(found["result"])

    def value(self, expression: str) -> float | None:
        """The value of an instant query with one result; None where there is none."""
        result = self.query(expression)
        assert len(result) <= 1, result
        return float(result[0]["value"][1]) if result else None

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the HTTP API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), answer
        return answer["data"]


@contextmanager
def prometheus(generation: str, folder: Path, targets: Sequence[str], interval: str = "1s") -> Iterator[Prometheus]:
    """A real Prometheus that scrapes ``targets``, on a free loopback port; stopped by its own process id."""
    tools, port = require_tools(generation), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": interval, "scrape_timeout": "1s", "evaluation_interval": "1s"},
                "scrape_configs": [{"job_name": "rlexporter", "static_configs": [{"targets": list(targets)}]}],
            }
        )
    )
    command = [
        str(tools / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_ready(port, server, folder / "log")
            yield Prometheus(port)
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def eventually(check: Any, seconds: float = 30.0) -> Any:
    """Wait until ``check`` returns something true; what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found or time.monotonic() > deadline:
            assert found, f"still not after {seconds} s"
            return found
        time.sleep(0.1)


def _wait_ready(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while not _answers(f"http://127.0.0.1:{port}/-/ready"):
        if time.monotonic() > deadline or server.poll() is not None:
            raise AssertionError(f"Prometheus did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False
