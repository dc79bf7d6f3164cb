"""What `rlexporter check` would say of a log, as a row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlexporter import recording
from rlexporter.commands.recorded_alerts import Report, judge
from tests.large.curves import STEPS
from tests.large.frameworks import Line, lines
from tests.large.logs import Log
from tests.large.twins import Twin
from tests.recording.logs import flat


@dataclass(frozen=True)
class Judged:
    """A log and its report."""

    log: Log | Twin
    report: Report

    @property
    def alarms(self) -> list[tuple[int, str, str]]:
        """The step, name and severity of what began, in order, without information."""
        return [began for began in self.all if began[2] != "info"]

    @property
    def all(self) -> list[tuple[int, str, str]]:
        """The same with information."""
        return sorted((fired.step, fired.condition, fired.severity) for fired in self.report.alerts)

    @property
    def early(self) -> list[tuple[int, str, str]]:
        """What began before the fault; in a healthy log all."""
        at = self.log.at if isinstance(self.log, Log) else STEPS + 1
        return [began for began in self.alarms if began[0] < at]

    @property
    def named(self) -> int | None:
        """The step in which a condition that names the fault began; None if none did."""
        names = self.log.named_by if isinstance(self.log, Log) else ()
        return next((step for step, name, _ in self.all if name in names), None)

    @property
    def verdict(self) -> str:
        """Early, silent, wrong, late, or named; quiet for a healthy log without an alarm."""
        if isinstance(self.log, Twin) or self.early:
            return "early" if self.early else "quiet"
        if self.named is None:
            return "wrong" if self.alarms else "silent"
        return "named" if self.named <= self.log.at + self.log.within else "late"

    def __str__(self) -> str:
        told = ", ".join(f"{name}/{severity[0]}@{step}" for step, name, severity in self.all)
        at = str(self.log.at) if isinstance(self.log, Log) else ""
        return f"{self.verdict:7}{self.log.id:49}{at:4}{told or '-'}"


def judged(log: Log | Twin, folder: Path, seed: int = 0) -> Judged:
    """Write a log into ``folder``, and judge that file."""
    path = flat(folder / "log.jsonl", *_lines(log, seed))
    return Judged(log, judge(recording.read(path)))


def _lines(log: Log | Twin, seed: int) -> list[Line]:
    if isinstance(log, Log):
        return [*lines(log.framework, log.own, log.faulty, log.at, seed=seed)]
    return [*lines(log.framework, log.own, {}, STEPS + 1, seed=seed, scale=log.scale)]
