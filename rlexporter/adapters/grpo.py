"""Taps on GRPO and RLOO (trl 1.16), and on Unsloth's GRPO: advantages, ratios, KL, log-probabilities, entropies,
lengths, and the weights.

The taps read what the trainer's own methods take and return: they compute nothing twice and call nothing in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan, nan
from typing import Any, NamedTuple

from rlexporter.adapters.consistency import Consistency
from rlexporter.adapters.rewards import RewardTaps
from rlexporter.adapters.taps import Taps
from rlexporter.adapters.weights import WeightSample, see_weights
from rlexporter.model.sink import NotSeenError, Rollout

_ON_POLICY = (
    "every update is on-policy (num_iterations is 1 and no generation is used for several optimizer steps): the ratio "
    "is exactly 1"
)
NOT_SCORED = (
    "the loss was computed without per-token log-probabilities (use_liger_kernel computes it in one fused call)"
)
NO_CRITIC = "there is no value function: the advantage is relative to a group"
_NO_REFERENCE = "beta is 0: there is no reference model"
_FUSED = "Unsloth computes the loss from hidden states in one function: there are no per-token log-probabilities to see"


class _Scored(NamedTuple):
    """Of each token, its log-probability in float32 without a graph, its entropy, and whether the loss counts it."""

    logprobs: Any
    entropies: Any
    mask: Any


class GroupTaps(Taps):
    """Taps on the methods of GRPO and RLOO. They ignore evaluation, which goes through the same methods."""

    reward_taps: type[RewardTaps] = RewardTaps

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._scores: list[tuple[Any, Any]] | None = None
        self._read: dict[str, tuple[list[float], int]] = {}
        self._weights = WeightSample()
        self._consistency = Consistency(self.trainer, self.sink)
        self._rewards = self.reward_taps(self.trainer, self.sink)
        self._fresh = False
        """True in the first step that uses a rollout: the policy is the one that sampled it."""

    def install(self) -> None:
        """Wrap rollout, scoring and loss."""
        self.sink.signal("value", NO_CRITIC)
        trainer = self.trainer
        self.tap_rollout()
        signals = ("logprob", "entropy", "ratio", "kl", "loss_mask")
        if hasattr(trainer, "_get_per_token_logps"):  # up to trl 0.19
            self.tap(trainer, "_get_per_token_logps", self._score, *signals)
        else:
            self.tap(trainer, "_get_per_token_logps_and_entropies", self._score, *signals)
        self.tap(trainer, "_compute_loss", self._loss, *signals)

    def tap_rollout(self) -> None:
        """Wrap the rollout, and its rewards."""
        self._rewards.install()
        signals = ("advantage", "weights", "reference", "prompt", "copies")
        self.tap(self.trainer, "_generate_and_score_completions", self._rollout, *signals)
        if hasattr(self.trainer, "_generate"):  # from trl 0.24 on
            self.tap(self.trainer, "_generate", self._generate, "completion_length", "prompt_length")
        if hasattr(self.trainer, "_generate_single_turn"):
            self.tap(self.trainer, "_generate_single_turn", self._sample)

    def step_end(self) -> None:
        """Read the KL coefficient, and once each the numbers that the trainer averages until it logs."""
        self._fresh = False
        with self.sink.guard("tap"):
            if isinstance(beta := getattr(self.trainer, "beta", None), (int, float)):
                self.sink.observe("rl_kl_coef", [beta])
            metrics = self.trainer._metrics
            new: dict[str, list[float]] = {}
            for key, numbers in metrics.get("train", metrics).items():  # flat up to trl 0.15
                known, done = self._read.get(key, ([], 0))
                fresh = numbers[done:] if numbers is known else numbers
                self._read[key] = (numbers, len(numbers))
                if fresh and isinstance(fresh[0], (int, float)):  # reading a tensor may wait for a device
                    new[key] = fresh
            self.sink.values(new)

    @property
    def _training(self) -> bool:
        return bool(self.trainer.model.training)

    def _rollout(self, generate_and_score: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._training:
            return generate_and_score(*args, **kwargs)
        with self.sink.phase("rollout"):
            with self.sink.observing("weights"):
                see_weights(self.sink, self._weights, self.trainer)
            self._consistency.see_reference()
            self.sink.flush()
            self._scores = []
            try:
                output = generate_and_score(*args, **kwargs)
            finally:
                scores, self._scores = self._scores, None
                rewards = self._rewards.take()
        self._fresh = True
        self.sink.completions(self._texts)
        self._see_rollout(output, scores)
        with self.sink.guard("tap"):
            self._consistency.see_prompts(args[0] if args else kwargs["inputs"])
        if rewards is not None and isinstance(output, dict):
            with self.sink.observing("advantage"):
                self._consistency.see_advantages(output, scores, rewards)
        return output

    def _texts(self) -> Rollout | None:
        """Return what the trainer keeps of the rollout for its own table of completions; no tensor is read."""
        kept = getattr(self.trainer, "_logs", None) or getattr(self.trainer, "_textual_logs", None) or {}
        if not kept.get("completion") or "rewards" not in kept:
            return None
        rewards = {name: list(values) for name, values in kept["rewards"].items()}
        weights = self.trainer.args.reward_weights or [1.0] * len(rewards)
        rows = zip(*rewards.values(), strict=True)
        totals = [_total(row, weights) for row in rows]
        return Rollout(list(kept["prompt"]), list(kept["completion"]), rewards, totals)

    def _see_rollout(self, output: Any, scores: Any) -> None:
        """Observe ``output``, the batch that was generated and scored; ``scores`` are those of its tokens."""
        with self.sink.observing("advantage"):
            self.sink.observe("rl_advantage_dist", output["advantages"])
        if not hasattr(self.trainer, "_generate"):  # up to trl 0.23: lengths are those of the masks
            with self.sink.observing("prompt_length"):
                self.sink.observe("rl_prompt_length_dist", output["prompt_mask"].sum(1))
            with self.sink.observing("completion_length"):
                if getattr(self.trainer, "mask_truncated_completions", False):
                    raise NotSeenError("truncated completions are masked, and this version of TRL shows the mask only")
                self.sink.observe("rl_completion_length_dist", output["completion_mask"].sum(1))
        with self.sink.guard("tap"):
            self._consistency.see_copies(output["completion_ids"])
        with self.sink.guard("tap"):
            if "old_logps" in output:
                with self.sink.observing("kl"):
                    self._see_penalty(scores, output)
            elif (reference := output.get("ref_per_token_logps")) is not None:  # older TRL has None without a penalty
                with self.sink.observing("kl"):
                    self._consistency.see_reference_noise(reference, output)

    def _see_penalty(self, scores: Any, output: Any) -> None:
        """Observe RLOO's KL (k1: log-probability of the policy minus that of the reference), a part of its reward."""
        if not self.trainer.beta:
            raise NotSeenError(_NO_REFERENCE)
        (policy, *_), (reference, *_) = scores
        mask = output["completion_mask"]
        self.sink.observe("rl_kl_per_token_dist", policy.float() - reference.float(), mask)
        self.sink.observe("rl_ref_logprob_dist", reference, mask)
        self._consistency.see_reference_noise(reference, output)

    def _sample(self, sample: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Count the time of sampling apart: ranks wait for each other only after it, in what is left of the rollout."""
        if not self._training:
            return sample(*args, **kwargs)
        with self.sink.phase("generation"):
            return sample(*args, **kwargs)

    def _generate(self, generate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        output = generate(*args, **kwargs)
        if self._training:
            with self.sink.observing("prompt_length"):
                self.sink.observe("rl_prompt_length_dist", [len(ids) for ids in output[0]])
                self._consistency.see_prompt_ends(output[0])
            with self.sink.observing("completion_length"):
                tools = output[2] if len(output) >= 7 else None  # GRPO's mask, which leaves out a tool's tokens
                lengths = [len(ids) for ids in output[1]] if tools is None else [sum(mask) for mask in tools]
                self.sink.observe("rl_completion_length_dist", lengths)
        return output

    def _score(self, score: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        output = score(*args, **kwargs)
        if self._scores is not None:
            self._scores.append(output if isinstance(output, tuple) else (output, None))
            if self._fresh and self._scores[-1][0].requires_grad:  # scored for the loss, not in the rollout
                with self.sink.guard("tap"):
                    tokens, mask = kwargs.get("input_ids", *args[1:2]), kwargs.get("attention_mask", *args[2:3])
                    self._consistency.see_mask(tokens, mask, self._scores[-1][0].size(1))
        return output

    def _loss(self, compute_loss: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._training:
            return compute_loss(*args, **kwargs)
        self._scores = []
        try:
            loss = compute_loss(*args, **kwargs)
        finally:
            scores, self._scores = self._scores, None
        with self.sink.guard("tap"):
            inputs = self._inputs(compute_loss, args, kwargs)
            looks = {"logprob": self._see_logprob, "entropy": self._see_entropy, "ratio": self._see_ratio}
            if "old_logps" not in inputs:  # RLOO's KL is part of the reward, and seen there
                looks["kl"] = self._see_kl
            trained = next((score for score in scores if score[0].requires_grad), None)
            scored = None
            if trained is not None:
                mask = inputs["completion_mask"]
                if "tool_mask" in inputs:  # the loss does not count a tool's tokens
                    mask = mask * inputs["tool_mask"]
                scored = _Scored(trained[0].detach().float(), trained[1], mask.bool())
            for signal, look in looks.items():
                with self.sink.observing(signal):
                    if scored is None:
                        raise NotSeenError(NOT_SCORED)
                    look(scored, inputs)
        return loss

    def _inputs(self, compute_loss: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the batch that a loss is computed of, by TRL's names."""
        return self.argument(compute_loss, "inputs", args, kwargs)

    def _see_logprob(self, scored: _Scored, inputs: Any) -> None:
        self.sink.observe("rl_logprob_dist", scored.logprobs, scored.mask)
        if self._fresh and "tool_mask" not in inputs:
            self._consistency.see_expected_copies(scored.logprobs, scored.mask)

    def _see_entropy(self, scored: _Scored, inputs: Any) -> None:
        if scored.entropies is None:
            raise NotSeenError("this version of TRL computes no entropies")
        self.sink.observe("rl_entropy_per_token_dist", scored.entropies, scored.mask)

    def _see_ratio(self, scored: _Scored, inputs: Any) -> None:
        """Observe the loss's ratio: per token, or per sequence as product (RLOO) or geometric mean (GSPO)."""
        new, _, mask = scored
        old, old_sum = inputs.get("old_per_token_logps"), inputs.get("old_logps")
        if old_sum is not None:
            self.sink.observe("rl_sequence_ratio_dist", ((new * mask).sum(1) - old_sum.float()).exp())
        elif old is not None:
            log_ratio = new - old.float()
            self.sink.observe("rl_policy_ratio_dist", log_ratio.exp(), mask)
            if self._fresh:
                self.sink.observe("rl_first_use_log_ratio", log_ratio.abs(), mask)
            if getattr(self.trainer, "importance_sampling_level", "token") == "sequence":
                mean = (log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1)
                self.sink.observe("rl_sequence_ratio_dist", mean.exp())
        else:
            raise NotSeenError(_ON_POLICY)

    def _see_kl(self, scored: _Scored, inputs: Any) -> None:
        if not self.trainer.beta:
            raise NotSeenError(_NO_REFERENCE)
        reference = inputs["ref_per_token_logps"].float()
        self.sink.observe("rl_kl_per_token_dist", k3(reference - scored.logprobs), scored.mask)
        self.sink.observe("rl_ref_logprob_dist", reference, scored.mask)


def k3(log_ratio: Any) -> Any:
    """Return the k3 estimate of a KL divergence, exp(r) - r - 1 with r = log(reference / policy): never negative.

    Source: J. Schulman, Approximating KL Divergence (2020).
    """
    return log_ratio.exp() - log_ratio - 1


class UnslothTaps(GroupTaps):
    """Taps on the rollout; what the loss is made of cannot be seen, and says so.

    Unsloth (2026.10.9) rewrites a copy of TRL's trainer. Its `compute_loss` never calls `_compute_loss`, and the method
    that scores tokens returns None there: one function of `unsloth_zoo` goes from hidden states to the loss.
    """

    def install(self) -> None:
        """Wrap the rollout, and mark what the loss hides as lost."""
        self.sink.signal("value", NO_CRITIC)
        for signal in ("logprob", "entropy", "ratio", "kl", "loss_mask"):
            self.sink.signal(signal, _FUSED)
        self.tap_rollout()


def _total(rewards: Sequence[float], weights: Sequence[float]) -> float:
    """Return the reward of one completion as TRL sums it: without the functions that gave none; NaN if all did."""
    given = [weight * reward for reward, weight in zip(rewards, weights, strict=True) if not isnan(reward)]
    return sum(given) if given else nan
