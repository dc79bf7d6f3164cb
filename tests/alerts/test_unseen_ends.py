"""Runs that end while Prometheus is away: a warning, and no page; what it saw vanish is a page all the same.

promtool cannot leave evaluations out. So Prometheus is away in these cases where the rules find nothing, and nothing is
scraped; `tests/e2e/test_away.py` stops a real one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.alerts import promtool
from tests.alerts.lives import EVERY, Event, Process, Spans, series, within
from tests.alerts.promtool import Case
from tests.alerts.test_rules import RULES
from tests.tools import EACH_GENERATION

VANISHED, UNSEEN, FAILED, KL = (
    "RLRunVanished/run_vanished",
    "RLRunVanished/run_end_unseen",
    "RLRunFailed/run_failed",
    "RLKL",
)
AMONG = (VANISHED, UNSEEN, FAILED, KL)
GONE = 600
"""When Prometheus goes away."""
TOLD, UNTIL_GONE = 150, 240
"""So many seconds after it is back, and after a run was seen last, an end is told."""


def rules_of_one_that_goes_away(folder: Path) -> Path:
    """The rules, which find nothing while there is no series `here`."""
    changed = [{**rule, "expr": f"({rule['expr']}\n) and on () here"} for rule in RULES]
    file = folder / "away.rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "rlexporter", "interval": "15s", "rules": changed}]}))
    return file


def here(seconds: int, away: Spans) -> str:
    """The series `here` for so long."""
    return " ".join("stale" if within(time, away) else "1" for time in range(0, seconds + EVERY, EVERY))


@dataclass(frozen=True)
class Absence:
    """When Prometheus is away, what became of runs, and what fires for each at which time."""

    spans: Spans
    runs: Mapping[str, tuple[list[Process], Mapping[int, Sequence[str]]]]

    def test(self) -> dict[str, object]:
        """All of it as one test of promtool."""
        last = max(time for _, fires in self.runs.values() for time in fires) + 60
        given = {"here": here(last, self.spans)}
        checks = []
        for run, (processes, fires) in self.runs.items():
            named = [Process(**{**vars(each), "run": run, "instance": f"{run}:{each.instance}"}) for each in processes]
            given |= series(named, last, unwatched=self.spans)
            expect = {
                f"{time}s": {name: [run] if name in told else [] for name in AMONG} for time, told in fires.items()
            }
            checks += Case({}, expect).checks(f',run="{run}"')
        return promtool.of(given, checks)


def lived(*states: tuple[str, int], born: int = 0, instance: str = "1", **more: object) -> list[Process]:
    return [Process(states, born, instance, **more)]  # type: ignore[arg-type]


def lives(back: int) -> dict[str, tuple[list[Process], Mapping[int, Sequence[str]]]]:
    """Runs around an absence from `GONE` until this second, and what is told of each."""
    soon, later = max(back + TOLD, GONE + UNTIL_GONE), back + 1200
    never: dict[int, Sequence[str]] = dict.fromkeys((GONE - 15, back, back + 60, back + TOLD, back + 1200), ())
    unseen = {GONE - 15: (), back: (), back + 60: (), soon: [UNSEEN], later: [UNSEEN]}
    pages = {GONE - 15: (), soon: [VANISHED], later: [VANISHED]}
    sick = Event("kl_high", 300, holds=10**6, severity="warning")
    return {
        "trains on": (lived(("running", 10**6)), never),
        "starts on": (lived(("starting", 10**6), stall_after=10**6), never),
        "finished before, and was seen": (lived(("running", 480), ("finished", 60)), never),
        "finished before, and was not seen": (lived(("running", GONE - 5)), unseen),
        "finished in it": (lived(("running", GONE + 20)), unseen),
        "finished in it, and waits": (lived(("running", GONE + 20), ("finished", back - GONE + 30)), never),
        "failed in it, and waits": (
            lived(("running", GONE + 20), ("failed", back - GONE + 30)),
            {GONE - 15: (), back + 30: [FAILED], later: [FAILED]},
        ),
        "finished after it": (lived(("running", back + 40), ("finished", 60)), never),
        "finished at once after it, and was not seen": (lived(("running", back - 2)), unseen),
        "was killed long before": (
            lived(("running", 300)),
            {540: [VANISHED], back: [VANISHED], back + 60: [VANISHED], soon: [VANISHED], later: [VANISHED]},
        ),
        "was killed two minutes before": (lived(("running", 480)), pages),
        "was killed three scrapes before": (lived(("running", 550)), pages),
        "is killed after it": (
            lived(("running", back + 50)),
            {back + 60: (), back + 500: [VANISHED], later: [VANISHED]},
        ),
        "is seen late, and then killed": (
            lived(("running", GONE - 5)) + lived(("running", 60), born=back + 45, instance="late"),
            {back + 30: (), back + 60: (), back + 500: [VANISHED], later: [VANISHED]},
        ),
        "is killed at once after it was seen": (lived(("running", back + 5)), {back + 60: (), back + 500: [VANISHED]}),
        "ended in it, and is back": (
            [*lived(("running", GONE + 20)), *lived(("running", 10**6), born=back + 600, instance="2")],
            {soon: [UNSEEN], back + 570: [UNSEEN], back + 630: (), later: ()},
        ),
        "ended in it, and another attempt trains": (
            [*lived(("running", GONE + 10)), *lived(("running", 10**6), born=GONE + 20, instance="2")],
            never,
        ),
        "its warnings end with it": (lived(("running", GONE + 20), events=[sick]), {585: [KL], soon + 30: [UNSEEN]}),
    }


ABSENCES = {
    "half a minute": Absence([(GONE, GONE + 30)], lives(GONE + 30)),
    "a minute": Absence([(GONE, GONE + 60)], lives(GONE + 60)),
    "two minutes and a half": Absence([(GONE, GONE + 150)], lives(GONE + 150)),
    "ten minutes": Absence([(GONE, 2 * GONE)], lives(2 * GONE)),
    "fifty minutes": Absence([(GONE, GONE + 3000)], lives(GONE + 3000)),
    "three hours: what was forgotten is not told": Absence(
        [(GONE, 11400)],
        {
            "trains on": lives(11400)["trains on"],
            "finished in it": (lived(("running", 660)), {11400: (), 11550: (), 12600: ()}),
        },
    ),
    "again and again": Absence(
        [(GONE + 75 * number, GONE + 75 * number + 45) for number in range(8)],
        {
            "trains on": (lived(("running", 10**6)), dict.fromkeys(range(585, 2400, 90), ())),
            "finished in the first": (lived(("running", GONE + 5)), {1100: (), 1350: [UNSEEN], 2400: [UNSEEN]}),
            "finished in the last": (lived(("running", 1130)), {1100: (), 1350: [UNSEEN], 2400: [UNSEEN]}),
            "was killed before": (lived(("running", 300)), {585: [VANISHED], 1350: [VANISHED], 2400: [VANISHED]}),
            "is killed between two": (lived(("running", 650)), {1350: [VANISHED], 2400: [VANISHED]}),
            "is killed after": (lived(("running", 1400)), {1500: (), 1650: [VANISHED]}),
        },
    ),
    "late by one evaluation is no absence": Absence(
        [(GONE, GONE + 15)],
        {"is killed then": (lived(("running", GONE - 5)), {GONE + 60: (), GONE + 240: [VANISHED]})},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
@pytest.mark.parametrize("absence", ABSENCES)
def test_who_is_told(generation: str, absence: str, tmp_path: Path) -> None:
    """Each at times at which it must be silent, and at times at which it must fire."""
    rules = rules_of_one_that_goes_away(tmp_path)
    assert promtool.run(generation, tmp_path, [ABSENCES[absence].test()], rules) == ""


@pytest.mark.parametrize("every", [30, 60])
def test_rules_that_are_evaluated_seldom(every: int, tmp_path: Path) -> None:
    """What is evaluated once a minute is never away: a run that vanishes is told."""
    run = Process([("running", 1200)])
    case = Case(series([run], 2400), {"19m": {VANISHED: []}, "26m": {VANISHED: ["a"], UNSEEN: []}})
    assert promtool.run("3", tmp_path, [promtool.alone(case)], every=f"{every}s") == ""


def test_a_run_that_was_sick_is_not_well_because_nobody_saw_its_end(tmp_path: Path) -> None:
    """Its verdict says look at least, and more if it said more; the cause is what it named."""
    back = GONE + 300
    said = {
        "fine": (0, "", 1, "run_end_unseen"),
        "act": (2, "kl_high", 2, "kl_high"),
        "look": (1, "kl_jump", 1, "kl_jump"),
    }
    given = {"here": here(back + 600, [(GONE, back)])}
    checks = []
    for run, (word, cause, expected, named) in said.items():
        says = [(0, word, cause)]
        process = Process([("running", GONE + 20)], instance=f"{run}:1", run=run, says=says)
        given |= series([process], back + 600, unwatched=[(GONE, back)])
        of = f'run="{run}"'
        checks += [
            promtool.check(f"max by (run) (rl:run_verdict{{{of}}})", back + 300, {f"{{{of}}}": expected}),
            promtool.check(
                f"count by (run, condition) (rl:run_cause{{{of}}})", back + 300, {f'{{{of},condition="{named}"}}': 1}
            ),
        ]
    assert promtool.run("3", tmp_path, [promtool.of(given, checks)], rules_of_one_that_goes_away(tmp_path)) == ""
