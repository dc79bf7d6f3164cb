"""Taps on any Trainer: the unfiltered loss, the gradient norm, the weights, and the phases of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from rlexporter.adapters.taps import Taps
from rlexporter.model.sink import NotSeenError, Sink

_TENSORS = 32
"""The most tensors whose gradients are looked at, spread over the model."""
_VALUES = 64
"""The values of each that are looked at, spread over it."""


class OptimizerTaps(Taps):
    """Taps on the loss and gradient of each optimizer step, independent of what is logged and when."""

    _loss: Any = None
    _rate: float | None = None
    """The learning rate of this step's update."""
    _skipped: Any = 0
    """Updates that the scaler of fp16 has skipped; on the device of the gradients, as reading it would wait."""
    _in_a_row: Any = 0
    _halvings: int | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._zeros = ZeroGradients()

    def install(self) -> None:
        """Wrap `training_step` and `clip_grad_norm_`, and evaluation and saving as phases."""
        trainer = self.trainer
        self.tap(trainer, "training_step", self._training_step, "loss")
        self.tap(trainer, "evaluate", self.during("eval"))
        self.tap(trainer, "_save_checkpoint", self.during("save"))
        self.tap(trainer.accelerator, "clip_grad_norm_", self._clip_grad_norm, "grad_norm")

    def step_end(self) -> None:
        """Observe the loss of the step: the sum over its micro-batches, which the trainer has scaled.

        The learning rate too, which the trainer logs as of the last step of a window only.
        """
        loss, self._loss = self._loss, None
        if loss is not None:
            with self.sink.observing("loss"):
                self.sink.observe("rl_loss_dist", loss)
        rate, self._rate = self._rate, None
        if rate is not None:
            self.sink.values({"learning_rate": [rate]})

    def _training_step(self, training_step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.sink.phase("update"):
            loss = training_step(*args, **kwargs)
        with self.sink.observing("loss"):
            detached = loss.detach()
            self._loss = detached if self._loss is None else self._loss + detached
        with self.sink.guard("tap"):
            self._rate = learning_rate(self.trainer)
        return loss

    def _clip_grad_norm(self, clip: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Observe the norm before clipping, NaN if any gradient has a NaN; with DeepSpeed the engine's own norm."""
        norm = clip(*args, **kwargs)
        with self.sink.observing("grad_norm"):
            if norm is None:
                raise ValueError("the engine gave no gradient norm")
            if hasattr(norm, "to_local"):  # reading a sharded norm would be a collective
                raise NotSeenError("the gradient norm is sharded over ranks (FSDP2): only log lines have it")
            if getattr(self.trainer.accelerator, "mixed_precision", "") == "fp16":
                self._see_scaled(norm)
            else:
                self.sink.observe("rl_grad_norm_dist", norm if hasattr(norm, "detach") else [float(norm)])
            self._zeros.see(self.sink, self.trainer.model)
        return norm

    def _see_scaled(self, norm: Any) -> None:
        """Observe the norm of a step in fp16, but not that of gradients that overflowed: their update is skipped.

        A scaler finds its scale by such steps, in a healthy run too. Gradients that still are NaN or infinite when it
        cannot go down any more are a fault. DeepSpeed has a scaler of its own, and gives its norm as a number.
        """
        import torch

        norm = torch.as_tensor(norm)
        if self._halvings is None:
            self._halvings = halvings(self.trainer.accelerator)
        overflown = norm - norm != 0  # the difference is NaN for NaN and infinities
        self._skipped = self._skipped + overflown
        self._in_a_row = (self._in_a_row + 1) * overflown
        self.sink.observe("rl_grad_norm_dist", norm, ~overflown | (self._in_a_row > self._halvings))
        self.sink.observe("rl_skipped_updates_total", self._skipped)


class BackwardTaps(Taps):
    """Taps on the gradients after a backward pass, for trainers that log no gradient norm and may not clip (PPO)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._zeros = ZeroGradients()

    def _backward(self, backward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Observe the norm of the gradients just before they are clipped or the optimizer takes its step."""
        result = backward(*args, **kwargs)
        with self.sink.observing("grad_norm"):
            if self.trainer.accelerator.sync_gradients:
                if getattr(self.trainer.accelerator, "scaler", None) is not None:
                    raise NotSeenError("gradients are scaled (fp16)")
                parameters = self.trainer.model.parameters()
                gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
                if not gradients:
                    raise NotSeenError("the backward pass leaves no gradients (DeepSpeed takes the step within it)")
                self.sink.observe("rl_grad_norm_dist", norm_of(gradients))
                self._zeros.see(self.sink, self.trainer.model)
        return result


class ZeroGradients:
    """Looks, in every other update, how much of a model gets no gradient."""

    def __init__(self) -> None:
        self._updates = 0

    def see(self, sink: Sink, model: Any) -> None:
        """Observe how many trained tensors of ``model`` have a gradient of exactly 0, or none, unless all have.

        Some values of some of them are looked at, of sharded ones in this rank's part; nothing waits for the device.
        """
        self._updates += 1
        if self._updates % 2 == 0:
            return
        import torch

        trained = [each for each in model.parameters() if each.requires_grad and each.numel() >= _VALUES]
        picked = trained[:: stride(len(trained), _TENSORS)]
        missing = sum(each.grad is None for each in picked)
        parts = local_parts(each.grad for each in picked if each.grad is not None)
        parts = [part for part in parts if part.numel() >= _VALUES and part.is_contiguous()]
        if not parts:
            return
        with torch.no_grad():
            rows = [part.as_strided((_VALUES,), (part.numel() // _VALUES,), part.storage_offset()) for part in parts]
            places = together(torch.stack, rows)
        given = places.count_nonzero(1).count_nonzero()
        sink.observe("rl_gradient_zero_fraction", 1 - given / (len(places) + missing), given > 0)


def halvings(accelerator: Any) -> int:
    """Return how many updates in a row the scaler of fp16 may skip: until its scale has come down to 1.

    That of torch begins at 65536 and halves it each time, unless `GradScalerKwargs` say otherwise: 16. That of
    DeepSpeed begins at a power of 2 of its own, and at first forgives as many overflows as its hysteresis says.
    """
    plugin = getattr(getattr(accelerator, "state", None), "deepspeed_plugin", None)
    if plugin is not None:
        told = plugin.deepspeed_config.get("fp16", {})
        return int(told.get("initial_scale_power", 16)) + int(told.get("hysteresis", 2)) - 1
    handler = getattr(accelerator, "scaler_handler", None)
    if handler is None:
        return 16
    return math.ceil(math.log2(handler.init_scale) / -math.log2(handler.backoff_factor))


def learning_rate(trainer: Any) -> float | None:
    """Return the learning rate that the next update takes, None if it is not known.

    Trainers log what their scheduler set last; a callback may have set another one since. It is read at the optimizer,
    in its first group of parameters, which is the one that trainers log.
    """
    groups = getattr(getattr(trainer, "optimizer", None), "param_groups", None)
    if groups:
        rate = groups[0].get("lr")
    else:
        scheduler = getattr(trainer, "lr_scheduler", None)
        rate = scheduler.get_last_lr()[0] if scheduler is not None else None
    return rate if isinstance(rate, float) else None  # reading a tensor may wait for a device


def trained(model: Any) -> list[Any]:
    """Return this rank's part of each trained parameter, as `local_parts` does."""
    return local_parts(parameter for parameter in model.parameters() if parameter.requires_grad)


def local_parts(parameters: Iterable[Any]) -> list[Any]:
    """Return this rank's part of each of ``parameters``, without the empty ones.

    No collective is called: of sharded parameters (FSDP, ZeRO) it is the local part.
    """
    import torch

    with torch.no_grad():
        parts = [local_part(parameter) for parameter in parameters]
    return [part for part in parts if part.numel()]


def stride(count: int, wanted: int) -> int:
    """Return a step that picks at most ``wanted`` of ``count``: odd, since layers and rows repeat in even numbers."""
    return -(-count // wanted) | 1


def norm_of(tensors: list[Any]) -> Any:
    """Return the norm of all ``tensors`` together, as a tensor on the device of the first; NaN if one holds a NaN."""
    import torch

    with torch.no_grad():
        norms = torch._foreach_norm([tensor for tensor in tensors if tensor.numel()])
        return torch.linalg.vector_norm(together(torch.stack, norms), dtype=torch.float32)


def together(join: Callable[[list[Any]], Any], tensors: list[Any]) -> Any:
    """Return what `torch.cat` or `torch.stack` makes of ``tensors``, on the device of the first."""
    try:
        return join(tensors)
    except RuntimeError:  # they are on several devices: asking each takes longer than all the rest
        device = tensors[0].device
        return join([tensor.to(device, non_blocking=True) for tensor in tensors])


def local_part(parameter: Any) -> Any:
    """Return this rank's part of a parameter: all of it, unless it is sharded (FSDP, ZeRO)."""
    shard = parameter.__dict__.get("ds_tensor", parameter)
    return shard.to_local() if hasattr(type(shard), "to_local") else shard
