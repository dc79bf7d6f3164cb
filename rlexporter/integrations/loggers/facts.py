"""Facts of a run from the configuration that its logger was given."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from rlexporter.adapters.trainer_facts import hyperparameters
from rlexporter.model.step import RunFacts


def of_config(config: Any, *, algorithm: str = "", run_name: object = None) -> RunFacts:
    """Return the facts in ``config``, a mapping: the numbers at its top that have the names of TRL's settings."""
    settings = {str(name): value for name, value in config.items()} if isinstance(config, Mapping) else {}
    name = run_name if isinstance(run_name, str) else None
    numbers = hyperparameters(SimpleNamespace(**settings))
    return RunFacts(algorithm=algorithm, run_name=name, hyperparameters=numbers, open_ended=True)
