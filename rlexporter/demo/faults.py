"""Real faults for the real run: `nan@200` is the fault `nan` in step 200. Each begins a condition of its own.

A reward function fails when training next computes rewards, which the demo's GRPO and RLOO do in every second step. An
evaluation does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from rlexporter.model.errors import SetupError

STALLED_SECONDS = 30.0
"""How long a step of a run with the fault `stall` may take: few would watch for the usual ten minutes."""

KINDS = {
    "nan": "the gradient is NaN in one step; the weights are lost with it, and the next sampling fails",
    "nan_reward": "a reward function returns NaN for one completion of a step",
    "lr_spike": "the learning rate is a thousand times too high in one step",
    "kl_runaway": "from this step on the KL penalty has the wrong sign, and pays for leaving the reference",
    "reward_hacking": "from this step on a reward function pays for each e without limit, and the policy drifts there",
    "length_collapse": "from this step on the policy drifts to ever shorter completions, down to nothing",
    "dead_reward": "from this step on a reward function returns 0 for every completion, as when its parser fails",
    "stall": f"a reward function hangs for 15 minutes; {STALLED_SECONDS:.0f} seconds count as a stall",
}

LACKS = {
    "ppo": ("reward_hacking",),
    "ppo-legacy": ("reward_hacking",),
}
"""The faults that a trainer does not show. The penalty of PPO lets KL grow two or three times, not five: 3.5 nats a
completion become 11 after 140 steps (legacy PPO: 6.5 and 15), even if the logit is raised twice as high."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its kind, and the step in which it happens or begins."""

    kind: str
    step: int

    @staticmethod
    def parse(text: str, algorithm: str, steps: int) -> Fault:
        """Return the fault that ``text`` names, such as `nan@20`, in a run of that many ``steps``.

        Raises:
            SetupError: there is no such fault, ``algorithm`` does not show it, or the run ends before it.
        """
        kind, _, step = text.partition("@")
        if kind not in KINDS or not step.isdigit() or int(step) < 1:
            close = get_close_matches(kind, KINDS, n=1) if kind not in KINDS else [kind]
            meant = f"did you mean {close[0]}@200? " if close else ""
            raise SetupError(f"--fault {text!r}: {meant}expected KIND@STEP, with a kind of {', '.join(KINDS)}")
        if kind in LACKS.get(algorithm, ()):
            raise SetupError(
                f"--fault {text!r}: {algorithm} does not show it, since its KL penalty holds the policy near its "
                f"reference: use --algorithm grpo"
            )
        if int(step) > steps:
            raise SetupError(f"--fault {text!r}: the run ends after step {steps}: choose an earlier step, or --steps")
        return Fault(kind, int(step))
