"""`Accelerator.log`, and lines that pass several loggers: they count once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loggers.watched import last_scalar, no_errors, run

pytest.importorskip("accelerate")
pytest.importorskip("tensorboard")

BOTH = """
import sys
from torch.utils.tensorboard import SummaryWriter
from accelerate import Accelerator
writer = SummaryWriter(sys.argv[1] + "/a")
accelerator = Accelerator(log_with="tensorboard", project_dir=sys.argv[1], cpu=True)
accelerator.init_trackers("proj", config={"beta": 0.5, "learning_rate": 1e-3})
for step in range(1, 4):
    writer.add_scalar("loss", 0.5 + step, step)
    writer.add_scalar("writer", 2.0, step)
    accelerator.log({"loss": 0.5 + step, "grad_norm": 1.0 * step, "accelerator": 3.0}, step=step)
writer.close()
accelerator.end_training()
"""
TRAINER = """
import sys
from pathlib import Path
from tests import tiny
tiny.grpo(Path(sys.argv[1]), report_to=["tensorboard"]).train()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "known"),
    [
        ("tensorboard,accelerate", {"writer": 2.0}),
        ("accelerate,tensorboard", {"accelerator": 3.0}),
        ("accelerate", {"accelerator": 3.0}),
    ],
)
def test_lines_of_two_in_turn(tmp_path: Path, order: str, known: dict[str, float]) -> None:
    """The first in the order feeds, also if it logs second: it takes over with its next step.

    `Accelerator.log` calls `add_scalar`: whoever is asked, each line counts once.
    """
    done = run(BOTH, tmp_path, "--from", order)

    assert no_errors(done)
    assert {key: done.logged()[key] for key in known} == known
    assert done["rl_steps_total"] == 3
    assert done.counts("rl_loss_dist", "+Inf") == [3]
    assert (done["rl_step"], done["rl_loss"]) == last_scalar(tmp_path / "proj", "loss") == (3, 3.5)
    if order == "accelerate":
        assert done.counts("rl_grad_norm_dist", 1.0, 2.0, 5.0) == [1, 2, 3]
        assert done.settings()["beta"] == 0.5


@pytest.mark.slow
def test_a_trainer_of_trl_that_reports(tmp_path: Path) -> None:
    """Our callback feeds, and nothing is counted twice."""
    pytest.importorskip("trl")
    done = run(TRAINER, tmp_path, "--from", "tensorboard")

    assert no_errors(done)
    assert done["rl_steps_total"] == 4
    assert done.counts("rl_completion_length_dist", "+Inf") == [16]
    assert not any(key.startswith("train/") for key in done.logged())
    assert len(done.runs) == 1


def test_a_name_that_is_none(tmp_path: Path) -> None:
    """It says what to write, before anything starts."""
    done = run("1 / 0", tmp_path, "--from", "tensorbord")
    assert done.status == 2
    assert "variable RLEXPORTER_FROM='tensorbord' is not usable: 'tensorbord' is none of verl," in done.errors
    assert "ZeroDivisionError" not in done.errors
