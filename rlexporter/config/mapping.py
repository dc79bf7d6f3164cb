"""Log keys to which a user gives a meaning, as the catalogue does not know them: `train/score=reward`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from rlexporter.catalog.conditions import SERIES_SIGNALS
from rlexporter.catalog.metrics import NAMED
from rlexporter.config import parsers
from rlexporter.model.condition import Read
from rlexporter.model.metric import Key, Kind, Metric

_SERIES = {name for name, metric in NAMED.items() if metric.kind is Kind.GAUGE and not metric.labels}
MEANINGS: Mapping[str, str] = {
    signal.name: source.series
    for signal in SERIES_SIGNALS
    for source in reversed(signal.sources)
    if source.read is Read.VALUE and source.series in _SERIES and signal.name != "kl_signed"
}
"""The series that a key may mean, by the names of what is judged: `reward`, `kl`, `entropy` and so on."""
_EDGE = r"(?:^|$|[/_ .-])"
_LOOKS: Sequence[tuple[str, str]] = (
    (rf"{_EDGE}(eval|val|test|dev|coef|std|var|min|max){_EDGE}|valid|penalt", ""),
    (r"approx_?kl", "approxkl"),
    (rf"{_EDGE}kl{_EDGE}", "kl"),
    (rf"{_EDGE}ref{_EDGE}", ""),
    (r"(value|critic|vf).*clip_?frac", "value_clipfrac"),
    (r"(value|critic|vf|cri)\w*[/_ .-]*loss|loss\w*[/_ .-]*(value|critic|vf)", "value_loss"),
    (r"value|critic|vf", ""),
    (r"clip_?frac", "clipfrac"),
    (r"grad\w*[/_ .-]*norm", "grad_norm"),
    (r"entropy(?!.*loss)", "entropy"),
    (r"reward|score|return", "reward"),
    (r"(completion|response|output|gen)\w*[/_ .-]*len", "length"),
    (rf"learning[_ ]rate|{_EDGE}lr$", "learning_rate"),
)
"""What a key looks like: the first expression that is found in it, and the meaning; none where it is empty."""


def parse(value: object) -> Mapping[str, str]:
    """Return the series that each key means.

    ``value``: a mapping of keys to meanings, the text ``train/score=reward,train/len=length``, or the path of a TOML
    file with a table ``[map]``. A meaning is one of `MEANINGS`, or a gauge without labels, with or without ``rl_``.

    Raises: ValueError that says what is wrong.
    """
    given = parsers.table(value, "map", "train/score=reward", _pairs)
    return {str(key): _series(str(meaning)) for key, meaning in given.items()}


def catalog(metrics: Iterable[Metric], mapping: Mapping[str, str]) -> tuple[Metric, ...]:
    """Return ``metrics``, fed by the keys of ``mapping`` as that says, and by them in no other way."""
    mapped = []
    for metric in metrics:
        keys = tuple(key for key in metric.keys if key.name not in mapping)
        keys += tuple(Key(name, ()) for name, series in mapping.items() if series == metric.series)
        mapped.append(metric if keys == metric.keys else replace(metric, keys=keys))
    return tuple(mapped)


def proposed(keys: Iterable[str]) -> dict[str, str]:
    """Return what unknown ``keys`` look like, each meaning once: the shortest key that looks like it."""
    found: dict[str, str] = {}
    for key in sorted(keys, key=len):
        meaning = next((meaning for looks, meaning in _LOOKS if re.search(looks, key, re.IGNORECASE)), "")
        if meaning and meaning not in found.values():
            found[key] = meaning
    return found


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, map(str.strip, text.split(","))):
        key, _, meaning = map(str.strip, part.rpartition("="))
        if not key:
            raise ValueError(f"{meaning!r} must look like KEY=MEANING, such as train/score=reward")
        yield key, meaning


def _series(meaning: str) -> str:
    for series in (MEANINGS.get(meaning), meaning, f"rl_{meaning}"):
        if series in _SERIES:
            return series
    close = get_close_matches(meaning, (*MEANINGS, *_SERIES), n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(MEANINGS)}, and each gauge"
    raise ValueError(f"there is no meaning {meaning!r}; {hint}")
