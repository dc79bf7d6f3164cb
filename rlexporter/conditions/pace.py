"""The pace: how long steps take, by how much that grew, and which part of a step grew."""

from __future__ import annotations

from collections import deque
from statistics import median

from rlexporter.conditions.declare import condition, signal
from rlexporter.conditions.detectors import MOSTLY, Each, Own, ratio, warning
from rlexporter.conditions.past import Past
from rlexporter.conditions.view import ASIDE, Context, Reading, View
from rlexporter.model.condition import Family

_SLOW = 2.0
"""How many times the usual a step takes whose slowest part is looked for."""
_PHASE = "rl_phase_time_seconds"
_FUNCTION = "rl_reward_function_time_seconds"


@signal("step_time", "seconds")
class StepTime:
    """The seconds that the step took; it is about the part that makes it slow, if it is."""

    def __init__(self) -> None:
        self._parts: Each[Past] = Each(Past)
        """The seconds of each phase of a step, and of each reward function in it."""
        self._slow: deque[int] = deque()
        """Those of the last ten steps that took far longer than usual."""

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the seconds."""
        seconds, past = view.gap, run.past["step_time"]
        if not view.advanced or seconds is None:
            return None
        parts, slow = _parts(view), self._slow
        grown: dict[str, int] = {}
        while slow and slow[0] < view.step - 10:
            slow.popleft()
        if slow or seconds > _SLOW * past.newest:
            before = past.last(30, len(slow))
            usual = median(before) if before else seconds
            if seconds > _SLOW * usual:
                slow.append(view.step)
                by = {  # by how much each part is slower than before
                    name: part - median(of_part.last(30, len(slow) - 1))
                    for name, part in parts.items()
                    if (of_part := self._parts.get(name)) is not None and of_part.count > len(slow)
                }
                most = max(by, key=by.__getitem__, default="")
                if most and by[most] > (seconds - usual) / 2:
                    grown = {most: slow[0]}
        for name, past_of_part in self._parts.of(parts):
            past_of_part.add(parts[name])
        return Reading(seconds, subject=grown)


@signal("longest_pause", "seconds", of="step_time", reads=())
def longest_pause(view: View, run: Context) -> float | Reading | None:
    """Return the seconds that the step took, or all of those without a step if the run counted as hung meanwhile."""
    took = run.new("step_time")
    if view.stalled is None:
        return None if took is None else Reading(took, subject=run.subjects.get("step_time", {}))
    seconds, phase = view.stalled
    return Reading(max(seconds, took or 0.0), subject={phase: view.step})


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


CONDITIONS = (
    condition("step_slow", "RLStepsSlow", Family.SLOW, "step_time").when(
        ratio(warning(4.0, MOSTLY), of=Own.RECENT, lag=10, floor=0.5, after=20),
        "Steps have become much slower.",
        about="Steps have become much slower, most of all in {subject}.",
        related=("rl_step_duration_seconds", "rl_phase_time_seconds", "rl_completion_length_mean"),
    ),
    condition("step_stalled", "RLStepsSlow", Family.STALL, "longest_pause").when(
        ratio(warning(30.0), of=Own.RECENT, floor=60.0),
        "The run stood still for a while.",
        about="The run stood still for a while, in {subject}.",
        related=("rl_step_duration_seconds", "rl_phase_time_seconds"),
    ),
)
