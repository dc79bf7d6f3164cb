"""OpenRLHF's policy loss, with its ratios, advantages and log-probabilities as histograms on each worker's `/metrics`.

Put this file on the workers' PYTHONPATH, and let Ray call `watch` in each of them before anything else:

    ray job submit --runtime-env-json '{"worker_process_setup_hook": "openrlhf_loss.watch",
        "env_vars": {"RLEXPORTER_RUN": "my-run"}}' -- python -m openrlhf.cli.train_ppo_ray ...

Each worker serves its own tokens as rank 1, 2...; rank 0 is the driver, which serves the log lines of the same run.
"""

from functools import cache, wraps

from rlexporter import Exporter


@cache
def exporter() -> Exporter:
    """Return the exporter of this worker, on port 9751 + its rank on this machine, or the next free one."""
    import torch

    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    return Exporter(rank=rank + 1, port=9751, ranks="all").start(fallback=True)


def watch():
    """Let `PolicyLoss` count what it is computed from, each of shape (sequences, tokens). Its result is its own."""
    from openrlhf.models import PolicyLoss

    forward = PolicyLoss.forward

    @wraps(forward)
    def watched(self, log_probs, old_log_probs, advantages, action_mask=None, *args, **kwargs):
        seen = exporter()
        seen.observe("policy_ratio", (log_probs.detach() - old_log_probs).exp(), action_mask)
        seen.observe("advantage", advantages, action_mask)
        seen.observe("logprob", log_probs.detach(), action_mask)
        seen.log({})  # a micro-batch is a step of this rank; what is on a GPU is copied now
        return forward(self, log_probs, old_log_probs, advantages, action_mask, *args, **kwargs)

    PolicyLoss.forward = watched
