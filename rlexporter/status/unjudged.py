"""What cannot be judged in a run, and why."""

from __future__ import annotations

from functools import cache
from typing import Any

from rlexporter.catalog import CONDITION_NAMED
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.conditions.from_catalog import SIGNAL_NAMED, series_of
from rlexporter.status import sentences
from rlexporter.status.samples import Samples

_WAITING = "waiting"


def as_json(samples: Samples, language: Language = ENGLISH) -> list[dict[str, Any]]:
    """Return the conditions that this run was not judged by so far, with the reason in ``language``."""
    missing = _missing(samples, language)
    waiting = [name for (name,), judged in samples.of("rl_condition_judged").items() if not judged]
    return [_entry(name, missing, language) for name in waiting if name in CONDITION_NAMED]


def unavailable(samples: Samples, language: Language = ENGLISH) -> list[dict[str, str]]:
    """Return the signals that cannot be measured at the tensor in this run."""
    return [
        {"signal": signal, "cause": cause, "reason": reason}
        for signal, (cause, reason) in _missing(samples, language).items()
    ]


def _missing(samples: Samples, language: Language) -> dict[str, tuple[str, str]]:
    """Return cause and reason of each signal that cannot be measured."""
    return {signal: (cause, language(reason)) for signal, cause, reason in samples.of("rl_signal_unavailable_info")}


def _entry(name: str, missing: dict[str, tuple[str, str]], language: Language) -> dict[str, Any]:
    signal = CONDITION_NAMED[name].signal
    read = _read(signal)
    for lacking, (cause, reason) in missing.items():
        if read & _fed(lacking) or any(series.startswith(f"rl_{lacking.removesuffix('s')}_") for series in read):
            return {"condition": name, "cause": cause, "reason": reason}
    series = ", ".join(sorted(read)) or signal
    return {"condition": name, "cause": _WAITING, "reason": language(sentences.NO_VALUES, series=series)}


@cache
def _fed(signal: str) -> frozenset[str]:
    """Return the series of what an adapter calls ``signal``, where a signal of conditions has that name too."""
    return frozenset(series_of(signal)) if signal in SIGNAL_NAMED else frozenset()


@cache
def _read(signal: str) -> frozenset[str]:
    """Return all series that ``signal`` is read at or computed from."""
    found = SIGNAL_NAMED[signal]
    inputs = [name for name in (found.of, *found.after) if name]
    return frozenset(series_of(signal)).union(*(_read(name) for name in inputs))
