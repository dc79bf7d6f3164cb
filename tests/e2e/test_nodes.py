"""Ranks on nodes of their own: each is found by its file, and reached at the address there by Prometheus and others.

Nodes are network namespaces with a host name and an address each, joined by a bridge. They take root, and iproute2.
This machine is the host on the bridge that all of them have as their default route.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.tools import ROOT, Prometheus, eventually, launched, prometheus

PORT = 9750
"""The same on each node: none is taken there."""
TOKEN = "of-this-test-alone"
ASK = (
    "import sys, urllib.request as u; "
    "print(u.urlopen(u.Request(sys.argv[1], headers={'Authorization': sys.argv[2]}), timeout=60).read().decode())"
)


_PLACE = f"198.18.{os.getpid() % 250}"
"""Of the addresses that are reserved for measuring networks, which no other network of this machine has."""
_NAMED = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'


@dataclass(frozen=True)
class Node:
    """A network namespace."""

    name: str
    address: str
    hosts: Path
    """The file that its processes see as /etc/hosts: all nodes know each other by name."""

    def command(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs ``command`` on this node, in the process that is started."""
        shell = [*f"ip netns exec {self.name} unshare --uts sh -c".split(), _NAMED]
        return [*shell, self.name, str(self.hosts), *command]

    def link(self, state: str) -> None:
        """Plug its cable in, ``up``, or pull it out, ``down``."""
        _ip("-n", self.name, "link", "set", "eth0", state)
        if state == "up":
            _ip("-n", self.name, "route", "replace", "default", "via", f"{_PLACE}.1")


@contextmanager
def nodes(folder: Path, *names: str) -> Iterator[list[Node]]:
    """Nodes with these ``names``; the test is skipped where this machine cannot have any."""
    if os.getuid() or not all(map(shutil.which, ("ip", "unshare", "hostname"))):
        pytest.skip("network namespaces take root, iproute2 and util-linux")
    bridge = f"rlx{os.getpid()}"
    addresses = {name: f"{_PLACE}.{place}" for place, name in enumerate(names, 2)}
    hosts = folder / "hosts"
    hosts.write_text("".join(f"{at} {name}\n" for name, at in {"localhost": "127.0.0.1", **addresses}.items()))
    with ExitStack() as undo:
        try:
            _ip("link", "add", bridge, "type", "bridge")
            undo.callback(_ip, "link", "del", bridge)
            _ip("addr", "add", f"{_PLACE}.1/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            found = [_node(Node(name, at, hosts), bridge, undo) for name, at in addresses.items()]
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield found


def _node(node: Node, bridge: str, undo: ExitStack) -> Node:
    outside = f"{bridge}-{node.address.rpartition('.')[2]}"
    _ip("netns", "add", node.name)
    undo.callback(_ip, "netns", "del", node.name)
    _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", node.name)
    _ip("link", "set", outside, "master", bridge, "up")
    _ip("-n", node.name, "addr", "add", f"{node.address}/24", "dev", "eth0")
    _ip("-n", node.name, "link", "set", "lo", "up")
    node.link("up")
    return node


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=600)


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
@pytest.mark.waits
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
