"""Real trainings on a real GPU in bf16. `make gpu` runs this."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import rlexporter
from rlexporter.catalog.run_metrics import TENSOR_SIGNALS
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import signals
from tests.served import errors
from tests.tools import ROOT
from tests.waits import waits_of_the_trainer

pytestmark = [
    *REAL_TRAINERS,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not tiny.ON_GPU or not torch.cuda.is_available(), reason="only where `make gpu` runs"),
]
_OURS = str(ROOT / "rlexporter") + "/"
STEPS = 8


def _trainer(folder: Path, kind: str) -> Any:
    return tiny.grpo(folder, kind=kind, bf16=True, max_steps=STEPS, num_iterations=2, steps_per_generation=2)


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_no_wait_is_ours(tmp_path: Path, kind: str) -> None:
    """The trainer's own code waits for the GPU in each step, which shows that a wait is seen; ours never does."""
    trainer = _trainer(tmp_path, kind)
    exporter = rlexporter.attach(trainer)
    with waits_of_the_trainer() as waits:
        trainer.train()
    exporter.close()

    def innermost(stack: str) -> str:
        """The first file that is neither torch nor the test: who asked for the wait."""
        return next(each for each in stack.split(" < ") if "/torch/" not in each and not each.endswith("waits.py"))

    ours = {stack for stack in waits if _OURS in innermost(stack)}
    assert len(waits) > STEPS
    assert sorted(ours) == []
    assert errors(exporter) == 0
    assert signals(exporter) == {signal: float(signal != "value") for signal in TENSOR_SIGNALS}
    assert exporter.snapshot.value("rl_weight_norm") is not None


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_training_is_the_same(tmp_path: Path, kind: str) -> None:
    """Bit for bit, where a training without us gives the same weights twice."""

    def trained(watched: bool) -> dict[str, torch.Tensor]:
        trainer = _trainer(tmp_path, kind)
        if watched:
            rlexporter.attach(trainer)
        trainer.train()
        return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}

    without, again, watched = (trained(each) for each in (False, False, True))
    if any(not torch.equal(without[name], again[name]) for name in without):
        pytest.skip("this GPU does not give the same weights twice")
    assert [name for name in without if not torch.equal(without[name], watched[name])] == []
