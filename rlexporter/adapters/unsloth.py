"""Taps on Unsloth's GRPO (2026.10.9), a rewritten copy of TRL's trainer.

Its `compute_loss` never calls `_compute_loss`, and the method that scores tokens returns None there: one function of
`unsloth_zoo` goes from hidden states to the loss. Rollout, rewards, advantages, lengths, loss, gradients and weights
are seen as in TRL.
"""

from __future__ import annotations

from rlexporter.adapters.grpo import NO_CRITIC, GroupTaps

_FUSED = "Unsloth computes the loss from hidden states in one function: there are no per-token log-probabilities to see"


class UnslothTaps(GroupTaps):
    """Taps on the rollout; what the loss is made of cannot be seen, and says so."""

    def install(self) -> None:
        """Wrap the rollout, and mark what the loss hides as lost."""
        self.sink.signal("value", NO_CRITIC)
        for signal in ("logprob", "entropy", "ratio", "kl"):
            self.sink.signal(signal, _FUSED)
        self.tap_rollout()
