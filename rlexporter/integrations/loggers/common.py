"""What the files of several loggers share: facts from a configuration, the step of a line, histograms, actors of Ray.

Loggers' own histograms keep counts in bins of their own choice only. Most frameworks train in an actor, whose process
is killed when its driver ends.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rlexporter.adapters.trainer_facts import hyperparameters
from rlexporter.catalog import STEP_KEYS
from rlexporter.exporter import linger
from rlexporter.integrations.logged_run import LoggedRun
from rlexporter.model.step import RunFacts

_KEPT = "_rlexporter_values"


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


def step_in(line: Mapping[str, Any]) -> int | None:
    """Return the step that ``line`` names; None if it names none. A logger's own step counts its calls instead."""
    for key in STEP_KEYS:
        value = line.get(key)
        if isinstance(value, (int, float)) and value >= 0 and value == int(value):
            return int(value)
    return None


def keep_values(histogram: Any) -> None:
    """Let each ``histogram(sequence)`` remember its sequence until it is logged; of `np_histogram=` there is none."""
    build = histogram.__init__
    if getattr(build, "_rlexporter", False):
        return

    @functools.wraps(build)
    def build_kept(self: Any, sequence: Any = None, *args: Any, **kwargs: Any) -> None:
        build(self, sequence, *args, **kwargs)
        if sequence is not None:
            vars(self)[_KEPT] = sequence

    vars(build_kept)["_rlexporter"] = True
    histogram.__init__ = build_kept


def raw(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``line`` with the values that histograms were made of in their place. Each is counted once."""
    return {key: value if type(value) is float else _taken(value) for key, value in line.items()}


def _taken(value: Any) -> Any:
    return vars(value).pop(_KEPT) if hasattr(value, _KEPT) else value


def linger_in_actor(run: LoggedRun | None) -> None:
    """Serve the end of ``run`` for a while before this returns, if this is an actor: no exit of it will do so."""
    if run is not None and _is_actor():
        linger(run.exporter)


def _is_actor() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
