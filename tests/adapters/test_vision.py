"""GRPO and RLOO of a vision-language model: all of it is seen, of the text that the model writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trl

import rlexporter
from tests.adapters import twice
from tests.adapters.independent import KeepingGRPO, KeepingRLOO
from tests.adapters.kept import SavedState, assert_counted
from tests.conftest import fetch
from tests.served import errors, nonfinite

pytest.importorskip("PIL", reason="Pillow is not installed")
if tuple(map(int, trl.__version__.split(".")[:2])) < (1, 16):
    pytest.skip("images are given to trainers as in trl 1.16", allow_module_level=True)

from tests.adapters import vision

pytestmark = [pytest.mark.usefixtures("any_port"), pytest.mark.filterwarnings("ignore")]

_OFF_POLICY: dict[str, Any] = {"num_iterations": 2, "learning_rate": 1e-2}


@pytest.mark.parametrize("kind", [KeepingGRPO, KeepingRLOO])
def test_every_histogram_equals_an_independent_count(tmp_path: Path, kind: Any) -> None:
    """Bucket for bucket. The tokens of an image are part of its prompt."""
    trainer = vision.trainer(tmp_path, kind=kind, max_steps=6, **_OFF_POLICY)
    trainer.kept, trainer.losses = SavedState(), []
    exporter = rlexporter.attach(trainer)
    trainer.train()
    lengths = np.concatenate(trainer.kept.values["rl_prompt_length_dist"])

    assert set(lengths) <= {len(word) + 4 for word in vision.COLOURS}
    assert_counted(fetch(f"{exporter.url}/metrics")[1], trainer)
    assert nonfinite(exporter) == {}
    assert errors(exporter) == 0
    exporter.close()


def test_a_nan_in_the_vision_tower_is_counted(tmp_path: Path) -> None:
    """It is a trained weight like any other."""
    trainer = vision.trainer(tmp_path, **_OFF_POLICY)
    exporter = rlexporter.attach(trainer)
    with torch.no_grad():
        next(trainer.model.model.vision_tower.parameters()).view(-1)[0] = float("nan")
    with pytest.raises(RuntimeError, match="probability tensor"):
        trainer.train()

    assert nonfinite(exporter) == {"rl_weight_norm": 1}
    exporter.close()


def test_training_is_the_same_with_and_without(tmp_path: Path) -> None:
    """Bit for bit: log lines, weights, random states."""

    def trained(attached: bool) -> twice.Outcome:
        folder = tmp_path / str(attached)
        return twice.trained(lambda lines: vision.trainer(folder, callbacks=[lines], **_OFF_POLICY), attached)

    twice.assert_same(trained(False), trained(True))
