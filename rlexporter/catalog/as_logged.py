"""The keys of TRL that nothing reads: they are served as they are logged, in `rl_logged_value`, and never guessed at.

A key gets a metric of its own when a condition, a panel or a rule is to read it. Those of other frameworks are in their
tables, as `as_logged`.
"""

from __future__ import annotations

from rlexporter.catalog.entries import TRAINERS, keys
from rlexporter.model.metric import Key

_TIMES = ("runtime", "samples_per_second", "steps_per_second")
_OF_PAIRS = ("rewards/chosen", "rewards/rejected", "rewards/margins")
_BOTH_ASYNC = "async-grpo async-distillation"

AS_LOGGED: tuple[Key, ...] = (
    *keys(f"ppo {TRAINERS}", "epoch"),
    *keys(TRAINERS, "train_loss", "total_flos"),
    *keys(TRAINERS, *(f"{when}_{time}" for when in ("train", "eval") for time in _TIMES)),
    *keys("async-grpo dpo grpo kto rloo sft", "aux_loss"),
    *keys("dpo sft tpo", "mean_token_accuracy"),
    *keys("grpo", "entropy_coef"),
    *keys("grpo async-grpo distillation", "tools/call_frequency"),
    *keys("online-dpo", "objective/scores_margin", "val/contain_eos_token", "rewards/probabilities"),
    *keys("online-dpo dpo kto cpo orpo tpo", *_OF_PAIRS, "logps/chosen", "logps/rejected"),
    *keys("online-dpo dpo cpo orpo tpo", "rewards/accuracies"),
    *keys("dpo kto cpo orpo tpo", "logits/{completion}"),
    *keys("orpo", "log_odds_chosen", "log_odds_ratio"),
    *keys("cpo orpo", "nll_loss"),
    *keys("a2po", "v_star", "implicit_reward", only=True),
    *keys("reward", "mean_reward", "min_reward", "max_reward", "accuracy", "margin", only=True),
    *keys("gold iw-opd", "on_policy_loss", "off_policy_loss"),
    *keys("gold", "matched_loss", "unmatched_loss"),
    *keys("iw-opd", *(f"completions/{{source}}_{each}_length" for each in ("mean", "min", "max"))),
    *keys("iw-opd", "completions/truncated_fraction", "iw_opd/{statistic}_advantage", "iw_opd/{statistic}_weight"),
    *keys("sdft sdpo", "self_distillation/distillation_loss", "self_distillation/server_logprob_abs_diff"),
    *keys("sdft", "sdft/distillation_loss"),
    *keys("sdpo", "sdpo/distillation_loss", "self_distillation/group_reward_std_mean"),
    *keys("sdpo", "self_distillation/reward_{statistic}", "self_distillation/{share}_fraction"),
    *keys("async-distillation", "teacher_entropy", "teacher_entropy/{teacher}", "jsd", "teacher_jsd/{teacher}"),
    *keys("async-distillation", "teacher_token_frac/{teacher}", "teacher_score_s/{teacher}"),
    *keys(_BOTH_ASYNC, "perf/{tokens}_tok_s_{clock}", "perf/mfu_{clock}", "rollout/generated_tok_s", only=True),
    *keys(_BOTH_ASYNC, "rollout/{part}_s", "sample/{part}_s", "rollout/inflight", only=True),
    *keys(_BOTH_ASYNC, "sample/staleness_{statistic}", "sample/{queue}_queue_size", only=True),
    *keys(_BOTH_ASYNC, "sample/{tokens}_tokens_{statistic}", "batch/row_tokens_{statistic}", only=True),
    *keys(_BOTH_ASYNC, "batch/{part}_frac", "batch/row_imbalance", "batch/samples_per_row", only=True),
    *keys(_BOTH_ASYNC, "batch/{what}_per_step", "batch/{event}_total", only=True),
    *keys(_BOTH_ASYNC, "sample/{event}_total", "rollout/{event}_total", only=True),
    *keys("async-grpo", "env/{part}_s", "rollout/{queue}_queue_size", "batch/packing_ratio", only=True),
    *keys("async-grpo", "rollout/samples_per_rollout", "rollout/turns_{statistic}", only=True),
    *keys("async-grpo", "rollout/drift_tokens_{statistic}", "rollout/{change}_frac", only=True),
    *keys("async-grpo", "rollout/correctness_mean", "tools/loop_exhausted_frac", only=True),
    *keys("async-grpo", "tools/parallel_calls_mean", "tools/latency_s", "tools/{event}_total", only=True),
    *keys("async-grpo", "tools/{tool}/latency_s", "tools/{tool}/{event}_total", only=True),
)
