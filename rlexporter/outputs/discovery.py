"""Target files for the `file_sd_configs` of Prometheus: each exists as long as its endpoint.

A file is rewritten every minute, so that the age of a file tells whether its process still runs. Its labels are the
scheme and `node`, the name of the host: exporters of GPUs and hosts know it by that name, not by the address. Series
carry `run` and `rank` themselves.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rlexporter.atomic_file import read_regular, write_whole
from rlexporter.config.settings import Settings
from rlexporter.model.errors import SetupError
from rlexporter.outputs.address import is_loopback, target
from rlexporter.outputs.periodic import Ticker

if TYPE_CHECKING:
    from rlexporter.outputs import Served

logger = logging.getLogger("rlexporter")

FRESH_SECONDS = 60.0
_MOST_BYTES = 100_000
_PREFIX = "rlexporter-"
_SUFFIXES = (".json", ".part")


def ticker(run: Served, port: int) -> Ticker:
    """Return a ticker that keeps the target file of ``run``. Raises SetupError if it cannot be written."""
    return announcer(run.settings, port, lambda: (run.known_as, run.rank), partial(run.errors.add, "discovery"))


def announcer(
    settings: Settings, port: int, who: Callable[[], tuple[str, int]], failed: Callable[[Exception], None]
) -> Ticker:
    """Return a ticker that keeps the target file of the endpoint on ``port``.

    ``who`` returns run and rank; while the name is empty, since it is not known yet, there is no file.

    Raises:
        SetupError: the file cannot be written.
    """
    where = target(settings, port)
    if not settings.advertise and is_loopback(settings.host):
        logger.warning(
            "the target file in %s says %s, which only a Prometheus on this machine can reach; for others set "
            "RLEXPORTER_LISTEN_HOST=0.0.0.0, with a token, or RLEXPORTER_ADVERTISE",
            *(settings.discovery_dir, where),
        )
    file = TargetFile(Path(settings.discovery_dir or "."), where, labels(settings), who)
    try:
        file.write()
    except OSError as error:
        raise SetupError(
            f"cannot write target files to {settings.discovery_dir}: {error.strerror} (argument discovery, "
            "RLEXPORTER_DISCOVERY_DIR)"
        ) from None
    return Ticker("discovery", FRESH_SECONDS, file.write, failed, last=file.remove)


class TargetFile:
    """The file of one endpoint, named for run and rank, so that a new attempt replaces the file of a killed one."""

    def __init__(
        self, folder: Path, target: str, labels: Mapping[str, str], who: Callable[[], tuple[str, int]]
    ) -> None:
        self._folder = folder
        self._who = who
        self._text = json.dumps([{"targets": [target], "labels": dict(labels)}]) + "\n"
        self._path: Path | None = None
        self._due = 0.0

    def write(self) -> float:
        """Write the file if it is due or the run has another name. Return the seconds until it is due. Raises OSError.

        Most wakes change nothing here, and a whole cluster shares the folder.
        """
        run, rank = self._who()
        if not run:
            self._folder.mkdir(parents=True, exist_ok=True)
            return FRESH_SECONDS
        path, now = self._folder / name(run, rank), time.monotonic()
        if self._path != path or now >= self._due:
            if self._path not in (path, None):
                self.remove()
            write_whole(path, self._text)
            self._path, self._due = path, now + FRESH_SECONDS
        return self._due - now

    def remove(self) -> None:
        """Remove the file, since the endpoint is gone, unless another process has replaced it."""
        path, self._path = self._path, None
        with contextlib.suppress(FileNotFoundError):
            if path is not None and read_regular(path, _MOST_BYTES) == self._text.encode():
                path.unlink()


def name(run: str, rank: int) -> str:
    """Return the name of the target file: readable, and different for any two names of runs."""
    digest = hashlib.sha256(run.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{_PREFIX}{re.sub(r'[^A-Za-z0-9_-]', '_', run)[:64]}-{digest}-{rank}.json"


def labels(settings: Settings) -> dict[str, str]:
    """Return the labels of the target: no `node` if the user has given series one, since Prometheus would rename it.

    A user does so in a container, where the name of the machine is not that of the host.
    """
    scheme = {"__scheme__": "https"} if settings.tls_cert_file else {}
    return scheme if "node" in settings.labels else {**scheme, "node": socket.gethostname()}


def left_over(folder: Path, age: float) -> Iterator[Path]:
    """Yield our files in ``folder`` that were not written for ``age`` seconds. Raises OSError for a missing folder."""
    for entry in sorted(os.scandir(folder), key=lambda item: item.name):
        ours = entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIXES)
        with contextlib.suppress(FileNotFoundError):  # an exporter removed it meanwhile
            if ours and entry.is_file(follow_symlinks=False) and time.time() - entry.stat().st_mtime > age:
                yield Path(entry.path)
