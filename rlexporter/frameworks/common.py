"""What several frameworks share: short forms for their tables, facts from a configuration, watched calls."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Protocol

from rlexporter.catalog.algorithms import family
from rlexporter.catalog.run_metrics import HYPERPARAMETERS
from rlexporter.model.metric import AS_IT_IS, FrameworkKey
from rlexporter.model.step import RunFacts

logger = logging.getLogger("rlexporter")

Line = Mapping[str, Any]
_Facts = Callable[[], RunFacts]
STEP_KEYS = (
    "training_step",  # open-instruct, whose global_step counts completions
    *("global_step", "train/global_step", "training/global_step", "trainer/global_step", "eval/global_step"),
)
"""Keys under which a line names its step: of transformers, verl, Lightning and OpenRLHF, and of many loops."""

_inside = threading.local()
"""Its ``depth`` is the number of watched calls that are under way in a thread."""
_said: set[tuple[str, type]] = set()


def feeds(
    series: str, *names: str, families: tuple[str, ...] = (), scale: float = 1.0, nothing: float | None = None
) -> Iterator[FrameworkKey]:
    """Yield the keys ``names``, which all feed ``series``; of a line that has several the last one is served."""
    for name in names:
        yield FrameworkKey(name, series, families, scale, nothing)


def no_metric(*names: str) -> Iterator[FrameworkKey]:
    """Yield the keys ``names``, which feed nothing: rlexporter knows what they say from elsewhere."""
    return feeds("", *names)


def as_logged(*names: str, families: tuple[str, ...] = ()) -> Iterator[FrameworkKey]:
    """Yield the keys ``names``, which nothing reads: they are served as they are, and never guessed at."""
    return feeds(AS_IT_IS, *names, families=families)


def statistics(series: str, name: str, *suffixes: str) -> Iterator[FrameworkKey]:
    """Yield ``name`` with each suffix, ``mean``, ``min`` and ``max`` if none is given, for ``series`` with the same."""
    for suffix in suffixes or ("mean", "min", "max"):
        yield FrameworkKey(name + suffix, series + suffix)


def correction(prefix: str) -> Iterator[FrameworkKey]:
    """Yield the keys of verl's rollout correction, which ms-swift has copied, below ``prefix``."""
    yield from feeds("rl_sampling_kl_per_token", f"{prefix}/kl")
    yield from feeds("rl_rollout_kl_per_token", f"{prefix}/k3_kl")
    yield from as_logged(*(f"{prefix}/{of}_{what}" for of in ("training", "rollout") for what in ("ppl", "log_ppl")))
    yield from as_logged(*(f"{prefix}/{what}" for what in ("ppl_ratio", "log_ppl_abs_diff", "log_ppl_diff")))
    yield from as_logged(f"{prefix}/log_ppl_diff_min", f"{prefix}/log_ppl_diff_max")
    yield from feeds("rl_sampling_chi2_per_token", f"{prefix}/chi2_token")


def below(prefix: str, keys: Iterable[FrameworkKey]) -> Iterator[FrameworkKey]:
    """Yield ``keys`` with ``prefix`` before their names."""
    for key in keys:
        yield replace(key, name=prefix + key.name)


def of_config(config: Any, *, algorithm: str = "", run_name: object = None) -> RunFacts:
    """Return the facts in ``config``, if it is a mapping: its top-level numbers that are named like TRL's settings."""
    settings = config if isinstance(config, Mapping) else {}
    name = run_name if isinstance(run_name, str) else None
    known = {name: settings.get(name) for name in HYPERPARAMETERS}
    numbers = {name: float(value) for name, value in known.items() if isinstance(value, (int, float))}
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

    ``settings``: by their names in TRL, None where unknown; ``name``: of the run; ``model``: its path; ``prompts``: how
    many a step has; ``step``: at which the run starts; ``info``: further labels of ``rl_run_info``.
    """
    known = {ours: value for ours, value in settings.items() if value is not None}
    group, planned = known.get("num_generations"), known.get("max_steps")
    if isinstance(prompts, int) and isinstance(group, int):
        known["generation_batch_size"] = prompts * group
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
    """Return the first setting that exists at one of ``paths``, such as ``optim.lr``, in mappings or objects."""
    for path in paths:
        found = config
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
        if found is not None:
            return found
    return None


def settings_at(config: Any, places: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of ``config`` by their names in TRL.

    ``places``: the paths at which each may be, separated by spaces; the first that exists wins.
    """
    return {ours: at(config, *paths.split()) for ours, paths in places.items()}


def step_in(line: Line) -> int | None:
    """Return the step that ``line`` names, or None. A logger's own step counts its calls instead."""
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
    """Hands a logger's lines to the run of this process; the `watch` of its file is given one."""

    name: str
    """The name of the logger in `RLEXPORTER_FROM`."""
    log: _Log
    """`Sources.log` of `rlexporter.integrations.logged_run`, for this logger."""
    end: _End
    flush: Callable[[], None]


def after_call(owner: type | ModuleType, name: str, then: Callable[..., object]) -> None:
    """Call ``then`` after each call of a method of ``owner`` returns, with the same arguments.

    ``owner`` may be a module, and ``name`` a function of it; a coroutine function returns before its coroutine runs. A
    watched call made inside another watched call is ignored, exceptions pass untouched, and a method that is watched
    already stays as it is.
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
    """Call ``act``. Its errors are logged, once for each kind, and never raised."""
    try:
        act(*args, **kwargs)
    except Exception as error:  # the boundary: nothing of ours may reach a script that knows nothing of us
        name = f"{act.__module__.rpartition('.')[2]}: {act.__qualname__}"
        kind = (name, type(error))
        if kind not in _said:
            _said.add(kind)
            logger.warning("rlexporter cannot read a line (%s): %s", name, error, exc_info=error)
