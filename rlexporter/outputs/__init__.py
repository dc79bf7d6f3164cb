"""Outputs of a run's snapshots. The text for Prometheus is always there; the others are tickers that settings ask for.

Each third-party library is imported in exactly one file, once the output is wanted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from rlexporter.model.errors import OTLP, needed_by

if TYPE_CHECKING:
    from rlexporter.config.settings import Settings
    from rlexporter.model.snapshot import RunState, Snapshot
    from rlexporter.outputs.periodic import Ticker

OUTPUTS = (
    ("state", "state_file", "rlexporter.outputs.state_file"),
    ("discovery", "discovery_dir", "rlexporter.outputs.discovery"),
    ("notify", "notify", "rlexporter.outputs.notify"),
    ("notify", "", "rlexporter.outputs.notebook"),
    ("otlp", "otlp", "rlexporter.outputs.otlp"),
)
"""The name for errors, the setting that asks for the output, and its module, whose `ticker` is called with the run and
the port; it returns None where there is nothing to do. Without a setting: asked wherever IPython is loaded.
"""
CARDS = ("rlexporter.outputs.notebook",)
"""The module whose `card` shows a run in a notebook."""


class Errors(Protocol):
    """Counts the errors of outputs."""

    def add(self, where: str, error: Exception) -> None:
        """Count an error that came from ``where``. Never raises."""


class Served(Protocol):
    """What an output reads of a run. Any thread may read all of it."""

    @property
    def settings(self) -> Settings:
        """The settings of the exporter."""

    @property
    def errors(self) -> Errors:
        """What counts the errors of outputs."""

    @property
    def known_as(self) -> str:
        """The name of the run; empty while it depends on whether the run resumes a checkpoint."""

    @property
    def rank(self) -> int:
        """The label ``rank``."""

    @property
    def state(self) -> RunState:
        """The state of the run."""

    @property
    def output_dir(self) -> str | None:
        """The folder of the checkpoints; None if unknown."""

    def current(self) -> Snapshot:
        """Return what is served now."""


def wanted(run: Served, port: int) -> Iterator[tuple[str, Callable[[], Ticker | None]]]:
    """Yield, per enabled output, its name for errors and a maker of its ticker, which may raise SetupError."""
    for where, setting, module in OUTPUTS:
        if getattr(run.settings, setting) if setting else "IPython" in sys.modules:
            yield where, partial(_ticker, module, run, port)


def _ticker(module: str, run: Served, port: int) -> Ticker | None:
    with needed_by("push by OTLP", OTLP):  # no other output imports a library here that may be missing
        ticker: Ticker | None = import_module(module).ticker(run, port)
    return ticker
