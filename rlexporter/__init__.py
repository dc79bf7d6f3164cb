"""Prometheus and OpenTelemetry metrics for reinforcement-learning runs of language models, from inside the trainer.

Importing this package is light: torch, fastapi, transformers and the like are loaded when they are first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlexporter.integrations.registry import register as _register
from rlexporter.model.errors import TORCH as _TORCH
from rlexporter.model.errors import SetupError
from rlexporter.model.errors import needed_by as _needed_by
from rlexporter.version import __version__

if TYPE_CHECKING:
    from rlexporter.config.arguments import TLS, Discovery, Notify, OnCritical, Rank, StateFile
    from rlexporter.exporter import Exporter
    from rlexporter.integrations.attach import attach
    from rlexporter.integrations.callback import RLExporterCallback
    from rlexporter.integrations.tracker import RLExporterTracker

__all__ = [
    "TLS",
    "Discovery",
    "Exporter",
    "Notify",
    "OnCritical",
    "RLExporterCallback",
    "RLExporterTracker",
    "Rank",
    "SetupError",
    "StateFile",
    "__version__",
    "attach",
]

_HOMES = {
    **dict.fromkeys(("TLS", "Discovery", "Notify", "OnCritical", "Rank", "StateFile"), "config.arguments"),
    "Exporter": "exporter",
    "RLExporterCallback": "integrations.callback",
    "RLExporterTracker": "integrations.tracker",
    "attach": "integrations.attach",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    with _needed_by(f"rlexporter.{name}", f"{_TORCH} transformers accelerate"):
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_register()
