"""Each fault in the log of a large run is named in time, and not before it; of a healthy log nothing is said.

`python -m tests.large` prints what is said of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rlexporter.catalog.conditions import CONDITION_NAMED
from tests.large.judged import judged
from tests.large.logs import LOGS, Log
from tests.large.twins import SEEDS, TWINS, Twin

UNKNOWN = {"training/off_policy/trajectory_spans/mean"}
"""Keys that frameworks log and that have no series."""


@pytest.mark.parametrize("log", [pytest.param(log, id=log.id) for log in LOGS])
def test_a_fault_is_named(log: Log, tmp_path: Path) -> None:
    """By one of its conditions, in time; before the fault nothing is said but information."""
    found = judged(log, tmp_path)

    assert found.early == [], str(found)
    assert found.named is not None, str(found)
    assert log.at <= found.named <= log.at + log.within, str(found)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("twin", [pytest.param(twin, id=twin.id) for twin in TWINS])
def test_nothing_is_said_of_a_healthy_log(twin: Twin, seed: int, tmp_path: Path) -> None:
    """But information, whatever the noise; and the log is understood."""
    found = judged(twin, tmp_path, seed)

    assert found.alarms == [], str(found)
    assert found.report.framework == {"trl": ""}.get(twin.framework, twin.framework.split()[0])
    assert {*found.report.unknown_keys} <= UNKNOWN


def test_the_table_is_whole() -> None:
    """Every log is there once, and its fault is named by conditions that there are."""
    assert len({log.id for log in LOGS}) == len(LOGS)
    assert len({twin.id for twin in TWINS}) == len(TWINS)
    assert [log.id for log in LOGS if not {*log.named_by} <= {*CONDITION_NAMED}] == []
