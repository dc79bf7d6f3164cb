"""Carries out what `on_critical` asks of a trainer, on all ranks in the same step; keeps the last good checkpoint."""

from __future__ import annotations

import inspect
import logging
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from rlexporter.adapters.taps import wrap
from rlexporter.model.sink import SAVE, STOP, Orders, TrainedRun

logger = logging.getLogger("rlexporter")
SUSPECT = "SUSPECT.txt"
"""The file in a checkpoint that was saved because something was critical."""


class TrainingStop(BaseException):
    """Ends the loop of a trainer that does not look at `should_training_stop`; it never leaves `train()`."""


class Ranks:
    """Lets all ranks hear what one of them asks for: an all-reduce of two numbers on the CPU (gloo), once a step.

    Every rank makes one at the same point, and calls `agree` in the same steps. Without `torch.distributed`, or with
    one rank, nothing is sent.
    """

    def __init__(self, timeout: timedelta | None = None) -> None:
        """``timeout``: how long the trainer lets its ranks wait for each other, if it is known."""
        from torch import distributed

        self._torch = distributed
        several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
        self._group: Any = distributed.new_group(backend="gloo", timeout=timeout) if several else None

    def ask(self, run: TrainedRun | None, **able: str) -> Orders:
        """Ask the ``run`` of this rank, as `Brake.orders` says, and agree. An error here keeps none from the others."""
        orders = Orders()
        if run is not None:
            with run.sink.guard("on_critical"):
                orders = run.brake.orders(**able)
        return self.agree(orders)

    def agree(self, orders: Orders) -> Orders:
        """Return what any rank asks for. Waits for the others."""
        if self._group is None:
            return orders
        import torch

        told = torch.tensor([orders.save, orders.stop], dtype=torch.int32)
        self._torch.all_reduce(told, op=self._torch.ReduceOp.MAX, group=self._group)
        save, stop = map(bool, told.tolist())
        return Orders(save, stop, orders.why or "another rank saw it")

    def close(self) -> None:
        """Let go of the connections."""
        group, self._group = self._group, None
        if group is not None:
            self._torch.destroy_process_group(group)


class TrainerBrake:
    """The brake of one training by a trainer of transformers or TRL. Every rank has one.

    ``run``: returns the run that this rank feeds, or None. ``asks``: the words or the function of `on_critical`.
    ``caught``: True if whoever called `train()` catches a `TrainingStop`.
    """

    def __init__(self, trainer: Any, run: Callable[[], TrainedRun | None], *, asks: Any, keeps: bool, caught: bool):
        self._run, self._keeps = run, keeps
        self._ranks = Ranks(trainer.args.ddp_timeout_delta) if asks else None
        self._kept: int | None = None
        self._suspect, self._extra = "", False
        """Why the next checkpoint is suspect; and if the trainer would not have written it."""
        self._limit: int | None = None
        self._stops = False
        loop = inspect.unwrap(type(trainer).train).__code__
        self.own_loop = "on_step_end" in loop.co_names
        """True for a trainer with a loop of its own, such as that of PPO: it logs a step before it ends it."""
        ends = asks and caught and self.own_loop
        self._able = self._able_to(trainer, asks, caught) if asks else {}
        self._undo = [
            wrap(trainer.callback_handler, name, self._between) for name in ("on_step_end", "on_save") if ends
        ]

    def _able_to(self, trainer: Any, asks: Any, caught: bool) -> dict[str, str]:
        """Return which orders cannot be carried out, as `Brake.orders` takes them, and warn of what is asked for."""
        found = {}
        if self.own_loop and not caught:
            found["stops"] = STOP, "stop this trainer from callbacks=[...]: attach(trainer, ...) can"
        if self.own_loop and not hasattr(trainer.model, "config"):  # which its model card is made of: TRL would raise
            found["saves"] = SAVE, "save here: with several ranks this trainer cannot write a checkpoint itself"
        for word, text in found.values():
            if trainer.args.process_index == 0 and (callable(asks) or word in asks):
                logger.warning("on_critical cannot %s", text)
        return dict.fromkeys(found, "")

    def step_done(self, args: Any, control: Any) -> None:
        """Do what is asked for after a step that was judged. Every rank calls this at the same point."""
        run = self._run()
        if self._ranks is not None:
            orders = self._ranks.ask(run, **self._able)
            self._obey(orders, args, control)
            if run is not None:
                run.brake.obeyed(orders)
        good = run.good_checkpoint if run is not None and self._keeps and args.should_save else None
        if good is not None and good != self._kept:
            self._kept = good
            keep_good(Path(args.output_dir), good)

    def _obey(self, orders: Orders, args: Any, control: Any) -> None:
        if orders.stop:
            control.should_training_stop = self._stops = True
        if orders.save:
            self._suspect, self._extra = orders.why, not control.should_save
        if orders.save and self._extra:
            control.should_save = True
            self._limit, args.save_total_limit = args.save_total_limit, None  # else it takes the place of a good one

    def saved(self, args: Any, state: Any) -> None:
        """Mark the checkpoint that was just written, if it was asked for. Every rank calls this after a save.

        One that the trainer would not have written itself is set aside.
        """
        why, self._suspect = self._suspect, ""
        if not why or self._ranks is None:
            return
        if self._extra:
            args.save_total_limit = self._limit
        self._ranks.agree(Orders())  # every rank has written its part
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if args.should_save and written.is_dir():
            _mark(written, state.global_step, why)
            if self._extra and Path(state.best_model_checkpoint or "") != written:
                set_aside(written)

    def _between(self, event: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Raise between two steps if the loop should end, and nothing is to be saved before."""
        control = event(*args, **kwargs)
        if self._stops and not control.should_save:
            self._stops = False
            raise TrainingStop
        return control

    def close(self) -> None:
        """Take off what was wrapped, and let go of the other ranks."""
        while self._undo:
            self._undo.pop()()
        if self._ranks is not None:
            self._ranks.close()


class LegacyBrake:
    """The brake of legacy PPO, whose loop is the user's: it asks `Exporter.should_stop`. Every rank has one."""

    def __init__(self, trainer: Any, run: TrainedRun) -> None:
        self._trainer, self._run = trainer, run
        self._ranks: Ranks | None = None
        self._steps = 0

    def install(self) -> None:
        """Ask after each call of `step()`."""
        self._run.sink.on_close(wrap(self._trainer, "step", self._step))
        self._run.sink.on_close(self._close)

    def _step(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        stats = step(*args, **kwargs)
        self._steps += 1
        with self._run.sink.guard("on_critical"):
            self._ranks = self._ranks or Ranks()
            orders = self._ranks.ask(self._run, stops="sets should_stop")
            if orders.save and self._trainer.accelerator.is_main_process:
                self._save(orders.why)
            self._run.brake.obeyed(orders)
        return stats

    def _save(self, why: str) -> None:
        """Write the model and its tokenizer, beside where the trainer keeps what it writes."""
        trainer = self._trainer
        folder = Path(trainer.accelerator.project_dir or ".", f"suspect-checkpoint-{self._steps}")
        trainer.accelerator.unwrap_model(trainer.model).save_pretrained(folder)
        trainer.tokenizer.save_pretrained(folder)
        _mark(folder, self._steps, why)

    def _close(self) -> None:
        if self._ranks is not None:
            self._ranks.close()


def keep_good(folder: Path, step: int) -> None:
    """Keep the checkpoint of ``step`` in ``folder`` as `good-checkpoint-...`, and no older one.

    It is made of hard links: it takes no room until the trainer deletes its own. Raises OSError where a file system
    has none.
    """
    source, kept = folder / f"checkpoint-{step}", folder / f"good-checkpoint-{step}"
    if not kept.exists() and source.is_dir():
        part = folder / f".good-checkpoint-{step}"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part, copy_function=os.link)
        part.rename(kept)
    if kept.exists():
        for other in set(folder.glob("good-checkpoint-*")) - {kept}:
            shutil.rmtree(other)


def set_aside(checkpoint: Path) -> None:
    """Give a checkpoint a name by which no trainer resumes or deletes it."""
    aside = checkpoint.with_name(f"suspect-{checkpoint.name}")
    shutil.rmtree(aside, ignore_errors=True)
    checkpoint.rename(aside)


def _mark(checkpoint: Path, step: int, why: str) -> None:
    text = f"rlexporter had this checkpoint saved in step {step}, because of on_critical: {why}\n"
    (checkpoint / SUSPECT).write_text(text, encoding="utf-8")
