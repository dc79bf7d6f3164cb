"""Splits the lines of a log into trainings, in whatever format: a file may hold SFT before RL, or five attempts.

A training begins where steps begin anew from a low number, where the one before has written its summary, and where the
keys are those of another kind from there on. Recorders say themselves where a run begins: their files stay whole.

Keys on different axes of steps are apart too: an event file may count episodes, updates and iterations, each in its own
steps. Keys are on one axis if they are logged in the same lines, at the same steps, or so that steps never go back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from rlexporter.logs.dialect import NO_METRICS, OWN_STEPS, STEPS, SUMMARY, is_training, opened, placed
from rlexporter.logs.run_facts import is_trimmed
from rlexporter.logs.source import Line, shortened

_AHEAD = 20
"""How many lines tell whether steps begin anew."""
_BAR = "bar"
PARTS = re.compile(r"[/_\s.-]+")
OF_RL = frozenset(
    "reward rewards kl advantage advantages returns policy actor critic rollout completions ppo grpo".split()
)
"""Parts of keys that an RL training logs, and without pairs no other."""
_OF_PAIRS = ("rewards/chosen", "rewards/rejected", "margin")
"""The ends of keys of pairs: of DPO and its relatives, and of a reward model."""
_OF_SFT = "mean_token_accuracy"
_OF_TRAINER = frozenset(("loss", "epoch"))
"""What transformers logs of any training."""

_Steps = list[tuple[int, float]]
"""The indices of lines, and their steps."""
_FEW = 3
"""Steps that go back less often are those of attempts."""
_ALIKE = 0.9
"""The least share of common steps by which two axes are one."""


class Kind(Enum):
    """What a training is, by its keys."""

    RL = "RL"
    PAIRS = "a reward model, or preferences"
    SFT = "SFT"
    UNNAMED = "a loss of transformers, without a key that says of what"


class Training(NamedTuple):
    """The lines of one training."""

    lines: list[Line]
    kind: Kind | None
    """None if its keys do not tell."""
    apart: bool = False
    """True if its keys have steps of their own, beside others in the same lines of the file."""

    def extent(self, path: Path) -> str:
        """Return where in the file ``path`` its lines are; if its steps are counted apart, also which keys."""
        own = [line for line in self.lines if "event" not in line.logs]
        first, last = (own[i].where.removeprefix(str(path)).lstrip(":/ ") for i in (0, -1))
        where = f"lines {first} to {last}" if first.isdigit() else f"{first} to {last}"
        if not self.apart:
            return where
        groups = dict.fromkeys(key.partition("/")[0] for line in own for key in line.logs if key not in NO_METRICS)
        return f"{where}, with {shortened(', '.join(groups))}"


def split(lines: Sequence[Line]) -> list[Training]:
    """Return the trainings in the ``lines`` of a log, in their order."""
    if any("event" in line.logs for line in lines[:-1] if not line.of):
        return [Training(list(lines), None)]
    found = []
    for _, own in groupby(lines, key=lambda line: line.of):
        axes = _by_axis(list(own))
        found += [Training(part, _kind(part), len(axes) > 1) for axis in axes for part in _parts(axis)]
    return found


def _parts(lines: list[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each training on one axis of steps."""
    begun = [0, *_beginnings(lines), len(lines)]
    for start, end in pairwise(begun):
        part = lines[start:end]
        kinds = [0, *_changes(part), len(part)]
        yield from (part[first:last] for first, last in pairwise(kinds))


def _beginnings(lines: Sequence[Line]) -> list[int]:
    """Return the indices at which steps begin anew, or go on after a summary without growing."""
    places = [_place(line) for line in lines]
    training = [is_training(opened(line.logs)) and "event" not in line.logs for line in lines]
    by_key: dict[str, list[tuple[int, float]]] = {}
    for i, place in enumerate(places):
        if place is not None and training[i]:
            by_key.setdefault(place[0], []).append((i, place[1]))
    found = set()
    for key, steps in by_key.items():
        numbers = [step for _, step in steps]
        for n, ((last, before), (i, step)) in enumerate(pairwise(steps), 1):
            summed = any(SUMMARY in opened(lines[between].logs) for between in range(last + 1, i))
            if (summed and step <= before) or _anew(numbers[n : n + _AHEAD], before):
                while not training[i - 1] and (place := places[i - 1]) and place[0] == key and place[1] < before:
                    i -= 1  # the evaluation before its first step
                found.add(i)
    return sorted(found)


def _place(line: Line) -> tuple[str, float] | None:
    """Return what tells where in its training a ``line`` is, and the number."""
    logs = opened(line.logs)
    return placed(logs, (*STEPS, "epoch")) or (line.bar and (_BAR, float(line.bar[0]))) or None


def _anew(ahead: Sequence[float], before: float) -> bool:
    """Return True if the steps ``ahead`` begin anew after ``before``: low, and not by one line that came late."""
    return len(ahead) > 1 and ahead[0] < before and ahead[1] <= before and not is_trimmed(ahead)


def _changes(lines: Sequence[Line]) -> list[int]:
    """Return the indices at which another kind begins; none if a kind comes back, as in a loop that does both."""
    kinds = [(i, kind) for i, line in enumerate(lines) if (kind := _kind_of(tuple(opened(line.logs)))) is not None]
    changes = [(before, now) for before, now in pairwise(kinds) if now[1] is not before[1]]
    if len(changes) >= len({kind for _, kind in kinds}):
        return []
    return [
        i
        for (last, before), (i, kind) in changes
        if Kind.UNNAMED not in (before, kind) or not _goes_on(lines[last], lines[i])
    ]


def _goes_on(before: Line, line: Line) -> bool:
    """Return True if ``line`` has a later step than the line ``before``, counted in the same way."""
    place, last = _place(line), _place(before)
    return place is not None and last is not None and place[0] == last[0] and place[1] > last[1]


def _kind(lines: Iterable[Line]) -> Kind | None:
    kinds = Counter(_kind_of(tuple(opened(line.logs))) for line in lines)
    return next((kind for kind in Kind if kinds[kind]), None)


@lru_cache(maxsize=1000)
def _kind_of(keys: tuple[str, ...]) -> Kind | None:
    """Return what a line with ``keys`` is of; None for an evaluation, and if any training could log them."""
    if not is_training(dict.fromkeys(keys)):
        return None
    parts = {part for key in keys for part in PARTS.split(key.lower())}
    if any(key.endswith(_OF_PAIRS) for key in keys) and "objective/kl" not in keys:
        return Kind.PAIRS
    if not parts.isdisjoint(OF_RL):
        return Kind.RL
    return Kind.SFT if _OF_SFT in keys else Kind.UNNAMED if _OF_TRAINER.issubset(keys) else None


def _by_axis(lines: Sequence[Line]) -> list[list[Line]]:
    """Return the ``lines`` on each step axis; those of one axis in the order of the log. Mostly there is one."""
    placements = [placed(line.logs, OWN_STEPS) for line in lines]
    steps = [place[1] for place in placements if place is not None]
    back = _back(steps)
    if back < _FEW or len(steps) < len(lines):
        return [list(lines)]
    axes = _axes(lines, steps)
    within = sum(_back(step for _, step in taken) for _, taken in axes)
    if len(axes) < 2 or back <= 2 * within + 2:
        return [list(lines)]
    return [_taken(lines, keys, taken) for keys, taken in axes]


def _back(steps: Iterable[float]) -> int:
    """Return how often ``steps`` go back."""
    return sum(after < before for before, after in pairwise(steps))


def _axes(lines: Sequence[Line], steps: Sequence[float]) -> list[tuple[set[str], _Steps]]:
    """Return the keys of each axis, with the lines that have one of them."""
    axes: list[tuple[set[str], _Steps]] = []
    for keys in _logged_together(lines):
        own = [(i, steps[i]) for i, line in enumerate(lines) if not keys.isdisjoint(line.logs)]
        for n, (others, taken) in enumerate(axes):
            joined = _joined(taken, own)
            if joined is not None:
                axes[n] = (others | keys, joined)
                break
        else:
            axes.append((keys, own))
    return axes


def _logged_together(lines: Sequence[Line]) -> list[set[str]]:
    """Return sets of keys that are neighbors in most of their lines; two axes may meet in a few."""
    alone: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for shape, times in Counter(tuple(key for key in line.logs if key not in NO_METRICS) for line in lines).items():
        for key in shape:
            alone[key] += times
        for pair in pairwise(shape):
            pairs[pair] += times
    group = {key: {key} for key in alone}
    for (one, other), times in pairs.items():
        if 2 * times >= min(alone[one], alone[other]) and group[one] is not group[other]:
            group[one] |= group[other]
            for key in group[other]:
                group[key] = group[one]
    return list({id(keys): keys for keys in group.values()}.values())


def _joined(one: _Steps, other: _Steps) -> _Steps | None:
    """Return the lines of two axes as those of one; None if they are two."""
    back = _back(step for _, step in one) + _back(step for _, step in other)
    joined = sorted({*one, *other})
    if _back(step for _, step in joined) <= back:
        return joined
    first, second = ({step for _, step in taken} for taken in (one, other))
    alike = len(first & second) >= _ALIKE * len(first | second)
    return sorted(joined, key=lambda taken: taken[1]) if alike and not back else None


def _taken(lines: Sequence[Line], keys: set[str], taken: _Steps) -> list[Line]:
    """Return what the lines ``taken`` have of ``keys``; those of one step as one line, unless they repeat a key.

    Their times are left out: they tell no pace, since one axis rests while another moves.
    """
    found: list[Line] = []
    for i, step in taken:
        line = lines[i]
        logs = {key: value for key, value in line.logs.items() if key in keys or key in OWN_STEPS}
        last = found[-1].logs if found else {}
        if (place := placed(last, OWN_STEPS)) and place[1] == step and keys.isdisjoint(last.keys() & logs.keys()):
            found[-1] = found[-1]._replace(logs={**logs, **last})
        else:
            found.append(line._replace(logs=logs))
    return found
