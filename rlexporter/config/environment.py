"""Finds environment variables `RLEXPORTER_*` that are no setting: a typing error there would else go unnoticed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

_PREFIX = "RLEXPORTER_"
_OF_KUBERNETES = re.compile(
    r"RLEXPORTER_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Variables that Kubernetes sets in each container for a Service called rlexporter, or rlexporter-something."""
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
"""What `RLEXPORTER_PORT` holds where it is Kubernetes that sets it."""


def mistaken(environ: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return, by its name, what is to be said of each variable that is ignored.

    ``settings``: the variables of settings, by the arguments.
    """
    return {
        name: f"{name} is no setting of rlexporter, and is ignored; {_meant(name, settings)}"
        for name, value in sorted(environ.items())
        if name.startswith(_PREFIX)
        and name not in settings.values()
        and value.strip()
        and not _of_kubernetes(name, value)
    }


def _meant(name: str, settings: Mapping[str, str]) -> str:
    rest = name.removeprefix(_PREFIX)
    own = [variable.removeprefix(_PREFIX) for variable in settings.values() if variable.startswith(_PREFIX)]
    if rest.lower() in settings:
        return f"did you mean {settings[rest.lower()]}?"
    close = get_close_matches(rest, own, n=1, cutoff=0.7)
    return f"did you mean {_PREFIX}{close[0]}?" if close else f"there are {', '.join(_PREFIX + each for each in own)}"


def _of_kubernetes(name: str, value: str) -> bool:
    if name.endswith("_PORT") and _ADDRESS.match(value):
        return True
    return _OF_KUBERNETES.fullmatch(name) is not None
