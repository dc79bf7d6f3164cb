"""What several frameworks share to be watched: facts from a configuration, calls, the step of a line, histograms.

Loggers' own histograms keep counts in bins of their own choice only.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Protocol

from rlexporter.catalog.algorithms import family
from rlexporter.catalog.run_metrics import HYPERPARAMETERS
from rlexporter.model.step import RunFacts

logger = logging.getLogger("rlexporter")

Line = Mapping[str, Any]
_Facts = Callable[[], RunFacts]
STEP_KEYS = ("global_step", "train/global_step", "training/global_step", "trainer/global_step", "eval/global_step")
"""Keys under which a line names its step: of transformers, verl, Lightning and OpenRLHF, and of many loops."""
_KEPT = "_rlexporter_values"

_inside = threading.local()
"""Its ``depth`` is the number of watched calls that are under way in a thread."""
_said: set[tuple[str, type]] = set()


def of_config(config: Any, *, algorithm: str = "", run_name: object = None) -> RunFacts:
    """Return the facts in ``config``, a mapping: the numbers at its top that have the names of TRL's settings."""
    settings = config if isinstance(config, Mapping) else {}
    name = run_name if isinstance(run_name, str) else None
    known = {each: settings.get(each) for each in HYPERPARAMETERS}
    numbers = {each: float(value) for each, value in known.items() if isinstance(value, (int, float))}
    return RunFacts(algorithm=algorithm, run_name=name, hyperparameters=numbers, open_ended=True)


def of_framework(
    framework: str,
    settings: Line,
    algorithm: str,
    *,
    name: object,
    model: object,
    judged_as: str = "",
    prompts: object = None,
    step: int | None = None,
    **info: str,
) -> RunFacts:
    """Return the facts of a run of ``framework``, one of `rlexporter.frameworks.known.FRAMEWORKS`.

    ``settings``: by their names in TRL, those that are not known None; ``name``: of the run; ``model``: where it is;
    ``prompts``: the number of a step; ``step``: at which the run starts; ``info``: further labels of ``rl_run_info``.
    """
    known = {ours: value for ours, value in settings.items() if value is not None}
    each, planned = known.get("num_generations"), known.get("max_steps")
    if isinstance(prompts, int) and isinstance(each, int):
        known["generation_batch_size"] = prompts * each
    level = "sequence" if algorithm == "gspo" else ""
    told = {"trainer": framework, "model": str(model or "").rstrip("/").rpartition("/")[2]}
    return replace(
        of_config(known, algorithm=algorithm),
        framework=framework,
        judged_as=judged_as or family(algorithm),
        run_name=str(name) if name else None,
        info=told | {"importance_sampling_level": level} | info,
        steps_planned=planned if isinstance(planned, int) and planned > 0 else None,
        step=None if step is None else max(0, step),
    )


def at(config: Any, *paths: str) -> Any:
    """Return the first setting that there is at one of ``paths``, parts with dots between, in mappings or objects."""
    return next((found for path in paths if (found := _at(config, path)) is not None), None)


def _at(config: Any, path: str) -> Any:
    for part in path.split("."):
        config = config.get(part) if isinstance(config, Mapping) else getattr(config, part, None)
    return config


def settings_at(config: Any, places: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of ``config`` by their names in TRL; ``places``: where each may
    be, with spaces between; the first one wins."""
    return {ours: at(config, *paths.split()) for ours, paths in places.items()}


def step_in(line: Line) -> int | None:
    """Return the step that ``line`` names; None if it names none. A logger's own step counts its calls instead."""
    for key in STEP_KEYS:
        value = line.get(key)
        if isinstance(value, (int, float)) and value >= 0 and value == int(value):
            return int(value)
    return None


class _Log(Protocol):
    def __call__(
        self, facts: _Facts, line: Line, step: int | None, *, whole: bool, replaces: bool = False, chosen: bool = False
    ) -> None: ...


class _End(Protocol):
    def __call__(self, error: BaseException | None = None, *, lingers: bool = False) -> None: ...


@dataclass(frozen=True)
class Feed:
    """The way of a logger's lines into the run of this process, which the `watch` of its file is handed."""

    name: str
    """That of the logger in `RLEXPORTER_FROM`."""
    log: _Log
    """`Sources.log` of `rlexporter.integrations.log_sources`, for this logger."""
    end: _End
    flush: Callable[[], None]


def after_call(owner: type | ModuleType, name: str, then: Callable[..., object]) -> None:
    """Call ``then`` with the arguments of each call of a method of ``owner`` that has returned; once, if watched twice.

    ``owner`` may be a module, and ``name`` a function of it; a coroutine has returned before it begins to run. Not for
    a call inside another that is watched. What the method raises passes untouched.
    """
    method = getattr(owner, name)
    if getattr(method, "_rlexporter", None) is not None:
        return

    @functools.wraps(method)
    def watched(*args: Any, **kwargs: Any) -> Any:
        depth = getattr(_inside, "depth", 0)
        _inside.depth = depth + 1
        try:
            result = method(*args, **kwargs)
        finally:
            _inside.depth = depth
        if not depth:
            _guarded(then, *args, **kwargs)
        return result

    vars(watched)["_rlexporter"] = then
    setattr(owner, name, watched)


def _guarded(act: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """Call ``act``; an error in it is logged, the first of each kind, and reaches nobody."""
    try:
        act(*args, **kwargs)
    except Exception as error:  # the boundary: nothing of ours may reach a script that knows nothing of us
        name = f"{act.__module__.rpartition('.')[2]}: {act.__qualname__}"
        kind = (name, type(error))
        if kind not in _said:
            _said.add(kind)
            logger.warning("rlexporter cannot read a line (%s): %s", name, error, exc_info=error)


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


def raw(line: Line) -> dict[str, Any]:
    """Return ``line`` with the values that histograms were made of in their place. Each is counted once."""
    return {key: value if type(value) is float else _taken(value) for key, value in line.items()}


def _taken(value: Any) -> Any:
    return vars(value).pop(_KEPT) if hasattr(value, _KEPT) else value
