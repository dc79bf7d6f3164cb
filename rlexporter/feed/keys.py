"""Maps a log key to the series that it feeds. Pure: the same key always gives the same answer.

A key feeds every metric that names it: ``grad_norm`` a gauge and a histogram, ``num_tokens`` a gauge and a counter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from hashlib import sha256

from rlexporter.model.metric import AS_IT_IS, Framework, Group, Key, Kind, Metric, Series

MAX_LABEL_LENGTH = 128
"""The length at which label values are cut, since they may come from anywhere."""

_DIGITS = 9

_RUNTIME, _RATE = "_runtime", "_samples_per_second"


def clip(value: str) -> str:
    """Return a label value of bounded length, with a question mark for half a surrogate pair.

    One that is cut ends with a digest of the whole: two that begin alike stay two.
    """
    tidy = value if value.isascii() else value.encode("utf-8", "replace").decode()
    if len(tidy) <= MAX_LABEL_LENGTH:
        return tidy
    digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{tidy[: MAX_LABEL_LENGTH - 1 - _DIGITS]}…{digest}"


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


class _Table:
    """Keys, and the metrics that each feeds."""

    def __init__(self) -> None:
        self._exact: dict[str, list[tuple[Metric, Key]]] = {}
        self._templates: dict[str, tuple[re.Pattern[str], list[tuple[Metric, Key]]]] = {}

    def add(self, metric: Metric, key: Key) -> None:
        if "{" in key.name and metric.labels:  # else a user's own key, whatever its letters
            self._templates.setdefault(key.name, (_pattern(key.name), []))[1].append((metric, key))
        else:
            self._exact.setdefault(key.name, []).append((metric, key))

    def find(self, key: str) -> tuple[Sequence[tuple[Metric, Key]], tuple[str, ...]]:
        """Return the entries that match ``key``, and the labels in it."""
        if key in self._exact:
            return self._exact[key], ()
        for pattern, entries in self._templates.values():
            if match := pattern.fullmatch(key):
                return entries, tuple(clip(value) for value in match.groups())
        return (), ()


class Resolver:
    """Resolves log keys as one algorithm uses them.

    If trainers give one key different meanings (``kl`` of AsyncGRPO is not that of GRPO), the metric that lists the
    algorithm wins; an algorithm that no metric lists gets the first meaning in the catalog, but for keys that are
    of their algorithms ``only``. The keys of a ``framework`` come before those of TRL.
    """

    def __init__(self, metrics: Sequence[Metric], algorithm: str = "", framework: Framework | None = None) -> None:
        self._algorithm = algorithm
        self._tables = (_Table(), _Table())
        own, trl = self._tables
        for metric in metrics:
            for key in metric.keys:
                if not key.only or algorithm in key.algorithms:
                    trl.add(metric, key)
        named = {metric.series: metric for metric in metrics}
        self._scales: dict[str, float] = {}
        self._dropped: set[str] = set()
        self._nothing: dict[str, float] = {}
        for mapped in framework.keys if framework is not None else ():
            if not mapped.series:
                self._dropped.add(mapped.name)
            elif not mapped.families or algorithm in mapped.families:
                own.add(named[mapped.series], Key(mapped.name, (algorithm,)))
                if mapped.scale != 1.0:
                    self._scales[mapped.series] = mapped.scale
                if mapped.nothing is not None:
                    self._nothing[mapped.name] = mapped.nothing

    def resolve(self, key: str, prefix: str = "") -> tuple[Series, ...]:
        """Return the series that ``key`` feeds in a log line with this evaluation ``prefix``; empty if unknown."""
        return tuple(series for series in self._known(key, prefix) if series.metric.series != AS_IT_IS)

    def scale(self, metric: Metric) -> float:
        """Return the factor from what the framework logs to the unit of ``metric``."""
        return self._scales.get(metric.series, 1.0)

    def nothing(self, key: str) -> float | None:
        """Return the value of ``key`` that says that nothing was measured; None if there is none."""
        return self._nothing.get(key)

    def as_logged(self, key: str, prefix: str = "") -> tuple[Series, ...]:
        """Return what a known key that is served as it is logged stands for, with its fields as labels; else nothing.

        `resolve` returns nothing for such a key.
        """
        return tuple(series for series in self._known(key, prefix) if series.metric.series == AS_IT_IS)

    def knows(self, key: str, prefix: str = "") -> bool:
        """Return True for a key that the catalog or the framework names, whether or not it has a series of its own."""
        return bool(self._known(key, prefix)) or self.is_no_metric(key)

    def is_no_metric(self, key: str) -> bool:
        """Return True for a key that the framework logs and that stands for what is known otherwise."""
        return key in self._dropped

    def _known(self, key: str, prefix: str) -> tuple[Series, ...]:
        for stem in (f"{prefix}_", "eval_") if prefix else ("eval_",):
            if key.startswith(stem):
                return self._in_evaluation(key.removeprefix(stem), dataset(prefix or "eval"))
        return self._in_training(key)

    def _in_training(self, key: str) -> tuple[Series, ...]:
        entries, labels = self._find(key)
        return tuple(Series(metric, labels) for metric in self._meant(entries))

    def _in_evaluation(self, key: str, name: str) -> tuple[Series, ...]:
        own, labels = self._find(f"eval_{key}")
        if own and not labels:
            return tuple(Series(metric, (name,)) for metric in self._meant(own))
        return tuple(
            Series(metric if metric.series == AS_IT_IS else evaluation(metric), (name, *labels))
            for metric, labels in self._in_training(key)
            if metric.kind is Kind.GAUGE and metric.group is not Group.EVALUATION
        )

    def _find(self, key: str) -> tuple[Sequence[tuple[Metric, Key]], tuple[str, ...]]:
        matches = (table.find(key) for table in self._tables)
        return next((match for match in matches if match[0]), ((), ()))

    def _meant(self, entries: Sequence[tuple[Metric, Key]]) -> list[Metric]:
        listed = [metric for metric, key in entries if self._algorithm in key.algorithms]
        first = entries[0][1].algorithms if entries else ()
        return listed or [metric for metric, key in entries if key.algorithms == first]


def _pattern(template: str) -> re.Pattern[str]:
    """Compile a template such as ``rewards/{reward_function}/mean``, with one group for each label.

    Only the name of a data set may hold a slash: ``openai/gsm8k``.
    """
    escaped = re.escape(template).replace(r"\{dataset\}", "(.+)")
    return re.compile(re.sub(r"\\{\w+\\}", "([^/]+)", escaped))
