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


def at(config: Any, path: str) -> Any:
    """Return the setting at ``path``, parts with dots between, in mappings or objects; None if there is none."""
    for part in path.split("."):
        config = config.get(part) if isinstance(config, Mapping) else getattr(config, part, None)
    return config


def settings_at(config: Any, places: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the settings of ``config`` by their names in TRL; ``places``: where each may be, the first one wins."""
    found = {ours: [at(config, path) for path in paths] for ours, paths in places.items()}
    return {ours: next((each for each in values if each is not None), None) for ours, values in found.items()}
