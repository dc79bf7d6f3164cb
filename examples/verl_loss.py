"""A policy loss of verl whose ratios, advantages and log-probabilities are histograms on each worker's `/metrics`.

Put this file on the workers' PYTHONPATH, and start the training with

    VERL_USE_EXTERNAL_MODULES=verl_loss RLEXPORTER_RUN=my-run ... actor_rollout_ref.actor.policy_loss.loss_mode=watched

Each worker serves its own tokens as rank 1, 2...; rank 0 is the driver, which serves the log lines of the same run.
"""

from functools import cache

import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss

from rlexporter import Exporter

LOSS = "vanilla"
"""The loss of verl that is computed."""


@cache
def exporter() -> Exporter:
    """Return the exporter of this worker, on port 9751 + its rank on this machine, or the next free one."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    return Exporter(rank=rank + 1, port=9751, ranks="all").start(fallback=True)


@register_policy_loss("watched")
def watched(old_log_prob, log_prob, advantages, response_mask, *args, **kwargs):
    """Count what the loss is computed from, each of shape (sequences, tokens), and return verl's loss."""
    seen = exporter()
    with torch.no_grad():
        seen.observe("policy_ratio", torch.exp(log_prob - old_log_prob), response_mask)
        seen.observe("advantage", advantages, response_mask)
        seen.observe("logprob", log_prob, response_mask)
    seen.log({})  # a micro-batch is a step of this rank; what is on a GPU is copied now
    return get_policy_loss_fn(LOSS)(old_log_prob, log_prob, advantages, response_mask, *args, **kwargs)
