"""Healthy logs of large runs, in each framework's own keys: levels and noise as public logs of real runs have them.

Rewards are 0 or 1; a step has 512 completions in groups of 8, whose mean is as noisy as that of 128 independent ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.dashboards.curves import (
    STEPS,
    Curve,
    Every,
    Noise,
    around,
    level,
    minus,
    one_less,
    one_plus,
    share,
    still,
    times,
)

Keys = Mapping[str, Curve]
Changes = Mapping[str, Curve | None]
"""Curves in place of others; None for a key that is not logged."""
Line = dict[str, Any]

SAMPLES, INDEPENDENT = 512, 128
GROUP_MOST = 2.475
"""The largest advantage in a group of 8: 7 over the root of 8."""
_REWARD = share(0.35, INDEPENDENT, to=0.62)
_CUT = share(0.02, SAMPLES)
_LENGTH = level(900, 0.03, to=1200, wander=0.03)
_ENTROPY = level(0.32, 0.04, to=0.26, wander=0.06)
_REFERENCE = level(0.004, 0.08, to=0.09, wander=0.1)
_GRADIENT = level(0.4, 0.22, to=0.3, wander=0.1)
_CLIPPED = level(0.0007, 0.3)
_LOSS = around(0.004, 0.004)
_RATE = still(1e-6)
_HIGHEST, _LOWEST = level(2.3, 0.1, most=GROUP_MOST), minus(level(2.3, 0.1, most=GROUP_MOST))
_SCORE = Every(10, share(0.20, 1319, to=0.35))

VERL: Keys = {
    "critic/score/mean": _REWARD,
    "critic/score/max": still(1.0),
    "critic/score/min": still(0.0),
    "critic/advantages/mean": around(-0.005, 0.004),
    "critic/advantages/max": _HIGHEST,
    "critic/advantages/min": _LOWEST,
    "actor/pg_loss": _LOSS,
    "actor/pg_clipfrac": _CLIPPED,
    "actor/pg_clipfrac_lower": still(0.0),
    "actor/ppo_kl": around(1e-4, 6e-5),
    "actor/kl_loss": _REFERENCE,
    "actor/entropy": _ENTROPY,
    "actor/grad_norm": _GRADIENT,
    "actor/lr": _RATE,
    "response_length/mean": _LENGTH,
    "response_length/clip_ratio": _CUT,
    "response/aborted_ratio": still(0.0),
    "prompt_length/mean": level(105, 0.02),
    "timing_s/gen": level(33, 0.03),
    "timing_s/agent_loop/generate_sequences/mean": level(3.0, 0.15),
    "timing_s/agent_loop/generate_sequences/max": level(30, 0.25),
    "timing_s/agent_loop/tool_calls/mean": level(1.0, 0.15),
    "timing_s/agent_loop/tool_calls/max": level(12, 0.25),
    "timing_s/update_actor": level(17, 0.03),
    "perf/time_per_step": level(60, 0.03),
    "training/rollout_probs_diff_mean": level(0.005, 0.12, to=0.006, wander=0.05),
    "training/rollout_probs_diff_max": level(0.4, 0.25, most=1.0),
    "training/rollout_probs_diff_std": level(0.012, 0.07),
    "training/rollout_actor_probs_pearson_corr": one_less(level(0.005, 0.15, wander=0.05)),
    "rollout_corr/kl": around(0.0008, 0.0002),
    "rollout_corr/k3_kl": level(0.0009, 0.2, wander=0.05),
    "rollout_corr/chi2_token": level(0.003, 0.25),
    "rollout_corr/rollout_is_mean": around(1.0, 0.001),
    "rollout_corr/rollout_is_std": level(0.06, 0.15),
    "rollout_corr/rollout_is_eff_sample_size": one_less(level(0.02, 0.15)),
    "val-core/gsm8k/acc/mean@1": _SCORE,
}

VERL_V1: Keys = {
    **VERL,
    "training/off_policy/trajectory_spans/mean": level(1.1, 0.02),
    "training/off_policy/trajectory_staleness/mean": level(1.0, 0.12),
    "training/off_policy/trajectory_staleness/min": still(0.0),
    "training/off_policy/trajectory_staleness/max": still(2.0),
    "training/off_policy/evicted_samples": times(SAMPLES, share(0.004, SAMPLES)),
}

_TRAINER: Keys = {
    "loss/mean": around(0.0, 0.002),
    "entropy/all/mean": _ENTROPY,
    "mismatch_kl/all/mean": level(1e-4, 0.2, to=1.3e-4, wander=0.05),
    "is_masked/mean": level(0.0005, 0.3),
    "optim/lr": _RATE,
    "optim/grad_norm": level(0.05, 0.25, wander=0.1),
    "perf/throughput_per_gpu": level(1900, 0.02),
    "perf/peak_memory": still(61.0),
    "time/step": level(30, 0.04),
    "time/wait_for_batch": level(3, 0.15),
    "train/agg/all/agent/timing/total/mean": level(20, 0.1),
    "train/agg/all/agent/timing/total/max": level(90, 0.25),
    "time/forward_backward": level(22, 0.03),
}
_ALL = "train/agg/all"
_ORCHESTRATOR: Keys = {
    f"{_ALL}/agent/reward/mean": _REWARD,
    f"{_ALL}/agent/is_truncated/mean": _CUT,
    f"{_ALL}/agent/solved_none": share(0.4, 64, to=0.2),
    f"{_ALL}/num_output_tokens/mean": _LENGTH,
    f"{_ALL}/num_turns/mean": level(2.2, 0.02),
    f"{_ALL}/has_error/mean": share(0.01, SAMPLES),
    f"{_ALL}/cancelled/mean": share(0.004, SAMPLES),
    "off_policy/mean": level(1.0, 0.12),
    "off_policy/max": still(2.0),
    "off_policy/dropped": times(SAMPLES, share(0.004, SAMPLES)),
    "progress/rollouts": still(float(SAMPLES)),
    "eval/aime/effective/agent/avg@16": Every(10, share(0.30, 480, to=0.45)),
}

NEMO_RL: Keys = {
    "train/reward": _REWARD,
    "train/loss": around(0.0, 0.01),
    "train/kl_penalty": _REFERENCE,
    "train/probs_ratio": around(1.0, 0.0005),
    "train/probs_ratio_min": level(0.55, 0.08, most=1.0),
    "train/probs_ratio_max": one_plus(level(0.9, 0.15)),
    "train/token_mult_prob_error": one_plus(level(0.01, 0.15, to=0.012, wander=0.05)),
    "train/gen_kl_error": level(0.0005, 0.2, to=0.0006, wander=0.05),
    "train/policy_kl_error": level(0.0005, 0.2, wander=0.05),
    "train/sampling_importance_ratio": around(1.0, 0.002),
    "train/approx_entropy": _ENTROPY,
    "train/grad_norm": _GRADIENT,
    "train/lr": _RATE,
    "train/advantages/mean": around(0.0, 0.005),
    "train/advantages/max": _HIGHEST,
    "train/advantages/min": _LOWEST,
    "train/mean_gen_tokens_per_sample": _LENGTH,
    "train/truncation_rate": _CUT,
    "timing/train/total_step_time": level(80, 0.03),
    "timing/train/generation": level(45, 0.04),
    "validation/accuracy": Every(10, share(0.30, 480, to=0.45)),
}

SLIME: Keys = {
    "rollout/raw_reward": _REWARD,
    "rollout/response_len/mean": _LENGTH,
    "rollout/truncated_ratio": _CUT,
    "rollout/repetition_frac": share(0.01, SAMPLES),
    "rollout/log_probs": minus(level(0.3, 0.03)),
    "train/loss": around(0.0, 0.003),
    "train/pg_loss": around(0.0, 0.003),
    "train/entropy_loss": _ENTROPY,
    "train/pg_clipfrac": _CLIPPED,
    "train/ppo_kl": around(1e-4, 6e-5),
    "train/grad_norm": _GRADIENT,
    "train/lr-pg_0": _RATE,
    "train/train_rollout_logprob_abs_diff": level(0.011, 0.06, to=0.012, wander=0.04),
    "perf/step_time": level(150, 0.05),
    "perf/rollout_time": level(90, 0.07),
    "perf/wait_time_ratio": level(0.2, 0.1, most=1.0),
    "eval/aime": Every(10, share(0.30, 480, to=0.45)),
    "eval/aime-pass@4": Every(10, share(0.45, 120, to=0.60)),
}


RUNS: Mapping[str, tuple[Keys, ...]] = {
    "verl-v1": (VERL_V1,),
    "prime-rl": (_TRAINER, _ORCHESTRATOR),
    "nemo-rl": (NEMO_RL,),
    "slime": (SLIME,),
}
"""The keys of each line of a step, by framework: prime-rl has two processes, and each logs its own."""
_CLOCKS = frozenset(("time/step", "timing/train/total_step_time", "perf/step_time", "train/timing/step_total"))
"""Keys of the duration of a step in frameworks whose logs come from W&B, which dates lines."""
_BEGAN = 1.79e9


def lines(framework: str, own: Changes) -> Iterator[Line]:
    """Yield the log lines of a run. ``own``: what its keys hold where that is not usual."""
    parts = _with(RUNS[framework], own)
    is_dated, now = not _CLOCKS.isdisjoint(parts[0]), _BEGAN
    noises = {key: Noise(f"{framework} {key}") for keys in parts for key in keys}
    for step in range(STEPS + 1):
        for keys in parts:
            values = {key: curve(step, noises[key]) for key, curve in keys.items() if _is_due(curve, step)}
            now += sum(values[key] for key in _CLOCKS if key in values)
            if values:
                yield {"step": step, **({"_timestamp": now} if is_dated else {}), **values}


def _with(parts: tuple[Keys, ...], changes: Changes) -> tuple[Keys, ...]:
    """Return ``parts`` with other curves; a key that none has belongs to the last."""
    known = {key for keys in parts for key in keys}
    new = {key: curve for key, curve in changes.items() if key not in known}
    merged = [{key: changes.get(key, curve) for key, curve in keys.items()} for keys in parts]
    merged[-1] |= new
    return tuple({key: curve for key, curve in keys.items() if curve is not None} for keys in merged)


def _is_due(curve: Curve, step: int) -> bool:
    """Whether a curve is logged in a step; before the first there are evaluations alone."""
    return step % curve.interval == 0 if isinstance(curve, Every) else step > 0


def agents(**rewards: Curve) -> Changes:
    """Several agents in place of the one: there is no mean over them."""
    of_each = {f"train/agg/all/{name}/reward/mean": curve for name, curve in rewards.items()}
    return dict.fromkeys(("train/agg/all/agent/solved_none", "train/agg/all/agent/reward/mean")) | of_each
