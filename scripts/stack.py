"""`make stack`: the demo, Prometheus and Alertmanager on this machine, with the committed rules and configuration.

It needs no Docker: binaries come from .tools/, else from PATH. Ctrl-C or SIGTERM ends all of it. What it does not know
goes to the demo: `make stack ARGS="--fault nan@200"`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PORTS = {"demo": 9750, "prometheus": 9090, "alertmanager": 9093}

_BINARIES = {
    "prometheus": (".tools/prometheus-3/prometheus", ".tools/prometheus-2/prometheus", "prometheus"),
    "alertmanager": (
        ".tools/alertmanager-new/prometheus-alertmanager",
        ".tools/alertmanager-old/prometheus-alertmanager",
        "alertmanager",
        "prometheus-alertmanager",
    ),
}
_READY = {"demo": "/readyz", "prometheus": "/-/ready", "alertmanager": "/-/ready"}
# Debian's servers have no pages; what is shown instead is JSON.
_WITHOUT_PAGES = {"prometheus": "/api/v1/alerts", "alertmanager": "/api/v2/alerts"}
_STEPS = "100000"
_LAST_SCRAPE_SECONDS = 15.0
_STOP_SECONDS = 10.0
_LOG_LINES = 20
_KEPT = 5
"""The stacks whose logs are kept."""


class StackError(Exception):
    """What keeps the stack from running."""


@dataclass(frozen=True)
class Child:
    """One process of the stack."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until told to end: 0 then, 1 where a process died, 2 where it cannot begin."""
    parser = argparse.ArgumentParser(prog="stack", description=__doc__, allow_abbrev=False)
    for name, port in PORTS.items():
        option = "--port" if name == "demo" else f"--{name}-port"
        parser.add_argument(option, type=int, default=port, metavar="P", dest=name, help=f"default: {port}")
    options, of_demo = parser.parse_known_args(arguments)
    told: list[int] = []
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda number, _: told.append(number))
    try:
        with _folder() as folder:
            return _run(folder, _free_ports(vars(options)), of_demo, told)
    except StackError as error:
        print(f"stack: {error}", file=sys.stderr)
        return 2


def _run(folder: Path, ports: dict[str, int], of_demo: Sequence[str], told: list[int]) -> int:
    (folder / "prometheus.yml").write_text(_configured(ports))
    # The demo comes last and goes first: Prometheus then sees all of it.
    commands = {
        "alertmanager": _alertmanager(folder, ports["alertmanager"]),
        "prometheus": _prometheus(folder, ports["prometheus"]),
        "demo": _demo(ports["demo"], of_demo),
    }
    children: list[Child] = []
    try:
        for name, command in commands.items():
            children.append(_start(name, command, folder))
        return _watch(children, ports, told)
    finally:
        _stop(children, told)


def _demo(port: int, options: Sequence[str]) -> list[str]:
    steps = () if any(each.split("=")[0] == "--steps" for each in options) else ("--steps", _STEPS)
    return [sys.executable, "-m", "rlexporter", "demo", "--port", str(port), *steps, *options]


def _prometheus(folder: Path, port: int) -> list[str]:
    return [
        _binary("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.external-url=http://127.0.0.1:{port}",
        # What fires in the first evaluation is sent before Alertmanager is found, and again only after a minute.
        "--rules.alert.resend-delay=10s",
    ]


def _alertmanager(folder: Path, port: int) -> list[str]:
    return [
        _binary("alertmanager"),
        f"--config.file={ROOT / 'alerts/alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.external-url=http://127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]


def _configured(ports: dict[str, int]) -> str:
    """The configuration of docker-compose.yml, for this machine."""
    text = (ROOT / "deploy/compose/prometheus.yml").read_text()
    for old, new in {
        "demo:9750": f"127.0.0.1:{ports['demo']}",
        "    # The run of the profile `broken`, if it is there: a name that nobody has is no target.\n": "",
        "    dns_sd_configs: [{names: [broken], type: A, port: 9750}]\n": "",
        "alertmanager:9093": f"127.0.0.1:{ports['alertmanager']}",
        "/etc/prometheus/rlexporter.rules.yml": str(ROOT / "alerts/rlexporter.rules.yml"),
    }.items():
        if old not in text:
            raise StackError(f"deploy/compose/prometheus.yml has no {old}")
        text = text.replace(old, new)
    return text


def _binary(name: str) -> str:
    for each in _BINARIES[name]:
        found = shutil.which(ROOT / each if "/" in each else each)
        if found:
            return found
    raise StackError(f"no {name} here: neither in .tools/ (`make tools` unpacks it, on Debian) nor on PATH")


def _free_ports(wanted: dict[str, int]) -> dict[str, int]:
    """These ports or the next free ones, no two the same."""
    chosen: dict[str, int] = {}
    for name, port in wanted.items():
        free = next((each for each in range(port, 65536) if each not in chosen.values() and _is_free(each)), None)
        if free is None:
            raise StackError(f"no free port for {name} from {port} on")
        if free != port:
            _say(f"port {port} is taken: {name} gets {free}")
        chosen[name] = free
    return chosen


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder of this stack alone, since another one may be running. Its logs stay, and those of the last few."""
    folder = ROOT / ".work/stack" / str(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ended = [each for each in folder.parent.iterdir() if not Path("/proc", each.name).exists()]
    for old in sorted(ended, key=lambda each: each.stat().st_mtime)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    try:
        yield folder
    finally:
        for each in folder.iterdir():
            if each.is_dir():
                shutil.rmtree(each)


def _start(name: str, command: list[str], folder: Path) -> Child:
    # Debian's Alertmanager looks for its default templates where it is started: see scripts/tools.
    cwd = ROOT if name == "demo" else Path(command[0]).parent
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            # Threads of torch that wait for a busy core make a tiny model many times slower.
            env={"OMP_NUM_THREADS": "1", **os.environ},
            # A session of its own: Ctrl-C in a terminal would otherwise reach all of them at once.
            start_new_session=True,
        )
    return Child(name, process, log)


def _watch(children: Sequence[Child], ports: dict[str, int], told: list[int]) -> int:
    """Say what can be looked at, once it can, until told to end or until something died."""
    _say(f"starting; logs are in {children[0].log.parent.relative_to(ROOT)}, and stay there; Ctrl-C ends it")
    running, awaited = list(children), list(ports)
    while not told:
        for name in [each for each in awaited if _answers(ports[each], _READY[each])]:
            awaited.remove(name)
            _say(f"{name:13} {_shown(name, ports[name])}")
        for child in [each for each in running if each.process.poll() is not None]:
            if child.name != "demo" or child.process.returncode:
                _say(f"{child.name} has ended with status {child.process.returncode}; it said last:")
                print(_end_of(child.log), flush=True)
                return 1
            _say("the demo has ended; Prometheus keeps what it saw until Ctrl-C")
            running.remove(child)
        time.sleep(0.2)
    return 0


def _stop(children: Sequence[Child], told: list[int]) -> None:
    """End all children, the demo first; a second signal ends the waiting."""
    signals = len(told)
    for child in reversed(children):
        demo = child.name == "demo"
        child.process.send_signal(signal.SIGINT if demo else signal.SIGTERM)
        deadline = time.monotonic() + (_LAST_SCRAPE_SECONDS if demo else _STOP_SECONDS)
        while child.process.poll() is None and time.monotonic() < deadline and len(told) == signals:
            time.sleep(0.05)
        child.process.kill()
        child.process.wait()
    if children:
        _say(f"all processes have ended; logs are in {children[0].log.parent.relative_to(ROOT)}")


def _shown(name: str, port: int) -> str:
    """The address for a person: of the page, or of alerts as JSON where a server was built without pages."""
    page = f"http://127.0.0.1:{port}/"
    if name not in _WITHOUT_PAGES or _answers(port, "/", of="text/html"):
        return page
    return f"{page.removesuffix('/')}{_WITHOUT_PAGES[name]} (JSON: this build has no pages)"


def _answers(port: int, path: str, of: str = "") -> bool:
    """Whether a server answers, with content of this type."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1) as response:
            return of in (response.headers.get("Content-Type") or "")
    except OSError:
        return False


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return "\n".join(f"  {line}" for line in lines) or "  (nothing)"


def _say(text: str) -> None:
    print(f"stack: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
