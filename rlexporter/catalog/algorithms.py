"""The algorithms, as `rl_run_info{algorithm}` and `--algorithm` spell them."""

from __future__ import annotations

PPO_LEGACY = "ppo-legacy"
PPO = "ppo"
GRPO = "grpo"
RLOO = "rloo"
ASYNC_GRPO = "async-grpo"
ONLINE_DPO = "online-dpo"
DPO = "dpo"
KTO = "kto"
CPO = "cpo"
ORPO = "orpo"
TPO = "tpo"
SFT = "sft"
REWARD = "reward"
DISTILLATION = "distillation"
ASYNC_DISTILLATION = "async-distillation"
GKD = "gkd"
GOLD = "gold"
IW_OPD = "iw-opd"
SDFT = "sdft"
SDPO = "sdpo"
A2PO = "a2po"

ALGORITHMS = {
    PPO_LEGACY: "PPO, step() based (trl 0.11.4 and earlier)",
    PPO: "PPO, Trainer based (trl 0.9 to 1.12)",
    GRPO: "GRPO",
    RLOO: "RLOO (trl 0.22 and later)",
    ASYNC_GRPO: "AsyncGRPO (experimental)",
    ONLINE_DPO: "OnlineDPO",
    DPO: "DPO and its relatives",
    KTO: "KTO",
    CPO: "CPO and SimPO (experimental)",
    ORPO: "ORPO (experimental)",
    TPO: "TPO (experimental)",
    SFT: "SFT",
    REWARD: "Reward modelling",
    DISTILLATION: "Distillation, with a teacher here or on a server",
    ASYNC_DISTILLATION: "AsyncDistillation (experimental)",
    GKD: "GKD (experimental)",
    GOLD: "GOLD (experimental)",
    IW_OPD: "IW-OPD (experimental)",
    SDFT: "SDFT (experimental)",
    SDPO: "SDPO (experimental)",
    A2PO: "A2PO (experimental)",
}
"""The algorithms of TRL, with their names in docs. Other frameworks have more: see `family`."""

_WITH_A_CRITIC = frozenset((PPO, "gae", "vapo"))


def family(algorithm: str) -> str:
    """Return the algorithm of TRL whose conditions apply to ``algorithm`` of another framework.

    Those that learn a value function are judged as PPO, all others (GRPO, DAPO, GSPO, RLOO, REINFORCE++, ReMax) as
    GRPO: other frameworks take the ratio per token, and KL by the k3 estimator, unless they are told otherwise.
    """
    return PPO if algorithm in _WITH_A_CRITIC else GRPO
