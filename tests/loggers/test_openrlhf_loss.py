"""`examples/openrlhf_loss.py` around a stand-in for OpenRLHF's `PolicyLoss`, which needs DeepSpeed and a GPU to import.

The stand-in has the parameters of `forward` in openrlhf/models/loss.py at 3c3be623, and the clipped loss of PPO.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tools import ROOT

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
import urllib.request
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
print(urllib.request.urlopen(openrlhf_loss.exporter().url + "/metrics").read().decode())
"""


def test_the_example_counts_what_the_loss_is_computed_from(tmp_path: Path) -> None:
    """Two micro-batches of three tokens: ratios of 1 and of e, advantages of 1 and of -2."""
    (tmp_path / "openrlhf").mkdir()
    (tmp_path / "openrlhf/__init__.py").touch()
    (tmp_path / "openrlhf/models.py").write_text(_STAND_IN)
    (tmp_path / "worker.py").write_text(_SCRIPT)
    environ = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "examples"))), "RLEXPORTER_RUN": "mine"}
    command = [sys.executable, str(tmp_path / "worker.py")]
    done = subprocess.run(
        command,
        env=os.environ | environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    served = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines() if line and not line.startswith("#"))
    worker = 'rank="1",run="mine"}'
    assert float(served[f'rl_policy_ratio_dist_bucket{{le="1.0",{worker}']) == 3
    assert float(served[f'rl_policy_ratio_dist_bucket{{le="5.0",{worker}']) == 6
    assert float(served[f"rl_advantage_dist_positive_sum_total{{{worker}"]) == 3.0
    assert float(served[f"rl_advantage_dist_negative_sum_total{{{worker}"]) == 6.0
    assert float(served[f"rl_step{{{worker}"]) == 2
