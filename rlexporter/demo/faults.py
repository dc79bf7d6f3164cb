"""Real faults for the real run: `lr_spike@N`, `nan@N`, `stall@N`, each in step N."""

from __future__ import annotations

from dataclasses import dataclass

from rlexporter.model.errors import SetupError

KINDS = {
    "lr_spike": "the learning rate is a thousand times too high in one step",
    "nan": "the gradient is NaN in one step; the weights are lost with it, and the next sampling fails",
    "stall": "a reward function hangs for 15 minutes",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its kind, and the step in which it happens."""

    kind: str
    step: int

    @staticmethod
    def parse(text: str) -> Fault:
        """Return the fault that ``text`` names, such as `nan@20`. Raises SetupError for anything else."""
        kind, _, step = text.partition("@")
        if kind not in KINDS or not step.isdigit() or int(step) < 1:
            raise SetupError(f"--fault {text!r}: expected KIND@STEP, with a kind of {', '.join(KINDS)}, such as nan@20")
        return Fault(kind, int(step))
