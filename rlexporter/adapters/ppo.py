"""Taps on modern PPO (PPOv2Trainer, PPOTrainer from trl 0.12 on): its whole loop is one method.

The taps therefore read local variables of `train()`, at three places where it calls something: the end of a
micro-batch (`accelerator.accumulate`), its backward pass, and the log line, which ends a step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlexporter.adapters.consistency import Consistency
from rlexporter.adapters.optimizer import BackwardTaps, learning_rate
from rlexporter.adapters.taps import callers, local, variables
from rlexporter.adapters.weights import StepWeights
from rlexporter.catalog.algorithms import PPO
from rlexporter.catalog.metrics import CATALOG

_PADDING = 1.0
"""TRL's log-probability of a padding token (INVALID_LOGPROB); that of a real token is at most 0."""
_MICRO_BATCH = ("ratio", "new_logprobs", "mb_logprobs", "entropy", "loss", "pg_loss", "vf_loss")
_STEP = (
    *("kl", "logprobs", "ref_logprobs", "advantages", "values", "returns", "scores"),
    *("padding_mask", "padding_mask_p1", "sequence_lengths", "queries"),
)
_SLOT_MEANS = {
    key.name: metric.series for metric in CATALOG if metric.corrected for key in metric.keys if PPO in key.algorithms
}


class PPOTaps(BackwardTaps):
    """Taps on modern PPO. They see the data of this rank only."""

    log_ends_step = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._phase = contextlib.ExitStack()
        self._weights = StepWeights(self.trainer, self.sink)
        self._consistency = Consistency(self.trainer, self.sink)
        self._updated = False
        """True once the first micro-batch of this step was seen."""
        self._rate: float | None = None
        """The learning rate of this step's updates."""

    def install(self) -> None:
        """Wrap rollout, micro-batch, backward pass and log line; the time between two steps is the rollout."""
        trainer = self.trainer
        self._consistency.without_groups()
        signals = ("reward", "advantage", "kl", "logprob", "value", "completion_length", "prompt_length", "weights")
        self.tap(trainer, "log", self._log, *signals, "reference", "prompt")
        self.tap(trainer.accelerator, "unwrap_model", self._unwrap_model)
        self.tap(trainer.accelerator, "accumulate", self._accumulate, "ratio", "entropy", "loss")
        self.tap(trainer.accelerator, "backward", self._backward, "grad_norm")
        self.tap(trainer, "generate_completions", self.during("eval"))
        self.tap(trainer, "_save_checkpoint", self.during("save"))
        self._enter("rollout")

    def train_end(self) -> None:
        """Close the phase under way."""
        self._phase.close()

    def _enter(self, phase: str) -> None:
        self._phase.close()
        self._phase.enter_context(self.sink.phase(phase))

    def _unwrap_model(self, unwrap_model: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Look at the weights before the rollout, which fails where a weight is NaN: it begins with this call."""
        self._weights.see_before(again=True)
        return unwrap_model(*args, **kwargs)

    @contextlib.contextmanager
    def _accumulate(self, accumulate: Callable[..., Any], *args: Any, **kwargs: Any) -> Iterator[None]:
        self._weights.see_before()
        self._enter("update")
        with accumulate(*args, **kwargs):
            yield
            with self.sink.guard("tap"):
                self._rate = learning_rate(self.trainer)
                self._see_micro_batch(self._variables(_MICRO_BATCH))

    def _see_micro_batch(self, variables: Mapping[str, Any]) -> None:
        with self.sink.observing("ratio"):
            self.sink.observe("rl_policy_ratio_dist", variables["ratio"], variables["new_logprobs"] != _PADDING)
            if not self._updated:  # sampler and trainer still have the same weights: how far do they disagree?
                self._updated = True
                new, sampled = variables["new_logprobs"].detach().float(), variables["mb_logprobs"].float()
                self.sink.observe("rl_sampling_logp_difference_mean", (new - sampled).abs(), new != _PADDING)
        with self.sink.observing("entropy"):
            self.sink.observe("rl_entropy_per_token_dist", variables["entropy"], variables["new_logprobs"] != _PADDING)
        with self.sink.observing("loss"):
            self.sink.observe("rl_loss_dist", variables["loss"])
            self.sink.observe("rl_policy_loss_dist", variables["pg_loss"])
            self.sink.observe("rl_value_loss_dist", variables["vf_loss"])

    def _log(self, log: Callable[..., Any], logs: Any, *args: Any, **kwargs: Any) -> Any:
        with self.sink.guard("tap"):
            variables = self._variables(_STEP)
            if variables:
                self._see_step(variables)
                self._correct(logs)
        variables = {}
        result = log(logs, *args, **kwargs)
        self._enter("rollout")
        return result

    def _see_step(self, variables: Mapping[str, Any]) -> None:
        sink = self.sink
        with sink.observing("reward"):
            sink.observe("rl_reward_dist", variables["scores"])
            sink.observe("rl_reward_zero_fraction", (variables["scores"] == 0).float())
        with sink.observing("advantage"):
            mask = variables["padding_mask"] == 0
            sink.observe("rl_advantage_dist", variables["advantages"], mask)
            self._consistency.see_returns(variables["advantages"], variables["returns"], variables["values"], mask)
        with sink.observing("kl"):
            sink.observe("rl_kl_per_token_dist", variables["kl"], variables["padding_mask"] == 0)
            sink.observe("rl_kl_per_sequence_dist", variables["kl"].sum(1))
            sink.observe("rl_ref_logprob_dist", variables["ref_logprobs"], variables["padding_mask"] == 0)
            sink.observe("rl_kl_coef", [self.trainer.args.kl_coef])
            reference = getattr(self.trainer, "ref_model", None)  # without one, the policy without its adapter is it
            sink.observe("rl_ref_dropout", [active_dropout(self.trainer.model if reference is None else reference)])
        with sink.observing("logprob"):
            sink.observe("rl_logprob_dist", variables["logprobs"], variables["padding_mask"] == 0)
        with sink.observing("value"):
            sink.observe("rl_value_dist", variables["values"], variables["padding_mask_p1"] == 0)
            sink.observe("rl_return_dist", variables["returns"], variables["padding_mask_p1"] == 0)
        with sink.observing("completion_length"):
            sink.observe("rl_completion_length_dist", variables["sequence_lengths"] + 1)
        with sink.observing("prompt_length"):
            sink.observe(
                "rl_prompt_length_dist", (variables["queries"] != self.trainer.processing_class.pad_token_id).sum(1)
            )
        with sink.guard("tap"):
            self._consistency.see_queries(variables["queries"])
            self._consistency.see_reference()
        self._weights.see_after()
        self._updated = False
        rate, self._rate = self._rate, None
        if rate is not None:
            sink.values({"lr": [rate]})

    def _correct(self, logs: Mapping[str, Any]) -> None:
        """Serve corrected averages: from trl 0.17 on, TRL averages over slots that few micro-batches leave at 0."""
        args = self.trainer.args
        filled = -(-args.local_mini_batch_size // args.per_device_train_batch_size)
        for key, name in _SLOT_MEANS.items():
            if key in logs:
                corrected = logs[key] * args.gradient_accumulation_steps / filled
                self.sink.observe("rl_corrected_mean", [corrected], labels=(name,))

    def _variables(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the local variables ``names`` of this trainer's `train()`; none if it is not among the callers."""
        for frame in callers():
            if frame.f_code.co_name == "train" and local(frame, "self") is self.trainer:
                return variables(frame, names)
        return {}


def active_dropout(model: Any) -> float:
    """Return the highest probability of dropout that is on in ``model``; 0 if there is none. Looks at no tensor."""
    return max((_probability(module) for module in model.modules() if module.training), default=0.0)


def _probability(module: Any) -> float:
    """Return the probability of a dropout module, or the one that an attention module hands to its kernel."""
    from torch.nn.modules.dropout import _DropoutNd

    rate = module.p if isinstance(module, _DropoutNd) else vars(module).get("attention_dropout", 0.0)
    return float(rate) if isinstance(rate, (int, float)) else 0.0
