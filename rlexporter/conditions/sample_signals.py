"""How far sampler and trainer are apart, by what frameworks log of it."""

from __future__ import annotations

from math import log

from rlexporter.conditions.view import Declared, Memory, View

declared = Declared()


def _read(view: View, memory: Memory, series: str) -> float | None:
    """Return the number of ``series``, and note that the signal is read there."""
    value = view.numbers.get(series)
    if value is not None:
        memory.where = series
    return value


@declared.source
def log_factor(view: View, memory: Memory) -> float | None:
    """Return the logarithm of the mean factor between both probabilities of a token: nats, as their difference."""
    factor = _read(view, memory, "rl_sampling_probability_factor_mean")
    return log(factor) if factor is not None and factor > 0.0 else None


@declared.source
def sampler_k1(view: View, memory: Memory) -> float | None:
    """Return the absolute k1 estimate of the KL divergence of sampler and trainer, which noise can make negative."""
    value = _read(view, memory, "rl_sampling_kl_per_token")
    return None if value is None else abs(value)
