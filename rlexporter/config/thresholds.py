"""Parses the limits that the user sets for one run, by argument, environment, or in a TOML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any

from rlexporter.catalog.conditions import CONDITION_NAMED
from rlexporter.conditions.judge import Thresholds
from rlexporter.conditions.signal_state import Factor
from rlexporter.conditions.watch import STALLED
from rlexporter.config import parsers
from rlexporter.model.condition import Condition, Limit


def parse(value: object) -> Thresholds:
    """Return limits by condition and severity; None for one that is off.

    ``value``: a mapping of conditions to limits, the text ``kl_high=0.5,entropy_low=off``, or the path of a TOML file
    with a table ``[thresholds]``. A limit is a number, False (off), or a mapping of severities to those. A single
    number is that of the mildest severity; the others keep their proportion to it. Raises ValueError.
    """
    chosen: dict[tuple[str, str], Factor | None] = {}
    for name, limit in parsers.table(value, "thresholds", "kl_high=0.5,entropy_low=off", _pairs).items():
        if name == STALLED[0]:
            chosen[STALLED] = _seconds(name, limit)
        elif name in CONDITION_NAMED:
            chosen.update(_limits(CONDITION_NAMED[name], limit))
        else:
            close = get_close_matches(str(name), (*CONDITION_NAMED, STALLED[0]), n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else "alerts/runbooks/README.md lists them"
            raise ValueError(f"there is no condition {name!r}; {hint}")
    return chosen


def _pairs(text: str) -> Iterator[tuple[str, Any]]:
    """Parse pairs such as ``kl_high=0.5``, ``kl_high.critical=2`` or ``kl_high=off``."""
    nested: dict[str, dict[str, Any]] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, separator, limit = map(str.strip, part.partition("="))
        if not separator:
            raise ValueError(f"{part!r} must look like kl_high=0.5")
        condition, _, severity = name.partition(".")
        number: Any = False if limit.lower() in ("off", "false") else limit
        if severity:
            nested.setdefault(condition, {})[severity] = number
        else:
            yield condition, number
    yield from nested.items()


def _limits(condition: Condition, value: Any) -> Iterator[tuple[tuple[str, str], Factor | None]]:
    if isinstance(value, Mapping):
        known = {limit.severity.value for limit in condition.limits}
        for severity, limit in value.items():
            if severity not in known:
                raise ValueError(f"{condition.name} has no severity {severity!r}; it has {' and '.join(sorted(known))}")
            yield (condition.name, severity), _number(f"{condition.name}.{severity}", limit)
        return
    number = _number(condition.name, value)
    for limit in condition.limits:
        scaled = None if number is None else _scaled(limit, condition.limits[0], number)
        yield (condition.name, limit.severity.value), scaled


def _scaled(limit: Limit, mildest: Limit, number: float) -> Factor:
    """Scale ``limit`` by the factor that takes the mildest one to ``number``."""
    if limit is mildest:
        return number
    if isinstance(limit.value, Mapping) and isinstance(mildest.value, Mapping):
        return {variant: value * number / mildest.value[variant] for variant, value in limit.value.items()}
    assert not isinstance(limit.value, Mapping)
    assert not isinstance(mildest.value, Mapping)
    return limit.value * number / mildest.value if mildest.value else number


def _seconds(name: str, value: Any) -> float:
    number = _number(name, value, positive=True)
    if number is None:
        raise ValueError(f"{name} cannot be off: it is a number of seconds, as many as you like")
    return number


def _number(name: str, value: Any, *, positive: bool = False) -> float | None:
    if value is False:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{name} must be a number, or false for off, not {value!r}")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{name} must be a number, or off, not {value!r}") from None
    if not isfinite(number) or (positive and number <= 0):
        raise ValueError(f"{name} must be a finite number{' above 0' if positive else ''}, not {value!r}")
    return number
