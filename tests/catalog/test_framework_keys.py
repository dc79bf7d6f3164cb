"""The keys of OpenRLHF, NeMo-RL and prime-rl: two steps with different values, of which the second is served."""

from __future__ import annotations

import json
from math import isnan, nan
from pathlib import Path
from typing import Any

from rlexporter import recording
from rlexporter.commands.recorded_alerts import judge
from rlexporter.recording import Recording
from tests.served import gauges

OPENRLHF = [
    {
        "train/global_step": 1,
        "train/reward": 0.25,
        "train/rollout/reward_mean": 0.25,
        "train/group_reward_std": 0.5,
        "train/return": 0.01,
        "train/kl": 0.002,
        "train/logprobs_diff": -0.001,
        "train/ppo_kl": 0.0005,
        "train/ppo_clip_ratio": 0.01,
        "train/vllm_kl": 0.003,
        "train/policy_loss": -0.02,
        "train/entropy_loss": 0.75,
        "train/actor_lr": 1e-6,
        "train/actor_grad_norm": 0.5,
        "train/response_length": 200.0,
        "train/truncated": 0.0,
        "train/total_length": 300.0,
        "train/timing/generation": 12.0,
        "train/timing/step_total": 20.0,
    },
    {
        "train/global_step": 2,
        "train/reward": 0.375,
        "train/rollout/reward_mean": 0.375,
        "train/group_reward_std": 0.25,
        "train/return": 0.02,
        "train/kl": 0.004,
        "train/logprobs_diff": 0.005,
        "train/ppo_kl": 0.0007,
        "train/ppo_clip_ratio": 0.03,
        "train/vllm_kl": 0.006,
        "train/policy_loss": -0.04,
        "train/entropy_loss": 0.7,
        "train/actor_lr": 2e-6,
        "train/actor_grad_norm": nan,
        "train/response_length": 210.0,
        "train/truncated": 0.125,
        "train/total_length": 310.0,
        "train/timing/generation": 13.0,
        "train/timing/step_total": 22.0,
    },
    {
        "eval/global_step": 2,
        "eval/eval_math_500_pass8": 0.9,
        "eval/eval_math_500_pass1": 0.4,
        "eval/eval_truncated_rate": 0.1,
    },
]
NEMO_RL = [
    {
        "step": 1,
        "train/reward": 0.25,
        "train/loss": 0.01,
        "train/kl_penalty": 0.002,
        "train/probs_ratio": 1.001,
        "train/probs_ratio_min": 0.5,
        "train/probs_ratio_max": -1.0,
        "train/token_mult_prob_error": 1.01,
        "train/gen_kl_error": 0.001,
        "train/sampling_importance_ratio": 0.99,
        "train/approx_entropy": 0.5,
        "train/grad_norm": 0.25,
        "train/lr": 1e-6,
        "train/advantages/mean": 0.01,
        "train/baseline_reward/pct_mixed": 50.0,
        "train/mean_gen_tokens_per_sample": 100.0,
        "train/truncation_rate": 0.0,
        "timing/train/total_step_time": 30.0,
        "timing/train/policy_training": 10.0,
        "timing/train/valid_tokens_per_sec_per_gpu": 1000.0,
        "performance/tokens_per_sec_per_gpu": 2000.0,
    },
    {
        "step": 2,
        "train/reward": 0.5,
        "train/loss": nan,
        "train/kl_penalty": 0.003,
        "train/probs_ratio": 1.002,
        "train/probs_ratio_min": 0.25,
        "train/probs_ratio_max": 2.0,
        "train/token_mult_prob_error": 1.02,
        "train/gen_kl_error": 0.002,
        "train/sampling_importance_ratio": 0.98,
        "train/approx_entropy": 0.4,
        "train/grad_norm": 0.5,
        "train/lr": 2e-6,
        "train/advantages/mean": 0.02,
        "train/baseline_reward/pct_mixed": 25.0,
        "train/mean_gen_tokens_per_sample": 110.0,
        "train/truncation_rate": 0.125,
        "timing/train/total_step_time": 31.0,
        "timing/train/policy_training": 11.0,
        "timing/train/valid_tokens_per_sec_per_gpu": 1100.0,
        "performance/tokens_per_sec_per_gpu": 2100.0,
        "validation/accuracy": 0.75,
    },
]
PRIME_RL = [
    {
        "step": 1,
        "entropy/all/mean": 0.5,
        "mismatch_kl/all/mean": 0.001,
        "loss/mean": 0.01,
        "is_masked/mean": 0.01,
        "is_masked_high/mean": 0.005,
        "optim/lr": 1e-6,
        "optim/grad_norm": 0.25,
        "perf/peak_memory": 10.0,
        "perf/throughput_per_gpu": 1000.0,
        "time/step": 30.0,
        "time/forward_backward": 20.0,
    },
    {
        "step": 2,
        "entropy/all/mean": 0.4,
        "mismatch_kl/all/mean": nan,
        "loss/mean": 0.02,
        "is_masked/mean": 0.02,
        "is_masked_high/mean": 0.015,
        "optim/lr": 2e-6,
        "optim/grad_norm": 0.5,
        "perf/peak_memory": 2.0,
        "perf/throughput_per_gpu": 1100.0,
        "time/step": 31.0,
        "time/forward_backward": 21.0,
    },
]
ORCHESTRATOR = [
    {
        "step": step,
        "train/agg/all/agent/reward/mean": reward,
        "train/agg/all/solver/reward/p90": 0.75 + reward,
        "train/agg/effective/agent/reward/mean": 0.125 + reward,
        "train/agg/all/agent/is_truncated/mean": 0.25 * step,
        "train/agg/all/agent/solved_none": 0.125 * step,
        "train/agg/all/num_output_tokens/mean": 100.0 * step,
        "train/agg/all/num_total_tokens/max": 300.0 * step,
        "off_policy/mean": 1.0 * step,
        "off_policy/dropped": 4.0 * step,
        "progress/tokens": 5000.0 * step,
        "eval/aime/2025/effective/agent/pass@4": 0.1 * step,
    }
    for step, reward in ((1, 0.25), (2, 0.5))
]


def _read(path: Path, lines: list[dict[str, Any]]) -> Recording:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return recording.read(path)


def _has(served: dict[str, float], expected: dict[str, float]) -> bool:
    assert {name: served.get(name) for name in expected} == expected
    return True


def test_openrlhf(tmp_path: Path) -> None:
    """Of a history of W&B; without a critic it is judged as GRPO."""
    found = _read(tmp_path / "run.jsonl", OPENRLHF)
    served, report = gauges(found), judge(found)

    assert (found.facts.framework, found.facts.family) == ("openrlhf", "grpo")
    assert _has(
        served,
        {
            "rl_reward_mean": 0.375,
            "rl_reward_group_std": 0.25,
            "rl_shaped_reward_mean": 0.02,
            "rl_kl_estimate_per_token": 0.004,
            "rl_kl_k1_per_token": 0.005,
            "rl_policy_policykl": 0.0007,
            "rl_clip_ratio_region_mean": 0.03,
            "rl_sampling_kl_per_token": 0.006,
            "rl_policy_loss": -0.04,
            "rl_update_entropy_per_token": 0.7,
            "rl_learning_rate": 2e-6,
            "rl_completion_length_mean": 210.0,
            "rl_completion_truncated_fraction": 0.125,
            "rl_sequence_length_mean": 310.0,
            "rl_phase_time_seconds/generation": 13.0,
            "rl_step_time_seconds": 22.0,
            "rl_eval_best_reward/math_500/8": 0.9,
            "rl_eval_best_reward/math_500/1": 0.4,
            "rl_validation_truncated_fraction": 0.1,
        },
    )
    assert isnan(served["rl_grad_norm"])
    assert "rl_rlhf_reward" not in served
    assert {(fired.alert, fired.step) for fired in report.alerts} == {("RLGradientNonFinite", 2)}
    assert not report.unknown_keys


def test_openrlhf_with_a_critic(tmp_path: Path) -> None:
    """The return is then the reward with the penalty, and not that without a baseline."""
    critic = [
        line | {"train/critic_loss": 0.2 * step, "train/values": 0.1 * step, "train/critic_lr": 1e-5 * step}
        for step, line in enumerate(OPENRLHF[:2], 1)
    ]
    found = _read(tmp_path / "run.jsonl", critic)

    assert found.facts.family == "ppo"
    assert _has(
        gauges(found),
        {
            "rl_value_loss": 0.4,
            "rl_value_prediction": 0.2,
            "rl_value_learning_rate": 2e-5,
            "rl_rlhf_reward": 0.02,
            "rl_policy_clipfrac": 0.03,
        },
    )


def test_a_kl_that_is_0_without_a_reference_is_none(tmp_path: Path) -> None:
    """Else the policy would be judged frozen."""
    bare = [
        {"step": step, "actor_lr": 1e-6, "reward": 0.5, "kl": 0.0, "logprobs_diff": 0.0, "policy_loss": 0.1 * step}
        for step in range(1, 31)
    ]
    found = _read(tmp_path / "run.jsonl", bare)
    served = gauges(found)

    assert found.facts.framework == "openrlhf"
    assert (served["rl_policy_loss"], served["rl_reward_mean"]) == (3.0, 0.5)
    assert not {"rl_kl_estimate_per_token", "rl_kl_k1_per_token"} & set(served)
    assert "RLPolicyFrozen" not in {fired.alert for fired in judge(found).alerts}


def test_nemo_rl(tmp_path: Path) -> None:
    """Percent are fractions, -1 is no ratio, and a throughput among the times is no time."""
    found = _read(tmp_path / "run.jsonl", NEMO_RL)
    served, report = gauges(found), judge(found)

    assert (found.facts.framework, found.facts.family) == ("nemo-rl", "grpo")
    assert _has(
        served,
        {
            "rl_reward_mean": 0.5,
            "rl_kl_per_token": 0.003,
            "rl_policy_ratio_mean": 1.002,
            "rl_policy_ratio_min": 0.25,
            "rl_policy_ratio_max": 2.0,
            "rl_sampling_probability_factor_mean": 1.02,
            "rl_rollout_kl_per_token": 0.002,
            "rl_importance_sampling_ratio_mean": 0.98,
            "rl_sampled_entropy_per_token": 0.4,
            "rl_grad_norm": 0.5,
            "rl_learning_rate": 2e-6,
            "rl_token_advantage_mean": 0.02,
            "rl_baseline_reward_fraction/mixed": 0.25,
            "rl_completion_length_mean": 110.0,
            "rl_completion_truncated_fraction": 0.125,
            "rl_step_time_seconds": 31.0,
            "rl_phase_time_seconds/policy_training": 11.0,
            "rl_trained_tokens_per_second_per_gpu": 1100.0,
            "rl_tokens_per_second_per_gpu": 2100.0,
            "rl_validation_reward_mean": 0.75,
        },
    )
    assert isnan(served["rl_loss"])
    assert "rl_policy_ratio_max" not in gauges(_read(tmp_path / "one.jsonl", NEMO_RL[:1]))
    assert {(fired.alert, fired.step) for fired in report.alerts} == {("RLLossNonFinite", 2)}
    assert not report.unknown_keys


def test_prime_rl(tmp_path: Path) -> None:
    """What the trainer logs; the size of memory is bytes."""
    found = _read(tmp_path / "run.jsonl", PRIME_RL)
    served, report = gauges(found), judge(found)

    assert (found.facts.framework, found.facts.family) == ("prime-rl", "grpo")
    assert _has(
        served,
        {
            "rl_entropy_per_token": 0.4,
            "rl_micro_batch_loss_mean": 0.02,
            "rl_trust_region_masked_fraction": 0.02,
            "rl_trust_region_side_fraction/high": 0.015,
            "rl_learning_rate": 2e-6,
            "rl_grad_norm": 0.5,
            "rl_gpu_memory_reserved_max_bytes": 2.0 * 2**30,
            "rl_training_tokens_per_second_per_gpu": 1100.0,
            "rl_step_time_seconds": 31.0,
            "rl_phase_time_seconds/forward_backward": 21.0,
        },
    )
    assert isnan(served["rl_rollout_kl_per_token"])
    assert {fired.step for fired in report.alerts} == {2}
    assert not report.unknown_keys


def test_the_orchestrator_of_prime_rl(tmp_path: Path) -> None:
    """An agent called ``agent`` is the only one: its reward is that of the run. Others have it by name."""
    found = _read(tmp_path / "run.jsonl", ORCHESTRATOR)

    assert found.facts.framework == "prime-rl"
    assert _has(
        gauges(found),
        {
            "rl_reward_mean": 0.5,
            "rl_agent_reward/solver/p90": 1.25,
            "rl_kept_reward_mean": 0.625,
            "rl_completion_truncated_fraction": 0.5,
            "rl_solved_fraction/agent/none": 0.25,
            "rl_completion_length_mean": 200.0,
            "rl_sequence_length_max": 600.0,
            "rl_sample_staleness_mean": 2.0,
            "rl_evicted_samples/dropped": 8.0,
            "rl_step_tokens": 10000.0,
            "rl_eval_score/aime/2025/agent/pass@4": 0.2,
        },
    )
    assert not judge(found).unknown_keys
