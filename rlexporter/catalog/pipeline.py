"""The metrics of asynchronous trainers, AsyncGRPO and AsyncDistillation: part of `rlexporter.catalog.metrics`.

Queues, packing, throughput and tools, as trl 1.16's sources compute them (async_grpo_trainer.py and its rollout worker
in trl/experimental). What its keys spell out (`_mean`, `_max`, a part of a step) are labels here. Keys with `total` are
sums over the logging window there, so they are gauges.
"""

from __future__ import annotations

from functools import partial

from rlexporter.catalog.entries import Entries, keys
from rlexporter.model.metric import Group, Level

_rollout = Entries(Group.PIPELINE, level=Level.SEQUENCE)
_step = Entries(Group.PIPELINE, level=Level.STEP)

_own = partial(keys, only=True)

_BOTH = "async-grpo async-distillation"
_AGENT = "async-grpo"

PIPELINE = (
    _step.gauge(
        "rl_tokens_per_second",
        "Tokens per second: forwarded or trained, over the time of forward and backward (fwd_bwd) or of the whole step "
        "(wall_clock).",
        unit="tokens per second",
        labels=("tokens", "clock"),
        keys=_own(_BOTH, "perf/{tokens}_tok_s_{clock}"),
        reading="wall_clock far below fwd_bwd: the trainer waits for rollouts.",
    ),
    _step.gauge(
        "rl_model_flops_utilization",
        "Share of the GPUs' peak that training uses, over the same two times; absent where the peak is not known.",
        unit="fraction",
        labels=("clock",),
        keys=_own(_BOTH, "perf/mfu_{clock}"),
        reading="fwd_bwd says how good the kernels are, wall_clock what the run gets out of its GPUs.",
    ),
    _step.gauge(
        "rl_generated_tokens_per_second",
        "Completion tokens per second that the sampler writes.",
        unit="tokens per second",
        keys=_own(_BOTH, "rollout/generated_tok_s"),
        reading="A fall: generation stalls.",
    ),
    _rollout.gauge(
        "rl_rollout_time_seconds",
        "Durations of a rollout's parts: the whole of it, scoring and waits before it, reset and reward of the "
        "environment, time in the queue.",
        unit="seconds",
        labels=("part",),
        keys=_own(_BOTH, "rollout/{part}_s", "sample/{part}_s") + _own(_AGENT, "env/{part}_s"),
        reading="backpressure: the trainer is the slow side. score_block: scoring is.",
    ),
    _rollout.gauge(
        "rl_rollout_queue_size",
        "How many wait: samples for the trainer (rollout), groups for scoring (score).",
        unit="entries",
        labels=("queue",),
        keys=_own(_BOTH, "sample/{queue}_queue_size") + _own(_AGENT, "rollout/{queue}_queue_size"),
        reading="0 for long: the trainer starves. Full for long: the samples grow old.",
    ),
    _rollout.gauge(
        "rl_rollouts_in_flight",
        "How many rollouts are under way.",
        unit="rollouts",
        keys=_own(_BOTH, "rollout/inflight"),
        reading="Below max_inflight_tasks for long: generation is held back.",
    ),
    _rollout.gauge(
        "rl_sample_staleness",
        "How many versions of the weights a sample is behind: mean, or max in the logging window.",
        unit="versions",
        labels=("statistic",),
        keys=_own(_BOTH, "sample/staleness_{statistic}"),
        reading="At max_staleness: samples are being dropped, and the rest is as off-policy as it may be.",
    ),
    _rollout.gauge(
        "rl_sample_tokens",
        "Tokens of a training row: forwarded, all of it, or trained, those that the loss is taken over.",
        unit="tokens",
        labels=("tokens", "statistic"),
        keys=_own(_BOTH, "sample/{tokens}_tokens_{statistic}"),
        reading="trained far below forwarded: most of the work earns no gradient.",
    ),
    _step.gauge(
        "rl_packed_row_tokens",
        "Tokens of a packed row: mean, or max in the logging window.",
        unit="tokens",
        labels=("statistic",),
        keys=_own(_BOTH, "batch/row_tokens_{statistic}"),
        reading="max at token_budget: rows are full.",
    ),
    _step.gauge(
        "rl_batch_token_fraction",
        "Shares of a batch: masked_token, forwarded tokens without loss; row_fill, of token_budget; pad, padding that "
        "is stripped before the forward pass.",
        unit="fraction",
        labels=("part",),
        keys=_own(_BOTH, "batch/{part}_frac"),
        reading="masked_token high: long prompts or tool results. row_fill low: the budget is not used.",
    ),
    _step.gauge(
        "rl_packing_ratio",
        "Tokens of the samples over tokens of their packed rows.",
        keys=_own(_AGENT, "batch/packing_ratio"),
        reading="Above 1: samples share their prompts in a row, and that work is done once.",
    ),
    _step.gauge(
        "rl_row_imbalance",
        "Load of the heaviest row over the mean load of the rows.",
        keys=_own(_BOTH, "batch/row_imbalance"),
        reading="1 is balanced; above it the other ranks wait for one.",
    ),
    _step.gauge(
        "rl_samples_per_row",
        "Samples in a packed row.",
        unit="samples per row",
        keys=_own(_BOTH, "batch/samples_per_row"),
        reading="Falls while the samples grow longer.",
    ),
    _step.gauge(
        "rl_batch_per_step",
        "What an optimizer step takes: microbatches, samples, groups, forwarded_tokens, trained_tokens.",
        unit="per step",
        labels=("what",),
        keys=_own(_BOTH, "batch/{what}_per_step"),
        reading="Stable where batches have a fixed size; tokens grow with the length of the completions.",
    ),
    _step.gauge(
        "rl_window_events",
        "Events of the logging window: samples that were dropped as too long (dropped_oversize) or too old "
        "(dropped_stale), requests to the sampler that were repeated (vllm_retry), calls of tools that do not exist "
        "(unknown_name).",
        unit="events",
        labels=("event",),
        keys=_own(_BOTH, "batch/{event}_total", "sample/{event}_total", "rollout/{event}_total")
        + _own(_AGENT, "tools/{event}_total"),
        reading="0 or absent. dropped_*: work that is thrown away.",
    ),
    _rollout.gauge(
        "rl_samples_per_rollout",
        "Training rows that a conversation gives: more than one where it was rewritten on the way.",
        unit="samples per rollout",
        keys=_own(_AGENT, "rollout/samples_per_rollout"),
        reading="Above 1: the chat template or the tools rewrite what was said.",
    ),
    _rollout.gauge(
        "rl_rollout_turns",
        "Turns of a conversation: mean, or max in the logging window.",
        unit="turns",
        labels=("statistic",),
        keys=_own(_AGENT, "rollout/turns_{statistic}"),
        reading="Falling to 1: the policy has unlearnt its tools.",
    ),
    _rollout.gauge(
        "rl_retokenized_drift_tokens",
        "Tokens by which a conversation differs when it is tokenized anew: mean of a turn, or max.",
        unit="tokens",
        labels=("statistic",),
        keys=_own(_AGENT, "rollout/drift_tokens_{statistic}"),
        reading="0: what is trained is what was sampled.",
    ),
    _rollout.gauge(
        "rl_rollout_rewrite_fraction",
        "Share of turns after which the conversation no longer appends: a new row begins (fork), or its tail becomes "
        "context (realign).",
        unit="fraction",
        labels=("change",),
        keys=_own(_AGENT, "rollout/{change}_frac"),
        reading="High: most turns are trained apart, or not at all.",
    ),
    _rollout.gauge(
        "rl_rollout_correctness_mean",
        "Mean correctness that the environment reports.",
        keys=_own(_AGENT, "rollout/correctness_mean"),
        reading="Rises while the policy learns; apart from the reward, the reward pays for something else.",
    ),
    _rollout.gauge(
        "rl_tool_loop_exhausted_fraction",
        "Share of rollouts that were cut off when they asked for one more tool call.",
        unit="fraction",
        keys=_own(_AGENT, "tools/loop_exhausted_frac"),
        reading="High: max_tool_calling_iterations is too low; they are trained as if they had ended.",
    ),
    _rollout.gauge(
        "rl_tool_parallel_calls",
        "Tool calls in one turn that calls any.",
        unit="calls per turn",
        keys=_own(_AGENT, "tools/parallel_calls_mean"),
        reading="1: the policy asks for one thing at a time.",
    ),
    _rollout.gauge(
        "rl_tool_latency_seconds",
        "Duration of a tool call.",
        unit="seconds",
        keys=_own(_AGENT, "tools/latency_s"),
        reading="Growth: the tools hold the rollouts back.",
    ),
    _rollout.gauge(
        "rl_one_tool_latency_seconds",
        "Duration of a call of one tool.",
        unit="seconds",
        labels=("tool",),
        keys=_own(_AGENT, "tools/{tool}/latency_s"),
        reading="Tells which tool is slow.",
    ),
    _rollout.gauge(
        "rl_one_tool_events",
        "Calls and failures of one tool in the logging window, those of names that do not exist included.",
        unit="events",
        labels=("tool", "event"),
        keys=_own(_AGENT, "tools/{tool}/{event}_total"),
        reading="failure near call: the tool is down, or is called wrongly.",
    ),
)
