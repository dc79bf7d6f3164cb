"""Compares what a rollout and a loss are given with what they were made of: faults that no log line can show.

All of it is computed on the device of the tensors, and nothing waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlexporter.adapters.optimizer import local_parts
from rlexporter.adapters.rewards import weighted
from rlexporter.adapters.weights import WeightSample
from rlexporter.model.sink import Sink

_AGREEING = 8
"""The rollouts whose prompts must all end with the same token, before another one means anything."""
_SUMMED = "sum_then_normalize"
"""TRL's name for advantages that are made of the sum of the rewards."""
_MANY = 16
"""The number of rollouts that different prompts must fill, so that the same ones hardly come again by chance."""


class Consistency:
    """Checks of one GRPO or RLOO run, each an observation of the step. Only what belongs to this rank is seen."""

    def __init__(self, trainer: Any, sink: Sink) -> None:
        self._trainer = trainer
        self._sink = sink
        self._reference = WeightSample()
        self._prompts: set[int] = set()
        """Hashes of the prompts of the last rollout."""
        self._known: set[int] = set()
        """Hashes of prompts that were seen, until they are many."""
        self._end: int | None = None
        """The token with which every prompt has ended so far, as a chat template leaves it."""
        self._agreed = 0
        """The rollouts in which it did; -1 once one did not."""

    def see_reference(self) -> None:
        """Observe the share of the reference's weights that have changed, unless the settings ask for that."""
        reference = getattr(self._trainer, "ref_model", None)
        if reference is None or getattr(self._trainer.args, "sync_ref_model", False):
            return
        weights = local_parts(reference.parameters())
        change = self._reference.change(weights) if weights else None
        if change is not None:
            self._sink.observe("rl_ref_weight_changed_fraction", change.share)

    def see_prompts(self, inputs: Any) -> None:
        """Observe the share of different prompts that the last rollout had too, once many others have been seen."""
        prompts = {hash(str(sample["prompt"])) for sample in inputs if "prompt" in sample}
        before, self._prompts = self._prompts, prompts
        if len(self._known) <= _MANY * len(prompts):
            self._known |= prompts
        elif before and prompts:
            self._sink.observe("rl_prompts_repeated_fraction", [len(prompts & before) / len(prompts)])

    def see_prompt_ends(self, prompts: Sequence[Any]) -> None:
        """Observe the share of ``prompts`` (lists of tokens) with another last token than all had at first.

        Nothing is observed where prompts end as they like.
        """
        ends = [tokens[-1] for tokens in prompts if isinstance(tokens, list) and tokens]  # a tensor would be waited for
        if not ends or self._agreed < 0:
            return
        if self._agreed == _AGREEING:
            self._sink.observe("rl_prompt_end_changed_fraction", [sum(end != self._end for end in ends) / len(ends)])
            return
        self._end = ends[0] if self._end is None else self._end
        self._agreed = self._agreed + 1 if {*ends} == {self._end} else -1

    def see_advantages(self, output: Any, scores: Any, per_function: Any) -> None:
        """Observe how the advantages of a rollout's ``output`` go with the rewards that they are made of.

        ``scores``: of the tokens, by the policy and by the reference; ``per_function``: completions of all ranks,
        reward functions.
        """
        trainer, advantages, group = self._trainer, output["advantages"], self._trainer.num_generations
        count = len(advantages)
        if group < 2 or advantages.dim() != 1 or count % group:  # a group is on several ranks
            return
        if getattr(trainer, "multi_objective_aggregation", _SUMMED) != _SUMMED:  # each function has its own scale
            return
        rewards = weighted(per_function, trainer.reward_weights)
        rewards = rewards.narrow(0, trainer.accelerator.process_index * count, count)
        if limits := getattr(trainer, "reward_clip_range", None):
            rewards = rewards.clamp(*limits)
        if "old_logps" in output and trainer.beta:  # RLOO's reward has the penalty in it
            (policy, *_), (reference, *_) = scores
            rewards = rewards - trainer.beta * ((policy - reference) * output["completion_mask"]).sum(1)
        self._sink.observe("rl_advantage_reward_correlation", *advantage_correlation(advantages, rewards, group))

    def see_mask(self, tokens: Any, mask: Any, length: int) -> None:
        """Observe the share of completions, the last ``length`` of ``tokens``, whose ``mask`` does not fit them."""
        processing = getattr(self._trainer, "processing_class", None)
        pad = getattr(getattr(processing, "tokenizer", processing), "pad_token_id", None)
        if isinstance(pad, int):
            may_be_empty = bool(getattr(self._trainer, "mask_truncated_completions", False))
            tokens, mask = (both.narrow(1, both.size(1) - length, length) for both in (tokens, mask))
            wrong = mask_disagreement(tokens, mask, pad, may_be_empty=may_be_empty)
            self._sink.observe("rl_loss_mask_wrong_fraction", wrong.float())


def advantage_correlation(advantages: Any, rewards: Any, group: int) -> tuple[Any, Any]:
    """Return the correlation of advantages and rewards in each group, and where both have a spread.

    Both have one number a completion, ``group`` completions of the same prompt in a row. An advantage that is made of
    its group's rewards is a growing function of them: 1 where it is affine, as in GRPO and RLOO.
    """
    import torch

    advantage, reward = (numbers.float().view(-1, group) for numbers in (advantages, rewards))
    scale = reward.abs().amax(1).clamp(min=1.0)  # less of a spread than this part of it is rounding
    spread = (reward.amax(1) - reward.amin(1) > 1e-4 * scale) & (advantage.amax(1) - advantage.amin(1) > 1e-6)
    advantage = advantage - advantage.mean(1, keepdim=True)
    reward = reward - reward.mean(1, keepdim=True)
    size = (advantage.square().sum(1) * reward.square().sum(1)).sqrt()
    correlation = (advantage * reward).sum(1) / torch.where(spread, size, torch.ones_like(size))
    return correlation, spread & (correlation - correlation == 0)


def mask_disagreement(tokens: Any, mask: Any, pad: int, *, may_be_empty: bool) -> Any:
    """Return for each completion (completions, tokens; padded on the right) whether its loss mask does not fit it.

    A mask fits that has every token up to the padding, and at most one of the padding: an end token may be the same.
    ``may_be_empty``: a mask without a token fits too, as truncated completions may be left out of the loss.
    """
    counted = mask != 0
    trailing = (tokens == pad).flip(1).cumprod(1).flip(1)  # 1 for padding
    wrong = ((counted & (trailing != 0)).sum(1) > 1) | ((mask == 0) & (trailing == 0)).any(1)
    return wrong & counted.any(1) if may_be_empty else wrong
