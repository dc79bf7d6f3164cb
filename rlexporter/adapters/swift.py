"""Taps on ms-swift's GRPO (4.6.0), which descends from TRL's and replaces what it trains with.

Rewards come from `_compute_rewards_per_func`, a loss from `_compute_loss_and_metrics(model, model_inputs, grpo_batch)`,
and a rollout is a list of micro-batches. A `GRPOBatch` has tensors of (completions, tokens); its advantages too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlexporter.adapters.grpo import NO_CRITIC, NOT_SCORED, GroupTaps
from rlexporter.adapters.rewards import RewardTaps
from rlexporter.model.sink import NotSeenError

_NO_ENTROPY = "entropies are computed with log_entropy or top_entropy_quantile below 1 only"
_NO_PROMPTS = "the trainer encodes prompts and completions together, and keeps no length of the prompts"
_MICRO_BATCHES = "a rollout is a list of micro-batches, with parts of a group in each"
_UNEVEN = "the ranks have different numbers of samples (multi-turn conversations that were split)"


class SwiftRewardTaps(RewardTaps):
    """Taps on rewards. Groups that dynamic sampling draws anew are counted too."""

    method = "_compute_rewards_per_func"
    samples = "samples"

    def _see(self, per_function: Any, count: int) -> None:
        if getattr(self.trainer, "dynamic_num_samples", False):
            raise NotSeenError(_UNEVEN)
        super()._see(per_function, count)

    def _see_evaluated(self, per_function: Any, count: int) -> None:
        if not getattr(self.trainer, "dynamic_num_samples", False):
            super()._see_evaluated(per_function, count)


class SwiftGroupTaps(GroupTaps):
    """Taps on the rollout and the loss."""

    reward_taps = SwiftRewardTaps

    def install(self) -> None:
        """Wrap rollout, scoring and loss."""
        trainer, signals = self.trainer, ("logprob", "entropy", "ratio", "kl", "loss_mask")
        self._rewards.install()
        self.sink.signal("value", NO_CRITIC)
        self.sink.signal("copies", _MICRO_BATCHES)
        self.sink.signal("prompt_length", _NO_PROMPTS)
        self.tap(trainer, "_generate_and_score_completions", self._rollout, "advantage", "weights", "completion_length")
        if getattr(trainer, "use_liger_loss", False):
            for signal in signals:
                self.sink.signal(signal, NOT_SCORED)
            return
        self.tap(trainer, "_get_per_token_logps_and_entropies", self._score, *signals)
        self.tap(trainer, "_compute_loss_and_metrics", self._loss, *signals)

    def _see_rollout(self, output: Any, scores: Any) -> None:
        for micro_batch in output:
            batch = micro_batch["grpo_batch"]
            mask = batch.completion_mask
            with self.sink.observing("advantage"):
                self.sink.observe("rl_advantage_dist", _mean(batch.advantages, mask))
            with self.sink.observing("completion_length"):
                self.sink.observe("rl_completion_length_dist", mask.sum(1))
            if self._penalized:
                with self.sink.observing("kl"):
                    reference = batch.ref_per_token_logps.float()
                    self.sink.observe("rl_kl_per_token_dist", batch.old_per_token_logps.float() - reference, mask)
                    self.sink.observe("rl_ref_logprob_dist", reference, mask)

    @property
    def _penalized(self) -> bool:
        return bool(self.trainer.beta) and bool(getattr(self.trainer, "kl_in_reward", False))

    def _inputs(self, compute_loss: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        batch = self.argument(compute_loss, "grpo_batch", args, kwargs)
        mask = batch.completion_mask
        if getattr(self.trainer, "overlong_filter", False):
            mask = mask * (~batch.truncated_mask.bool()).unsqueeze(-1)
        return {
            "completion_mask": mask,
            "old_per_token_logps": batch.old_per_token_logps,
            "ref_per_token_logps": batch.ref_per_token_logps,
        }

    def _see_entropy(self, scored: Any, inputs: Any) -> None:
        if scored.entropies is None:
            raise NotSeenError(_NO_ENTROPY)
        super()._see_entropy(scored, inputs)

    def _see_kl(self, scored: Any, inputs: Any) -> None:
        if not self._penalized:  # else it was seen in the rollout
            super()._see_kl(scored, inputs)


def _mean(values: Any, mask: Any) -> Any:
    """Return the mean over the tokens of each completion: its advantage, which all of its tokens share at first."""
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)
