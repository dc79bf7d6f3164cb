"""Log keys that the catalog does not know: what a user says they mean (`train/score=reward`), or their last part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import inf

from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions.table import SIGNALS
from rlexporter.config import parsers
from rlexporter.model.condition import Read
from rlexporter.model.metric import Key, Kind, Metric

_SERIES = {name for name, metric in NAMED.items() if metric.kind is Kind.GAUGE and not metric.labels}
MEANINGS: Mapping[str, str] = {
    signal.name: source.series
    for signal in SIGNALS
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
    (r"(policy|actor|act|pg)\w*[/_ .-]*loss", "policy_loss"),
    (r"clip_?frac", "clipfrac"),
    (r"grad\w*[/_ .-]*norm", "grad_norm"),
    (r"entropy(?!.*loss)", "entropy"),
    (r"reward|score|return", "reward"),
    (r"(completion|response|output|gen)\w*[/_ .-]*len", "length"),
    (rf"learning[_ ]rate|{_EDGE}lr$", "learning_rate"),
)
"""What a key looks like: the first expression that is found in it, and the meaning; none where it is empty."""
_SURE: Mapping[str, frozenset[str]] = {
    "approxkl": frozenset(("approxkl", "approx_kl")),
    "kl": frozenset(("kl", "kl_ref", "ref_kl", "kl_div", "kl_divergence")),
    "value_clipfrac": frozenset(("clipfrac", "clip_frac", "value_clipfrac", "vf_clipfrac")),
    "value_loss": frozenset(("loss", "value_loss", "critic_loss", "cri_loss", "vf_loss")),
    "policy_loss": frozenset(("policy_loss", "actor_loss", "act_loss", "pg_loss")),
    "clipfrac": frozenset(("clipfrac", "clip_frac", "clip_fraction")),
    "grad_norm": frozenset(("grad_norm", "gradient_norm")),
    "entropy": frozenset(("entropy", "policy_entropy")),
    "reward": frozenset(("reward", "rewards", "scalar_reward", "reward_score", "score", "scores", "episode_reward")),
    "length": frozenset(
        f"{what}_{length}" for what in ("completion", "response", "output") for length in ("length", "len")
    ),
    "learning_rate": frozenset(("learning_rate", "lr")),
}
"""By meaning, the last parts of keys that cannot be mistaken for anything else, without `mean` and `average`.

A KL that does not say of what is judged as one a sequence, whose limits are the wider ones.
"""
_PLAUSIBLE = {"approxkl": (-1.0, 1.0), "clipfrac": (0.0, 1.0), "value_clipfrac": (0.0, 1.0), "length": (1.0, inf)}
"""The range of the first number, where one outside must mean something else."""


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
    own: dict[str, list[Key]] = {}
    for name, series in mapping.items():
        own.setdefault(series, []).append(Key(name, ()))
    mapped = []
    for metric in metrics:
        keys = (*(key for key in metric.keys if key.name not in mapping), *own.get(metric.series, ()))
        mapped.append(metric if keys == metric.keys else replace(metric, keys=keys))
    return tuple(mapped)


def proposed(keys: Iterable[str]) -> dict[str, str]:
    """Return what unknown ``keys`` look like, each meaning once: the shortest key that looks like it."""
    found: dict[str, str] = {}
    for key in sorted(keys, key=len):
        meaning = _look(key)
        if meaning in MEANINGS and meaning not in found.values():
            found[key] = meaning
    return found


def guessed(key: str, value: float) -> str:
    """Return the series that an unknown key means by its last part; empty if that is not sure.

    ``value``: the first number under it, which one in another unit or of another meaning may contradict.
    """
    words = re.sub(r"[ -]", "_", key.lower()).replace(".", "/")
    part = re.sub(r"[/_](avg|average|mean)$", "", words).rpartition("/")[2]
    part = re.sub(r"^(avg|average|mean)_", "", part)
    meaning = _look(key)
    low, high = _PLAUSIBLE.get(meaning, (-inf, inf))
    if part not in _SURE.get(meaning, ()) or not low <= value <= high:
        return ""
    return "rl_kl_per_sequence" if meaning == "kl" else _series(meaning)


def _look(key: str) -> str:
    return next((meaning for looks, meaning in _LOOKS if re.search(looks, key, re.IGNORECASE)), "")


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
