"""Real servers for tests: Prometheus and Alertmanager of two generations, unpacked by `make tools` into .tools/."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import SystemRandom
from typing import IO, Any

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = ROOT / ".tools"
REQUIRED = os.environ.get("RLEXPORTER_REQUIRE_ALL") == "1"
GENERATIONS = ("2", "3")
ALERTMANAGERS = ("old", "new")
EACH_GENERATION = [pytest.param(GENERATIONS[0], marks=pytest.mark.soak), GENERATIONS[1]]
BOTH_GENERATIONS = [pytest.param(GENERATIONS[0], marks=pytest.mark.slow), GENERATIONS[1]]
EACH_ALERTMANAGER = [pytest.param(ALERTMANAGERS[0], marks=pytest.mark.slow), ALERTMANAGERS[1]]
"""Parameters of tests, where all but one are for `make test-all`, or in the first list for `make soak`."""


def require_tools(generation: str) -> Path:
    """The folder of a generation's binaries; the test is skipped where they are missing, and fails in CI."""
    return _require(TOOLS / f"prometheus-{generation}", "prometheus")


def require_alertmanager(generation: str) -> Path:
    """The same for a generation of Alertmanager, 0.25 or 0.33."""
    return _require(TOOLS / f"alertmanager-{generation}", "prometheus-alertmanager")


def require_victoria() -> Path:
    """The same for VictoriaMetrics and its vmalert."""
    return _require(TOOLS / "victoria-metrics", "vmalert")


def require_tool(name: str) -> Path:
    """The same for a tool that has a folder to itself; its binary."""
    return _require(TOOLS / name, name) / name


def _require(folder: Path, binary: str) -> Path:
    if not (folder / binary).exists():
        reason = f"no {binary} in {folder}: `make tools` unpacks it on Debian"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


def promtool_lint(tools: Path, text: str) -> str:
    """What `promtool check metrics` says of a scrape."""
    done = subprocess.run(
        [str(tools / "promtool"), "check", "metrics"], input=text, capture_output=True, text=True, timeout=600
    )
    return done.stdout + done.stderr


_PORTS = range(12_000, 32_000)
"""Below those that the kernel gives to clients, so that no connection of another test takes one before its server."""
_RANDOM = SystemRandom()  # tests seed the other one


_HELD: list[socket.socket] = []
"""Bound to each port that was given away, for as long as this process lives, and never listening."""


def free_port() -> int:
    """A port that nobody listens on, nor on the next one, and that no other test is given.

    A server may listen there (with SO_REUSEADDR, as servers do) although a socket of ours is bound to it; until one
    does, connections are refused.
    """
    while True:
        port = _RANDOM.choice(_PORTS)
        with suppress(OSError):
            for each in (port, port + 1):
                with socket.socket() as alone:  # without SO_REUSEADDR it fails where another test holds the port
                    alone.bind(("127.0.0.1", each))
                _hold(each)
            return port


def _hold(port: int) -> None:
    held = socket.socket()
    _HELD.append(held)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))


def free_ports(names: Iterable[str]) -> dict[str, int]:
    """One for each name."""
    return {name: free_port() for name in names}


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
        with urllib.request.urlopen(url, timeout=600) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), answer
        return answer["data"]


def each_second(rules: Path, folder: Path) -> Path:
    """A copy of the rules in ``folder`` that is evaluated as often as the server is told to, which is each second."""
    copied = folder / "each-second.rules.yml"
    copied.write_text(re.sub(r"^    interval: 15s\n", "", rules.read_text(), flags=re.MULTILINE))
    return copied


@contextmanager
def prometheus(
    generation: str,
    folder: Path,
    targets: Sequence[str],
    interval: str = "1s",
    *,
    rules: Path | None = None,
    alertmanagers: Sequence[int] = (),
    replica: str = "",
    scrape: dict[str, Any] | None = None,
    options: Sequence[str] = (),
) -> Iterator[Prometheus]:
    """A real Prometheus that scrapes ``targets``, on a free loopback port; stopped by its own process id.

    ``alertmanagers``: the ports of those it sends alerts to; ``replica``: which one of a pair it is; ``scrape``: more
    settings of the scrape job; ``options``: more of the command line. Started again in the same folder it knows what
    it knew.
    """
    tools, port = require_tools(generation), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    alerting: dict[str, Any] = {
        "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{each}" for each in alertmanagers]}]}],
        "alert_relabel_configs": [{"regex": "replica", "action": "labeldrop"}],
    }
    config = {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": "1s",
            "evaluation_interval": "1s",
            "external_labels": {"replica": replica} if replica else {},
        },
        "rule_files": [str(each_second(rules, folder))] if rules else [],
        "alerting": alerting if alertmanagers else {},
        "scrape_configs": [
            {"job_name": "rlexporter", "static_configs": [{"targets": list(targets)}], **(scrape or {})}
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command = [
        str(tools / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        *options,
    ]
    with running(command, folder, port):
        yield Prometheus(port)


@dataclass(frozen=True)
class Alertmanager:
    """A running server."""

    port: int
    log: Path

    def post(self, *alerts: dict[str, Any]) -> None:
        """Send alerts as Prometheus does; one whose ``endsAt`` is past is resolved."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v2/alerts",
            json.dumps(alerts).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as response:
            assert response.status == 200


@contextmanager
def alertmanager(
    generation: str, folder: Path, config: str, port: int = 0, options: Sequence[str] = ()
) -> Iterator[Alertmanager]:
    """A real Alertmanager on a loopback port, templates of ``config`` beside it; stopped by its own process id.

    Started again in the same folder it knows what it knew; ``port``: 0 for a free one.
    """
    tools, port = require_alertmanager(generation), port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(config)
    command = [
        str(tools / "prometheus-alertmanager"),
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        *options,
    ]
    # Debian's looks for its default templates where it is started: see scripts/tools.
    with running(command, folder, port, cwd=tools):
        yield Alertmanager(port, folder / "log")


@contextmanager
def answering(
    answer: Callable[[BaseHTTPRequestHandler], None], port: int = 0, certificate: Path | None = None
) -> Iterator[int]:
    """The loopback port of a server whose requests ``answer`` answers; ``certificate``: with its key, to speak TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def do_POST(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # many may come at once, and what finds the queue full comes a second later

    with Server(("127.0.0.1", port), Handler) as server:
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Webhook:
    """Keeps what is posted to it on a free loopback port, as (path, body) in the order of arrival.

    The body has the time of arrival too, in seconds since the epoch, as ``receivedAt``.
    """

    port: int = field(default=0, init=False)
    received: list[tuple[str, Any]] = field(default_factory=list, init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Webhook:
        def keep(asked: BaseHTTPRequestHandler) -> None:
            body = json.loads(asked.rfile.read(int(asked.headers["Content-Length"])))
            self.received.append((asked.path, body | {"receivedAt": time.time()}))
            asked.send_response(200)
            asked.end_headers()
            asked.wfile.write(b"ok")

        self.port = self._open.enter_context(answering(keep))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def bodies(self, path: str) -> list[Any]:
        """What came at this path so far."""
        return [body for where, body in list(self.received) if where == path]


def eventually(check: Any, seconds: float = 600.0) -> Any:
    """Wait until ``check`` returns something true; what it returned. ``seconds``: what never comes is given up."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found or time.monotonic() > deadline:
            assert found, f"still not after {seconds} s"
            return found
        time.sleep(0.1)


def scraped(server: Prometheus, targets: int, since: float) -> float:
    """Wait for a moment at which a server has scraped every target after ``since``; return that moment.

    On a busy machine a scrape can time out, and the series of that target are gone until the next one.
    """
    return _moment(server, _scraped_after(since), targets)


def wait_scraped(server: Prometheus, targets: int, since: float) -> None:
    """Wait until a server has scraped every target after ``since``, whatever comes next."""
    eventually(lambda: len(server.query(_scraped_after(since))) == targets)


def _scraped_after(since: float) -> str:
    return f"(up == 1) and (timestamp(up) > {since:.3f})"


def heard(server: Prometheus, targets: int, since: float) -> float:
    """Wait for a moment at which every target has pushed to a server after ``since``; return that moment."""
    return _moment(server, f"count by (run, rank, team) (timestamp(rl_run_state) > {since:.3f})", targets)


def _moment(server: Prometheus, fresh: str, targets: int) -> float:
    def found() -> float | None:
        at = time.time() - 4.0  # a scrape that fails counts from its beginning: by now all have ended that began before
        return at if len(server.query(fresh, time=f"{at:.3f}")) == targets else None

    return float(eventually(found, 180.0))


@contextmanager
def running(
    command: Sequence[str], folder: Path, port: int, cwd: Path | None = None, ready: str = "/-/ready"
) -> Iterator[None]:
    """A server from when ``ready`` answers; what it writes is in ``folder``/log."""
    with (folder / "log").open("a") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=cwd)
        try:
            _wait_ready(f"http://127.0.0.1:{port}{ready}", server, folder / "log")
            yield
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@contextmanager
def launched(command: Sequence[str], folder: Path, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A script or its launcher in ``folder``, whose output goes to `out` and `err` there; ended by its process id."""
    folder.mkdir(parents=True, exist_ok=True)
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            command, env=os.environ | path | quiet | environ, stdout=out, stderr=err, text=True, cwd=folder
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(40)
        process.kill()
        process.wait()


def served(port: int, agent: str = "tests") -> str:
    """The metrics on this port; empty where nobody serves any."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"User-Agent": agent})
    with suppress(OSError), urllib.request.urlopen(request, timeout=5) as response:
        return str(response.read().decode())
    return ""


def said_until(words: str, output: IO[str]) -> str:
    """Read what a process prints, up to the line with ``words``; fail with all it said if it ends before."""
    said = ""
    while words not in said:
        line = output.readline()
        assert line, f"never said {words!r}: {said}"
        said += line
    return said


def _wait_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not _answers(url):
        if time.monotonic() > deadline or server.poll() is not None:
            raise AssertionError(f"{server.args!r} did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


def switched_on(config: str) -> str:
    """The configuration of Alertmanager with every integration on that is a comment in it as it is delivered."""
    head, mark, receivers = config.partition("\nreceivers:\n")
    changed, count = re.subn(r"(?m)^    # ", "    ", receivers)
    assert count > 20
    return head + mark + changed
