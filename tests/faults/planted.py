"""The table of faults that are planted in live runs: in which trainer, and which conditions name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.faults import anywhere, groups, ppo
from tests.faults.anywhere import Plant
from tests.versions.trls import VERSION

AT, STEPS = 41, 60
"""The step of most faults, and the last one."""
WITHIN = 5
"""The steps after that of its fault in which a condition must begin."""


@dataclass(frozen=True)
class Fault:
    """A fault. ``named_by``: the conditions of which any one names it."""

    name: str
    algorithm: str
    plant: Plant | None
    named_by: tuple[str, ...] = ()
    at: int = AT
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the trainer."""
    late: tuple[int, str] = (WITHIN, "")
    """The steps in which it must be named, and why they are more than `WITHIN`."""
    unseen: str = ""
    """Why nothing in the process can show it; then it is not planted."""
    fast: bool = False
    """True if it is planted whenever all tests run."""

    @property
    def id(self) -> str:
        """The name of its test."""
        return f"{self.algorithm}: {self.name}"

    @property
    def missed(self) -> str:
        """What is said instead; empty for a fault that is named."""
        return MISSED.get(self.id, "")


GRPO, RLOO, PPO, LEGACY = "grpo", "rloo", "ppo", "ppo-legacy"
_TWICE = {"num_iterations": 2}
_BF16 = {"learning_rate": 1e-6}
_FASTER = {"learning_rate": 5e-4}
_AT_ONCE = 1
_LOST = ("optimizer_incomplete",)
_HALF, _CUT_OFF = "gradients of half of the tensors are 0", ("gradients_lost",)
_SAMPLER = ("sampler_differs",)
_COPIES = ("completions_copied",)
_ENDLESS = ("truncation", "same_length", "sampler_differs")
_MASK = ("loss_mask_wrong",)
_ADVANTAGE = ("advantage_wrong",)
_MOVED = ("weights_moved",)
_RESTARTED = ("optimizer_restarted",)
_OF_MEANS = (10, "legacy PPO has no entropy of each token, and the means of several rollouts must tell")
_EIGHT = (8, "a function counts as dead after eight steps")
_DEAD = ("reward_function_dead", "reward_function_blind")

INVENTED = (
    Fault("data loader stuck on one batch", GRPO, groups.stuck, ("prompts_stuck",), fast=True),
    Fault("another chat template", GRPO, groups.retemplated, ("prompt_end_changed",), fast=True),
    Fault("prompts lose their content", GRPO, groups.contentless, ("prompts_short",)),
    Fault("one reward function reads the prompt", GRPO, anywhere.of_one_prompt, ("reward_function_blind",)),
    Fault("both reward functions read the prompt", GRPO, anywhere.of_prompts, ("reward_flat", *_DEAD)),
    Fault("sign of all rewards flips", GRPO, anywhere.scaled(-1), ("reward_below_range", "reward_drop")),
    Fault(
        "one reward function x100",
        GRPO,
        anywhere.scaled(100, which=0),
        ("reward_outlier",),
    ),
    Fault("reward 0 for one sample in five", GRPO, anywhere.zeroed, ("reward_zeroed",)),
    Fault("reward 0 for one sample in five", LEGACY, anywhere.zeroed, ("reward_zeroed",)),
    Fault("one reward is NaN", GRPO, anywhere.one_is(float("nan")), ("nonfinite_reward",)),
    Fault("a reward weight becomes 0", GRPO, groups.unweighted, ("reward_weight_lost",)),
    Fault("completions loop", GRPO, groups.looping, _ENDLESS),
    Fault("all completions of a group the same", GRPO, groups.copied, _COPIES),
    Fault("top_k 1 for half of the prompts", GRPO, groups.half_greedy, (*_COPIES, *_SAMPLER)),
    Fault("top_p 0.8", GRPO, groups.sampling(top_p=0.8), _SAMPLER),
    Fault("sampler seeded alike each step", GRPO, None, unseen="no step shows it, only a comparison of steps"),
    Fault("advantages permuted", GRPO, groups.permuted, _ADVANTAGE, fast=True),
    Fault("advantages change sign", GRPO, groups.advantages(torch.neg), _ADVANTAGE),
    Fault("advantages permuted", LEGACY, ppo.advantages(ppo.permuted), (*_ADVANTAGE, "advantage_off_centre")),
    Fault("advantages change sign", LEGACY, ppo.advantages(torch.neg), _ADVANTAGE),
    Fault("completion mask inverted", GRPO, groups.inverted, _MASK, fast=True),
    Fault("padding counts as completion", GRPO, groups.all_ones, _MASK),
    Fault("old log-probabilities", GRPO, groups.stale_logprobs, ("old_logprobs_stale",), options=_TWICE, fast=True),
    Fault("one layer frozen", GRPO, anywhere.frozen, ("weight_norm_jump",), fast=True),
    Fault("one layer leaves the optimizer", GRPO, anywhere.lost(anywhere.layer), _LOST),
    Fault(_HALF, GRPO, anywhere.half_without_gradient, _CUT_OFF),
    Fault("weight decay 100", GRPO, anywhere.decaying, _MOVED),
    Fault("moments of Adam lost", GRPO, anywhere.forgotten, _RESTARTED),
    Fault("first checkpoint loaded", GRPO, anywhere.replaced, _MOVED, fast=True),
    Fault("reference follows by 10 % a step", GRPO, anywhere.reference_follows(0.1), ("reference_moved",), fast=True),
    Fault("reference is another checkpoint", GRPO, groups.other_reference, ("reference_differs",), _AT_ONCE),
    Fault("weights in bf16, learning rate 1e-6", GRPO, groups.in_bf16, ("weights_barely_change",), _AT_ONCE, _BF16),
    Fault("LoRA not in the optimizer", GRPO, groups.orphaned_adapter, ("optimizer_incomplete",), _AT_ONCE),
    Fault("value head anew", LEGACY, ppo.value_head_anew, ("value_loss_spike", "weights_moved")),
    Fault("value head leaves the optimizer", LEGACY, anywhere.lost(ppo.value_head), _LOST),
    Fault("adaptive coefficient at a bound", LEGACY, ppo.coefficient_bound, ("kl_coef_stuck",)),
    Fault("temperature 0.3", LEGACY, ppo.temperature(0.3), _SAMPLER, late=_OF_MEANS),
    Fault("reference synced each step", LEGACY, anywhere.reference_follows(1.0), ("reference_moved",)),
    Fault("the same queries each step", LEGACY, ppo.same_queries, ("prompts_stuck",)),
    Fault("responses against other queries", LEGACY, None, unseen="answers of the toy depend little on the prompt"),
    Fault("NaN weight after unwrap_model", PPO, ppo.nan_after_a_look, ("nonfinite",)),
)
"""Those of the review, section "Invented faults"."""

ASKED = (
    *(
        Fault("one reward is 1e4", algorithm, anywhere.one_is(1e4), ("reward_outlier",))
        for algorithm in (GRPO, RLOO, PPO, LEGACY)
    ),
    Fault("one reward is 50", GRPO, anywhere.one_is(50.0), ("reward_outlier",)),
    Fault("advantages without spread", GRPO, groups.advantages(torch.zeros_like), ("advantage_dead",)),
    Fault("advantages without spread", RLOO, groups.advantages(torch.zeros_like), ("advantage_dead",)),
    Fault("advantages without spread", PPO, ppo.no_spread, ("advantage_flat",)),
    Fault("advantages without spread", LEGACY, ppo.advantages(torch.zeros_like), ("advantage_flat",)),
    Fault("reward function constant at 0.9", GRPO, anywhere.constant(0.9), _DEAD, late=_EIGHT),
    Fault("reward function constant at 0.9", RLOO, anywhere.constant(0.9), _DEAD, late=_EIGHT),
    Fault("optimizer lost all weights", GRPO, anywhere.lost(anywhere.whole), _LOST),
    Fault("optimizer lost all weights", LEGACY, anywhere.lost(anywhere.whole), _LOST),
    Fault("temperature 0.3", GRPO, groups.sampling(temperature=0.3), _SAMPLER),
    Fault("temperature 0.3", RLOO, groups.sampling(temperature=0.3), _SAMPLER),
    Fault("sampler greedy", GRPO, groups.sampling(do_sample=False), (*_COPIES, *_SAMPLER)),
    Fault("sampler stale", GRPO, groups.stale_sampler, _SAMPLER, options=_FASTER),
    Fault("sampler quantised", GRPO, groups.other_weights(groups.rounded), _SAMPLER),
    Fault("sampler of another revision", GRPO, groups.other_weights(groups.revised), _SAMPLER),
    Fault("dropout in the reference", GRPO, groups.dropout_in_reference, ("reference_noisy",), _AT_ONCE),
    Fault("KL coefficient becomes 0", GRPO, groups.beta(0.0), ("kl_coef_lost",)),
    Fault("KL coefficient becomes 0", LEGACY, ppo.coefficient_lost, ("kl_coef_lost",)),
    Fault("KL coefficient becomes -0.3", GRPO, groups.beta(-0.3), ("kl_coef_lost",)),
    Fault("completions never end", RLOO, groups.endless, _ENDLESS),
    Fault("NaN weight", LEGACY, anywhere.nan_weight, ("nonfinite",)),
)
"""Those of its other tables that are not among them."""

OF_WEIGHTS = (
    *(Fault("moments of Adam lost", algorithm, anywhere.forgotten, _RESTARTED) for algorithm in (PPO, LEGACY)),
    *(Fault("first checkpoint loaded", algorithm, anywhere.replaced, _MOVED) for algorithm in (PPO, LEGACY)),
    *(Fault(_HALF, algorithm, anywhere.half_without_gradient, _CUT_OFF) for algorithm in (RLOO, PPO, LEGACY)),
)
"""Those that GRPO has in the review, in others."""

OF_UPDATES = (
    *(Fault("every reward is None", name, anywhere.silent, ("reward_lost",), at=8) for name in (GRPO, RLOO)),
    *(Fault("optimizer does nothing", name, anywhere.idle, ("weights_frozen",)) for name in (GRPO, RLOO, PPO, LEGACY)),
    Fault("dropout in the reference", PPO, ppo.dropout_in_reference, ("reference_dropout",)),
    Fault("thrown away between two updates", GRPO, anywhere.thrown, ("ratio_tail",), at=AT + 1, options=_TWICE),
    Fault(
        "thrown away between two updates", RLOO, anywhere.thrown, ("ratio_high", "ratio_low"), at=AT + 1, options=_TWICE
    ),
    Fault("advantages off by a constant", GRPO, groups.advantages(lambda each: each - 0.5), ("advantage_off_centre",)),
    Fault("advantages off by a constant", LEGACY, ppo.advantages(lambda each: each - 0.5), ("advantage_off_centre",)),
)
"""Of updates, of what the documents that the project began with warn of, and of rewards that do not come."""

FAULTS = (*INVENTED, *ASKED, *OF_WEIGHTS, *OF_UPDATES)
MISSED = {
    "rloo: thrown away between two updates": "nothing begins: RLOO has one ratio a completion, and it is one step",
}
"""What happens where a fault is not named as it should be: such a test must fail, and a line goes when it passes."""
_OLDER: dict[tuple[int, ...], tuple[str, ...]] = {(1, 12): (PPO,), (0, 11): (LEGACY,)}
HERE = (GRPO, RLOO) if VERSION > (1, 12) else _OLDER.get(VERSION, ())
"""The algorithms whose faults are planted in this environment: each once, in the newest TRL that has it."""


def is_here(fault: Fault) -> bool:
    """Whether a fault is planted in this environment. That of LoRA is where PEFT is: with modern PPO."""
    if fault.plant is groups.orphaned_adapter:
        return HERE == (PPO,)
    return fault.algorithm in HERE and fault.plant is not None
