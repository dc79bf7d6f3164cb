"""Unsloth's own GRPO trainer on the CPU, under `rlexporter run`: what is served against its log and its rewards.

By itself Unsloth (2026.10.9) imports without a GPU, but for SFT only. `UNSLOTH_ALLOW_CPU`, which its own tests use, has
it write its copy of TRL's GRPO trainer all the same; its model, whose loader needs a GPU, is one of transformers with
the two switches that the trainer calls. Runs where Unsloth is: `make swift` has an environment for that.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.adapters import descendants
from tests.adapters.kept import SavedState, buckets
from tests.loggers.watched import Done, no_errors, run, sample

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("unsloth") is None, reason="needs Unsloth: `make swift`"),
]

SCRIPT = r"""
import inspect, json, sys
from pathlib import Path

import unsloth
import trl.trainer.grpo_trainer
from unsloth.models.rl import _patch_trl_rl_trainers

of_trl = trl.GRPOTrainer
_patch_trl_rl_trainers("grpo_trainer")

import torch
from datasets import Dataset
from tests.adapters import descendants
from tests.versions import tiny_qwen
from transformers import Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

folder = Path(sys.argv[1])
tokenizer = tiny_qwen.save(folder / "model")
model = Qwen2ForCausalLM.from_pretrained(folder / "model")
model.for_training = lambda *_, **__: model.train()
model.for_inference = lambda *_, **__: model.eval()
kept = []

def many(completions, **_):
    kept.append([float(len(set(text))) for text in completions])
    return kept[-1]

class Scrape(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        tiny_qwen.scrape(folder, state.global_step)

trainer = GRPOTrainer(
    model=model,
    reward_funcs=[many],
    processing_class=tokenizer,
    train_dataset=Dataset.from_list([{"prompt": f"say {i}"} for i in range(16)]),
    callbacks=[Scrape()],
    args=GRPOConfig(
        output_dir=str(folder / "out"), per_device_train_batch_size=4, num_generations=4, max_completion_length=8,
        max_steps=3, logging_steps=1, learning_rate=1e-2, beta=0.04, use_cpu=True, bf16=False, fp16=False,
        optim="adamw_torch", gradient_checkpointing=False, report_to=[], save_strategy="no",
    ),
)
trainer.train()
tiny_qwen.scrape(folder, 3)
of = {name: descendants.parameters(GRPOTrainer, name) for name in descendants.UNSLOTH}
keeps = {name: descendants.parameters(GRPOTrainer, name) for name in descendants.UNSLOTH_KEEPS}
(folder / "told.json").write_text(json.dumps({
    "log": trainer.state.log_history,
    "rewards": kept,
    "classes": [kind.__name__ for kind in GRPOTrainer.__mro__],
    "own": of,
    "keeps": keeps,
    "of_trl": {name: descendants.parameters(of_trl, name) for name in keeps},
    "loss": inspect.getsource(GRPOTrainer.compute_loss),
}))
"""
"""A tiny model that writes letters; the reward is how many different ones. Three steps."""
SERVED = {
    "grad_norm": "rl_grad_norm",
    "kl": "rl_kl_per_token",
    "learning_rate": "rl_learning_rate",
    "loss": "rl_loss",
    "reward": "rl_reward_mean",
    "reward_std": "rl_reward_std",
}
ENVIRON = {"UNSLOTH_ALLOW_CPU": "1", "UNSLOTH_COMPILE_DISABLE": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """The folder of a run, and what was served at its end."""
    folder = tmp_path_factory.mktemp("unsloth")
    done = run(SCRIPT, folder, **ENVIRON)
    assert no_errors(done)
    return folder, done


def _told(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return found


def test_its_class_is_what_the_stand_in_is_held_against(watched: tuple[Path, Done]) -> None:
    """The copy is no class of TRL, its loss asks for no log-probabilities, and the rollout is TRL's."""
    told = _told(watched[0])

    assert told["classes"][:2] == descendants.UNSLOTH_CLASSES
    assert "GRPOTrainer" not in told["classes"]
    assert told["own"] == descendants.UNSLOTH
    handed_on = {"_generate_and_score_completions": ["self"]}  # a wrapper around TRL's, which hands on all it gets
    assert told["keeps"] == told["of_trl"] | handed_on
    assert "self._get_per_token_logps_and_entropies(" in told["loss"]
    assert "self._compute_loss(" not in told["loss"]


def test_every_step_is_that_of_its_log(watched: tuple[Path, Done]) -> None:
    folder, _ = watched
    *lines, _ = _told(folder)["log"]
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        text = (folder / f"served-{line['step']}.txt").read_text()
        assert {key: sample(text, name) for key, name in SERVED.items()} == {key: line[key] for key in SERVED}
    for key in ("grad_norm", "kl", "reward"):
        assert len({line[key] for line in lines}) == 3, "steps that cannot be told apart prove nothing"


def test_distributions(watched: tuple[Path, Done]) -> None:
    """Rewards exactly; of the others as many as there were completions, groups and steps."""
    folder, done = watched
    told, kept = _told(folder), SavedState()
    for rewards in told["rewards"]:
        kept.add("rl_reward_dist", rewards)
    found = {name: (bounds, counts) for name, bounds, counts in buckets((folder / "served-3.txt").read_text())}

    bounds, counts = found["rl_reward_dist"]
    assert counts == kept.histogram("rl_reward_dist", bounds)
    assert {name: counts[-1] for name, (_, counts) in found.items() if "_dist" in name and counts[-1]} == {
        "rl_advantage_dist": 24,
        "rl_completion_length_dist": 24,
        "rl_grad_norm_dist": 3,
        "rl_loss_dist": 3,
        "rl_prompt_length_dist": 24,
        "rl_reward_dist": 24,
        "rl_reward_function_dist/many": 24,
        "rl_reward_group_range_dist": 6,
    }
    available = done.labelled("rl_signal_available")
    assert {signal for signal, value in available.items() if not value} == {"entropy", "logprob", "ratio", "value"}


def test_facts(watched: tuple[Path, Done]) -> None:
    _, done = watched
    assert {"grpo", "UnslothGRPOTrainer"} <= set(done.info())
    assert done.served["rl_run_state", "finished"] == 1
