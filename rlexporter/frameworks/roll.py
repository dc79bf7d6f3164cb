"""ROLL. Read in 8eb27cc (after 0.3.0) of github.com/alibaba/ROLL, below ``roll/``:

pipeline/rlvr/actor_worker.py, pipeline/agentic/agentic_actor_worker.py   ratios, clipping, losses, approxkl, policykl
pipeline/base_worker.py                                                   the critic, learning rates
utils/metrics/metrics_manager.py, pipeline/agentic/agentic_pipeline.py    scores, advantages, lengths, groups, times
utils/train_infer_corrections.py                                          ratios of trainer and sampler
utils/functionals.py                                                      KL in the reward, `agg_loss`
utils/tracking.py                                                         takes ``@sum`` and the like off the keys

Many keys are those of verl, so this table comes first. Losses, clipfrac, approxkl and policykl are means of the means
of completions, unless ``loss_agg_mode`` is another one. Without a reference ``actor/kl_loss`` is the KL to the policy
before the update. ``critic/clipfrac`` is a loss where ``value_clip`` is not set, and has no series. RLVR has the name
of a domain before the keys of its samples, and says how many answers of a validation have the full score of 1: the
mean reward where scores are 0 and 1. Its ``time/step_total`` is that of the step before.
"""

from __future__ import annotations

from rlexporter.catalog.algorithms import GRPO, PPO
from rlexporter.frameworks.common import as_logged, feeds, no_metric, statistics
from rlexporter.model.metric import Framework

_REWARD = (
    *feeds("rl_reward_mean", "critic/score/mean"),
    *as_logged("critic/score/min", "critic/score/max"),
    *feeds("rl_agent_reward", "{agent}/critic/score/{statistic}"),
    *feeds("rl_rlhf_reward", "critic/rewards/mean"),
    *as_logged(
        "critic/rewards/min",
        "critic/rewards/max",
        "critic/episode_rewards_norm/mean",
        "group/all_correct_groups_ratio",
        "group/all_incorrect_groups_ratio",
    ),
    *feeds("rl_token_advantage_mean", "critic/advantages/mean", families=(GRPO,)),
    *as_logged("critic/advantages/min", "critic/advantages/max"),
    *feeds("rl_return_mean", "critic/returns/mean"),
    *as_logged("critic/returns/min", "critic/returns/max"),
)

_POLICY = (
    *feeds("rl_loss", "actor/total_loss"),
    *feeds("rl_policy_loss", "actor/pg_loss"),
    *feeds("rl_entropy_per_token", "critic/entropy/mean", nothing=0.0),
    *feeds("rl_kl_loss_per_token", "actor/kl_loss"),
    *feeds("rl_kl_penalty_per_token", "critic/kl", nothing=0.0),
    *feeds("rl_kl_coef", "critic/kl_coef", nothing=0.0),
    *feeds("rl_policy_approxkl", "actor/approxkl"),
    *feeds("rl_policy_policykl", "actor/policykl", scale=-1.0),
    *feeds("rl_clip_ratio_region_mean", "actor/clipfrac", families=(GRPO,)),
    *feeds("rl_policy_clipfrac", "actor/clipfrac", families=(PPO,)),
    *feeds("rl_policy_ratio_mean", "actor/ratio_mean"),
    *as_logged("actor/ratio_min", "actor/ratio_max"),
    *feeds("rl_grad_norm", "actor_train/grad_norm"),
    *feeds("rl_learning_rate", "actor/lr"),
)

_CRITIC = (
    *feeds("rl_value_mean", "critic/values/mean"),
    *as_logged("critic/values/min", "critic/values/max"),
    *feeds("rl_value_loss", "critic/loss"),
    *feeds("rl_value_prediction", "critic/vpred"),
    *feeds("rl_value_error", "critic/error"),
    *feeds("rl_value_grad_norm", "critic/grad_norm"),
    *as_logged("critic/lr"),
)

_REST = (
    *as_logged("actor/train_infer_ratio_token_mean"),
    *as_logged("actor/is_weight_clipfrac"),
    *statistics("rl_completion_length_", "token/response_length/"),  # of RLVR
    *statistics("rl_completion_length_", "tokens/response_length/"),  # of agents
    *feeds("rl_prompt_length_mean", "token/prompt_length/mean"),
    *as_logged("token/prompt_length/min", "token/prompt_length/max"),
    *feeds("rl_prompt_length_mean", "tokens/prompt_length/mean"),
    *as_logged(
        "tokens/prompt_length/min",
        "tokens/prompt_length/max",
        "token/total_length/mean",
        "token/total_length/min",
        "token/total_length/max",
    ),
    *feeds("rl_step_time_seconds", "time/step_total"),
    *feeds("rl_phase_time_seconds", "time/{phase}"),
    *feeds("rl_validation_reward_mean", "val/score/mean"),
    *feeds("rl_eval_reward", "val/{dataset}/score/mean", "val_correct/{dataset}/mean"),
    *no_metric("system/global_step", "system/step"),
)

ROLL = Framework(
    name="roll",
    title="ROLL",
    marks=frozenset(("actor/ratio_mean", "actor/train_infer_ratio_token_mean")),
    critic=frozenset(("critic/vpred", "critic/values/mean")),
    source="github alibaba/ROLL 8eb27cc (after 0.3.0): roll/pipeline, roll/utils",
    keys=(*_REWARD, *_POLICY, *_CRITIC, *_REST),
)
TABLES = (ROLL,)
