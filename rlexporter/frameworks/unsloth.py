"""Unsloth's own keys; its trainers are rewritten copies of TRL's, whose keys they log too.

unsloth_zoo 2026.10.9  *_replacements.py           mismatch of rollout and trainer (`grpo_rollout_mismatch_metrics`), kl
unsloth 2026.10.9      models/*_replacements.py    groups that are left out of the loss
"""

from __future__ import annotations

from rlexporter.frameworks.entries import feeds
from rlexporter.model.metric import Framework

_MISMATCH = (
    *feeds("rl_sampling_kl_per_token", "sampling/rollout_kl_k1/mean"),
    *feeds("rl_rollout_kl_per_token", "sampling/rollout_kl_k3/mean"),
    *feeds("rl_rollout_kl_max", "sampling/rollout_kl_k3/max"),
    *feeds("rl_sampling_effective_sample_fraction", "sampling/importance_sampling_ess"),
    *feeds("rl_sampling_rejected_token_fraction", "sampling/importance_sampling_rejected_frac"),
    *feeds("rl_sampling_rejected_sequence_fraction", "sampling/importance_sampling_rejected_seq_frac"),
)

UNSLOTH = Framework(
    name="unsloth",
    title="Unsloth",
    marks=frozenset(
        ("frac_reward_zero_std_excluded", "sampling/rollout_kl_k3/mean", "sampling/importance_sampling_ess")
    ),
    of_trl=True,
    source="unsloth and unsloth_zoo 2026.10.9 (pip): unsloth/models/*_replacements.py, unsloth_zoo/*_replacements.py",
    keys=(*_MISMATCH, *feeds("rl_zero_std_excluded_fraction", "frac_reward_zero_std_excluded")),
)
TABLES = (UNSLOTH,)
