"""The evidence for conditions: which runs need one, and what a condition without any comes to."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rlexporter.conditions.table import CONDITION_NAMED, CONDITIONS
from scripts import evidence
from scripts.evidence import LIVE, Case, Row


def _cases() -> list[Case]:
    return [*evidence.read(LIVE)]


def _table_of_the_page() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", evidence.PAGE.read_text(), re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def _of(*names: str) -> list[Case]:
    return [case for case in _cases() if any(name in case.path.name for name in names)]


def test_the_page_has_a_row_for_each_condition() -> None:
    """In the order of the catalog, and none for what is gone."""
    assert [*_table_of_the_page()] == [condition.name for condition in CONDITIONS]


def test_a_useless_condition_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, with what to do."""
    assert evidence.main(["--check"]) == 0

    useless = replace(CONDITION_NAMED["kl_high"], name="kl_on_a_monday")
    monkeypatch.setattr(evidence, "CONDITIONS", (*CONDITIONS, useless))

    assert evidence.main(["--check"]) == 1
    assert "needs kl_on_a_monday: record one (make faults)" in capsys.readouterr().out


def test_a_run_needs_what_alone_tells_its_fault() -> None:
    """And not what another condition tells as early, by a right name."""
    cases = _of("grpo-advantages-change-sign", "grpo-healthy")
    rows = {row.condition: row for row in evidence.evidence(cases)}

    assert rows["advantage_wrong"] == Row(
        "advantage_wrong",
        ["live/grpo-advantages-change-sign.jsonl.gz"],
        [],
        ["live/grpo-advantages-change-sign.jsonl.gz"],
    )
    assert [name for name, row in rows.items() if row.needed] == ["advantage_wrong"]
    assert [name for name, row in rows.items() if row.wrong] == []


def test_a_healthy_run_that_is_alarmed_counts_against_a_condition(tmp_path: Path) -> None:
    """Here a broken one that is said to be healthy."""
    (case,) = _of("grpo-advantages-change-sign")
    shutil.copy(case.path, tmp_path)
    (tmp_path / "index.json").write_text(
        json.dumps([{"file": case.path.name, "label": "healthy", "algorithm": "grpo"}])
    )

    rows = {row.condition: row for row in evidence.evidence([*evidence.read(tmp_path)])}

    assert rows["advantage_wrong"].wrong == ["real/grpo-advantages-change-sign.jsonl.gz"]
    assert rows["advantage_wrong"].needed == []


def test_the_page_stays_as_it_is_without_the_runs_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The counts of what nobody named are not thrown away; the JSON has the readers of each metric."""
    before = evidence.PAGE.read_text()
    monkeypatch.setattr(evidence, "LIVE", tmp_path)
    (tmp_path / "index.json").write_text("[]")

    assert evidence.main(["--write", "--json", str(tmp_path / "a/evidence.json")]) == 0

    assert evidence.PAGE.read_text() == before
    assert "stays as it is: no folder of live, real, planted, toy runs was named" in capsys.readouterr().out
    found = json.loads((tmp_path / "a/evidence.json").read_text())
    assert "signal kl_signed" in found["metrics"]["rl_kl_per_sequence"]


@pytest.mark.slow
def test_the_page_tells_of_the_recorded_faults_what_they_need() -> None:
    """Judged again: as many as the page says, of each condition."""
    rows = evidence.evidence(_cases())

    assert {row.condition: str(len(row.needed) or "") for row in rows} == {
        name: cells[0] for name, cells in _table_of_the_page().items()
    }
