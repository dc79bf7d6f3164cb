"""What the trainers of ms-swift and Unsloth have, by their sources: the measure that the stand-ins are held against.

`make swift` holds their own classes against it too.
"""

from __future__ import annotations

import inspect
from typing import Any

SWIFT = {
    "_prepare_inputs": ["self", "inputs"],
    "_generate_and_score_completions": ["self", "inputs"],
    "_compute_rewards_per_func": ["self", "samples"],
    "_get_per_token_logps_and_entropies": [
        *("self", "model", "model_inputs", "grpo_batch", "compute_entropy", "origin_data"),
    ],
    "compute_loss": ["self", "model", "inputs", "return_outputs", "num_items_in_batch"],
    "_compute_loss": ["self", "model", "model_inputs", "grpo_batch", "origin_data"],
    "_compute_loss_and_metrics": ["self", "model", "model_inputs", "grpo_batch"],
    "log": ["self", "logs", "start_time"],
}
"""Methods of `GRPOTrainer` and their parameters: ms-swift 4.6.0, swift/rlhf_trainers/grpo_trainer.py; the second is of
rollout_mixin.py."""
SWIFT_CALLS = {
    "_prepare_inputs": "_generate_and_score_completions",
    "compute_loss": "_compute_loss",
    "_compute_loss_and_metrics": "_get_per_token_logps_and_entropies",
}
"""What some of these call."""
SWIFT_BATCH = {
    *("completion_mask", "truncated_mask", "seq_lengths", "old_per_token_logps", "ref_per_token_logps"),
    *("rollout_per_token_logps", "teacher_per_token_logps", "advantages", "num_items_in_batch", "logits_to_keep"),
}
"""Fields of `GRPOBatch`: swift/rl_core/data.py."""

UNSLOTH = {
    "compute_loss": ["self", "model", "inputs", "return_outputs", "num_items_in_batch"],
    "_get_per_token_logps_and_entropies": [
        *("self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy"),
        "compute_efficient",
    ],
}
"""Methods that replace those of TRL's class in its copy: unsloth 2026.10.9, unsloth/models/rl_replacements.py.

The first never calls `_compute_loss`. It asks the second with `compute_efficient`, which then returns (None, None)."""
UNSLOTH_KEEPS = {"_generate", "_generate_and_score_completions", "_calculate_rewards"}
"""Methods of TRL's class that its copy has under the same name, with the same parameters."""
UNSLOTH_CLASSES = ["UnslothGRPOTrainer", "_UnslothGRPOTrainer"]
"""The class that is used, and the copy of TRL's that is its only base which TRL has not: unsloth/models/rl.py."""


def parameters(kind: type, name: str) -> list[str]:
    """Return the names of the parameters of a method, without `*` and `**`."""
    found = inspect.signature(getattr(kind, name)).parameters.values()
    return [each.name for each in found if each.kind is each.POSITIONAL_OR_KEYWORD]


def names_in(kind: type, name: str) -> set[str]:
    """Return the names of attributes and globals that the code of a method mentions."""
    method: Any = inspect.unwrap(getattr(kind, name))
    return set(method.__code__.co_names)
