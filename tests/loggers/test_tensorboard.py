"""TensorBoard's writers, of torch and of tensorboardX: what is served is what their event files hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loggers.watched import last_scalar, no_errors, run

pytest.importorskip("tensorboard")

MAKERS = {"torch": "from torch.utils.tensorboard import SummaryWriter", "x": "from tensorboardX import SummaryWriter"}
SCRIPT = """
import sys, torch
writer, other = SummaryWriter(sys.argv[1] + "/tb/train"), SummaryWriter(sys.argv[1] + "/tb/valid")
for step in range(1, 4):
    writer.add_scalar("loss", 0.5 + step, global_step=step)
    writer.add_scalar("grad_norm", torch.tensor(1.0 + step), step)
    writer.add_histogram("advantage", torch.tensor([[-0.75, 0.75], [0.125, 0.125]]), step)
    writer.add_scalars("pair", {"one": 1.0 * step, "two": 2.0 * step}, step)
    other.add_scalar("loss", 9.0 + step, step)
other.add_scalar("accuracy", 0.5, 1)  # by epochs: a step of the past
try:
    writer.add_scalar("loss", torch.ones(2), 4)
except Exception:
    print("refused")
writer.close(); other.close()
"""
STEPLESS = """
import sys
writer = SummaryWriter(sys.argv[1] + "/tb/train")
for step in range(3):
    writer.add_scalar("loss", 0.5 + step)
    writer.add_scalar("reward", 0.25 * step)
writer.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
def test_writers(tmp_path: Path, kind: str) -> None:
    """Numbers of one step are one line; the tag of a second writer gets its folder's name where the first has it."""
    if kind == "x":
        pytest.importorskip("tensorboardX")
    done = run(MAKERS[kind] + SCRIPT, tmp_path, "--from", "tensorboard")

    assert no_errors(done)
    assert done.printed == "refused\n"
    assert (done["rl_step"], done["rl_loss"]) == last_scalar(tmp_path / "tb/train", "loss") == (3, 3.5)
    assert (done["rl_step"], done["rl_grad_norm"]) == last_scalar(tmp_path / "tb/train", "grad_norm") == (3, 4)
    assert done["rl_steps_total"] == 3
    assert done.logged() == {"pair/one": 3, "pair/two": 6, "valid/loss": 12, "accuracy": 0.5}
    assert last_scalar(tmp_path / "tb/valid", "loss") == (3, 12)
    assert done.counts("rl_loss_dist", "+Inf") == [3]
    assert done.counts("rl_advantage_dist", -1.0, -0.5, 0.0, 0.5, 1.0) == [0, 3, 3, 9, 12]


@pytest.mark.slow
def test_no_steps(tmp_path: Path) -> None:
    """A tag that comes again is a new step."""
    done = run(MAKERS["torch"] + STEPLESS, tmp_path, "--from", "tensorboard")

    assert no_errors(done)
    assert (done["rl_steps_total"], done["rl_loss"], done["rl_reward_mean"]) == (3, 2.5, 0.5)
