"""The metrics of trainers that learn from a data set or a teacher.

SFT, reward modelling, preference optimization and distillation, as trl 1.16's sources compute them. Where a key has
another meaning than with GRPO, PPO or DPO it feeds a series of its own:
  entropy            over the tokens of the data: sft_trainer.py 1640, dpo_trainer.py 1537, kto_trainer.py 1486,
                     tpo_trainer.py 716; over what a teacher scores: distillation_trainer.py 1811,
                     async_distillation_trainer.py 1750
  kl                 log-ratios of mismatched pairs, clamped at 0: kto_trainer.py 1441
  rewards/*          beta times the log-probability, no reference: cpo_trainer.py 894, orpo_trainer.py 699,
                     tpo_trainer.py 758
  logps/*            means over tokens: orpo_trainer.py 802; by loss_type: cpo_trainer.py 847, tpo_trainer.py 661
  logits/*           padding included: cpo_trainer.py 906, orpo_trainer.py 861; completion tokens: dpo_trainer.py 1555
  advantage          reward minus estimated optimum, of one rank: a2po_trainer.py 353
  completions/*      by source, and at the limit instead of without an end token: iw_opd_trainer.py 1691
"""

from __future__ import annotations

from rlexporter.catalog.entries import Entries, keys
from rlexporter.model.metric import Group, Level

_likelihood = Entries(Group.PREFERENCE, level=Level.SEQUENCE, unit="nats")
_data = Entries(Group.DATA, level=Level.TOKEN)
_divergence = Entries(Group.DISTILLATION, level=Level.TOKEN, unit="nats")


DATA = (
    _likelihood.gauge(
        "rl_mismatched_kl_per_sequence",
        "KL divergence to the reference in KTO: the mean log-ratio of completions that belong to other prompts, "
        "summed over their tokens, never below 0.",
        keys=keys("kto", "kl"),
        reading="The point of reference of the loss. Growing without end: the policy leaves the reference everywhere.",
    ),
    _data.gauge(
        "rl_data_entropy_per_token",
        "Entropy of the model's next-token distribution, mean over the trained tokens of the data set, not of samples.",
        unit="nats",
        keys=keys("sft dpo kto tpo", "entropy"),
        reading="Falls while the model learns the data. Near 0: it knows them by heart.",
    ),
    _divergence.gauge(
        "rl_student_entropy_per_token",
        "Entropy of the student's next-token distribution, mean over the tokens that the teacher scores.",
        keys=keys("distillation async-distillation", "entropy"),
        reading="Moves towards the teacher's: a low one is no fault where the teacher is sure.",
    ),
)
