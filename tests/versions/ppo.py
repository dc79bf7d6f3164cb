"""A tiny modern PPO trainer, and what it went through, kept by the test and counted by numpy.

Nothing of rlexporter counts here: it is the measure that the served histograms are held against.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import numpy as np
import torch
import trl
from transformers import LlamaForCausalLM, LlamaForSequenceClassification

from rlexporter.demo import tiny
from tests.adapters.kept import SavedState

if tuple(map(int, trl.__version__.split(".")[:2])) < (0, 12):
    raise ImportError(f"trl {trl.__version__} has another PPOTrainer")
try:
    from trl.experimental.ppo import PPOConfig, PPOTrainer
except ImportError:
    from trl import PPOConfig, PPOTrainer


def lora(**options: Any) -> Any:
    """Return the configuration of an adapter for the policy."""
    import peft  # type: ignore[import-not-found,import-untyped,unused-ignore]

    targets = ["q_proj", "v_proj"]
    return peft.LoraConfig(r=4, lora_alpha=16, target_modules=targets, task_type="CAUSAL_LM", **options)


def ppo(folder: Path, *, steps: int = 4, kind: Any = PPOTrainer, **options: Any) -> Any:
    """A policy, a critic and a reward model of 10,000 weights each; 8 completions a step, of at most 8 tokens.

    ``adapter``: options of one for the policy, whose reference then is the policy without it.
    ``checkpointing``: True switches it on in policy and critic, which is what `PPOConfig` does not.
    ``dtype``: of all weights. ``launched``: what a launcher tells accelerate by the environment.
    """
    adapter = options.pop("adapter", None)
    checkpointing, dtype = options.pop("checkpointing", False), options.pop("dtype", torch.float32)
    launched = options.pop("launched", {})
    config = tiny.config(hidden_size=16, layers=1)
    config.num_labels = 1
    tokenizer = tiny.tokenizer()
    torch.manual_seed(1)
    np.random.seed(1)
    policy, reference = LlamaForCausalLM(config).to(dtype), LlamaForCausalLM(config).to(dtype)
    reference.load_state_dict(policy.state_dict())
    reward, critic = (LlamaForSequenceClassification(config).to(dtype) for _ in range(2))
    if checkpointing:
        policy.gradient_checkpointing_enable()
        critic.gradient_checkpointing_enable()
    args: dict[str, Any] = {
        "output_dir": str(folder / "trainer_output"),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "num_mini_batches": 2,
        "num_ppo_epochs": 2,
        "response_length": 8,
        "stop_token": "eos",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "num_sample_generations": 0,
        "local_rollout_forward_batch_size": 8,
        "disable_tqdm": True,
        "dataloader_drop_last": True,
        **options,
    }
    size = args["per_device_train_batch_size"] * args["gradient_accumulation_steps"]
    with mock.patch.dict(os.environ, launched):
        return kind(
            args=PPOConfig(total_episodes=steps * size, **args),
            processing_class=tokenizer,
            model=policy,
            ref_model=reference if adapter is None else None,
            reward_model=reward,
            value_model=critic,
            train_dataset=datasets.Dataset.from_dict(
                {"input_ids": [tokenizer(p)["input_ids"] for p in tiny.prompts(64)]}
            ),
            **({} if adapter is None else {"peft_config": lora(**adapter)}),
        )


class KeepingPPO(PPOTrainer):  # type: ignore[misc] # trl is not checked
    """Reads the local variables of `train()` when it calls `log` and `accelerator.backward`."""

    def keep(self) -> SavedState:
        """Begin."""
        self.kept = SavedState()
        self._backward = self.accelerator.backward
        self.accelerator.backward = self._keep_micro_batch
        return self.kept

    def _keep_micro_batch(self, loss: Any, **kwargs: Any) -> None:
        self._backward(loss, **kwargs)
        found = sys._getframe(1)
        while found.f_code.co_name != "train" and found.f_back:
            found = found.f_back
        there = found.f_locals
        mask = ~there["padding_mask"][there["micro_batch_inds"]]
        logits = there["logits"].detach()
        entropy = torch.logsumexp(logits, -1) - (torch.softmax(logits, -1) * logits).sum(-1)
        self.kept.add("rl_policy_ratio_dist", there["ratio"], mask)
        self.kept.add("rl_entropy_per_token_dist", entropy, mask)
        self.kept.add("rl_loss_dist", [float(loss)])
        self.kept.add("rl_policy_loss_dist", [float(there["pg_loss"])])
        self.kept.add("rl_value_loss_dist", [float(there["vf_loss"])])
        if self.accelerator.sync_gradients:
            gradients = [each.grad.double().flatten() for each in self.model.parameters() if each.grad is not None]
            self.kept.add("rl_grad_norm_dist", [float(torch.cat(gradients).norm())])
        there.clear()

    def log(self, logs: Any, *args: Any, **kwargs: Any) -> None:
        there = sys._getframe(1)
        while there.f_code.co_name != "train" and there.f_back:
            there = there.f_back
        found = dict(there.f_locals)
        real = ~found["padding_mask"]
        for name, key in (("logprob", "logprobs"), ("ref_logprob", "ref_logprobs"), ("advantage", "advantages")):
            self.kept.add(f"rl_{name}_dist", found[key], real)
        self.kept.add("rl_kl_per_token_dist", found["kl"], real)
        self.kept.add("rl_kl_per_sequence_dist", (found["kl"] * real).sum(1))
        self.kept.add("rl_reward_dist", found["scores"])
        for name, key in (("value", "values"), ("return", "returns")):
            self.kept.add(f"rl_{name}_dist", found[key], ~found["padding_mask_p1"])
        pad = self.processing_class.pad_token_id
        rows = found["postprocessed_responses"].tolist()
        self.kept.add("rl_completion_length_dist", [row.index(pad) if pad in row else len(row) for row in rows])
        self.kept.add("rl_prompt_length_dist", np.sum(found["queries"].numpy() != pad, axis=1))
        del found
        super().log(logs, *args, **kwargs)
