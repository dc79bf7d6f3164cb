"""Frameworks that are read where they log: a file, W&B, Trackio or TensorBoard. None is watched by itself.

SkyRL a956457 of github.com/NovaSky-AI/SkyRL, below ``skyrl/``
    train/trainer.py                         rewards, advantages, mismatch, KL in the reward, times
    train/fully_async_trainer.py             staleness
    train/evaluate.py, train/utils/trainer_utils.py, train/generators/utils.py   evaluations, lengths
    backends/skyrl_train/workers/worker.py, backends/skyrl_train/utils/*.py      losses, clipping, importance weights
  A pass is a reward above 0, so that its pass rates are others. ``generate/avg_num_tokens`` counts what tools say too.
  ``policy/minibatch_rollout_logprobs_abs_diff_mean`` is taken during the updates, and holds these as well.

Tinker cookbook 9dfcc3a of github.com/thinking-machines-lab/tinker-cookbook, below ``tinker_cookbook/rl/``
    train.py, metrics.py                     mismatch, entropy, KL; ../stores/training_store.py writes ``metrics.jsonl``
    metric_util.py                           rewards and turns, of ``all`` environments and by tag; evaluations
  ``optim/entropy`` is minus the mean log-probability of the sampled tokens. A group is good from a reward of 0.5 on.
  ``total`` is the sum of all rewards of a completion, of which the key is the mean. Errors are totals of the run, and
  the step of the sampler is absolute: neither is a share or an age. A span that comes often has a count as its time.

open-instruct e6c3044 of github.com/allenai/open-instruct, below ``open_instruct/``
    grpo_fast.py, grpo_utils.py              losses, KL, ratios, mismatch, evaluations
    data_loader.py, ground_truth_utils.py    scores, lengths, advantages, staleness, rewards by verifier
    environments/tools/utils.py              tools
  Rewards are those of prompts whose completions differ, with ``filter_zero_std_samples``, the default: their mean says
  little of the policy. KL is 0 without a reference. The difference to vLLM is of the last micro-batch of each rank.

AReaL 4aef98d (after 1.0.4) of github.com/inclusionAI/AReaL, below ``areal/``
    trainer/ppo/actor.py, critic.py          all of an update, staleness
    utils/functional/functional.py           losses, importance weights, rejection
    utils/stats_tracker.py                   ``avg``, ``min``, ``max`` over the tokens or completions of a step
    trainer/rl_trainer.py                    times
  ``kl_div_*`` compares the policy with the log-probabilities of the sampler, but with ``recompute_logprob`` alone with
  those before the update. ``no_eos_ratios`` is the share of the longest of a batch, ``rollout/accepted`` always 1.

trlX 3340c2f (after 0.7.0) of github.com/CarperAI/trlx, below ``trlx/``: PPO
    models/modeling_ppo.py                   losses, values, ratio
    trainer/accelerate_ppo_trainer.py, accelerate_base_trainer.py, utils/modeling.py   scores, times, `get_tensor_stats`
  ``policy/sqrt_kl`` and ``policy/kl_per_token`` are roots of means over prompt and padding too: they have no series.

DeepSpeed-Chat, in 45b4b71 of github.com/deepspeedai/DeepSpeedExamples, below ``applications/DeepSpeed-Chat/``
    training/step3_rlhf_finetuning/main.py, dschat/rlhf/ppo_trainer.py
  Both losses are those of the last mini-batch. Steps are counted anew in each epoch.
"""

from __future__ import annotations

from rlexporter.catalog.algorithms import GRPO, PPO
from rlexporter.frameworks.common import as_logged, below, feeds, no_metric, statistics
from rlexporter.model.metric import Framework

_SKYRL_LOSS = (
    *feeds("rl_clip_ratio_region_mean", "clip_ratio", families=(GRPO,)),
    *feeds("rl_policy_clipfrac", "clip_ratio", families=(PPO,)),
    *as_logged("is_ratio_mean"),
    *as_logged("tis_token_clip_high_ratio", "tis_seq_clip_high_ratio"),
    *as_logged("token_mask_ratio"),
    *as_logged(*("outlier_seq_masked_ratio", "geo_sequence_mask_masked_ratio", "product_sequence_mask_masked_ratio")),
    *feeds("rl_policy_ratio_mean", "cispo/ratio_mean"),
    *as_logged("cispo/ratio_min", "cispo/ratio_max", "cispo/ratio_clamped_mean"),
)

_SKYRL_POLICY = (
    *feeds("rl_loss", "final_loss"),
    *feeds("rl_policy_loss", "policy_loss"),
    *feeds("rl_update_entropy_per_token", "policy_entropy"),
    *feeds("rl_kl_per_token", "policy_kl", families=(GRPO,)),
    *feeds("rl_kl_loss_per_token", "policy_kl", families=(PPO,)),
    *feeds("rl_grad_norm", "grad_norm"),
    *feeds("rl_learning_rate", "policy_lr"),
    *statistics("rl_sampling_logp_difference_", "rollout_train_logprobs_abs_diff_", "mean", "max"),
    *below("loss_metrics/", _SKYRL_LOSS),
)

SKYRL = Framework(
    name="skyrl",
    title="SkyRL",
    marks=frozenset(("reward/avg_raw_reward", "policy/final_loss", "eval/all/generate/avg_num_tokens")),
    critic=frozenset(("critic/critic_loss",)),
    source="github NovaSky-AI/SkyRL a956457: skyrl/train, skyrl/backends/skyrl_train",
    keys=(
        *feeds("rl_reward_mean", "reward/avg_raw_reward"),
        *feeds("rl_rlhf_reward", "loss/avg_final_rewards"),
        *feeds("rl_token_advantage_mean", "loss/avg_raw_advantages", families=(GRPO,)),
        *feeds("rl_kl_estimate_per_token", "loss/avg_kl"),
        *feeds("rl_kl_coef", "loss/kl_loss_coef"),
        *below("policy/", _SKYRL_POLICY),
        *feeds("rl_value_loss", "critic/critic_loss"),
        *feeds("rl_value_prediction", "critic/values_mean"),
        *feeds("rl_value_clipfrac", "critic/values_clipfrac"),
        *feeds("rl_value_grad_norm", "critic/grad_norm"),
        *as_logged("critic/critic_lr"),
        *feeds("rl_completion_length_mean", "generate/avg_num_tokens"),
        *feeds("rl_completion_length_std", "generate/std_num_tokens"),
        *feeds("rl_completion_length_min", "generate/min_num_tokens"),
        *feeds("rl_completion_length_max", "generate/max_num_tokens"),
        *feeds("rl_sample_staleness_mean", "async/staleness_mean"),
        *as_logged("async/staleness_min", "async/staleness_max"),
        *feeds("rl_step_time_seconds", "timing/step"),
        *feeds("rl_phase_time_seconds", "timing/{phase}"),
        *as_logged("trainer/tokens_per_second_per_gpu", "trainer/epoch"),
        *feeds("rl_eval_reward", "eval/{dataset}/avg_score"),
        *as_logged("eval/all/generate/avg_num_tokens"),
        *no_metric("trainer/global_step"),
    ),
)

_ENV = "env/all"

TINKER = Framework(
    name="tinker-cookbook",
    title="Tinker cookbook",
    marks=frozenset(("optim/kl_sample_train_v1", f"{_ENV}/turns_per_episode", f"{_ENV}/ac_tokens_per_turn")),
    source="github thinking-machines-lab/tinker-cookbook 9dfcc3a: tinker_cookbook/rl",
    keys=(
        *feeds("rl_reward_mean", f"{_ENV}/reward/total"),
        *feeds("rl_agent_reward", "env/{agent}/reward/{statistic}"),
        *as_logged("env/{agent}/by_group/frac_{outcome}"),
        *feeds("rl_completion_length_mean", f"{_ENV}/ac_tokens_per_turn"),
        *as_logged(f"{_ENV}/turns_per_episode"),
        *as_logged(f"{_ENV}/total_episodes"),
        *feeds("rl_sampling_kl_per_token", "optim/kl_sample_train_v1"),
        *feeds("rl_sampled_entropy_per_token", "optim/entropy"),
        *feeds("rl_kl_k1_per_token", "kl_policy_base"),
        *feeds("rl_policy_policykl", "kl_pre_post_v1"),
        *feeds("rl_policy_approxkl", "kl_pre_post_v2"),
        *feeds("rl_learning_rate", "optim/lr"),
        *feeds("rl_step_time_seconds", "time/total"),
        *feeds("rl_eval_reward", f"{{dataset}}/{_ENV}/reward/total"),
        *no_metric("progress/batch", "progress/done_frac", "training_client/step"),
    ),
)

OPEN_INSTRUCT = Framework(
    name="open-instruct",
    title="open-instruct",
    marks=frozenset(("val/sequence_lengths", "val/num_step_tokens", "debug/vllm_vs_local_logprob_diff_mean")),
    source="github allenai/open-instruct e6c3044: open_instruct/grpo_fast.py, grpo_utils.py, data_loader.py",
    keys=(
        *as_logged("scores"),
        *feeds("rl_reward_function_mean", "objective/{reward_function}_reward"),
        *as_logged("val/advantages_mean"),
        *as_logged("val/advantages_min", "val/advantages_max"),
        *feeds("rl_policy_loss", "loss/policy_avg"),
        *feeds("rl_kl_k1_per_token", "objective/kl0_avg", nothing=0.0),
        *feeds("rl_kl_per_token", "objective/kl2_avg", nothing=0.0),
        *feeds("rl_clip_ratio_region_mean", "policy/clipfrac_avg"),
        *feeds("rl_update_entropy_per_token", "policy/entropy_avg"),
        *feeds("rl_policy_ratio_mean", "val/ratio"),
        *feeds("rl_policy_ratio_var", "val/ratio_var"),
        *feeds("rl_grad_norm", "optim/grad_norm"),
        *feeds("rl_learning_rate", "lr"),
        *feeds("rl_sampling_logp_difference_mean", "debug/vllm_vs_local_logprob_diff_mean"),
        *as_logged("val/rho_drop_frac"),
        *as_logged("val/rho_clipfrac"),
        *feeds("rl_sampling_weight_mean", "val/rho_weight", nothing=0.0),
        *feeds("rl_sample_staleness_mean", "num_steps_off_policy"),
        *feeds("rl_completion_length_mean", "val/sequence_lengths"),
        *statistics("rl_completion_length_", "val/sequence_lengths_", "min", "max"),
        *as_logged("tools/aggregate/avg_calls_per_rollout"),
        *feeds("rl_tool_failure_frequency", "tools/aggregate/failure_rate"),
        *as_logged("tools/aggregate/avg_runtime", "tools/{tool}/avg_runtime", "val/num_step_tokens"),
        *feeds("rl_step_time_seconds", "time/total"),
        *feeds("rl_phase_time_seconds", "time/{phase}"),
        *as_logged("epoch"),
        *feeds("rl_validation_reward_mean", "eval/scores"),
        *as_logged("eval/sequence_lengths"),
        *no_metric("training_step", "global_step", "episode"),
    ),
)

_UPDATE = (
    *feeds("rl_policy_loss", "actor_loss/avg"),
    *feeds("rl_update_entropy_per_token", "entropy/avg"),
    *feeds("rl_policy_ratio_mean", "importance_weight/avg"),
    *as_logged("importance_weight/max"),
    *feeds("rl_policy_policykl", "approx_kl/avg", scale=-1.0),
    *feeds("rl_clip_ratio_region_mean", "clip_ratio/avg", families=(GRPO,)),
    *feeds("rl_policy_clipfrac", "clip_ratio/avg", families=(PPO,)),
    *feeds("rl_policy_dual_clipfrac", "dual_clip_ratio/avg"),
    *as_logged("rkl_loss/avg"),
    *feeds("rl_sampling_kl_per_token", "compute_logp/kl_div_direct/avg"),
    *feeds("rl_rollout_kl_per_token", "compute_logp/kl_div_dual/avg"),
    *feeds("rl_rollout_kl_max", "compute_logp/kl_div_dual/max"),
    *feeds("rl_sampling_weight_mean", "behave_imp_weight/avg"),
    *as_logged("behave_imp_weight/max"),
    *as_logged("rs_filtered_fraction"),
    *feeds("rl_sample_staleness_mean", "version_stats/sample_staleness_theta_avg"),
    *feeds("rl_grad_norm", "grad_norm"),
    *feeds("rl_learning_rate", "lr"),
)

_AREAL_ACTOR = (
    *feeds("rl_reward_mean", "task_reward/avg"),
    *as_logged("task_reward/min", "task_reward/max"),
    *feeds("rl_non_score_reward_per_token", "kl_rewards/avg", nothing=0.0),
    *feeds("rl_token_advantage_mean", "advantages/avg", families=(GRPO,)),
    *as_logged("advantages/min", "advantages/max"),
    *feeds("rl_prompt_length_mean", "prompt_len/avg"),
    *as_logged("prompt_len/min", "prompt_len/max", "seq_len/avg", "seq_len/min", "seq_len/max"),
    *as_logged("n_seqs"),
    *below("update/", _UPDATE),
)

_AREAL_CRITIC = (
    *feeds("rl_value_loss", "critic_loss/avg"),
    *feeds("rl_value_clipfrac", "clip_ratio/avg"),
    *feeds("rl_value_prediction", "new_value/avg"),
    *feeds("rl_value_mean", "old_value/avg"),
    *as_logged("old_value/min", "old_value/max"),
    *feeds("rl_return_mean", "target_value/avg"),
    *as_logged("target_value/min", "target_value/max"),
    *feeds("rl_value_grad_norm", "grad_norm"),
    *as_logged("lr"),
)

AREAL = Framework(
    name="areal",
    title="AReaL",
    marks=frozenset(("ppo_actor/task_reward/avg", "ppo_actor/update/actor_loss/avg")),
    critic=frozenset(("ppo_critic/critic_loss/avg",)),
    source="github inclusionAI/AReaL 4aef98d (after 1.0.4): areal/trainer, areal/utils",
    keys=(
        *below("ppo_actor/", _AREAL_ACTOR),
        *below("ppo_critic/", _AREAL_CRITIC),
        *feeds("rl_phase_time_seconds", "timeperf/{phase}"),
        *feeds("rl_validation_reward_mean", "eval-rollout/reward"),
    ),
)

_OF_ROLLOUTS = ("rollout_scores/running_mean", "rollout_scores/running_std")

TRLX = Framework(
    name="trlx",
    title="trlX",
    marks=frozenset((*_OF_ROLLOUTS, "values/values_error", "old_values/mean")),
    critic=frozenset((*_OF_ROLLOUTS, "losses/value_loss")),
    source="github CarperAI/trlx 3340c2f (after 0.7.0): trlx/models/modeling_ppo.py, trlx/trainer",
    keys=(
        *statistics("rl_reward_", "rollout_scores/", "mean", "std"),
        *feeds("rl_total_loss", "losses/total_loss"),
        *feeds("rl_policy_loss", "losses/policy_loss"),
        *feeds("rl_value_loss", "losses/value_loss"),
        *feeds("rl_value_prediction", "values/mean"),
        *feeds("rl_value_error", "values/values_error"),
        *feeds("rl_value_clipfrac", "values/clipfrac"),
        *feeds("rl_value_mean", "old_values/mean"),
        *as_logged("old_values/min", "old_values/max"),
        *feeds("rl_return_mean", "returns/mean"),
        *as_logged("returns/min", "returns/max"),
        *feeds("rl_policy_clipfrac", "policy/clipfrac"),
        *feeds("rl_policy_ratio_mean", "ratio"),
        *feeds("rl_kl_coef", "kl_ctl_value"),
        *feeds("rl_learning_rate", "learning_rate_group_0"),
        *feeds("rl_phase_time_seconds", "time/{phase}"),
        *feeds("rl_validation_reward_mean", "reward/mean"),
        *no_metric(*_OF_ROLLOUTS),
    ),
)

_SUMS = ("actor_loss_sum", "critic_loss_sum")

DEEPSPEED_CHAT = Framework(
    name="deepspeed-chat",
    title="DeepSpeed-Chat",
    marks=frozenset(_SUMS),
    critic=frozenset(_SUMS),
    source="github deepspeedai/DeepSpeedExamples 45b4b71: applications/DeepSpeed-Chat/training/step3_rlhf_finetuning",
    keys=(
        *feeds("rl_reward_mean", "reward"),
        *feeds("rl_policy_loss", "actor_loss"),
        *feeds("rl_value_loss", "critic_loss"),
        *no_metric(*_SUMS),
    ),
)

TABLES = (SKYRL, TINKER, OPEN_INSTRUCT, AREAL, TRLX, DEEPSPEED_CHAT)
