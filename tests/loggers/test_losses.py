"""The examples that count what a loss is computed from: the loss stays what it was, and each token is in a histogram.

verl's losses are its own. A stand-in takes the place of OpenRLHF's `PolicyLoss`, which needs DeepSpeed and a GPU to
import: the parameters of `forward` in openrlhf/models/loss.py at 3c3be623, and the clipped loss of PPO.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loggers.watched import Done, package, run_worker

_BATCHES = """
import torch
old = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -0.5, -0.5]])
mask = torch.tensor([[True, True, False], [True, False, False]])
batches = [(old + shift, old, torch.full((2, 3), advantage)) for shift, advantage in ((0.0, 1.0), (1.0, -2.0))]
"""
_VERL = """
import verl
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import get_policy_loss_fn

config = OmegaConf.create({"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0,
                           "global_batch_info": {}, "policy_loss": {}})
for new, old, advantages in batches:
    args = (old, new, advantages, mask, "token-mean", config, None)
    ours, verls = (get_policy_loss_fn(name)(*args) for name in ("watched", "vanilla"))
    assert torch.equal(ours[0], verls[0]) and ours[1] == verls[1]

import verl_loss
exporter = verl_loss.exporter()
"""
_STAND_IN = """
import torch

class PolicyLoss(torch.nn.Module):
    def forward(self, log_probs, old_log_probs, advantages, action_mask=None, rollout_log_probs=None, dp_size=1,
                batch_num_tokens=None, global_batch_size=None):
        ratio = (log_probs - old_log_probs).exp()
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        return (loss * action_mask).sum() / action_mask.sum()
"""
_OPENRLHF = """
import openrlhf_loss
from openrlhf.models import PolicyLoss

loss = PolicyLoss()
before = [loss(*batch, action_mask=mask, dp_size=2) for batch in batches]
openrlhf_loss.watch()
assert [loss(*batch, action_mask=mask, dp_size=2) for batch in batches] == before
exporter = openrlhf_loss.exporter()
"""


def _are_counted(done: Done) -> None:
    """Two micro-batches of three tokens: ratios of 1 and of e, advantages of 1 and of -2."""
    assert (done.status, done.runs, done.ranks) == (0, {"mine"}, {"1"}), done.errors
    assert done.counts("rl_policy_ratio_dist", 0.999, 1.0, 2.0, 5.0) == [0, 3, 3, 6]
    assert done["rl_advantage_dist_positive_sum_total"] == 3.0
    assert done["rl_advantage_dist_negative_sum_total"] == 6.0
    assert done["rl_step"] == 2


def test_verl(tmp_path: Path) -> None:
    pytest.importorskip("verl", reason="needs verl: make loggers")
    _are_counted(run_worker(_BATCHES + _VERL, tmp_path, VERL_USE_EXTERNAL_MODULES="verl_loss"))


@pytest.mark.slow
def test_openrlhf(tmp_path: Path) -> None:
    package(tmp_path, "openrlhf.models", _STAND_IN)
    _are_counted(run_worker(_BATCHES + _OPENRLHF, tmp_path))
