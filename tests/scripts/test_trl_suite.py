"""What `make trl-suite` calls a difference; TRL's tests themselves need a checkout of TRL, and are not run here."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.trl_suite.__main__ import compare, main, summary

TEST = "tests/test_grpo_trainer.py::TestGRPOTrainer::test_train"
ALONE: dict[str, Any] = {"outcome": "passed", "weights": ["a", "b"], "steps": 6}
WATCHED: dict[str, Any] = {**ALONE, "errors": [0.0, 0.0]}


def test_what_is_the_same_is_none() -> None:
    """Tests without a training too."""
    skipped = {"tests/test_rloo_trainer.py::test_it": {"outcome": "skipped"}}
    both = {TEST: ALONE, **skipped}, {TEST: WATCHED, **skipped}
    assert compare(*both) == []
    assert summary(both[1])[:2] == [
        "GRPO: 1 tests, 1 pass, 0 fail, 0 are skipped; 2 trainings of 6 steps",
        "RLOO: 1 tests, 0 pass, 0 fail, 1 are skipped; 0 trainings of 0 steps",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outcome": "failed"}, "passed without, failed with"),
        ({"weights": ["a", "c"]}, "the weights differ"),
        ({"errors": [0.0, 2.0]}, "the exporter met 2 errors"),
        ({"errors": [0.0]}, "the exporter did not serve every training"),
    ],
)
def test_what_differs_is_told(change: dict[str, Any], said: str) -> None:
    """With the test in which it does."""
    assert compare({TEST: ALONE}, {TEST: {**WATCHED, **change}}) == [f"{TEST}: {said}"]


def test_a_test_that_was_not_run_with_it_differs() -> None:
    """It may have ended the process."""
    assert f"{TEST}: passed without, None with" in compare({TEST: ALONE}, {})


def test_a_folder_that_is_no_checkout(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Is named, and nothing is run."""
    assert main(str(tmp_path)) == 2
    assert "is no checkout of TRL" in capsys.readouterr().err
