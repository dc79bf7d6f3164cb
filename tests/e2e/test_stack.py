"""`make stack`, as a person starts it: everything comes up, and everything ends, whatever ends it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import stack
from scripts.pack.outside import WATCHDOG
from tests.conftest import fetch
from tests.tools import ROOT, Prometheus, eventually, free_ports, launched, require_alertmanager, require_tools


@dataclass(frozen=True)
class Stack:
    """One that runs."""

    process: subprocess.Popen[str]
    output: Path
    ports: dict[str, int]

    def said(self) -> str:
        """What it has printed so far."""
        return self.output.read_text()

    def children(self) -> dict[int, str]:
        """Its processes, by id, with their command lines."""
        pid = self.process.pid
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {int(each): Path(f"/proc/{each}/cmdline").read_text() for each in found}

    def shown(self, name: str) -> bool:
        """Whether it says that this part can be looked at."""
        return f"stack: {name:13} http://127.0.0.1:{self.ports[name]}/" in self.said()


@contextmanager
def started(folder: Path, *options: str) -> Iterator[Stack]:
    """A stack on free ports, and no child of it afterwards."""
    require_tools("3")
    require_alertmanager("new")
    ports = free_ports(stack.PORTS)
    command = [sys.executable, "-m", "scripts.stack", "--port", str(ports["demo"])]
    command += [f"--prometheus-port={ports['prometheus']}", f"--alertmanager-port={ports['alertmanager']}", *options]
    with launched(command, folder, PYTHONPATH=str(ROOT)) as process:
        yield Stack(process, folder / "out", ports)


def ended(running: Stack, children: dict[int, str]) -> int:
    """The exit status, once it has ended and nothing of it is left."""
    status = running.process.wait(600)
    assert len(children) == 3
    assert [name for pid, name in children.items() if Path(f"/proc/{pid}").exists()] == []
    kept = ROOT / ".work/stack" / str(running.process.pid)
    assert {each.name for each in kept.iterdir()} >= {"alertmanager.log", "prometheus.log", "demo.log"}
    assert [each for each in kept.iterdir() if each.is_dir()] == []
    return status


@pytest.mark.slow
@pytest.mark.waits
def test_everything_runs_until_ctrl_c(tmp_path: Path) -> None:
    """The demo is scraped, all rules are evaluated without an error, and Alertmanager has the watchdog."""
    rules = yaml.safe_load((ROOT / "alerts/rlexporter.rules.yml").read_text())["groups"][0]["rules"]
    with started(tmp_path, "--steps", "5000") as running:
        server = Prometheus(running.ports["prometheus"])
        eventually(lambda: running.shown("prometheus") and running.shown("alertmanager"))
        children = running.children()
        eventually(lambda: (server.value("rl_step") or 0) > 0)
        eventually(lambda: running.shown("demo"))

        def loaded() -> list[dict[str, Any]]:
            found = [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
            return found if all(rule["health"] != "unknown" for rule in found) else []

        found = eventually(loaded)
        assert [rule for rule in found if rule["health"] != "ok" or rule.get("lastError")] == []
        assert [rule["name"] for rule in found] == [rule.get("alert") or rule["record"] for rule in rules]
        watchdog = urllib.parse.quote(f'alertname="{WATCHDOG}"')
        alerts = f"http://127.0.0.1:{running.ports['alertmanager']}/api/v2/alerts?filter={watchdog}"
        eventually(lambda: json.loads(fetch(alerts)[1]))

        running.process.send_signal(signal.SIGINT)
        assert ended(running, children) == 0
    assert running.said().endswith(f"logs are in .work/stack/{running.process.pid}\n")
    assert f"http://127.0.0.1:{running.ports['demo']}/\n" in running.said()
    assert "status" not in running.said()


def test_a_death_is_told(tmp_path: Path) -> None:
    """Of the process that died its last words are shown, the others end; a port that is taken was passed over."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started(tmp_path, "--prometheus-port", str(port)) as running:
            eventually(lambda: running.shown("alertmanager"))
            children = running.children()
            (victim,) = (pid for pid, command in children.items() if "alertmanager.yml" in command)
            subprocess.run(["kill", "-KILL", str(victim)], check=True)
            assert ended(running, children) == 1
    (other,) = re.findall(rf"port {port} is taken: prometheus gets (\d+)", running.said())
    assert port < int(other) < port + 50  # a neighbor may have taken the next one
    _, last_words = running.said().split("stack: alertmanager has ended with status -9; it said last:\n")
    assert f"address=127.0.0.1:{running.ports['alertmanager']}" in last_words


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a Prometheus it says where one would come from."""
    monkeypatch.setattr(stack, "_BINARIES", {"prometheus": (".tools/none/prometheus", "no-such-prometheus")})
    with pytest.raises(stack.StackError, match=r"no prometheus here: neither in .tools/ .*make tools.* nor on PATH"):
        stack._binary("prometheus")
