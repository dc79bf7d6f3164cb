"""The address of the endpoint, as other machines know it."""

from __future__ import annotations

import contextlib
import re
import socket
from ipaddress import ip_address

from rlexporter.config.settings import Settings

_EVERYWHERE = ("0.0.0.0", "::")
_ELSEWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))
"""Addresses reserved for documentation: the default route leads to them, and nothing is sent."""


def target(settings: Settings, port: int) -> str:
    """Return the ``host:port`` under which Prometheus finds the endpoint."""
    told = settings.advertise or ""
    if re.fullmatch(r"(\[[^\]]*\]|[^:]*):\d+", told):
        return told
    host = told.strip("[]") or (address() if settings.host in _EVERYWHERE else settings.host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return True for an address under which only this machine can be reached."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address() -> str:
    """Return this machine's own address on its default route; without one, the name of the machine."""
    for elsewhere, family in _ELSEWHERE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((elsewhere, 9))
            own = str(sock.getsockname()[0])
            if not own.startswith("127.") and own != "::1":
                return own
    return socket.gethostname()
