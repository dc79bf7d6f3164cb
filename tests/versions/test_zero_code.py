"""`rlexporter run` with both kinds of PPO: scripts that are watched unasked."""

from __future__ import annotations

from pathlib import Path

from tests.loggers.watched import no_errors, run
from tests.versions.trls import once_legacy, once_modern

MODERN = """
import sys
from pathlib import Path
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
except ValueError as error:
    print(error)
"""

LEGACY = """
import os, torch, trl
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
"""


@once_modern
def test_modern_ppo_that_raises(tmp_path: Path) -> None:
    """Seen at once and not at the end of the process, although this trainer says nothing while it is built."""
    done = run(MODERN, tmp_path)

    assert no_errors(done)
    assert done.printed.endswith("the verifier is down\n")
    assert "ppo" in done.info()
    assert done.served["rl_run_state", "failed"] == 1
    assert any(name == "rl_run_exception_info" and "ValueError" in labels for name, labels in done.served)
    assert done["rl_steps_total"] == 2
    assert done.counts("rl_policy_ratio_dist", "+Inf")[0] > 0


@once_legacy
def test_legacy_ppo(tmp_path: Path) -> None:
    """From its first step, by its tensors; a script that attaches as well has the same exporter."""
    done = run(LEGACY, tmp_path)

    assert no_errors(done)
    assert "ppo-legacy" in done.info()
    assert done["rl_steps_total"] == 2
    assert done.counts("rl_reward_dist", "+Inf") == [8]
