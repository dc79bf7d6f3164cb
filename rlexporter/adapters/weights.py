"""Watches trained weights: whether they change at all, by comparing some of them, and whether they are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rlexporter.adapters.optimizer import local_parts, norm_of, stride, together, trained
from rlexporter.model.sink import Sink

_TENSORS = 32
"""The most tensors that are looked at, spread over the model."""
_EACH = 1024
"""The most weights of a tensor that are looked at, spread over it: 128 KiB in all, in fp32."""


class Change(NamedTuple):
    """The change of sampled weights between two looks, each a tensor on their device."""

    share: Any
    """The share of them that have changed."""
    size: Any
    """The root mean square of the change."""


class WeightSample:
    """Keeps a copy of some trained weights of one model, on their device.

    Norms cannot tell whether weights change: in fp32 an update of 1e-6 of each weight is lost in the norm of a billion.
    """

    def __init__(self) -> None:
        self._before: Any = None

    def change(self, weights: list[Any]) -> Change | None:
        """Return the change of the kept ``weights`` since the last call. Nothing waits for the device.

        None in the first call, and after a change of shape or device.
        """
        import torch

        parts, spread = [part for part in weights if part.is_contiguous()], []
        with torch.no_grad():
            for part in parts[:: stride(len(parts), _TENSORS)]:
                step = stride(part.numel(), _EACH)
                spread.append(part.as_strided((-(-part.numel() // step),), (step,), part.storage_offset()))
            now = together(torch.cat, spread)
        before, self._before = self._before, now
        if before is None or before.shape != now.shape or before.device != now.device:
            return None
        change = now.float() - before.float()
        share, size = change.count_nonzero() / len(change), torch.linalg.vector_norm(change) / len(change) ** 0.5
        return Change(share, size)


def see_weights(sink: Sink, sample: WeightSample, trainer: Any, *, only_faults: bool = False) -> Any:
    """Observe the norm of the trained weights, how ``sample`` has changed, and which the optimizer does not have.

    The change is not observed the first time, as there is nothing to compare with, and not where the norm is NaN or
    infinite: that weights were compared tells the judge that they were numbers before the updates of this step.
    ``only_faults``: observe no other norm than such a one. Return whether it is a number, as a tensor.
    """
    parameters = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]
    if (missing := missing_share(trainer, parameters)) is not None:
        sink.observe("rl_optimizer_missing_fraction", [missing])
    if (updates := updates_of(trainer)) is not None:
        sink.observe("rl_optimizer_updates", updates)
    weights = local_parts(parameters)
    norm = norm_of(weights)
    finite = norm - norm == 0  # the difference is NaN for NaN and infinities
    sink.observe("rl_weight_norm", norm, finite == 0 if only_faults else None)
    change = sample.change(weights)
    if change is not None:
        there = finite.to(change.share.device, non_blocking=True)
        sink.observe("rl_weight_changed_fraction", change.share, there)
        sink.observe("rl_weight_update_size", change.size, there)
    return finite


def missing_share(trainer: Any, parameters: list[Any]) -> float | None:
    """Return the share of ``parameters`` that the optimizer does not have; None where it has copies of them.

    Looks at no tensor. DeepSpeed's optimizer has parameters of its own.
    """
    groups = getattr(getattr(trainer, "optimizer", None), "param_groups", None)
    if not groups or getattr(trainer.accelerator, "distributed_type", "") == "DEEPSPEED":
        return None
    known = {id(parameter) for group in groups for parameter in group["params"]}
    return sum(id(parameter) not in known for parameter in parameters) / len(parameters) if parameters else None


def updates_of(trainer: Any) -> Any:
    """Return how many updates the optimizer has made by the count in its state, a tensor or a list of one number.

    Optimizers like Adam keep it beside the moments of each parameter, so whoever loses one loses the other. None where
    there is no such count, as before the first update.
    """
    optimizer = getattr(trainer, "optimizer", None)
    state = getattr(optimizer, "state", None)
    if not isinstance(state, Mapping):
        return None
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group["params"]:
            own = state.get(parameter)  # `[]` would add to a state that is a defaultdict
            count = own.get("step") if isinstance(own, Mapping) else None
            if hasattr(count, "detach"):
                return count
            if isinstance(count, (int, float)):
                return [float(count)]
    return None


class StepWeights:
    """Looks at the weights of ``trainer`` twice a step (PPO): before its rollout, or else its update, and after it."""

    def __init__(self, trainer: Any, sink: Sink) -> None:
        self._trainer = trainer
        self._sink = sink
        self._sample = WeightSample()
        self._looked = False
        """True if the weights were looked at since the last step."""
        self._finite: Any = None
        """Whether they were numbers then, as a tensor, so that each loss counts once."""

    def see_before(self, *, again: bool = False) -> None:
        """Look for weights that are NaN before a step; the norm that is served is that of after it.

        ``again``: look at the norm once more if that was done, as a callback may have caused the first look.
        """
        if self._looked and not (again and self._finite is not None):
            return
        with self._sink.observing("weights"):
            if self._looked:
                norm = norm_of(trained(self._trainer.model))
                finite = norm - norm == 0
                self._sink.observe("rl_weight_norm", norm, (finite == 0) & self._finite)
                self._finite = self._finite & finite
            else:
                self._finite = see_weights(self._sink, self._sample, self._trainer, only_faults=True)
        self._looked = True
        self._sink.flush()

    def see_after(self) -> None:
        """Observe the norm of the weights at the end of a step."""
        with self._sink.observing("weights"):
            self._sink.observe("rl_weight_norm", norm_of(trained(self._trainer.model)))
        self._looked, self._finite = False, None
