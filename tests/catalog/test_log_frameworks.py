"""The keys of ms-swift, Unsloth, slime and miles: what a log of theirs leaves behind, and what is judged of it.

The lines are written by hand, in the form that the sources named in `rlexporter.catalog.frameworks` give them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rlexporter import recording
from rlexporter.catalog import CATALOG, FRAMEWORKS
from rlexporter.commands.recorded_alerts import judge
from rlexporter.model.step import RunFacts
from rlexporter.store.store import Store
from tests.served import gauges

GIB = 1024.0**3
NAN = float("nan")


def _written(folder: Path, lines: Sequence[Mapping[str, object]]) -> Path:
    path = folder / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _swift(step: int, **more: object) -> dict[str, object]:
    return {
        "loss": 0.01 * step,
        "grad_norm": 0.5 * step,
        "reward": 0.25 * step,
        "reward_std": 0.125,
        "frac_reward_zero_std": 0.5,
        "rewards/MathAccuracy/mean": 0.25 * step,
        "completions/mean_length": 100.0 * step,
        "completions/clipped_ratio": 0.25,
        "clip_ratio/region_mean": 0.03125 * step,
        "clip_ratio/low_min": 0.0,
        "entropy/mean": 0.5 / step,
        "entropy/min": 0.25 / step,
        "entropy/max": 1.0 / step,
        "entropy/threshold": 0.75 / step,
        "num_turns": 1.5 * step,
        "kl": 0.001 * step,
        "rollout_correction/kl": -0.002 * step,
        "rollout_correction/chi2_seq": 0.003 * step,
        "rollout_correction/ess": 1.0 / step,
        "rollout_correction/clipped_frac": 0.0625 * step,
        "rollout_correction/is_weight_mean": 1.0,
        "fipo/future_kl_mean": 0.125 * step,
        "sdar/gate_mean": 0.25 * step,
        "teacher_kl": 0.5 * step,
        "epoch": 0.1 * step,
        "global_step/max_steps": f"{step}/40",
        "percentage": "2.50%",
        "elapsed_time": "1m 2s",
        "remaining_time": "38m 0s",
        "memory(GiB)": 2.0 * step,
        "train_speed(s/it)": 60.0 + step,
        **more,
    }


def test_ms_swift(tmp_path: Path) -> None:
    """Its own keys and those of TRL, which tell the algorithm; texts are no metrics; all keys are known."""
    path = _written(tmp_path, [_swift(1), _swift(2)])
    found = recording.read(path)
    served = gauges(found)

    assert (found.facts.framework, found.facts.algorithm, found.facts.family) == ("ms-swift", "grpo", "grpo")
    assert (served["rl_reward_mean"], served["rl_grad_norm"], served["rl_kl_per_token"]) == (0.5, 1.0, 0.002)
    assert (served["rl_entropy_per_token"], served["rl_completion_entropy_min"]) == (0.25, 0.125)
    assert (served["rl_completion_entropy_max"], served["rl_entropy_threshold"]) == (0.5, 0.375)
    assert (served["rl_turns_mean"], served["rl_teacher_kl_per_token"]) == (3.0, 1.0)
    assert (served["rl_sampling_kl_per_token"], served["rl_sampling_chi2_of_means"]) == (-0.004, 0.006)
    assert (served["rl_sampling_effective_sample_fraction"], served["rl_sampling_weight_mean"]) == (0.5, 1.0)
    assert served["rl_sampling_weight_limited_fraction"] == 0.125
    assert (served["rl_fipo/future_kl_mean"], served["rl_sdar/gate_mean"]) == (0.25, 0.5)
    assert served["rl_gpu_memory_reserved_max_bytes"] == 4 * GIB
    assert served["rl_mean_step_time_seconds"] == 62.0
    assert "rl_sampling_chi2_per_sequence" not in served, "verl's is made of products of ratios"
    assert not judge(found).unknown_keys


def test_ms_swift_where_the_kl_is_in_the_reward() -> None:
    """Its `kl` is then a sum over the completion."""
    store = Store(CATALOG, frameworks=FRAMEWORKS)
    store.begin(RunFacts(algorithm="reinforce_plus_plus", framework="ms-swift", judged_as="rloo"), {})
    store.record({"kl": -0.5}, 1)
    store.record({"kl": -1.0}, 2)

    served = {series.metric.series: value for series, value in store.snapshot.samples.items()}
    assert served["rl_kl_per_sequence"] == -1.0
    assert "rl_kl_per_token" not in served


def test_another_task_of_ms_swift_is_no_grpo(tmp_path: Path) -> None:
    lines = [{"loss": 1.0 / i, "token_acc": 0.5, "global_step/max_steps": f"{i}/9"} for i in (1, 2)]

    assert recording.read(_written(tmp_path, lines)).facts.family == "custom"


def test_unsloth(tmp_path: Path) -> None:
    """A log with its own keys is told; without them it is one of TRL, with the same series."""
    own = {
        "sampling/rollout_kl_k1/mean": -0.001,
        "sampling/rollout_kl_k3/mean": 0.002,
        "sampling/rollout_kl_k3/max": 3.0,
        "sampling/importance_sampling_ess": 0.875,
        "sampling/importance_sampling_rejected_frac": 0.125,
        "sampling/importance_sampling_rejected_seq_frac": 0.25,
        "frac_reward_zero_std_excluded": 0.5,
    }
    lines = [
        {
            "step": i,
            "reward": 0.5 * i,
            "rewards/fits/mean": 0.5,
            "kl": 0.01,
            "completion_length": 64.0,
            **{key: i * own[key] for key in own},
        }
        for i in (1, 2)
    ]
    path = _written(tmp_path, lines)
    found = recording.read(path)
    served = gauges(found)

    assert (found.facts.framework, found.facts.family) == ("unsloth", "grpo")
    assert (served["rl_reward_mean"], served["rl_completion_length_mean"]) == (1.0, 64.0)
    assert (served["rl_sampling_kl_per_token"], served["rl_rollout_kl_per_token"]) == (-0.002, 0.004)
    assert (served["rl_rollout_kl_max"], served["rl_sampling_effective_sample_fraction"]) == (6.0, 1.75)
    assert served["rl_sampling_rejected_token_fraction"] == 0.25
    assert served["rl_sampling_rejected_sequence_fraction"] == 0.5
    assert served["rl_zero_std_excluded_fraction"] == 1.0
    assert not judge(found).unknown_keys


def _slime(step: int, **more: object) -> dict[str, object]:
    return {
        "step": step,
        "train/step": step,
        "rollout/step": step,
        "rollout/raw_reward": 0.25 * step,
        "rollout/rewards": 0.0,
        "rollout/log_probs": -0.5 * step,
        "rollout/response_len/mean": 100.0 * step,
        "rollout/response_len/median": 90.0,
        "rollout/truncated_ratio": 0.125,
        "rollout/repetition_frac": 0.0625,
        "rollout/zero_std/count_0.0": 3.0 * step,
        "passrate/pass@8": 0.5 * step,
        "train/loss": 0.01 * step,
        "train/pg_loss": -0.01 * step,
        "train/entropy_loss": 0.5 / step,
        "train/pg_clipfrac": 0.03125 * step,
        "train/ppo_kl": 0.001 * step,
        "train/kl_loss": 0.002 * step,
        "train/grad_norm": 0.5 * step,
        "train/lr-pg_0": 1e-6,
        "train/lr-pg_1": 1e-6,
        "train/train_rollout_logprob_abs_diff": 0.01 * step,
        "train/tis": 1.0 + 0.01 * step,
        "train/tis_clipfrac": 0.25,
        "perf/step_time": 30.0 * step,
        "perf/rollout_time": 20.0 * step,
        "perf/actor_train_tflops": 100.0 * step,
        "perf/wait_time_ratio": 0.5,
        "eval/aime": 0.25 * step,
        "eval/aime-truncated_ratio": 0.5,
        "eval/aime-pass@4": 0.75,
        **more,
    }


def test_slime(tmp_path: Path) -> None:
    """GRPO: rewards, losses, lengths, times and validations, with their own words as labels."""
    path = _written(tmp_path, [_slime(1), _slime(2)])
    found = recording.read(path)
    served = gauges(found)

    assert (found.facts.framework, found.facts.family) == ("slime", "grpo")
    assert (served["rl_reward_mean"], served["rl_loss"], served["rl_policy_loss"]) == (0.5, 0.02, -0.02)
    assert (served["rl_update_entropy_per_token"], served["rl_clip_ratio_region_mean"]) == (0.25, 0.0625)
    assert (served["rl_policy_policykl"], served["rl_kl_loss_per_token"]) == (0.002, 0.004)
    assert "rl_kl_per_token" not in served, "its estimator is a setting that the log does not tell"
    assert (served["rl_grad_norm"], served["rl_learning_rate"]) == (1.0, 1e-6)
    assert (served["rl_sampling_logp_difference_mean"], served["rl_sampling_ratio_mean"]) == (0.02, 1.02)
    assert (served["rl_trainer_log_perplexity"], served["rl_sampling_weight_limited_fraction"]) == (1.0, 0.25)
    assert (served["rl_completion_length_mean"], served["rl_completion_truncated_fraction"]) == (200.0, 0.125)
    assert (served["rl_zero_std_groups/0.0"], served["rl_pass_rate/8"]) == (6.0, 1.0)
    assert (served["rl_step_time_seconds"], served["rl_phase_time_seconds/rollout"]) == (60.0, 40.0)
    assert (served["rl_phase_tflops/actor_train"], served["rl_waiting_fraction"]) == (200.0, 0.5)
    assert (served["rl_eval_reward/aime"], served["rl_eval_truncated_fraction/aime"]) == (0.5, 0.5)
    assert served["rl_eval_pass_at_k/aime/4"] == 0.75
    assert not judge(found).unknown_keys


def test_slime_with_a_critic(tmp_path: Path) -> None:
    """The critic logs the squared error, of which the series is half."""
    critic = {"train/critic-value_loss": 0.5, "train/critic-value_clipfrac": 0.125, "train/critic-grad_norm": 2.0}
    path = _written(tmp_path, [_slime(1, **critic), _slime(2, **{**critic, "train/critic-value_loss": 0.25})])
    found = recording.read(path)
    served = gauges(found)

    assert found.facts.family == "ppo"
    assert (served["rl_value_loss"], served["rl_value_clipfrac"], served["rl_value_grad_norm"]) == (0.125, 0.125, 2.0)
    assert served["rl_policy_clipfrac"] == 0.0625


def test_miles(tmp_path: Path) -> None:
    """What it has beyond slime; a validation that was skipped is no reward."""
    own = {"train/ess_ratio": 0.5, "train/train_rollout_kl": 0.01, "rollout/zero_std/all_zero_percentage": 0.25}
    more = {
        "eval/skipped_busy": 1.0,
        "perf/actor_train_mfu": 0.375,
        "multi_turn/multi_turn_metric/round_number_max": 5.0,
    }
    path = _written(tmp_path, [_slime(1, **own), _slime(2, **own, **more)])
    found = recording.read(path)
    served = gauges(found)

    assert found.facts.framework == "miles"
    assert (served["rl_update_effective_sample_fraction"], served["rl_rollout_kl_per_token"]) == (0.5, 0.01)
    assert (served["rl_groups_all_zero_fraction"], served["rl_turns_max"]) == (0.25, 5.0)
    assert (served["rl_eval_skipped/busy"], served["rl_model_flops_utilization/actor_train"]) == (1.0, 0.375)
    assert "rl_eval_reward/skipped_busy" not in served
    assert not judge(found).unknown_keys


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([_swift(i) for i in (1, 2)] + [_swift(3, grad_norm=NAN)], id="ms-swift"),
        pytest.param([_slime(i) for i in (1, 2)] + [_slime(3, **{"train/grad_norm": NAN})], id="slime"),
    ],
)
def test_a_gradient_that_is_nan(tmp_path: Path, lines: list[dict[str, object]]) -> None:
    fired = {(each.condition, each.step) for each in judge(recording.read(_written(tmp_path, lines))).alerts}

    assert ("nonfinite_grad", 3) in fired
