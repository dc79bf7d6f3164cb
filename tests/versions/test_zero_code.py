"""`rlexporter run` with both kinds of PPO: scripts that are watched unasked, and read what is served themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trl

from tests.tools import ROOT, free_port

VERSION = tuple(int(part) for part in trl.__version__.split(".")[:2])
if VERSION not in ((1, 12), (0, 11)):
    pytest.skip("once is enough for each kind of PPO: trl 1.12 and 0.11 have them", allow_module_level=True)

MODERN = """
from transformers import TrainerCallback
from tests.versions.ppo import ppo

class Fail(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            raise ValueError("the verifier is down")

trainer = ppo(Path(sys.argv[1]))
trainer.add_callback(Fail())
try:
    trainer.train()
except ValueError:
    print_served()
"""

LEGACY = """
import torch, trl
from transformers import LlamaForCausalLM
from rlexporter.demo import tiny

Policy = trl.AutoModelForCausalLMWithValueHead.from_pretrained
made = [Policy(LlamaForCausalLM(tiny.config(hidden_size=16, layers=1))) for _ in range(2)]
trainer = trl.PPOTrainer(trl.PPOConfig(batch_size=4, mini_batch_size=2), *made, tiny.tokenizer())
queries = [torch.tensor(tiny.tokenizer()(text)["input_ids"]) for text in tiny.prompts(4)]
for _ in range(2):
    responses = trainer.generate(queries, return_prompt=False, max_new_tokens=4, do_sample=True, pad_token_id=0)
    trainer.step(queries, responses, [torch.tensor(float(i)) for i in range(4)])
import rlexporter
assert rlexporter.attach(trainer).port == int(os.environ["RLEXPORTER_LISTEN_PORT"])
print_served()
"""

READ = """
import os, sys
from pathlib import Path
from tests.conftest import fetch

def print_served():
    print(fetch("http://127.0.0.1:" + os.environ["RLEXPORTER_LISTEN_PORT"] + "/metrics")[1], flush=True)
"""


def _served(script: str, folder: Path) -> str:
    (folder / "train.py").write_text(READ + script)
    own = {"RLEXPORTER_LISTEN_PORT": str(free_port()), "RLEXPORTER_LINGER_SECONDS": "0", "OMP_NUM_THREADS": "1"}
    environ = os.environ | own | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "rlexporter", "run", str(folder / "train.py"), str(folder)]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(VERSION < (0, 12), reason="this PPO has no callbacks")
def test_modern_ppo_that_raises(tmp_path: Path) -> None:
    """Seen at once and not at the end of the process, although this trainer says nothing while it is built."""
    found = _served(MODERN, tmp_path)

    assert 'algorithm="ppo"' in found
    assert 'state="failed"} 1.0' in found
    assert 'rl_run_exception_info{exception="ValueError"' in found
    assert _value(found, "rl_steps_total") == 2
    assert _value(found, 'rl_policy_ratio_dist_bucket{le="+Inf"') > 0


@pytest.mark.skipif(VERSION >= (0, 12), reason="this PPO has callbacks")
def test_legacy_ppo(tmp_path: Path) -> None:
    """From its first step, by its tensors; a script that attaches as well has the same exporter."""
    found = _served(LEGACY, tmp_path)

    assert 'algorithm="ppo-legacy"' in found
    assert _value(found, "rl_steps_total") == 2
    assert _value(found, 'rl_reward_dist_bucket{le="+Inf"') == 8


def _value(text: str, series: str) -> float:
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(series))
