"""Compares what a rollout and a loss are given with what they were made of: faults that no log line can show.

All of it is computed on the device of the tensors, and nothing waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlexporter.adapters.optimizer import local_parts
from rlexporter.adapters.weights import WeightSample
from rlexporter.model.sink import NotSeenError, Sink

_AGREEING = 8
"""The rollouts whose prompts must all end with the same token, before another one means anything."""
_SUMMED = "sum_then_normalize"
"""TRL's name for advantages that are made of the sum of the rewards."""
_NO_MODEL = "there is no model that is the reference: the penalty is off, or it is the policy without its adapter"
_NO_GROUPS = "each prompt has one completion: there are no copies to compare"
_MASK_OF_LOOP = "the loop makes its mask of the padding, and nothing is handed on that could be compared"


class Consistency:
    """Checks of one run, each an observation of the step. Only what belongs to this rank is seen."""

    def __init__(self, trainer: Any, sink: Sink) -> None:
        self._trainer = trainer
        self._sink = sink
        self._reference = WeightSample()
        self._rollouts = 0
        """The rollouts so far: one in four has a look at the reference, every second one at copies, for the cost."""
        self._prompts: set[int] = set()
        """Hashes of the prompts of the last rollout."""
        self._queries: Any = None
        """The same of prompts that are tensors, as one tensor."""
        self._end: int | None = None
        """The token with which every prompt has ended so far, as a chat template leaves it."""
        self._agreed = 0
        """The rollouts in which it did; -1 once one did not."""

    def without_groups(self) -> None:
        """Say why two of the checks are not made in PPO."""
        self._sink.signal("copies", _NO_GROUPS)
        self._sink.signal("loss_mask", _MASK_OF_LOOP)

    def see_reference(self) -> None:
        """Observe the share of the reference's weights that have changed, unless the settings ask for that."""
        self._rollouts += 1
        if self._rollouts % 4 != 1:
            return
        with self._sink.observing("reference"):
            reference = getattr(self._trainer, "ref_model", None)
            if reference is None:
                raise NotSeenError(_NO_MODEL)
            if getattr(getattr(self._trainer, "args", None), "sync_ref_model", False):
                raise NotSeenError("sync_ref_model asks for a reference that changes")
            weights = local_parts(reference.parameters())
            change = self._reference.change(weights) if weights else None
            if change is not None:
                self._sink.observe("rl_ref_weight_changed_fraction", change.share)

    def see_reference_noise(self, reference: Any, output: Any) -> None:
        """Observe by how much the reference contradicts itself: completions of a group that begin with the same token.

        Their prompt is the same, so that the log-probability of that token is too, however the reference was made.
        """
        group = self._trainer.num_generations
        if group < 2 or len(reference) % group:  # a group is on several ranks
            return
        first, token = (matrix.select(1, 0).view(-1, group) for matrix in (reference, output["completion_ids"]))
        seen = output["completion_mask"].select(1, 0).view(-1, group).bool()
        same = (token.unsqueeze(2) == token.unsqueeze(1)) & seen.unsqueeze(2) & seen.unsqueeze(1)
        difference = (first.unsqueeze(2) - first.unsqueeze(1)).abs().float()
        same &= difference - difference == 0  # NaN for NaN and infinities, which are counted elsewhere
        self._sink.observe("rl_ref_logprob_noise", difference, same.triu(diagonal=1))

    def see_prompts(self, inputs: Any) -> None:
        """Observe the share of the different prompts of a rollout that the last one had too."""
        with self._sink.observing("prompt"):
            given = [sample.get("prompt") or sample.get("messages") for sample in inputs]
            if not all(given):
                raise NotSeenError("the samples have neither a prompt nor messages")
            prompts = {*map(hash, map(str, given))}
            before, self._prompts = self._prompts, prompts
            if before:
                self._sink.observe("rl_prompts_repeated_fraction", [len(prompts & before) / len(prompts)])

    def see_queries(self, queries: Any) -> None:
        """Observe the same of ``queries`` (PPO): tokens as one tensor (prompts, tokens), or as a list of tensors."""
        import torch

        with self._sink.observing("prompt"):
            if isinstance(queries, list):
                queries = torch.nn.utils.rnn.pad_sequence(queries, batch_first=True)
            now = row_hashes(queries)
            before, self._queries = self._queries, now
            if before is not None and before.device == now.device:
                self._sink.observe("rl_prompts_repeated_fraction", (now.unsqueeze(1) == before).any(1).float())

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

    def see_copies(self, tokens: Any) -> None:
        """Observe which completions (completions, ``tokens``) another one of their group is a copy of."""
        if self._rollouts % 2:
            return
        with self._sink.observing("copies"):
            group = self._trainer.num_generations
            if group < 2 or len(tokens) % group:
                raise NotSeenError("the completions of a group are not together on this rank")
            rows = row_hashes(tokens)
            copied = (rows.view(-1, group, 1) == rows.view(-1, 1, group)).sum(2) > 1
            self._sink.observe("rl_completion_copied_fraction", copied.float())

    def see_expected_copies(self, logprobs: Any, mask: Any) -> None:
        """Observe how many are to be expected: ``logprobs`` are those of the policy that has sampled, for each token.

        A completion of probability p is drawn again by one of the g - 1 others of its group with 1 - (1 - p)^(g - 1).
        """
        if self._rollouts % 2:
            return
        likely = (logprobs * mask).sum(1).exp()
        expected = 1 - (1 - likely) ** (self._trainer.num_generations - 1)
        self._sink.observe("rl_completion_copied_expected_fraction", expected.nan_to_num(0.0, 0.0, 0.0))

    def see_advantages(self, output: Any, scores: Any, rewards: Any) -> None:
        """Observe how the advantages of a rollout's ``output`` go with the rewards that they are made of.

        ``scores``: of the tokens, by the policy and by the reference; ``rewards``: one for each completion of all
        ranks.
        """
        trainer, advantages, group = self._trainer, output["advantages"], self._trainer.num_generations
        count = len(advantages)
        if group < 2 or advantages.dim() != 1 or count % group:  # a group is on several ranks
            return
        if getattr(trainer, "multi_objective_aggregation", _SUMMED) != _SUMMED:  # each function has its own scale
            return
        rewards = rewards.narrow(0, trainer.accelerator.process_index * count, count)
        if limits := getattr(trainer, "reward_clip_range", None):
            rewards = rewards.clamp(*limits)
        if "old_logps" in output and trainer.beta:  # RLOO's reward has the penalty in it
            (policy, *_), (reference, *_) = scores
            rewards = rewards - trainer.beta * ((policy - reference) * output["completion_mask"]).sum(1)
        self._sink.observe("rl_advantage_reward_correlation", *advantage_correlation(advantages, rewards, group))

    def see_returns(self, advantages: Any, returns: Any, values: Any, mask: Any) -> None:
        """Observe how advantages go with returns minus ``values`` (PPO), of which they are made by whitening."""
        kept = mask.bool()
        gain, advantage = (numbers.float().where(kept, 0.0) for numbers in (returns - values, advantages))
        count = kept.sum().clamp(min=1)
        gain, advantage = ((numbers - numbers.sum() / count).where(kept, 0.0) for numbers in (gain, advantage))
        correlation = (gain * advantage).sum() / (gain.square().sum() * advantage.square().sum()).sqrt()
        self._sink.observe("rl_advantage_reward_correlation", correlation, correlation - correlation == 0)

    def see_mask(self, tokens: Any, mask: Any, length: int) -> None:
        """Observe the share of completions, the last ``length`` of ``tokens``, whose ``mask`` does not fit them."""
        with self._sink.observing("loss_mask"):
            processing = getattr(self._trainer, "processing_class", None)
            pad = getattr(getattr(processing, "tokenizer", processing), "pad_token_id", None)
            if not isinstance(pad, int):
                raise NotSeenError("the tokenizer has no padding token")
            if not hasattr(tokens, "narrow"):
                raise NotSeenError("tokens and mask are not handed on where they are scored")
            may_be_empty = bool(getattr(self._trainer, "mask_truncated_completions", False))
            tokens, mask = (both.narrow(1, both.size(1) - length, length) for both in (tokens, mask))
            wrong = mask_disagreement(tokens, mask, pad, may_be_empty=may_be_empty)
            self._sink.observe("rl_loss_mask_wrong_fraction", wrong.float())


def row_hashes(tokens: Any) -> Any:
    """Return a number for each row of ``tokens`` (rows, tokens), hardly ever the same for others."""
    import torch

    places = torch.arange(1, tokens.size(1) + 1, device=tokens.device)
    return (tokens.long() * places.pow(5)).sum(1)  # the product may overflow, as in other hashes


def advantage_correlation(advantages: Any, rewards: Any, group: int) -> tuple[Any, Any]:
    """Return the correlation of advantages and rewards in each group, and where both have a spread.

    Both have one number a completion, ``group`` completions of the same prompt in a row. An advantage that is made of
    its group's rewards is a growing function of them: 1 where it is affine, as in GRPO and RLOO.
    """
    import torch

    advantage, reward = (numbers.float().view(-1, group) for numbers in (advantages, rewards))
    scale = torch.linalg.vecdot(reward, reward) + group  # less of a spread than a part of it is rounding
    advantage, reward = (numbers - numbers.mean(1, keepdim=True) for numbers in (advantage, reward))
    of_advantage, of_reward = torch.linalg.vecdot(advantage, advantage), torch.linalg.vecdot(reward, reward)
    correlation = torch.linalg.vecdot(advantage, reward) * (of_advantage * of_reward).rsqrt()
    spread = (of_reward > 1e-9 * scale) & (of_advantage > 1e-12)
    return correlation, spread & (correlation - correlation == 0)


def mask_disagreement(tokens: Any, mask: Any, pad: int, *, may_be_empty: bool) -> Any:
    """Return for each completion (completions, tokens; padded on the right) whether its loss mask does not fit it.

    A mask fits that has every token up to the padding, and at most one of the padding: an end token may be the same.
    ``may_be_empty``: a mask without a token fits too, as truncated completions may be left out of the loss.
    """
    import torch

    places = torch.arange(1, tokens.size(1) + 1, device=tokens.device)
    last, counted = ((tokens != pad) * places).amax(1), (mask * places).amax(1)
    padding = counted - last
    wrong = (mask.sum(1) != counted) | (padding * (padding - 1) != 0)
    return wrong & (counted != 0) if may_be_empty else wrong
