"""ms-swift's own GRPO trainer on the CPU, under `rlexporter run`: what is served against its log and tensors.

Runs where ms-swift is: `make swift` has an environment for that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.adapters import descendants
from tests.adapters.kept import SavedState, buckets
from tests.loggers.watched import Done, no_errors, run, sample
from tests.tools import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("swift") is None, reason="needs ms-swift: `make swift`"),
]

SCRIPT = r"""
import json, os, sys
from pathlib import Path

import numpy as np
import torch
from tests.versions import tiny_qwen

folder = Path(sys.argv[1])
tiny_qwen.save(folder / "model", "<|im_start|>")
lines = [{"messages": [{"role": "user", "content": f"say {i}"}]} for i in range(32)]
(folder / "data.jsonl").write_text("\n".join(map(json.dumps, lines)))

from swift.arguments import RLHFArguments
from swift.callbacks import TrainerCallback, callbacks_map
from swift.pipelines.train.rlhf import rlhf_main
from swift.rewards import ORM, orms
from swift.rlhf_trainers.grpo_trainer import GRPOTrainer

kept = {}

def keep(name, values, mask=None):
    values = torch.as_tensor(values).detach().double()
    kept.setdefault(name, []).append(values.flatten() if mask is None else values[mask > 0])

class Letters(ORM):
    def __call__(self, completions, **kwargs):
        rewards = [float(len(set(text))) for text in completions]
        keep("rl_reward_function_dist/Letters", rewards)
        keep("rl_reward_dist", rewards)
        keep("rl_reward_group_range_dist", [max(rewards) - min(rewards)])
        return rewards

class Scrape(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        tiny_qwen.scrape(folder, state.global_step)

score, loss, postprocess = (getattr(GRPOTrainer, name) for name in (
    "_get_per_token_logps_and_entropies", "_compute_loss_and_metrics", "_postprocess_batch"
))
scores, trained = [], []

def kept_score(self, *args, **kwargs):
    scores.append(score(self, *args, **kwargs))
    return scores[-1]

def kept_loss(self, model, model_inputs, grpo_batch):
    found = loss(self, model, model_inputs, grpo_batch)
    trained.append(model)
    (new, entropies), mask = scores[-1], grpo_batch.completion_mask
    keep("rl_logprob_dist", new, mask)
    keep("rl_loss_dist", found[0])
    if entropies is not None:
        keep("rl_entropy_per_token_dist", entropies, mask)
    if grpo_batch.old_per_token_logps is not None:
        keep("rl_policy_ratio_dist", torch.exp(new - grpo_batch.old_per_token_logps), mask)
    if grpo_batch.ref_per_token_logps is not None:
        log_ratio = grpo_batch.ref_per_token_logps - new
        keep("rl_kl_per_token_dist", torch.exp(log_ratio) - log_ratio - 1, mask)
        keep("rl_ref_logprob_dist", grpo_batch.ref_per_token_logps, mask)
    return found

def kept_postprocess(self, samples, batches):
    postprocess(self, samples, batches)
    keep("rl_advantage_dist", torch.stack([sample.advantages for sample in samples]))
    for batch in batches:
        keep("rl_completion_length_dist", batch["grpo_batch"].completion_mask.sum(1))

GRPOTrainer._get_per_token_logps_and_entropies = kept_score
GRPOTrainer._compute_loss_and_metrics = kept_loss
GRPOTrainer._postprocess_batch = kept_postprocess
orms["letters"], callbacks_map["scrape"] = Letters, Scrape
rlhf_main(RLHFArguments(
    rlhf_type="grpo", model=str(folder / "model"), model_type="qwen2", template="qwen2_5", torch_dtype="float32",
    dataset=[str(folder / "data.jsonl")], dataset_num_proc=1, dataloader_num_workers=0, split_dataset_ratio=0,
    reward_funcs=["letters"], use_vllm=False, num_generations=4, per_device_train_batch_size=4, max_length=64,
    gradient_accumulation_steps=1, gradient_checkpointing=False, max_completion_length=8, max_steps=4, logging_steps=1,
    learning_rate=1e-2, tuner_type="full", report_to=["none"], save_strategy="no", eval_strategy="no",
    output_dir=str(folder / "out"), add_version=False, callbacks=["scrape"], **json.loads(os.environ["OPTIONS"]),
))
tiny_qwen.scrape(folder, 4)
keep("weights", torch.cat([weight.flatten() for weight in trained[-1].parameters()]))
np.savez(folder / "kept.npz", **{name.replace("/", "|"): torch.cat(parts) for name, parts in kept.items()})
"""
"""A tiny model that writes letters; the reward is how many different ones. Four steps."""

ALL = {"beta": 0.04, "num_iterations": 2, "log_entropy": True}
"""Settings with which every distribution can be seen; each rollout is used for two steps."""
LEAST = {"beta": 0.0}
SERVED = {
    "loss": "rl_loss",
    "grad_norm": "rl_grad_norm",
    "learning_rate": "rl_learning_rate",
    "reward": "rl_reward_mean",
    "reward_std": "rl_reward_std",
    "frac_reward_zero_std": "rl_reward_zero_std_fraction",
    "rewards/Letters/mean": "rl_reward_function_mean",
    "rewards/Letters/std": "rl_reward_function_std",
    "completions/mean_length": "rl_completion_length_mean",
    "completions/min_length": "rl_completion_length_min",
    "completions/max_length": "rl_completion_length_max",
    "completions/clipped_ratio": "rl_completion_truncated_fraction",
    "entropy/mean": "rl_entropy_per_token",
    "entropy/min": "rl_logged_value/entropy/min",
    "entropy/max": "rl_logged_value/entropy/max",
    "kl": "rl_kl_per_token",
    "clip_ratio/low_mean": "rl_clip_ratio_low_mean",
    "clip_ratio/low_min": "rl_clip_ratio_low_min",
    "clip_ratio/high_mean": "rl_clip_ratio_high_mean",
    "clip_ratio/high_max": "rl_clip_ratio_high_max",
    "clip_ratio/region_mean": "rl_clip_ratio_region_mean",
    "step_time": "rl_step_time_seconds",
}
"""Each key that its trainer logs in a step, but for `epoch`, and its series."""
TIMES = {"step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second"}


@dataclass
class Run:
    """What a run has left in its folder."""

    folder: Path
    done: Done | None
    """What was served at its end, if it was watched."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its log, `logging.jsonl`: a line a step, one of the whole training, and one of what its trainer held."""
        return [json.loads(line) for line in (self.folder / "out/logging.jsonl").read_text().splitlines()]

    @property
    def kept(self) -> dict[str, Any]:
        """What its trainer's own methods took and returned, by the series that must hold it."""
        with np.load(self.folder / "kept.npz") as file:
            return {name.replace("|", "/"): file[name] for name in file.files}

    def scrape(self, step: int) -> str:
        """What was served of a step when it was over."""
        return (self.folder / f"served-{step}.txt").read_text()

    def reasons(self) -> dict[str, str]:
        """Why a signal is not there, of those that are not."""
        assert self.done is not None
        reasons: dict[str, str] = json.loads((self.folder / "state.json").read_text())["reasons"]
        assert {signal for signal, there in self.done.labelled("rl_signal_available").items() if not there} == set(
            reasons
        )
        return reasons


def _watched(folder: Path, options: dict[str, Any]) -> Run:
    files = {"RLEXPORTER_RECORD": str(folder / "record.jsonl"), "RLEXPORTER_STATE_FILE": str(folder / "state.json")}
    done = run(SCRIPT, folder, OPTIONS=json.dumps(options), **files)
    assert no_errors(done)
    return Run(folder, done)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run under `rlexporter run` in which all can be seen."""
    return _watched(tmp_path_factory.mktemp("watched"), ALL)


def test_every_step_is_that_of_its_log(watched: Run) -> None:
    """Each number of each step, as its trainer had it; the lines of the log are rounded to eight digits."""
    *lines, _, last = watched.lines
    held = last["log_history"][:4]
    assert len(lines) == len(held) == 4
    for step, (line, exact) in enumerate(zip(lines, held, strict=True), 1):
        keys = set(exact) - {"epoch", "step"}
        assert keys == set(SERVED) if step % 2 else keys < set(SERVED), "the second step of a rollout has no rewards"
        text = watched.scrape(step)
        assert (sample(text, "rl_step"), exact["step"]) == (step, step)
        assert {key: sample(text, SERVED[key]) for key in keys} == {key: exact[key] for key in keys}
        assert {key: round(exact[key], 8) for key in keys} == {key: line[key] for key in keys}
    for key in ("loss", "grad_norm", "learning_rate", "kl", "entropy/mean", "step_time"):
        assert len({line[key] for line in lines}) == 4, "steps that cannot be told apart prove nothing"
    assert [lines[i][key] for key in ("reward", "completions/mean_length") for i in (0, 2)] == [4.75, 5.75, 7.25, 8.0]


def test_its_class_is_what_the_stand_in_is_held_against() -> None:
    """Methods, their parameters, what they call, and the fields of a batch."""
    from swift.rl_core.data import GRPOBatch
    from swift.rlhf_trainers.grpo_trainer import GRPOTrainer

    for name, expected in descendants.SWIFT.items():
        assert descendants.parameters(GRPOTrainer, name) == expected
    for name, called in descendants.SWIFT_CALLS.items():
        assert called in descendants.names_in(GRPOTrainer, name)
    assert {each.name for each in fields(GRPOBatch)} == descendants.SWIFT_BATCH


def test_facts(watched: Run) -> None:
    assert watched.done is not None
    head = json.loads((watched.folder / "record.jsonl").read_text().splitlines()[0])
    assert (head["framework"], head["algorithm"]) == ("ms-swift", "grpo")
    assert watched.done["rlexporter_unmapped_keys"] == 0
    assert watched.done.logged() == {}
    assert watched.done.served["rl_run_state", "finished"] == 1


def test_distributions(watched: Run) -> None:
    """Twelve, each value of them, by methods of ms-swift's class that the script has replaced to keep what they see."""
    kept = SavedState()
    for name, values in watched.kept.items():
        kept.add(name, values)
    kept.add("rl_grad_norm_dist", [line["grad_norm"] for line in watched.lines[:4]])
    found = {name: (bounds, counts) for name, bounds, counts in buckets(watched.scrape(4)) if "_dist" in name}

    assert set(found) == {
        "rl_advantage_dist",
        "rl_completion_length_dist",
        "rl_entropy_per_token_dist",
        "rl_grad_norm_dist",
        "rl_kl_per_token_dist",
        "rl_logprob_dist",
        "rl_loss_dist",
        "rl_policy_ratio_dist",
        "rl_ref_logprob_dist",
        "rl_reward_dist",
        "rl_reward_function_dist/Letters",
        "rl_reward_group_range_dist",
    }
    assert {name: counts for name, (_, counts) in found.items()} == {
        name: kept.histogram(name, bounds) for name, (bounds, _) in found.items()
    }
    assert {name: counts[-1] for name, (_, counts) in found.items() if "_per_token" not in name} == {
        "rl_advantage_dist": 8,
        "rl_completion_length_dist": 8,
        "rl_grad_norm_dist": 4,
        "rl_logprob_dist": 122,
        "rl_loss_dist": 4,
        "rl_policy_ratio_dist": 122,
        "rl_ref_logprob_dist": 122,
        "rl_reward_dist": 8,
        "rl_reward_function_dist/Letters": 8,
        "rl_reward_group_range_dist": 2,
    }, "two rollouts of 4 completions, of 29 and 32 tokens, each for two steps"


def test_what_cannot_be_seen_says_why(watched: Run, tmp_path: Path) -> None:
    """With all settings on, and with what costs time off."""
    always = {
        "prompt_length": "the trainer encodes prompts and completions together, and keeps no length of the prompts",
        "value": "there is no value function: the advantage is relative to a group",
        "copies": "a rollout is a list of micro-batches, with parts of a group in each",
        "loss_mask": "tokens and mask are not handed on where they are scored",
    }
    assert watched.reasons() == always
    least = _watched(tmp_path, LEAST)
    assert least.reasons() == {
        **always,
        "entropy": "entropies are computed with log_entropy or top_entropy_quantile below 1 only",
        "kl": "beta is 0: there is no reference model",
        "reference": "there is no model that is the reference: the penalty is off, or it is the policy without its "
        "adapter",
    }
    filled = {name for name, _, counts in buckets(least.scrape(4)) if counts[-1]}
    assert {"rl_logprob_dist", "rl_policy_ratio_dist", "rl_advantage_dist"} < filled
    assert not filled & {"rl_entropy_per_token_dist", "rl_kl_per_token_dist", "rl_ref_logprob_dist"}


def test_training_is_the_same_without(watched: Run, tmp_path: Path) -> None:
    """Bit by bit: all that is logged but for times, all that the methods saw, and the weights in the end."""
    (tmp_path / "train.py").write_text(SCRIPT)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RLEXPORTER_")}
    subprocess.run(
        [sys.executable, "train.py", str(tmp_path)],
        cwd=tmp_path,
        env={**environ, "OPTIONS": json.dumps(ALL), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=600,
        check=True,
    )
    plain = Run(tmp_path, None)
    assert not (tmp_path / "served-1.txt").exists()
    assert (watched.folder / "out/_rlexporter_run.json").exists()
    assert not (tmp_path / "out/_rlexporter_run.json").exists()

    exact = [_untimed(each) for each in watched.lines[-1]["log_history"]]
    assert len(exact) == 5
    assert exact == [_untimed(each) for each in plain.lines[-1]["log_history"]]
    ours, theirs = watched.kept, plain.kept
    assert len(ours["weights"]) > 10_000
    assert {name: values.tobytes() for name, values in ours.items()} == {
        name: values.tobytes() for name, values in theirs.items()
    }


def _untimed(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in TIMES}
