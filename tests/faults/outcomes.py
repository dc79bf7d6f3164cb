"""What rlexporter has said of a planted fault, as a row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.model.condition import Family
from tests.faults.planted import STEPS, WITHIN, Fault
from tests.faults.runs import Run
from tests.served import errors

BUSY = (Family.SLOW, Family.STALL)
"""The families of what a busy machine does."""


@dataclass(frozen=True)
class Outcome:
    """What began in a run. ``first``: the condition that its verdict names first in the end."""

    fault: Fault
    began: dict[tuple[str, str], int]
    first: str
    errors: float

    @property
    def early(self) -> dict[str, int]:
        """The warnings and critical conditions that began before the fault, but for what a busy machine does."""
        found = self.began.items()
        before = {name: step for (name, severity), step in found if severity != "info" and step < self.fault.at}
        return {name: step for name, step in before.items() if CONDITION_NAMED[name].family not in BUSY}

    @property
    def named(self) -> int | None:
        """The step in which a condition that names the fault began; None if none did."""
        return min((step for (name, _), step in self.began.items() if name in self.fault.named_by), default=None)

    @property
    def verdict(self) -> str:
        """Early, silent, wrong, late, or named."""
        if self.early:
            return "early"
        if self.named is None or self.first not in self.fault.named_by:
            return "wrong" if self.began else "silent"
        return "named" if self.named <= self.fault.at + WITHIN else "late"

    @property
    def story(self) -> str:
        """All that began, in order, and what comes first in the end."""
        steps = sorted(self.began.items(), key=lambda item: item[1])
        told = ", ".join(f"{name}/{severity[0]}@{step}" for (name, severity), step in steps)
        return f"{told or '-'}; first: {self.first or '-'}"

    def __str__(self) -> str:
        error = f" ERRORS {self.errors:.0f}" if self.errors else ""
        at = f"{self.fault.at:3}"
        return f"{self.verdict:7}{self.fault.algorithm:11}{self.fault.name:42}{at}  {self.story}{error}"


def outcome(fault: Fault, folder: Path) -> Outcome:
    """Train with the fault, with the model in ``folder``."""
    run = Run(fault.algorithm, folder, at=fault.at, steps=STEPS, **fault.options)
    assert fault.plant is not None
    fault.plant(run)
    exporter = run.train()
    incidents = exporter.snapshot.incidents
    return Outcome(fault, run.began, incidents[0].condition if incidents else "", errors(exporter))
