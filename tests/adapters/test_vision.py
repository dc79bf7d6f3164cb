"""GRPO and RLOO of a vision-language model: all of it is seen, of the text that the model writes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trl

import rlexporter
from tests.adapters.independent import KeepingGRPO, KeepingRLOO
from tests.adapters.kept import SavedState, buckets
from tests.adapters.lines import Lines
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
    served = {series: (bounds, counts) for series, bounds, counts in buckets(fetch(f"{exporter.url}/metrics")[1])}
    trainer.kept.add("rl_loss_dist", trainer.losses)
    lengths = np.concatenate(trainer.kept.values["rl_prompt_length_dist"])

    assert set(lengths) <= {len(word) + 4 for word in vision.COLOURS}
    assert set(served) - {"rl_grad_norm_dist", "rl_step_duration_seconds"} == set(trainer.kept.values)
    for series in trainer.kept.values:
        bounds, counts = served[series]
        assert counts == trainer.kept.histogram(series, bounds), series
        assert counts[-1] > 0, series
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


def _trained(folder: Path, attached: bool) -> tuple[list[dict[str, Any]], dict[str, Any], Any]:
    random.seed(0)
    np.random.seed(0)
    lines = Lines()
    trainer = vision.trainer(folder, callbacks=[lines], **_OFF_POLICY)
    exporter = rlexporter.attach(trainer) if attached else None
    trainer.train()
    if exporter is not None:
        exporter.close()
    states = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]
    return lines.untimed(), trainer.model.state_dict(), states


def test_training_is_the_same_with_and_without(tmp_path: Path) -> None:
    """Bit for bit: log lines, weights, random states."""
    one, other = (_trained(tmp_path / str(attached), attached) for attached in (False, True))

    assert one[0] == other[0]
    assert all(torch.equal(weight, other[1][key]) for key, weight in one[1].items())
    assert one[2] == other[2]
