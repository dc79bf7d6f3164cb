"""Tells the step axes of a log apart: an event file may count episodes, updates and iterations, each in its own steps.

Keys are on one axis if they are logged in the same lines, at the same steps, or so that steps never go back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from rlexporter.recording.source import Line
from rlexporter.recording.writers import NO_METRICS, OWN_STEPS, placed

_Steps = list[tuple[int, float]]
"""The indices of lines, and their steps."""
_FEW = 3
"""Steps that go back less often are those of attempts."""
_ALIKE = 0.9
"""The least share of common steps by which two axes are one."""


def by_axis(lines: Sequence[Line]) -> list[list[Line]]:
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
