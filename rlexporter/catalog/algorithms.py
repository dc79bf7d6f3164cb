"""The algorithms, as `rl_run_info{algorithm}` and `--algorithm` spell them."""

from __future__ import annotations

PPO_LEGACY = "ppo-legacy"
PPO = "ppo"
GRPO = "grpo"
RLOO = "rloo"
ASYNC_GRPO = "async-grpo"
ONLINE_DPO = "online-dpo"

ALGORITHMS = {
    PPO_LEGACY: "PPO, step() based (trl 0.11.4 and earlier)",
    PPO: "PPO, Trainer based (trl 0.9 to 1.12)",
    GRPO: "GRPO",
    RLOO: "RLOO (trl 0.22 and later)",
    ASYNC_GRPO: "AsyncGRPO (experimental)",
    ONLINE_DPO: "OnlineDPO",
    "dpo": "DPO and its relatives",
    "kto": "KTO",
    "cpo": "CPO and SimPO (experimental)",
    "orpo": "ORPO (experimental)",
    "tpo": "TPO (experimental)",
    "sft": "SFT",
    "reward": "Reward modelling",
    "distillation": "Distillation, with a teacher here or on a server",
    "async-distillation": "AsyncDistillation (experimental)",
    "gkd": "GKD (experimental)",
    "gold": "GOLD (experimental)",
    "iw-opd": "IW-OPD (experimental)",
    "sdft": "SDFT (experimental)",
    "sdpo": "SDPO (experimental)",
    "a2po": "A2PO (experimental)",
}
"""The algorithms of TRL, with their names in docs. Other frameworks have more: see `family`."""

_WITH_A_CRITIC = frozenset((PPO, "gae", "vapo"))


def family(algorithm: str) -> str:
    """Return the algorithm of TRL whose conditions apply to ``algorithm`` of another framework.

    Those that learn a value function are judged as PPO, all others (GRPO, DAPO, GSPO, RLOO, REINFORCE++, ReMax) as
    GRPO: other frameworks take the ratio per token, and KL by the k3 estimator, unless they are told otherwise.
    """
    return PPO if algorithm in _WITH_A_CRITIC else GRPO
