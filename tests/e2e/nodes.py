"""Nodes of their own on this machine: network namespaces with a host name and an address each, joined by a bridge.

They take root, and iproute2. This machine is the host on the bridge that all of them have as their default route.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

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
        return [
            "ip",
            "netns",
            "exec",
            self.name,
            "unshare",
            "--uts",
            "sh",
            "-c",
            _NAMED,
            self.name,
            str(self.hosts),
            *command,
        ]

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
