"""Ranks on nodes of their own: each is found by its file, and reached at the address there by Prometheus and others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.nodes import Node, nodes
from tests.tools import ROOT, Prometheus, eventually, launched, prometheus

PORT = 9750
"""The same on each node: none is taken there."""
TOKEN = "of-this-test-alone"
ASK = (
    "import sys, urllib.request as u; "
    "print(u.urlopen(u.Request(sys.argv[1], headers={'Authorization': sys.argv[2]}), timeout=60).read().decode())"
)


def _command(node: Node, place: int, first: Node, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    command += ["--node-rank", str(place), "--local-addr", node.address, "--rdzv-id", "job-8"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{first.address}:29400"]
    return node.command([*command, "-m", "tests.e2e.ranks", str(folder), str(PORT), "--wait"])


def _targets(folder: Path) -> dict[str, str]:
    """The address of each target file in ``folder``, by its node."""
    groups = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return {group["labels"]["node"]: group["targets"][0] for (group,) in groups}


def _asked_from(node: Node, target: str) -> str:
    """What a process on ``node`` is told at a target."""
    command = node.command([sys.executable, "-c", ASK, f"http://{target}/metrics", f"Bearer {TOKEN}"])
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


def _by_node(server: Prometheus, expression: str) -> dict[str, float]:
    return {each["metric"]["node"]: float(each["value"][1]) for each in server.query(expression)}


@pytest.mark.slow
def test_ranks_on_nodes_of_their_own_are_found_and_reached(tmp_path: Path) -> None:
    """A node that loses its network is down, and back with it; the other one is served all the while."""
    (tmp_path / "targets").mkdir()
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    found: dict[str, Any] = {"files": [f"{tmp_path}/targets/*.json"], "refresh_interval": "1s"}
    patient = {"scrape_interval": "5s", "scrape_timeout": "5s"}
    scrape = {"file_sd_configs": [found], "authorization": {"credentials": TOKEN}, **patient}
    told = {
        "ACCELERATE_USE_CPU": "true",
        "PYTHONPATH": str(ROOT),
        "GLOO_SOCKET_IFNAME": "eth0",
        "RLEXPORTER_RANKS": "all",
        "RLEXPORTER_TOKEN_FILE": str(tmp_path / "token"),
        "RLEXPORTER_LISTEN_HOST": "0.0.0.0",
        "RLEXPORTER_DISCOVERY_DIR": str(tmp_path / "targets"),
    }
    with (
        nodes(tmp_path, "rlx-one", "rlx-two") as (one, two),
        prometheus("3", tmp_path / "prometheus", [], scrape=scrape) as server,
        launched(_command(one, 0, one, tmp_path), tmp_path / "one", **told) as first,
        launched(_command(two, 1, one, tmp_path), tmp_path / "two", **told) as second,
    ):
        steps = "rl_step > 2"
        eventually(lambda: first.poll() or second.poll() or set(_by_node(server, steps)) == {"rlx-one", "rlx-two"})
        assert (first.poll(), second.poll()) == (None, None), (tmp_path / "one/err").read_text()[-3000:]
        targets = _targets(tmp_path / "targets")
        assert targets == {"rlx-one": f"{one.address}:{PORT}", "rlx-two": f"{two.address}:{PORT}"}
        assert 'rank="1"' in _asked_from(one, targets["rlx-two"])
        assert 'rank="0"' in _asked_from(two, targets["rlx-one"])
        ranks = {each["metric"]["node"]: each["metric"]["rank"] for each in server.query(steps)}
        assert ranks == {"rlx-one": "0", "rlx-two": "1"}
        assert len({each["metric"]["run"] for each in server.query(steps)}) == 1

        two.link("down")
        eventually(lambda: _by_node(server, "up") == {"rlx-one": 1, "rlx-two": 0})
        two.link("up")
        eventually(lambda: _by_node(server, "up") == {"rlx-one": 1, "rlx-two": 1})
        before = _by_node(server, "rl_step")["rlx-two"]
        eventually(lambda: _by_node(server, "rl_step").get("rlx-two", 0) > before)

        (tmp_path / "enough").touch()
        assert (first.wait(600), second.wait(600)) == (0, 0), (tmp_path / "two/err").read_text()[-3000:]
    assert not list((tmp_path / "targets").iterdir())
