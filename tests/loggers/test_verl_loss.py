"""`examples/verl_loss.py` inside the real losses of verl: verl's own result, and each token in a histogram."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loggers.watched import run_worker

pytest.importorskip("verl", reason="needs verl: make loggers")

_SCRIPT = """
import torch
import verl
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import get_policy_loss_fn

config = OmegaConf.create({"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0,
                           "global_batch_info": {}, "policy_loss": {}})
old = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -0.5, -0.5]])
mask = torch.tensor([[True, True, False], [True, False, False]])
for shift, advantage in ((0.0, 1.0), (1.0, -2.0)):
    args = (old, old + shift, torch.full((2, 3), advantage), mask, "token-mean", config, None)
    ours, verls = (get_policy_loss_fn(name)(*args) for name in ("watched", "vanilla"))
    assert torch.equal(ours[0], verls[0]) and ours[1] == verls[1]

import verl_loss
exporter = verl_loss.exporter()
"""


def test_the_example_counts_what_the_loss_is_computed_from(tmp_path: Path) -> None:
    """Two micro-batches of three tokens: ratios of 1 and of e, advantages of 1 and of -2."""
    done = run_worker(_SCRIPT, tmp_path, VERL_USE_EXTERNAL_MODULES="verl_loss")

    assert (done.status, done.runs, done.ranks) == (0, {"mine"}, {"1"}), done.errors
    assert done.counts("rl_policy_ratio_dist", 0.999, 1.0, 2.0, 5.0) == [0, 3, 3, 6]
    assert done["rl_advantage_dist_positive_sum_total"] == 3.0
    assert done["rl_advantage_dist_negative_sum_total"] == 6.0
    assert done["rl_step"] == 2
