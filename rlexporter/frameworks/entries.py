"""Short forms for the tables of frameworks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rlexporter.model.metric import FrameworkKey


def feeds(
    series: str, *names: str, families: tuple[str, ...] = (), scale: float = 1.0, nothing: float | None = None
) -> Iterator[FrameworkKey]:
    """Yield the keys ``names``, which all feed ``series``; of a line that has several the last one is served."""
    for name in names:
        yield FrameworkKey(name, series, families, scale, nothing)


def no_metric(*names: str) -> Iterator[FrameworkKey]:
    """Yield the keys ``names``, which are no metrics: they stand for what rlexporter knows otherwise."""
    return feeds("", *names)


def statistics(series: str, name: str, *suffixes: str) -> Iterator[FrameworkKey]:
    """Yield ``name`` with each suffix, ``mean``, ``min`` and ``max`` if none is given, for ``series`` with the same."""
    for suffix in suffixes or ("mean", "min", "max"):
        yield FrameworkKey(name + suffix, series + suffix)


def correction(prefix: str) -> Iterator[FrameworkKey]:
    """Yield the keys of verl's module of rollout correction, which others have taken over, below ``prefix``."""
    yield from feeds("rl_sampling_kl_per_token", f"{prefix}/kl")
    yield from feeds("rl_rollout_kl_per_token", f"{prefix}/k3_kl")
    for ours, theirs in (("trainer", "training"), ("sampler", "rollout")):
        yield from feeds(f"rl_{ours}_perplexity", f"{prefix}/{theirs}_ppl")
        yield from feeds(f"rl_{ours}_log_perplexity", f"{prefix}/{theirs}_log_ppl")
    yield from feeds("rl_perplexity_ratio", f"{prefix}/ppl_ratio")
    yield from feeds("rl_log_perplexity_difference_mean", f"{prefix}/log_ppl_diff")
    yield from statistics("rl_log_perplexity_difference_", f"{prefix}/log_ppl_diff_", "min", "max")
    yield from feeds("rl_log_perplexity_absolute_difference", f"{prefix}/log_ppl_abs_diff")
    yield from feeds("rl_sampling_chi2_per_token", f"{prefix}/chi2_token")


def below(prefix: str, keys: Iterable[FrameworkKey]) -> Iterator[FrameworkKey]:
    """Yield ``keys`` with ``prefix`` before their names."""
    for key in keys:
        yield replace(key, name=prefix + key.name)
