"""A PPO loop without any framework, watched by rlexporter: torch alone, a CPU, and half a minute.

    pip install 'rlexporter[torch] @ git+https://github.com/rlexporter/rlexporter'
    python own_loop.py

The policy writes eight tokens out of sixteen, and is rewarded for each token 3. Nothing keeps its entropy up, so it
ends as a policy that says one thing only; the page says so from about step 70 on. With `--entropy 0.3` it does not.

What `observe` gets is counted exactly, as a histogram; what `log` gets is served as it is. Both have the names of
docs/metrics.md, and so the same alerts and dashboards as a run of TRL.
"""

from __future__ import annotations

import argparse

import torch

import rlexporter

TOKENS, LENGTH, BATCH, EPOCHS, CLIP = 16, 8, 64, 2, 0.2


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--entropy", type=float, default=0.0, help="coefficient of an entropy bonus")
    options = parser.parse_args()

    torch.manual_seed(0)
    logits = torch.zeros(LENGTH, TOKENS, requires_grad=True)  # the whole policy: one distribution for each place
    reference = torch.distributions.Categorical(logits=logits.detach().clone())
    optimizer = torch.optim.Adam([logits], lr=0.05)

    with rlexporter.Exporter(run="own-loop", algorithm="ppo") as exporter:
        for step in range(1, options.steps + 1):
            with torch.no_grad():
                old = torch.distributions.Categorical(logits=logits)
                tokens = old.sample((BATCH,))  # (completions, tokens), as everything per token below
                old_logprob = old.log_prob(tokens)
                reward = (tokens == 3).float().mean(dim=1)  # (completions,)
                advantage = ((reward - reward.mean()) / (reward.std() + 1e-6)).unsqueeze(1).expand_as(old_logprob)
                kl = old_logprob - reference.log_prob(tokens)
            exporter.observe("reward", reward)
            exporter.observe("advantage", advantage)
            exporter.observe("kl_per_token", kl)

            for _ in range(EPOCHS):
                policy = torch.distributions.Categorical(logits=logits)
                ratio = torch.exp(policy.log_prob(tokens) - old_logprob)
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                entropy = policy.entropy().mean()
                loss = -torch.min(ratio * advantage, clipped * advantage).mean() - options.entropy * entropy
                optimizer.zero_grad()
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_([logits], 1.0)
                optimizer.step()
                exporter.observe("policy_ratio", ratio.detach())

            exporter.log(
                {
                    "reward": reward.mean().item(),
                    "reward_std": reward.std().item(),
                    "kl": kl.mean().item(),
                    "entropy": entropy.item(),
                    "loss": loss.item(),
                    "grad_norm": norm.item(),
                },
                step=step,
            )
    print(f"reward {reward.mean():.2f} after {options.steps} steps")


if __name__ == "__main__":
    main()
