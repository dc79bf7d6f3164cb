"""`examples/verl_loss.py` inside the real losses of verl: verl's own result, and each token in a histogram."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import ROOT

pytest.importorskip("verl", reason="needs verl: make loggers")

_SCRIPT = """
import urllib.request
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
print(urllib.request.urlopen(verl_loss.exporter().url + "/metrics").read().decode())
"""


def test_the_example_counts_what_the_loss_is_computed_from(tmp_path: Path) -> None:
    """Two micro-batches of three tokens: ratios of 1 and of e, advantages of 1 and of -2."""
    environ = {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "examples"), os.environ.get("PYTHONPATH", ""))),
        "VERL_USE_EXTERNAL_MODULES": "verl_loss",
        "RLEXPORTER_RUN": "mine",
        "OMP_NUM_THREADS": "1",
    }
    (tmp_path / "worker.py").write_text(_SCRIPT)
    command = [sys.executable, str(tmp_path / "worker.py")]
    done = subprocess.run(
        command, env=os.environ | environ, capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    served = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines() if line and not line.startswith("#"))
    worker = 'rank="1",run="mine"}'
    assert float(served[f'rl_policy_ratio_dist_bucket{{le="0.999",{worker}']) == 0
    assert float(served[f'rl_policy_ratio_dist_bucket{{le="1.0",{worker}']) == 3
    assert float(served[f'rl_policy_ratio_dist_bucket{{le="2.0",{worker}']) == 3
    assert float(served[f'rl_policy_ratio_dist_bucket{{le="5.0",{worker}']) == 6
    assert float(served[f"rl_advantage_dist_positive_sum_total{{{worker}"]) == 3.0
    assert float(served[f"rl_advantage_dist_negative_sum_total{{{worker}"]) == 6.0
    assert float(served[f"rl_step{{{worker}"]) == 2
