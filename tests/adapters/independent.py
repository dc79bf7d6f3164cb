"""What a GRPO or RLOO run went through, kept by a subclass of the trainer and counted by numpy.

Nothing of rlexporter is used here: it is the measure that the served histograms are held against.
"""

from __future__ import annotations

from typing import Any

import torch
import trl

from tests.adapters.kept import SavedState


class Keeping:
    """Mixed into a trainer: overrides on the class, as a user's subclass would have them."""

    kept: SavedState
    _new: Any = None

    def _counted(self, batch: Any) -> Any:
        """Return a mask with 1 for each token of the completions that the policy sampled."""
        return batch["completion_mask"]

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)  # type: ignore[misc]
        self._calls.append(found)
        return found

    def _generate(self, prompts: Any) -> Any:
        found = super()._generate(prompts)  # type: ignore[misc]
        if self.model.training:  # type: ignore[attr-defined]
            self.kept.add("rl_prompt_length_dist", [len(ids) for ids in found[0]])
            rows = [
                {"completion_ids": torch.tensor([ids]), "completion_mask": torch.ones(1, len(ids))} for ids in found[1]
            ]
            self.kept.add("rl_completion_length_dist", [int(self._counted(row).sum()) for row in rows])
        return found

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._calculate_rewards(*args, **kwargs)  # type: ignore[misc]
        if self.model.training:  # type: ignore[attr-defined]
            for i, name in enumerate(self.reward_func_names):  # type: ignore[attr-defined]
                column = found[:, i]
                self.kept.add(f"rl_reward_function_dist/{name}", column, ~column.isnan())
            weighted = (found * self.reward_weights.to(found.device)).nansum(1)  # type: ignore[attr-defined]
            self.kept.add("rl_reward_dist", weighted, ~found.isnan().all(1))
            groups = weighted.reshape(-1, self.num_generations)  # type: ignore[attr-defined]
            self.kept.add("rl_reward_group_range_dist", groups.max(1).values - groups.min(1).values)
        return found

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._calls: list[Any] = []
        found = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        if self.model.training:  # type: ignore[attr-defined]
            self.kept.add("rl_advantage_dist", found["advantages"])
            if "old_logps" in found and self.beta:  # type: ignore[attr-defined]
                (old, *_), (reference, *_) = self._calls
                self.kept.add("rl_kl_per_token_dist", old - reference, self._counted(found))
                self.kept.add("rl_ref_logprob_dist", reference, self._counted(found))
        return found

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        self._calls = []
        loss = super()._compute_loss(model, inputs)  # type: ignore[misc]
        if not self.model.training:  # type: ignore[attr-defined]
            return loss
        new, entropies, _ = self._calls[-1]
        mask = self._counted(inputs)
        with torch.no_grad():
            self.kept.add("rl_logprob_dist", new, mask)
            self.kept.add("rl_entropy_per_token_dist", entropies, mask)
            if "old_logps" in inputs:
                self.kept.add("rl_sequence_ratio_dist", torch.exp((new * mask).sum(1) - inputs["old_logps"]))
            elif "old_per_token_logps" in inputs:
                log_ratio = new - inputs["old_per_token_logps"]
                self.kept.add("rl_policy_ratio_dist", torch.exp(log_ratio), mask)
                if self.importance_sampling_level == "sequence":  # type: ignore[attr-defined]
                    mean = (log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)
                    self.kept.add("rl_sequence_ratio_dist", torch.exp(mean))
            if "ref_per_token_logps" in inputs:
                log_ratio = inputs["ref_per_token_logps"] - new
                self.kept.add("rl_kl_per_token_dist", torch.exp(log_ratio) - log_ratio - 1, mask)
                self.kept.add("rl_ref_logprob_dist", inputs["ref_per_token_logps"], mask)
        return loss

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
        self.losses.append(float(loss))
        return loss

    losses: list[float]


class KeepingGRPO(Keeping, trl.GRPOTrainer):  # type: ignore[misc] # trl is not checked
    """GRPO."""


class KeepingRLOO(Keeping, trl.RLOOTrainer):  # type: ignore[misc] # trl is not checked
    """RLOO."""
