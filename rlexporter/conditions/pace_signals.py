"""Derived signals of the pace of a run: how long steps take, by how much that grew, and which part of a step grew."""

from __future__ import annotations

from statistics import median

from rlexporter.conditions.view import MAX_FUNCTIONS, Declared, Memory, View
from rlexporter.conditions.watch import ASIDE

declared = Declared()

_SLOW = 2.0
"""How many times the usual a step takes whose slowest part is looked for."""
_PHASE = "rl_phase_time_seconds"
_FUNCTION = "rl_reward_function_time_seconds"


@declared.signal("step_time", unit="seconds")
def step_time(view: View, memory: Memory) -> float | None:
    """Return the seconds that the step took; it is about the part that makes it slow, if it is."""
    seconds, past = view.gap, memory.past["step_time"]
    if not view.advanced or seconds is None:
        return None
    pace, parts = memory.pace, _parts(view)
    pace.grown = {}
    while pace.slow and pace.slow[0] < view.step - 10:
        pace.slow.popleft()
    if pace.slow or seconds > _SLOW * past.newest:
        before = past.last(30, len(pace.slow))
        usual = median(before) if before else seconds
        if seconds > _SLOW * usual:
            pace.slow.append(view.step)
            grown = {  # by how much each part is slower than before
                name: part - median(of_part.last(30, len(pace.slow) - 1))
                for name, part in parts.items()
                if (of_part := pace.parts.get(name)) is not None and of_part.count > len(pace.slow)
            }
            most = max(grown, key=grown.__getitem__, default="")
            if most and grown[most] > (seconds - usual) / 2:
                pace.grown = {most: pace.slow[0]}
    for name, part in parts.items():
        if name in pace.parts or len(pace.parts) < MAX_FUNCTIONS:
            pace.parts[name].add(part)
    memory.about(pace.grown)
    return seconds


@declared.signal("longest_pause", unit="seconds", of="step_time", reads=())
def longest_pause(view: View, memory: Memory) -> float | None:
    """Return the seconds that the step took, or all of those without a step if the run counted as hung meanwhile."""
    if view.stalled is None:
        memory.about(memory.pace.grown)
        return memory.new("step_time")
    seconds, phase = view.stalled
    memory.about({phase: view.step})
    return max(seconds, memory.new("step_time") or 0.0)


def _parts(view: View) -> dict[str, float]:
    """Return the seconds of each part of the step: its phases, and the reward functions apart from theirs."""
    phases = view.phases or view.functions.get(_PHASE, {})
    if not (phases or view.seen):
        return {}
    parts = {name: seconds for name, seconds in phases.items() if seconds is not None and name not in ASIDE}
    called = (pair for pair in view.seen.items() if pair[0].metric.series == _FUNCTION)
    calls = {series.labels[0]: counted.positive_sum for series, counted in called}
    if "reward" in parts:
        parts["reward"] = max(0.0, parts["reward"] - sum(calls.values()))
    return {**parts, **calls}
