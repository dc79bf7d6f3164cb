"""Console output of a loop of one's own: lines such as ``Reward: 0.51, KL: 0.02 | Actor Loss: 0.1``.

DeepSpeed-Chat prints two such lines a step, a notebook for legacy PPO often one a number: a log line goes on until a
key comes again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from rlexporter.recording.source import Line
from rlexporter.recording.trainings import OF_RL, PARTS
from rlexporter.recording.writers import is_known, is_number

_PAIR = re.compile(r"\s*([A-Za-z][\w /.()-]{0,60}?)\s*[:=]\s*(\S{1,40})\s*")
_BETWEEN = re.compile(r"[|;]|,(?=\s)")
_STEP_OF = re.compile(r"\((\d{1,12}/\d{1,12})\)\s*$")
"""Steps done and planned, behind the epoch: ``Epoch:[1/2](100/5000)``."""
_PLACES = {"step": "step", "global step": "step", "global_step": "step", "iteration": "step", "epoch": "epoch"}
_FEWEST = 3
"""How often the commonest key is printed at least."""
_SELDOM = 0.01
"""A key that is printed in a smaller share of the lines is something else: a setting, a summary."""


def lines(path: Path, text: str) -> list[Line]:
    """Return the log lines in ``text``; none if it does not print numbers of an RL training again and again."""
    found = list(_merged(text))
    counts = Counter(key for _, logs in found for key in logs)
    most = max(counts.values(), default=0)
    usual = {key for key, count in counts.items() if count >= max(2.0, _SELDOM * most)}
    if most < _FEWEST or not any(_is_of_rl(key) for key in usual):
        return []
    if "step" in usual and not _rises([logs["step"] for _, logs in found if "step" in logs]):
        usual.discard("step")  # it is counted anew in each epoch
    kept = ((number, {key: value for key, value in logs.items() if key in usual}) for number, logs in found)
    return [Line(f"{path}:{number}", logs) for number, logs in kept if logs.keys() - _PLACES.values()]


def _merged(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of a line, and the pairs from there until a key comes again."""
    begun, logs = 0, dict[str, str]()
    for number, line in enumerate(text.splitlines(), 1):
        pairs = dict(_pairs(line))
        if not pairs.keys().isdisjoint(logs):
            yield begun, logs
            logs = {}
        if pairs:
            begun = begun if logs else number
            logs |= pairs
    if logs:
        yield begun, logs


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    for part in _BETWEEN.split(line[:2000]):
        match = _PAIR.fullmatch(part)
        if match is None:
            continue
        key = _PLACES.get(match[1].lower(), match[1])
        if key == "epoch" and (step := _STEP_OF.search(match[2])):
            yield "step", step[1]
        elif is_number(match[2]) or (key == "step" and is_number(match[2].partition("/")[0])):
            yield key, match[2]


def _is_of_rl(key: str) -> bool:
    return is_known(key) or not OF_RL.isdisjoint(PARTS.split(key.lower()))


def _rises(steps: list[str]) -> bool:
    numbers = [float(step.partition("/")[0]) for step in steps]
    return all(before <= after for before, after in pairwise(numbers))
