"""GRPO and RLOO of a vision-language model: all of it is seen, of the text that the model writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trl

from tests.adapters.independent import KeepingGRPO, KeepingRLOO
from tests.adapters.twice import assert_counted_and_same

pytest.importorskip("PIL", reason="Pillow is not installed")
if tuple(map(int, trl.__version__.split(".")[:2])) < (1, 16):
    pytest.skip("images are given to trainers as in trl 1.16", allow_module_level=True)

from tests.adapters import vision

pytestmark = [pytest.mark.usefixtures("any_port"), pytest.mark.filterwarnings("ignore")]

_OFF_POLICY: dict[str, Any] = {"num_iterations": 2, "learning_rate": 1e-2}


@pytest.mark.parametrize(("kind", "keeping"), [(trl.GRPOTrainer, KeepingGRPO), (trl.RLOOTrainer, KeepingRLOO)])
def test_every_histogram_equals_an_independent_count_and_training_is_the_same(
    tmp_path: Path, kind: Any, keeping: Any
) -> None:
    """The tokens of an image are part of its prompt."""
    trainer, _ = assert_counted_and_same(
        lambda lines: vision.trainer(tmp_path, kind=kind, callbacks=[lines], max_steps=6, **_OFF_POLICY), keeping
    )

    lengths = np.concatenate(trainer.kept.values["rl_prompt_length_dist"])
    assert set(lengths) <= {len(word) + 4 for word in vision.COLORS}
