"""Parsers of settings. Each takes a text or a value, and raises a ValueError or TypeError that says what it expects."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any, TypeVar

from rlexporter.atomic_file import read_regular
from rlexporter.catalog.metrics import CATALOG
from rlexporter.conditions.judge import Factor, Thresholds
from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.conditions.watch import STALLED
from rlexporter.model.condition import Condition, Limit
from rlexporter.model.incident import Incident
from rlexporter.model.sink import SAVE, STOP

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Act = Callable[[Incident], object]
"""A function that is called with each critical incident, and returns "save", "stop", both in a list, or None."""
MAX_STATIC_LABELS = 8
ON = "on"

_OWN_LABELS = {"run", "rank", "le", "quantile", "job", "instance"}.union(*(metric.labels for metric in CATALOG))
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_T = TypeVar("_T", int, float)


_MOST_MEMBERS = 20_000
"""The most members of a value, with those inside them; twice the most keys that a run may log."""
_DEEPEST = 4
_MOST_BYTES = 1_000_000


def plain(value: object) -> object:
    """Return ``value`` with exact texts, lists and dictionaries in place of what only looks like one.

    So that no parser has to do with an object that goes on for ever or raises. Raises ValueError for a value with too
    many members, or nested too deeply, and whatever the objects in it raise.
    """
    return _plain(value, iter(range(_MOST_MEMBERS)), _DEEPEST)


def _plain(value: object, room: Iterator[int], depth: int) -> object:
    if isinstance(value, str):
        return str.__str__(value)
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if not depth:
        raise ValueError("is nested too deeply")
    if isinstance(value, Mapping):
        pairs = _bounded(value.items(), room)
        return {str.__str__(k) if isinstance(k, str) else k: _plain(v, room, depth - 1) for k, v in pairs}
    return [_plain(member, room, depth - 1) for member in _bounded(value, room)]


def _bounded(members: Iterable[Any], room: Iterator[int]) -> Iterator[Any]:
    for member in members:
        if next(room, None) is None:
            raise ValueError(f"has more than {_MOST_MEMBERS:,} members")
        yield member


def text(value: object) -> str:
    """Return a text that is not empty, without blanks around it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    return value.strip()


def between(low: float, high: float, number: Callable[[Any], _T]) -> Callable[[object], _T]:
    """Make a parser of a ``number`` from ``low`` to ``high``."""

    def parse(value: object) -> _T:
        parsed = number(value)
        if not low <= parsed <= high:
            raise ValueError(f"must be between {low:g} and {high:g}")
        return parsed

    return parse


def table(value: object, name: str, form: str, pairs: Callable[[str], Iterable[tuple[str, Any]]]) -> Mapping[str, Any]:
    """Return what is given as a mapping, as a text that ``pairs`` reads, or as the path of a TOML file.

    ``name``: the table of that file; ``form``: what such a text looks like.
    """
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError(f"must be a mapping, a text like {form}, or the path of a TOML file")
    given = text(os.fspath(value))
    if not given.endswith(".toml"):
        return dict(_bounded(pairs(given), iter(range(_MOST_MEMBERS))))
    file = path(given)
    try:
        settings = tomllib.loads(read_regular(file, _MOST_BYTES).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:  # a date, or a number of too many digits, is not always a TOMLDecodeError
        raise ValueError(f"is no TOML: {error}") from None
    found = plain(settings.get(name))
    if not isinstance(found, dict):
        raise ValueError(f"has no table [{name}]")
    return found


def thresholds(value: object) -> Thresholds:
    """Return the limits that the user sets for one run, by condition and severity; None for one that is off.

    ``value``: a mapping of conditions to limits, the text ``kl_high=0.5,entropy_low=off``, or the path of a TOML file
    with a table ``[thresholds]``. A limit is a number, False (off), or a mapping of severities to those. A single
    number is that of the mildest severity; the others keep their proportion to it. Raises ValueError.
    """
    chosen: dict[tuple[str, str], Factor | None] = {}
    for name, limit in table(value, "thresholds", "kl_high=0.5,entropy_low=off", _threshold_pairs).items():
        if name == STALLED[0]:
            chosen[STALLED] = _seconds(name, limit)
        elif name in CONDITION_NAMED:
            chosen.update(_limits(CONDITION_NAMED[name], limit))
        else:
            close = get_close_matches(str(name), (*CONDITION_NAMED, STALLED[0]), n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else "alerts/runbooks/README.md lists them"
            raise ValueError(f"there is no condition {name!r}; {hint}")
    return chosen


def _threshold_pairs(text: str) -> Iterator[tuple[str, Any]]:
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
            number = _number(f"{condition.name}.{severity}", limit)
            _check_has_limit(condition, number)
            yield (condition.name, severity), number
        return
    number = _number(condition.name, value)
    _check_has_limit(condition, number)
    for limit in condition.limits:
        scaled = None if number is None else _scaled(limit, condition.limits[0], number)
        if scaled is not None and not all(map(isfinite, scaled.values() if isinstance(scaled, Mapping) else [scaled])):
            raise ValueError(f"{condition.name} is too large: its limit for {limit.severity.value} would be infinite")
        yield (condition.name, limit.severity.value), scaled


def _check_has_limit(condition: Condition, number: float | None) -> None:
    if condition.finding and number is not None:
        raise ValueError(f"{condition.name} is so or not, and has no limit: all that can be set is false, for off")


def _scaled(limit: Limit, mildest: Limit, number: float) -> Factor:
    """Scale ``limit`` by the factor that takes the mildest one to ``number``."""
    if limit is mildest:
        return number
    if isinstance(limit.value, Mapping) and isinstance(mildest.value, Mapping):
        return {variant: value * number / mildest.value[variant] for variant, value in limit.value.items()}
    assert isinstance(limit.value, float)
    assert isinstance(mildest.value, float)
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
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a number, or off, not {value!r:.60}") from None
    if not isfinite(number) or (positive and number <= 0):
        raise ValueError(f"{name} must be a finite number{' above 0' if positive else ''}, not {value!r}")
    return number


def labels(value: object) -> dict[str, str]:
    """Return labels given as a mapping, or as `team=llm,project=math`."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if any(not separator for _, separator, _ in pairs):
            raise ValueError("must look like team=llm,project=math")
        value = {name.strip(): text.strip() for name, _, text in pairs}
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping of names to values")
    for name in value:
        if not isinstance(name, str) or not _LABEL_NAME.fullmatch(name) or name.startswith("__"):
            raise ValueError(f"{name!r} is no label name: letters, digits and _ only, not first a digit or __")
        if name in _OWN_LABELS:
            raise ValueError(f"{name!r} is taken: rlexporter or Prometheus sets it")
    if len(value) > MAX_STATIC_LABELS:
        raise ValueError(f"has {len(value)} labels: at most {MAX_STATIC_LABELS}, since every series carries them")
    return {name: str(text) for name, text in value.items()}


def choice(*allowed: str) -> Callable[[object], str]:
    """Make a parser that accepts one of the ``allowed`` words."""

    def parse(value: object) -> str:
        if value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return str(value)

    return parse


def words(*allowed: str) -> Callable[[object], tuple[str, ...]]:
    """Make a parser of some of the ``allowed`` words, each once, with commas between them, or as a sequence."""

    def parse(value: object) -> tuple[str, ...]:
        given = value.split(",") if isinstance(value, str) else value
        if not isinstance(given, (list, tuple)):
            raise ValueError("must be words with commas between them")
        chosen = tuple(dict.fromkeys(str(word).strip() for word in given))
        for word in chosen:
            if word not in allowed:
                raise ValueError(f"{word!r} is none of {', '.join(allowed)}; write, for example, {allowed[-1]}")
        return chosen

    return parse


def orders(value: object) -> Any:
    """Return `save`, `stop` or both as words, or a function as it is."""
    if callable(value) or value == "":
        return value or ()
    if not isinstance(value, (str, list, tuple)):
        raise ValueError("must be save, stop, both with a comma between them, or a function")
    return words(SAVE, STOP)(value)


def addresses(value: object) -> tuple[str, ...]:
    """Return addresses given as a sequence, or as a text with blanks or commas between them.

    A comma that no `scheme://` follows is part of an address: some list who is meant.
    """
    if isinstance(value, str):
        value = [each for word in value.split() for each in re.split(r",+(?=\w+://)", word.strip(",")) if each]
    if not isinstance(value, (list, tuple)):
        raise ValueError("must be addresses with blanks between them, or a list of them")
    return tuple(map(str, value))


def path(value: object) -> str:
    """Return a path, with ``~`` expanded."""
    found = os.path.expanduser(text(os.fspath(value) if isinstance(value, os.PathLike) else value))
    if b"\0" in os.fsencode(found):  # which raises ValueError for what no path can hold
        raise ValueError("must not hold a zero byte")
    return found


def switch(value: object) -> bool:
    """Return True for a yes, and False for a no."""
    word = switch_or_text(value)
    if word not in ("", ON):
        raise ValueError("must be 1 or 0, true or false, yes or no, on or off")
    return word == ON


def switch_or_text(value: object) -> str:
    """Return ``on`` for a yes, an empty string for a no, else the text itself."""
    if isinstance(value, bool):
        return ON if value else ""
    word = path(value)
    if word.lower() in ("1", "true", "yes", ON):
        return ON
    return "" if word.lower() in ("0", "false", "no", "off") else word
