"""Each planted fault is named in time, first, and not before it; without a fault nothing is said.

`python -m tests.faults` prints what was said of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rlexporter.conditions.table import CONDITION_NAMED
from tests.adapters.marks import REAL_TRAINERS
from tests.faults.outcomes import BUSY, outcome
from tests.faults.planted import FAULTS, HERE, INVENTED, MISSED, STEPS, WITHIN, Fault, is_here
from tests.faults.runs import Run
from tests.served import errors

pytestmark = [*REAL_TRAINERS, pytest.mark.filterwarnings("ignore")]


def _case(fault: Fault) -> object:
    marks = [] if fault.fast else [pytest.mark.soak]
    if fault.missed:
        marks.append(pytest.mark.xfail(strict=True, reason=fault.missed, raises=AssertionError))
    return pytest.param(fault, id=fault.id, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [_case(fault) for fault in FAULTS if is_here(fault)])
def test_a_fault_is_named(fault: Fault, taught: Path) -> None:
    """By one of its conditions, within five steps unless the table says why not, and first in the end.

    Before the fault the run is healthy, and it has no error of ours: of a fault that is missed too.
    """
    found = outcome(fault, taught)
    within, _ = fault.late
    if found.errors or found.early:
        pytest.fail(str(found))

    assert found.named is not None, found.story
    assert fault.at <= found.named <= fault.at + within, found.story
    assert found.first in fault.named_by, found.story


def _twins() -> list[object]:
    """What the faults of this environment are planted in."""
    twins = {"grpo": {}, "grpo, twice": {"num_iterations": 2}, "rloo": {}, "ppo": {}, "ppo-legacy": {}}
    return [
        pytest.param(name.split(",")[0], options, id=name, marks=[] if name == "grpo" else [pytest.mark.soak])
        for name, options in twins.items()
        if name.split(",")[0] in HERE
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "options"), _twins())
def test_nothing_is_said_without_a_fault(algorithm: str, options: dict[str, object], taught: Path) -> None:
    """In what the faults are planted in."""
    run = Run(algorithm, taught, at=STEPS + 1, steps=STEPS, **options)
    exporter = run.train()

    assert errors(exporter) == 0
    assert exporter.snapshot.value("rl_steps_total") == STEPS
    said = {name for name, severity in run.began if severity != "info"}
    assert {name for name in said if CONDITION_NAMED[name].family not in BUSY} == set()


def test_the_table_is_whole() -> None:
    """Every fault of the review is there once, and is named by conditions that there are."""
    planted = [fault for fault in FAULTS if fault.plant]
    ids = {fault.id for fault in FAULTS}

    assert len(INVENTED) == 41
    assert len(ids) == len(FAULTS)
    assert {*MISSED} <= {fault.id for fault in planted}
    assert [fault.id for fault in FAULTS if bool(fault.unseen) == bool(fault.plant)] == []
    assert [fault.id for fault in planted if bool(fault.late[1]) != (fault.late[0] > WITHIN)] == []
    assert [fault.id for fault in planted if not {*fault.named_by} <= {*CONDITION_NAMED}] == []
