"""examples/ppo.py, as somebody runs it who has copied it, where TRL has this trainer: `make versions`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trl
from transformers import LlamaForSequenceClassification

from rlexporter.demo import tiny
from tests.tools import ROOT

pytest.importorskip("tests.versions.ppo", reason=f"trl {trl.__version__} has no PPO", exc_type=ImportError)
pytestmark = pytest.mark.slow


def test_ppo(tmp_path: Path) -> None:
    """With a model and a reward model in folders: two updates, recorded with ratio and value loss."""
    model = tiny.model(tmp_path / "model", 0, lambda *_: None, steps=20)
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    model.config.num_labels = 1
    LlamaForSequenceClassification(model.config).save_pretrained(tmp_path / "rewards")
    environ = os.environ | {
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "RLEXPORTER_LISTEN_PORT": "0",
        "RLEXPORTER_RECORD": "run.jsonl",
    }
    options = ["--model", "model", "--reward-model", "rewards", "--updates", "2", "--batch", "4", "--length", "8"]
    command = [sys.executable, str(ROOT / "examples/ppo.py"), *options]
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=1200, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    logs = [line["logs"] for line in lines if line["event"] == "log"]
    assert len([each for each in logs if "val/ratio" in each and "loss/value_avg" in each]) == 2
    assert any("rl_policy_ratio_dist" in series for line in lines for series in line.get("seen", ()))
