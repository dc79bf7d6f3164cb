"""Facts of a run from the configuration that its logger was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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


def of_framework(
    settings: Mapping[str, Any],
    *,
    framework: str,
    algorithm: str,
    judged_as: str,
    name: object,
    model: object,
    prompts: object = None,
    step: int | None = None,
    **info: str,
) -> RunFacts:
    """Return the facts of a run of ``framework``, one of `rlexporter.catalog.FRAMEWORKS`.

    ``settings``: by their names in TRL, those that are not known None; ``name``: of the run; ``model``: where it is;
    ``prompts``: the number of a step; ``step``: at which the run starts; ``info``: further labels of ``rl_run_info``.
    """
    known = {ours: value for ours, value in settings.items() if value is not None}
    each, planned = known.get("num_generations"), known.get("max_steps")
    if isinstance(prompts, int) and isinstance(each, int):
        known["generation_batch_size"] = prompts * each
    return replace(
        of_config(known, algorithm=algorithm),
        framework=framework,
        judged_as=judged_as,
        run_name=str(name) if name else None,
        info={"trainer": framework, "model": str(model or "").rstrip("/").rpartition("/")[2], **info},
        steps_planned=planned if isinstance(planned, int) and planned > 0 else None,
        step=None if step is None else max(0, step),
    )


def at(config: Any, path: str) -> Any:
    """Return the setting at ``path``, parts with dots between, in mappings or objects; None if there is none."""
    for part in path.split("."):
        config = config.get(part) if isinstance(config, Mapping) else getattr(config, part, None)
    return config


def settings_at(config: Any, places: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the settings of ``config`` by their names in TRL; ``places``: where each may be, the first one wins."""
    found = {ours: [at(config, path) for path in paths] for ours, paths in places.items()}
    return {ours: next((each for each in values if each is not None), None) for ours, values in found.items()}


def first_at(config: Any, *paths: str) -> Any:
    """Return the first setting that there is at one of ``paths``; None if there is none."""
    return settings_at(config, {"": paths})[""]
