"""What Prometheus works out about runs: dead, gone, back, of the newest attempt, by whatever clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.alerts import promtool
from tests.alerts.lives import Event, Process, series
from tests.alerts.promtool import Case, together
from tests.tools import EACH_GENERATION

HOUR = 3600
OUTSIDE = (
    "RLRunFailed/run_failed",
    "RLRunVanished/run_vanished",
    "RLRunStalled/run_stalled",
    "RLRunFailed/run_not_back",
)
NAN = Event("nonfinite", 580)
KL = Event("kl_high", 300, holds=10**6)


def _time(seconds: int) -> str:
    return f"{seconds}s"


def case(
    processes: Iterable[Process],
    fires: Mapping[int, Sequence[str]],
    among: Sequence[str] = OUTSIDE,
    away: Sequence[tuple[int, int]] = (),
) -> Case:
    """Run ``a`` in these processes; at each time the alerts of ``among`` that fire, and no other of them."""
    for alerts in fires.values():
        assert set(alerts) <= set(among)
    expect = {
        _time(time): {alert: ["a"] if alert in alerts else [] for alert in among} for time, alerts in fires.items()
    }
    return Case(series(processes, max(fires) + 60, away), expect)


def never(*times: int) -> dict[int, Sequence[str]]:
    """No alert at any of these times."""
    return dict.fromkeys(times, ())


def lived(*states: tuple[str, int], born: int = 0, instance: str = "h:1", **more: object) -> Process:
    """A process that was in these states for so many seconds each."""
    return Process(states, born, instance, **more)  # type: ignore[arg-type]


TRAINED = ("running", 600)
FAILED = ("failed", 120)

DEAD = {
    "failed: at once, when the process is gone, and for hours": case(
        [lived(TRAINED, FAILED)],
        {
            590: [],
            615: ["RLRunFailed/run_failed"],
            800: ["RLRunFailed/run_failed"],
            2 * HOUR: ["RLRunFailed/run_failed"],
        },
    ),
    "failed: until it is back": case(
        [lived(TRAINED, FAILED), lived(("starting", 120), ("running", 900), born=1200, instance="h:2")],
        {1190: ["RLRunFailed/run_failed"], 1230: [], 1400: [], 2000: []},
    ),
    "failed and retried in the same place": case(
        [lived(TRAINED, FAILED), lived(("starting", 120), ("running", 900), born=720)],
        {700: ["RLRunFailed/run_failed"], 750: [], 1500: []},
    ),
    "failed while it was starting": case(
        [lived(("starting", 300), FAILED)], {290: [], 330: ["RLRunFailed/run_failed"]}
    ),
    "vanished: not at once, then for hours": case(
        [lived(TRAINED)],
        {
            600: [],
            750: [],
            840: ["RLRunVanished/run_vanished"],
            2000: ["RLRunVanished/run_vanished"],
            2 * HOUR: ["RLRunVanished/run_vanished"],
        },
    ),
    "vanished: not by a network that is away for two and a half minutes": case(
        [lived(("running", 2400))], never(*range(590, 1200, 30)), away=[(600, 750)]
    ),
    "vanished: not by its normal end": case(
        [lived(TRAINED, ("finished", 30))], never(600, 700, 800, 900, 1800, 2 * HOUR)
    ),
    "vanished: not by Ctrl-C": case([lived(TRAINED, ("stopped", 30))], never(600, 700, 800, 900, 1800, 2 * HOUR)),
    "vanished, and back elsewhere": case(
        [lived(TRAINED), lived(("running", 900), born=1200, instance="h:2")],
        {1190: ["RLRunVanished/run_vanished"], 1230: [], 2000: []},
    ),
    "vanished a second time": case(
        [lived(TRAINED), lived(("running", 300), born=1200, instance="h:2")],
        {1190: ["RLRunVanished/run_vanished"], 1400: [], 1800: ["RLRunVanished/run_vanished"]},
    ),
    "killed, retried elsewhere, finished: over": case(
        [lived(TRAINED), lived(("running", 300), ("finished", 60), born=690, instance="h:2")],
        never(660, 750, 900, 1100, 1400, 1800, 2400, 3600),
    ),
    "failed, retried elsewhere, finished: over": case(
        [lived(TRAINED, FAILED), lived(("running", 300), ("finished", 60), born=690, instance="h:2")],
        {640: ["RLRunFailed/run_failed"], **never(720, 900, 1100, 1400, 1800, 2400, 3600)},
    ),
    "the old attempt lingers when the new one has begun": case(
        [lived(TRAINED, ("failed", 900)), lived(("running", 1200), born=700, instance="h:2")],
        {660: ["RLRunFailed/run_failed"], 730: [], 1200: []},
    ),
    "dies while it starts: when the time for that is over": case(
        [lived(("starting", 120), stall_after=1800)],
        {400: [], 1500: [], 1860: ["RLRunVanished/run_vanished"], 5000: ["RLRunVanished/run_vanished"]},
    ),
    "hangs while it starts": case(
        [lived(("starting", 4000), stall_after=1800, hangs=0)], {1500: [], 1860: ["RLRunStalled/run_stalled"]}
    ),
    "hangs while it trains": case(
        [lived(("running", 2000), hangs=600)],
        {1100: [], 1260: ["RLRunStalled/run_stalled"], 1900: ["RLRunStalled/run_stalled"]},
    ),
    "is slow, and does not hang": case([lived(("running", 1500), hangs=600, stall_after=1200)], {1300: []}),
    "the hang of an old attempt is over with it": case(
        [lived(("running", 1500), hangs=600), lived(("running", 900), born=1400, instance="h:2")],
        {1300: ["RLRunStalled/run_stalled"], 1430: []},
    ),
    "preempted, and back": case(
        [lived(TRAINED, ("preempted", 30)), lived(("running", 900), born=2000, instance="h:2")],
        {660: [], 1900: [], 2030: [], 2800: []},
    ),
    "preempted, and not back after half an hour": case(
        [lived(TRAINED, ("preempted", 30))],
        {
            700: [],
            2300: [],
            2700: ["RLRunFailed/run_not_back"],
            2 * HOUR: ["RLRunFailed/run_not_back"],
        },
    ),
}
DAY = case([lived(TRAINED, FAILED)], {86000: ["RLRunFailed/run_failed"], 88000: []}, ("RLRunFailed/run_failed",))

CONDITIONS = ("RLKL", "RLNotANumber", "RLRunFailed/run_failed", "RLRunVanished/run_vanished")
ATTEMPTS = {
    "a warning ends with its run": case(
        [lived(TRAINED, ("finished", 300), events=[replace(KL, severity="warning")])],
        {570: ["RLKL"], 630: [], 900: [], 1200: []},
        CONDITIONS,
    ),
    "the end of a sick run mends nothing: finished, for an hour": case(
        [lived(TRAINED, ("finished", 30), events=[KL])],
        {570: ["RLKL"], 630: ["RLKL"], 1200: ["RLKL"], 4100: ["RLKL"], 4500: []},
        CONDITIONS,
    ),
    "stopped, until it is started again": case(
        [lived(TRAINED, ("stopped", 30), events=[KL]), lived(("running", 900), born=1500)],
        {630: ["RLKL"], 1490: ["RLKL"], 1530: []},
        CONDITIONS,
    ),
    "failed, for as long as it is dead": case(
        [lived(TRAINED, FAILED, events=[KL])],
        {
            570: ["RLKL"],
            630: ["RLKL", "RLRunFailed/run_failed"],
            1200: ["RLKL", "RLRunFailed/run_failed"],
            2 * HOUR: ["RLKL", "RLRunFailed/run_failed"],
        },
        CONDITIONS,
    ),
    "what was over before the end stays over": case(
        [lived(TRAINED, ("finished", 30), events=[replace(KL, at=30, holds=60)])],
        {105: ["RLKL"], **never(990, 1200)},
        CONDITIONS,
    ),
    "a NaN in the last step of a run that finished": case(
        [lived(TRAINED, ("finished", 30), events=[replace(NAN, at=600, holds=HOUR)])],
        {590: [], 615: ["RLNotANumber"], 4100: ["RLNotANumber"], 4500: []},
        CONDITIONS,
    ),
    "one that was over when it finished: until it was told": case(
        [lived(TRAINED, ("finished", 30), events=[NAN])],
        {590: ["RLNotANumber"], 660: ["RLNotANumber"], 1200: []},
        CONDITIONS,
    ),
    "dead of NaN, and of something else when it is back": case(
        [
            lived(TRAINED, FAILED, events=[NAN], died_of_nan=True),
            lived(("running", 300), FAILED, born=900, instance="h:2"),
        ],
        {
            890: ["RLNotANumber"],
            1140: [],
            1230: ["RLRunFailed/run_failed"],
            1500: ["RLRunFailed/run_failed"],
            2400: ["RLRunFailed/run_failed"],
        },
        CONDITIONS,
    ),
    "the same at once, in the same place": case(
        [lived(TRAINED, FAILED, events=[NAN], died_of_nan=True), lived(("running", 30), FAILED, born=735)],
        {
            690: ["RLNotANumber"],
            750: [],
            780: ["RLRunFailed/run_failed"],
            1000: ["RLRunFailed/run_failed"],
            2400: ["RLRunFailed/run_failed"],
        },
        CONDITIONS,
    ),
    "the NaN that killed it stays": case(
        [lived(TRAINED, FAILED, events=[NAN], died_of_nan=True)],
        {570: [], 630: ["RLNotANumber"], 2 * HOUR: ["RLNotANumber"]},
        CONDITIONS,
    ),
    "a NaN in the last scrape": case(
        [lived(TRAINED, FAILED, events=[Event("nonfinite", 600)], died_of_nan=True)],
        {615: ["RLNotANumber"], 1500: ["RLNotANumber"]},
        CONDITIONS,
    ),
    "a NaN, then SIGKILL": case(
        [lived(TRAINED, events=[NAN])],
        {
            630: ["RLNotANumber"],
            900: ["RLNotANumber", "RLRunVanished/run_vanished"],
            HOUR: ["RLNotANumber", "RLRunVanished/run_vanished"],
        },
        CONDITIONS,
    ),
    "a NaN that was not what it died of": case(
        [lived(TRAINED, FAILED, events=[Event("nonfinite", 400)])],
        {450: ["RLNotANumber"], 630: ["RLNotANumber", "RLRunFailed/run_failed"], 1500: ["RLRunFailed/run_failed"]},
        ("RLNotANumber", "RLRunFailed/run_failed", "RLRunVanished/run_vanished"),
    ),
    "an old NaN is not what it died of": case(
        [lived(("running", 3000), FAILED, events=[NAN])],
        {630: ["RLNotANumber"], 2000: [], 3030: ["RLRunFailed/run_failed"], 4000: ["RLRunFailed/run_failed"]},
        CONDITIONS,
    ),
    "the NaN of a dead attempt is over when it is back": case(
        [lived(TRAINED, FAILED, events=[NAN], died_of_nan=True), lived(("running", 900), born=900, instance="h:2")],
        {890: ["RLNotANumber"], 930: [], 1300: []},
        CONDITIONS,
    ),
    "the same in one place": case(
        [lived(TRAINED, events=[KL, NAN]), lived(("running", 900), born=615)],
        {595: ["RLKL", "RLNotANumber"], 645: [], 900: []},
        CONDITIONS,
    ),
    "a condition that flaps is one alert": case(
        [lived(("running", 7200), events=[Event("kl_high", at, 60) for at in range(600, 7000, 720)])],
        {590: []} | {time: ["RLKL"] for time in range(630, 6900, 60)},
        CONDITIONS,
    ),
    "one step: for ten minutes and five more": case(
        [lived(("running", 7200), events=[Event("kl_high", 600)])],
        {590: [], 630: ["RLKL"], 1190: ["RLKL"], 1560: []},
        CONDITIONS,
    ),
}

CLOCKS = {
    f"{hours:+} hours": case(
        [
            lived(
                ("running", 1500),
                clock=int(hours * HOUR),
                events=[Event("nonfinite", 600)],
                hangs=700,
                stall_after=600,
            )
        ],
        {
            590: [],
            630: ["RLExporterErrors/clock_off", "RLNotANumber"],
            1190: ["RLExporterErrors/clock_off", "RLNotANumber"],
            1345: ["RLExporterErrors/clock_off", "RLRunStalled/run_stalled", "RLNotANumber"],
        },
        ("RLNotANumber", "RLRunStalled/run_stalled", "RLExporterErrors/clock_off"),
    )
    for hours in (1.0, -1.0, -0.1875)
}
CLOCKS["a retry on a node whose clock is behind"] = case(
    [lived(TRAINED, FAILED), lived(("running", 900), born=1200, instance="h:2", clock=-HOUR)],
    {1190: ["RLRunFailed/run_failed"], 1230: [], 1900: []},
)
CLOCKS["right"] = case(
    [lived(("running", 1500), clock=20)],
    {1400: []},
    ("RLExporterErrors/clock_off", "RLRunStalled/run_stalled", "RLRunVanished/run_vanished"),
)

RESUMED, RESTARTS = ("RLRunRestarting/run_lost_progress",), ("RLRunRestarting/run_restarting",)
UP, AGAIN = tuple(range(0, 400, 10)), tuple(range(350, 800))


def resumed(
    fires: dict[int, Sequence[str]], save: float, again: Process | None = None, ends: str = "failed", **more: float
) -> Case:
    """A run that saves every so many steps, ends in step 390, and goes on in step 350 or as ``again``."""
    more['rl_hyperparameter{name="save_steps"}'] = save
    first = lived(TRAINED, (ends, 30), steps=UP, more=more)
    second = again or lived(("running", 900), born=900, steps=AGAIN)
    return case([first, replace(second, more=more)], fires, RESUMED)


PROGRESS = {
    "a routine resume": resumed({590: [], 960: [], 1700: []}, 50),
    "a new run after one that finished": resumed(
        never(960, 1700), 15, lived(("running", 900), born=900, steps=range(800)), ends="finished"
    ),
    "after one that was stopped by hand": resumed(
        never(960, 1700), 15, lived(("running", 900), born=900, steps=range(800)), ends="stopped"
    ),
    "more than two checkpoints": resumed({590: [], 975: ["RLRunRestarting/run_lost_progress"], 1700: []}, 15),
    "a share of the run": resumed({975: []}, 0.1, rl_steps_planned=1000),
    "not while it starts": resumed(
        never(960, 1150, 1230), 50, lived(("starting", 300), ("running", 300), born=900, steps=[0] * 20 + [390])
    ),
}


def started(*ends: str) -> list[Process]:
    """Short attempts under one name in one place, which end so, five minutes from one to the next."""
    return [lived(("running", 240), (end, 30), born=300 * i) for i, end in enumerate(ends)]


AGAIN_AND_AGAIN = {
    "three that failed": case(
        started("failed", "failed", "failed"), {560: [], 630: ["RLRunRestarting/run_restarting"]}, RESTARTS
    ),
    "four that finished": case(started(*["finished"] * 4), never(630, 930, 1100, 1500), RESTARTS),
    "one that finished, then three that failed": case(
        started("finished", *["failed"] * 3), {860: [], 930: ["RLRunRestarting/run_restarting"]}, RESTARTS
    ),
}

CASES = {**DEAD, **ATTEMPTS, **CLOCKS, **PROGRESS, **AGAIN_AND_AGAIN}
LONG = {name for name, each in CASES.items() if int([*each.expect][-1].rstrip("s")) > 3000}


def died_of(exception: str, born: int, instance: str = "h:1") -> Process:
    """A process that trains for a minute, and dies of this."""
    seen = {f'rl_run_exception_info{{exception="{exception}"}}': 1.0}
    return lived(("running", 60), ("failed", 30), born=born, instance=instance, more=seen)


EXCEPTIONS: Mapping[str, tuple[list[Process], Mapping[int, str]]] = {
    "of two the newest": (
        [died_of("AOutOfMemory", 0), died_of("ValueError", 600)],
        {300: "AOutOfMemory", 690: "ValueError", 1200: "ValueError"},
    ),
    "in the same place at once: none rather than the wrong one": (
        [died_of("AOutOfMemory", 0), died_of("ValueError", 105)],
        {100: "AOutOfMemory", 180: "", 270: "ValueError", 900: "ValueError"},
    ),
    "elsewhere, while the old one lingers": (
        [replace(died_of("AOutOfMemory", 0), states=[("failed", 120)]), died_of("ValueError", 60, instance="h:2")],
        {45: "AOutOfMemory", 150: "ValueError", 900: "ValueError"},
    ),
}


def exceptions() -> dict[str, object]:
    """All of `EXCEPTIONS` as one test of promtool."""
    given: dict[str, str] = {}
    checks = []
    for i, (processes, named) in enumerate(EXCEPTIONS.values()):
        given |= series([replace(each, run=f"run-{i}") for each in processes], 1000)
        asked = f'count by (exception) (rl:run_fact{{fact="run_exception_info",run="run-{i}"}})'
        checks += [
            promtool.check(asked, time, {f'{{exception="{name}"}}': 1} if name else {}) for time, name in named.items()
        ]
    return promtool.of(given, checks)


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_exceptions(generation: str, tmp_path: Path) -> None:
    """A failed run is told with the exception that its newest attempt died of, and no other."""
    assert promtool.run(generation, tmp_path, [exceptions()]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_runs(generation: str, tmp_path: Path) -> None:
    """Each at times at which it must be silent, and at times at which it must fire."""
    cases = [each for name, each in CASES.items() if name not in LONG]
    assert promtool.run(generation, tmp_path, [together(cases)]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_hours(generation: str, tmp_path: Path) -> None:
    """The same for what lasts hours, evaluated once a minute; and dead for a day, and no longer."""
    cases = [each for name, each in CASES.items() if name in LONG]
    assert promtool.run(generation, tmp_path, [together(cases), together([DAY])], every="60s") == ""
