"""Watches trained weights: whether they change at all, by comparing some of them, and whether they are numbers."""

from __future__ import annotations

from typing import Any

from rlexporter.adapters.optimizer import local_part, weight_norm
from rlexporter.model.sink import Sink

_TENSORS = 32
"""The most tensors that are looked at, spread over the model."""
_EACH = 1024
"""The most weights of a tensor that are looked at, spread over it: 128 KiB in all, in fp32."""


class WeightSample:
    """Keeps a copy of some trained weights of one model, on their device.

    Norms cannot tell whether weights change: in fp32 an update of 1e-6 of each weight is lost in the norm of a billion.
    """

    def __init__(self) -> None:
        self._before: Any = None

    def changed(self, model: Any) -> Any:
        """Return the share of the kept weights that have changed since the last call, as a tensor on their device.

        None in the first call, and after a change of shape or device. Nothing waits for the device.
        """
        now = _sample(model)
        before, self._before = self._before, now
        if before is None or before.shape != now.shape or before.device != now.device:
            return None
        return (now != before).float().mean()


def see_changes(sink: Sink, sample: WeightSample, model: Any, norm: Any) -> None:
    """Observe the share of ``sample`` that has changed; nothing the first time, as there is nothing to compare with.

    ``norm``: that of the weights now, a tensor. Nothing is observed where it is NaN or infinite: that weights were
    compared tells the judge that they were numbers before the updates of this step.
    """
    changed = sample.changed(model)
    if changed is not None:
        sink.observe("rl_weight_changed_fraction", changed, (norm - norm == 0).to(changed.device, non_blocking=True))


class StepWeights:
    """Looks at the weights of ``trainer`` twice a step (PPO): before its rollout, or else its update, and after it."""

    def __init__(self, trainer: Any, sink: Sink) -> None:
        self._trainer = trainer
        self._sink = sink
        self._sample = WeightSample()
        self._looked = False
        """True if the weights were looked at since the last step."""

    def see_before(self) -> None:
        """Look for weights that are NaN, once before a step; the norm that is served is that of after it."""
        if self._looked:
            return
        self._looked = True
        with self._sink.observing("weights"):
            norm = weight_norm(self._trainer.model)
            self._sink.observe("rl_weight_norm", norm, norm - norm != 0)  # the difference is NaN for NaN and infinities
            see_changes(self._sink, self._sample, self._trainer.model, norm)
        self._sink.flush()

    def see_after(self) -> None:
        """Observe the norm of the weights at the end of a step."""
        with self._sink.observing("weights"):
            self._sink.observe("rl_weight_norm", weight_norm(self._trainer.model))
        self._looked = False


def _sample(model: Any) -> Any:
    """Return a copy of some weights of this rank's part of the trained parameters, as one tensor."""
    import torch

    parts = [local_part(parameter).detach() for parameter in model.parameters() if parameter.requires_grad]
    parts = [part for part in parts if part.numel() and part.is_contiguous()]
    with torch.no_grad():
        few = [_spread(part) for part in parts[:: _step(len(parts), _TENSORS)]]
        return torch.cat([each.to(few[0].device, non_blocking=True) for each in few])


def _spread(part: Any) -> Any:
    step = _step(part.numel(), _EACH)
    return part.as_strided((-(-part.numel() // step),), (step,), part.storage_offset())


def _step(count: int, wanted: int) -> int:
    """Return a step that picks at most ``wanted`` of ``count``: odd, since layers and rows repeat in even numbers."""
    return -(-count // wanted) | 1
