"""Target files: what they say, how long they are there, and that a real Prometheus finds the endpoint by them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rlexporter import TLS, Discovery, Exporter
from rlexporter.commands import main
from rlexporter.config.settings import Settings
from rlexporter.outputs import address, discovery
from tests.tools import GENERATIONS, eventually, prometheus


def _files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_there_while_the_endpoint_is(tmp_path: Path) -> None:
    """With the address and the host's name: series carry run and rank themselves."""
    folder = tmp_path / "targets"
    exporter = Exporter(run="math 7b/a", port=0, discovery=folder).start()
    (file,) = folder.glob("*.json")
    assert file.name.startswith("rlexporter-a-") or file.name.startswith("rlexporter-math_7b_a-")
    assert file.name.endswith("-0.json")
    assert json.loads(file.read_text()) == [
        {"targets": [f"127.0.0.1:{exporter.port}"], "labels": {"node": socket.gethostname()}}
    ]
    exporter.close()

    assert _files(folder) == []


def test_a_run_that_gets_another_name_has_one_file(tmp_path: Path) -> None:
    """The name is known for sure when training begins; nothing else, but for its age, is a reason to write again."""
    names = ["early", "settled", "settled"]
    file = discovery.TargetFile(tmp_path, "a:1", {}, lambda: (names.pop(0), 2))
    assert 0 < file.write() <= discovery.FRESH_SECONDS
    assert 0 < file.write() <= discovery.FRESH_SECONDS
    (written,) = tmp_path.glob("*.json")
    before = written.stat().st_mtime_ns
    assert written.name.startswith("rlexporter-settled-")
    assert written.name.endswith("-2.json")

    assert 0 < file.write() <= discovery.FRESH_SECONDS
    assert [(each, each.stat().st_mtime_ns) for each in tmp_path.iterdir()] == [(written, before)]


def test_the_file_of_a_successor_stays(tmp_path: Path) -> None:
    """An attempt that begins before the killed one has ended takes its place."""
    old = discovery.TargetFile(tmp_path, "old:1", {}, lambda: ("run", 0))
    new = discovery.TargetFile(tmp_path, "new:1", {}, lambda: ("run", 0))
    old.write()
    new.write()
    old.remove()

    (file,) = tmp_path.glob("*.json")
    assert json.loads(file.read_text())[0]["targets"] == ["new:1"]


def test_runs_with_names_that_look_alike_have_files_of_their_own() -> None:
    """And names from outside stay inside the folder."""
    names = {discovery.name(run, 0) for run in ("a/b", "a_b", "a b", "../../etc/x", "é" * 500)}

    assert len(names) == 5
    assert all("/" not in name and len(name) < 100 for name in names)


def test_is_kept_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that its age says whether somebody lives; one that was removed is there again."""
    monkeypatch.setattr(discovery, "FRESH_SECONDS", 0.02)
    exporter = Exporter(run="r", port=0, discovery=tmp_path).start()
    (file,) = tmp_path.glob("*.json")
    os.utime(file, (1, 1))
    eventually(lambda: time.time() - file.stat().st_mtime < 60)
    file.unlink()
    eventually(file.exists)
    exporter.close()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # Prometheus takes the scheme from the target, and needs no job of its own for those with TLS.
        ({"tls": TLS("x.pem")}, {"__scheme__": "https", "node": socket.gethostname()}),
        # A container does not know its host: who starts it does, and puts it on every series, once.
        ({"labels": {"node": "gpu-01", "team": "llm"}}, {}),
    ],
    ids=str,
)
def test_the_labels(settings: dict[str, Any], expected: dict[str, str]) -> None:
    """The host's name and the scheme."""
    assert discovery.labels(Settings.load(settings, {})) == expected


@pytest.mark.parametrize(
    ("settings", "advertise", "expected", "elsewhere"),
    [
        ({}, None, "127.0.0.1:9", False),
        ({"host": "::1"}, None, "[::1]:9", False),
        ({"host": "localhost"}, None, "localhost:9", False),
        ({"host": "10.1.2.3"}, None, "10.1.2.3:9", True),
        ({"host": "fd00::1"}, None, "[fd00::1]:9", True),
        ({}, "127.0.0.1", "127.0.0.1:9", True),
        ({}, "node7.cluster", "node7.cluster:9", True),
        ({}, "node7.cluster:9100", "node7.cluster:9100", True),
        ({}, "fd00::2", "[fd00::2]:9", True),
        ({}, "[fd00::2]", "[fd00::2]:9", True),
        ({}, "[fd00::2]:9100", "[fd00::2]:9100", True),
    ],
    ids=str,
)
def test_the_address(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, Any],
    advertise: str | None,
    expected: str,
    elsewhere: bool,
) -> None:
    """That which is listened on, or the one that was told; if others cannot reach it, it is said what to set."""
    given = Settings.load({"discovery": Discovery(str(tmp_path), advertise=advertise), **settings}, {})
    discovery.announcer(given, 9, lambda: ("r", 0), print)
    (file,) = tmp_path.glob("*.json")

    assert json.loads(file.read_text())[0]["targets"] == [expected]
    said = f"says {expected}, which only a Prometheus on this machine can reach"
    assert [said in caplog.text, "RLEXPORTER_ADVERTISE" in caplog.text] == [not elsewhere] * 2
    assert bool(caplog.records) is not elsewhere


def test_the_address_of_a_host_with_several(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who listens on all of them is found by that of the default route, and without one by name; never by loopback."""
    on_all = Settings.load({"host": "0.0.0.0", "discovery": str(tmp_path)}, {})
    discovery.announcer(on_all, 9, lambda: ("r", 0), print)
    assert not caplog.text
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
            routed = str(sock.getsockname()[0])
        except OSError:
            routed = ""
    if routed and not routed.startswith("127."):
        assert address.target(on_all, 9) == f"{routed}:9"

    monkeypatch.setattr(address, "_ELSEWHERE", (("127.0.0.1", socket.AF_INET),))
    assert address.target(on_all, 9) == f"{socket.gethostname()}:9"


def test_every_address_of_either_kind_is_listened_on(tmp_path: Path) -> None:
    """Whichever of them the file names."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this system has no IPv6")
    exporter = Exporter(run="r", port=0, host="::", discovery=tmp_path, linger=0).start()
    (file,) = tmp_path.glob("*.json")
    (named,) = json.loads(file.read_text())[0]["targets"]

    for host in (named, f"127.0.0.1:{exporter.port}", f"[::1]:{exporter.port}"):
        assert 'run="r"' in urllib.request.urlopen(f"http://{host}/metrics", timeout=600).read().decode()
    exporter.close()


_DYING = """
import os, signal, sys, time
from rlexporter import Exporter
from rlexporter.outputs.discovery import TargetFile
remove = TargetFile.remove
def slowly(self):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1.0)
    remove(self)
TargetFile.remove = slowly
exporter = Exporter(run="r", port=0, discovery=sys.argv[1]).start()
assert os.listdir(sys.argv[1])
raise ValueError("dead")
"""


def test_a_sigterm_in_the_middle_of_the_end_waits_for_it(tmp_path: Path) -> None:
    """As a launcher sends it to those that are left, once a rank has died. The process dies of it all the same."""
    done = subprocess.run([sys.executable, "-c", _DYING, str(tmp_path)], capture_output=True, text=True, timeout=600)

    assert "ValueError: dead" in done.stderr
    assert done.returncode == -signal.SIGTERM
    assert _files(tmp_path) == []


def test_prune(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Old files of ours go; fresh ones, and those of others, stay."""
    for name in ("rlexporter-a-1-0.json", "rlexporter-b-2-0.json.77.part", "rlexporter-new-3-0.json", "mine.json"):
        (tmp_path / name).write_text("[]")
        if "new" not in name:
            os.utime(tmp_path / name, (1, 1))
    (tmp_path / "rlexporter-folder.json").mkdir()
    kept = ["mine.json", "rlexporter-folder.json", "rlexporter-new-3-0.json"]

    assert main.main(["discovery", "prune", str(tmp_path), "--dry-run"]) == 0
    assert len(_files(tmp_path)) == 5
    assert main.main(["discovery", "prune", str(tmp_path), "--older-than", "2h"]) == 0
    assert _files(tmp_path) == kept
    said = capsys.readouterr().out
    assert "would remove" in said
    assert f"2 left over in {tmp_path}" in said
    assert main.main(["discovery", "prune", str(tmp_path / "gone")]) == 2


@pytest.mark.slow
@pytest.mark.waits
def test_prometheus_finds_a_run_and_loses_it(tmp_path: Path) -> None:
    """By the file alone, while it runs."""
    targets = tmp_path / "targets"
    targets.mkdir()
    found = {"file_sd_configs": [{"files": [f"{targets}/*.json"], "refresh_interval": "1s"}]}
    with prometheus(GENERATIONS[-1], tmp_path / "prometheus", [], scrape=found) as server:
        exporter = Exporter(run="found", port=0, discovery=targets, linger=0).start()
        eventually(lambda: server.value('rl_run_state{run="found",state="starting"}') == 1)
        assert server.query("up")[0]["metric"]["instance"] == f"127.0.0.1:{exporter.port}"
        exporter.close()
        eventually(lambda: not server.get("targets")["activeTargets"])
