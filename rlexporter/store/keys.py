"""Maps a log key to the series that it feeds. Pure: the same key always gives the same answer.

A key feeds every metric that names it: ``grad_norm`` a gauge and a histogram, ``num_tokens`` a gauge and a counter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache

from rlexporter.model.metric import Group, Key, Kind, Metric, Series

MAX_LABEL_LENGTH = 128
"""The length at which label values are cut, since they may come from anywhere."""

_RUNTIME, _RATE = "_runtime", "_samples_per_second"


def clip(value: str) -> str:
    """Return a label value of bounded length, with a question mark for half a surrogate pair."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    return value if len(value) <= MAX_LABEL_LENGTH else value[: MAX_LABEL_LENGTH - 1] + "…"


@lru_cache(maxsize=16)
def evaluation_prefix(keys: tuple[object, ...]) -> str:
    """Return the prefix of an evaluation's log line (``eval``, ``eval_<data set>``, ``test``), else an empty string.

    transformers adds ``<prefix>_runtime`` and ``<prefix>_samples_per_second`` to every such line, and to the summary of
    a training with the prefix ``train``. A user may log a key like ``sandbox_runtime`` too, so a runtime without the
    rate counts only as ``eval_runtime``.
    """
    for key in keys:
        if isinstance(key, str) and key.endswith(_RUNTIME):
            prefix = key.removesuffix(_RUNTIME)
            if prefix == "eval" or (prefix != "train" and prefix + _RATE in keys):
                return prefix
    return ""


def dataset(prefix: str) -> str:
    """Return the data set that an evaluation's ``prefix`` names; ``default`` if it names none."""
    return clip(prefix.removeprefix("eval").removeprefix("_") or "default")


@cache
def evaluation(metric: Metric) -> Metric:
    """Return the metric as an evaluation measures it: ``rl_eval_*``, with the data set as a label."""
    return replace(
        metric,
        series=metric.series.replace("rl_", "rl_eval_", 1),
        group=Group.EVALUATION,
        help=f"In evaluation: {metric.help}",
        keys=tuple(Key(f"eval_{key.name}", key.algorithms) for key in metric.keys),
        labels=("dataset", *metric.labels),
    )


class Resolver:
    """Resolves log keys as one algorithm uses them.

    If trainers give one key different meanings (``kl`` of AsyncGRPO is not that of GRPO), the metric that lists the
    algorithm wins; an algorithm that no metric lists gets the first meaning in the catalogue.
    """

    def __init__(self, metrics: Sequence[Metric], algorithm: str = "") -> None:
        self._algorithm = algorithm
        self._exact: dict[str, list[tuple[Metric, Key]]] = {}
        self._templates: dict[str, list[tuple[Metric, Key]]] = {}
        for metric in metrics:
            for key in metric.keys:
                table = self._templates if "{" in key.name else self._exact
                table.setdefault(key.name, []).append((metric, key))
        self._patterns = [(_pattern(name), entries) for name, entries in self._templates.items()]

    def resolve(self, key: str, prefix: str = "") -> tuple[Series, ...]:
        """Return the series that ``key`` feeds in a log line with this evaluation ``prefix``; empty if unknown."""
        for stem in (f"{prefix}_", "eval_") if prefix else ("eval_",):
            if key.startswith(stem):
                return self._in_evaluation(key.removeprefix(stem), dataset(prefix or "eval"))
        return self._in_training(key)

    def _in_training(self, key: str) -> tuple[Series, ...]:
        if key in self._exact:
            return tuple(Series(metric) for metric in self._meant(self._exact[key]))
        for pattern, entries in self._patterns:
            if match := pattern.fullmatch(key):
                labels = tuple(clip(value) for value in match.groups())
                return tuple(Series(metric, labels) for metric in self._meant(entries))
        return ()

    def _in_evaluation(self, key: str, name: str) -> tuple[Series, ...]:
        if own := self._exact.get(f"eval_{key}"):
            return tuple(Series(metric, (name,)) for metric in self._meant(own))
        return tuple(
            Series(evaluation(metric), (name, *labels))
            for metric, labels in self._in_training(key)
            if metric.kind is Kind.GAUGE and metric.group is not Group.EVALUATION
        )

    def _meant(self, entries: list[tuple[Metric, Key]]) -> list[Metric]:
        listed = [metric for metric, key in entries if self._algorithm in key.algorithms]
        first = entries[0][1].algorithms
        return listed or [metric for metric, key in entries if key.algorithms == first]


def _pattern(template: str) -> re.Pattern[str]:
    """Compile a template such as ``rewards/{reward_function}/mean``, with one group for each label."""
    return re.compile(re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(template)))
