"""`examples/openrlhf_loss.py` around a stand-in for OpenRLHF's `PolicyLoss`, which needs DeepSpeed and a GPU to import.

The stand-in has the parameters of `forward` in openrlhf/models/loss.py at 3c3be623, and the clipped loss of PPO.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loggers.watched import package, run_worker

_STAND_IN = """
import torch

class PolicyLoss(torch.nn.Module):
    def forward(self, log_probs, old_log_probs, advantages, action_mask=None, rollout_log_probs=None, dp_size=1,
                batch_num_tokens=None, global_batch_size=None):
        ratio = (log_probs - old_log_probs).exp()
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        return (loss * action_mask).sum() / action_mask.sum()
"""
_SCRIPT = """
import torch
import openrlhf_loss
from openrlhf.models import PolicyLoss

loss = PolicyLoss()
old = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -0.5, -0.5]])
mask = torch.tensor([[True, True, False], [True, False, False]])
batches = [(old + shift, old, torch.full((2, 3), advantage)) for shift, advantage in ((0.0, 1.0), (1.0, -2.0))]
before = [loss(*batch, action_mask=mask, dp_size=2) for batch in batches]
openrlhf_loss.watch()
assert [loss(*batch, action_mask=mask, dp_size=2) for batch in batches] == before
exporter = openrlhf_loss.exporter()
"""


@pytest.mark.slow
def test_the_example_counts_what_the_loss_is_computed_from(tmp_path: Path) -> None:
    """Two micro-batches of three tokens: ratios of 1 and of e, advantages of 1 and of -2."""
    package(tmp_path, "openrlhf.models", _STAND_IN)
    done = run_worker(_SCRIPT, tmp_path)

    assert (done.status, done.runs, done.ranks) == (0, {"mine"}, {"1"}), done.errors
    assert done.counts("rl_policy_ratio_dist", 1.0, 5.0) == [3, 6]
    assert done["rl_advantage_dist_positive_sum_total"] == 3.0
    assert done["rl_advantage_dist_negative_sum_total"] == 6.0
    assert done["rl_step"] == 2
