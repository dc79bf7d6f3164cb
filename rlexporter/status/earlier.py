"""The curves of an earlier run, to compare a run with: taken from the page that was kept of it. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from rlexporter.status.curve import thinned
from rlexporter.status.numbers import number, whole

_POINTS = 250
"""The most points of a curve: it is a line in the background."""
_MOST_CURVES = 96
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """A run that is over, or was when it was last seen: who it was, how it ended, its curves; at most 400 kB."""

    name: str
    word: str
    """Its verdict: `fine`, `look` or `act`."""
    step: int
    """Its last step."""
    curves: tuple[tuple[str, Mapping[str, str], array[float], array[float]], ...]
    """Of each curve the series, its labels, the steps and the values."""

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `/api/history`."""
        return {
            "name": self.name,
            "word": self.word,
            "step": self.step,
            "curves": [
                {
                    "series": series,
                    "labels": dict(labels),
                    "steps": [whole(step) for step in steps],
                    "values": [number(value) for value in values],
                }
                for series, labels, steps, values in self.curves
            ],
        }


def of_page(data: Mapping[str, Any]) -> EarlierRun:
    """Return the run that ``data`` shows, as `rlexporter.status.document.kept` returns it.

    Raises any exception for what another program, or a version to come, has made of it.
    """
    run = data["status"]["run"]
    drawn = [(main["series"], main["labels"]) for card in data["status"]["cards"] for main in card["main"]]
    held = sorted(data["history"]["curves"], key=lambda curve: (curve["series"], curve["labels"]) not in drawn)
    curves = [_curve(curve) for curve in held[:_MOST_CURVES]]
    return EarlierRun(
        _text(run["name"]),
        _text(data["status"]["verdict"]["word"]),
        int(run["step"]),
        tuple(each for each in curves if each[2]),
    )


def _curve(held: Mapping[str, Any]) -> tuple[str, Mapping[str, str], array[float], array[float]]:
    pairs = zip(map(float, held["steps"]), map(_value, held["values"]), strict=True)
    points = thinned([(step, value) for step, value in pairs if isfinite(step)], _POINTS)
    labels = {name: _text(text) for name, text in held["labels"].items()}
    return (
        _text(held["series"]),
        labels,
        array("d", [step for step, _ in points]),
        array("d", [value for _, value in points]),
    )


def _text(held: object) -> str:
    if not isinstance(held, str):
        raise TypeError(f"a text is expected, not {type(held).__name__}")
    return held[:_LONGEST_NAME]


def _value(held: object) -> float:
    """Return a value of a document, where NaN and the infinities are texts."""
    return float("nan" if held is None else held)  # type: ignore[arg-type]
