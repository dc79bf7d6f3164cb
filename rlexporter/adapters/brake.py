"""Carries out what `on_critical` asks of a trainer, on all ranks in the same step.

A suspect checkpoint is written into a folder of our own, by the methods with which the trainer writes its own. The
trainer does not know of it: no callback hears of it, nothing is renamed, rotated, uploaded or resumed from. Where the
trainer would write a checkpoint of its own in that step, that is left out, since the next attempt would resume from it.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rlexporter.adapters import folders
from rlexporter.adapters.folders import Mark
from rlexporter.adapters.keeper import Keeper
from rlexporter.adapters.taps import wrap
from rlexporter.atomic_file import write_whole
from rlexporter.model.checkpoint import Folders
from rlexporter.model.sink import STOP, Orders, TrainedRun

logger = logging.getLogger("rlexporter")
SUSPECT = "SUSPECT.txt"
"""The file in a suspect checkpoint that says why it was saved."""
MOST_SUSPECTS = 3
"""The most suspect checkpoints of a run that there may be: what flaps, or fails in each attempt, must fill no disk."""
_PARTS = ("_save_optimizer_and_scheduler", "_save_scaler", "_save_rng_state")
"""What a trainer of transformers writes of a checkpoint besides the model; older versions have no scaler apart."""


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
        save, stop = map(bool, self.largest([orders.save, orders.stop]))
        return Orders(save, stop, orders.why or "Another rank saw it.")

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Return the largest of each of the ``numbers`` that a rank has. Waits for the others."""
        if self._group is None:
            return [*numbers]
        import torch

        had = torch.tensor(numbers, dtype=torch.int32)
        self._torch.all_reduce(had, op=self._torch.ReduceOp.MAX, group=self._group)
        return [int(number) for number in had.tolist()]

    def close(self) -> None:
        """Let go of the connections."""
        group, self._group = self._group, None
        if group is not None:
            self._torch.destroy_process_group(group)


class TrainerBrake:
    """The brake of one training by a trainer of transformers or TRL. Every rank has one.

    ``run``: returns the run that this rank feeds, or None. ``asks``: the words or the function of `on_critical`.
    ``caught``: True if whoever called `train()` catches a `TrainingStop`. ``failed``: takes an error of ours.
    """

    def __init__(
        self,
        trainer: Any,
        run: Callable[[], TrainedRun | None],
        *,
        asks: Any,
        caught: bool,
        failed: Callable[[Exception], None],
    ):
        self._trainer, self._run, self._failed = trainer, run, failed
        self._ranks = Ranks(trainer.args.ddp_timeout_delta)
        self._written: int | None = None
        """The step of the last suspect checkpoint."""
        self._why = ""
        """Why the training is being stopped; empty while it goes on."""
        self._ends = False
        self._able: dict[str, str] = {}
        """Which orders cannot be carried out, as `Brake.orders` takes them."""
        own_loop = has_own_loop(trainer)
        if own_loop and not caught:
            if trainer.args.process_index == 0 and (callable(asks) or STOP in asks):
                logger.warning("on_critical cannot stop this trainer from callbacks=[...]: attach(trainer, ...) can")
            self._able = {"stops": ""}
        ends = caught and own_loop
        self._undo = [
            wrap(trainer.callback_handler, name, self._between) for name in ("on_step_end", "on_save") if ends
        ]

    def step_done(self, state: Any, control: Any) -> None:
        """Do what is asked for after a step that was judged. Every rank calls this at the same point."""
        run = self._run()
        orders = self._ranks.ask(run, **self._able)
        if orders.stop:
            control.should_training_stop = self._ends = True
            self._why = orders.why
        if orders.save or (orders.stop and control.should_save):
            self._save(state, control, orders.why)
        if run is not None:
            run.brake.obeyed(orders)

    def epoch_done(self, state: Any, control: Any) -> None:
        """Write what a training that is being stopped would save at the end of its epoch as suspect too."""
        if self._why and control.should_save:
            self._save(state, control, self._why)

    def _save(self, state: Any, control: Any, why: str) -> None:
        """Write a suspect checkpoint of this step, once, in place of the trainer's own. Every rank calls this."""
        control.should_save, due = False, control.should_save
        if self._written == state.global_step:
            return
        self._written = state.global_step
        run = self._run()
        try:
            with run.sink.phase("save") if run is not None else contextlib.nullcontext():
                write_suspect(self._trainer, self._ranks, run, why, goes_on=not self._why)
        except Exception as error:  # noqa: BLE001 - whatever a disk or a trainer does, the training goes on
            control.should_save = due and not self._why
            self._failed(error)

    def _between(self, event: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Raise between two steps if the loop should end, and nothing is to be saved before."""
        control = event(*args, **kwargs)
        if self._ends and not control.should_save:
            self._ends = False
            raise TrainingStop
        return control

    def close(self) -> None:
        """Take off what was wrapped, and let go of the other ranks."""
        while self._undo:
            self._undo.pop()()
        self._ranks.close()


def has_own_loop(trainer: Any) -> bool:
    """Return True for a trainer with a loop of its own, such as that of PPO: it logs a step before it ends it."""
    return "on_step_end" in inspect.unwrap(type(trainer).train).__code__.co_names


def write_suspect(trainer: Any, ranks: Ranks, run: TrainedRun | None, why: str, *, goes_on: bool) -> None:
    """Write a checkpoint of the trainer's present step into a folder of our own. Every rank calls this.

    ``goes_on``: True if the trainer will need room for a checkpoint of its own. Where a disk or the trainer raises, all
    ranks do once all are done, and what there is of the checkpoint is removed.
    """
    args, step = trainer.args, trainer.state.global_step
    parent = Path(args.output_dir, folders.APART if args.push_to_hub else "")
    mark = Mark("suspect", run.name if run else "", run.attempt if run else 0, step)
    number = 0
    with _together(ranks):
        if args.should_save:
            number = _number(parent, mark, _size(trainer), copies=1 + goes_on)
    folder = parent / folders.numbered(f"suspect-checkpoint-{step}", ranks.largest([number])[0])
    with _together(ranks):
        if args.should_save:
            _begin(folder, mark, why)
    try:
        with _together(ranks), _unwrapped(trainer):
            _write(trainer, folder)
        with _together(ranks):
            if args.should_save:
                _explain(folder, mark, why)
    except Exception:
        if args.should_save:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _begin(folder: Path, mark: Mark, why: str) -> None:
    """Make the ``folder`` of a suspect checkpoint, and say in it what it is. Raises OSError."""
    folder.mkdir(parents=True)
    try:
        _explain(folder, mark, f"{why}\nIt is not complete: its writing was cut short.")
        mark.write(folder)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _explain(folder: Path, mark: Mark, why: str) -> None:
    text = f"rlexporter had this checkpoint saved in step {mark.step}, because of on_critical: {why}\n"
    write_whole(folder / SUSPECT, text)


def _number(parent: Path, mark: Mark, size: int, copies: int) -> int:
    """Return by which number the name of a suspect checkpoint is free. Raises an error where none should be written."""
    parent.mkdir(parents=True, exist_ok=True)
    there = [path.name for path, _ in folders.marked(parent, mark.run, "suspect")]
    if len(there) >= MOST_SUSPECTS:
        raise OSError(f"no suspect checkpoint is saved: {', '.join(there)} are in {parent} already; delete them first")
    folders.need_room(parent, size, copies)
    return folders.free_number(parent, f"suspect-checkpoint-{mark.step}")


def _size(trainer: Any) -> int:
    """Return about how many bytes a checkpoint has: those of the trainer's newest one, else weights and two moments."""
    own = folders.of_trainer(Path(trainer.args.output_dir))
    if own:
        with contextlib.suppress(OSError):
            return sum(folders.sizes(Path(trainer.args.output_dir, own[max(own)])).values())
    return weights_size(trainer.model, moments=not trainer.args.save_only_model)


def weights_size(model: Any, *, moments: bool = False) -> int:
    """Return how many bytes the weights of ``model`` take, with the ``moments`` of Adam in 32 bits."""
    total = 0
    for weight in model.parameters():
        count = getattr(weight, "ds_numel", weight.numel())  # DeepSpeed leaves a part here, and says how many there are
        total += count * (weight.element_size() + 8 * (moments and weight.requires_grad))
    return total


def _write(trainer: Any, folder: Path) -> None:
    """Have the ``trainer`` write a checkpoint, all that it resumes from, into ``folder``. Every rank has its part."""
    internal = "_internal_call" in inspect.signature(trainer.save_model).parameters
    if trainer.args.push_to_hub and not internal:
        raise NotImplementedError(f"{type(trainer).__name__}.save_model would push a suspect checkpoint to the hub")
    shards = any(getattr(trainer, f"is_{kind}_enabled", False) for kind in ("deepspeed", "fsdp"))
    if trainer.args.should_save or shards or not has_own_loop(trainer):  # else TRL's own fails where it writes nothing
        trainer.save_model(str(folder), **({"_internal_call": True} if internal else {}))
    if not trainer.args.save_only_model:
        for name in _PARTS:
            if hasattr(trainer, name):
                getattr(trainer, name)(str(folder))
    if trainer.args.should_save:
        trainer.state.save_to_json(str(folder / "trainer_state.json"))


@contextlib.contextmanager
def _unwrapped(trainer: Any) -> Iterator[None]:
    """Let modern PPO find the policy in its model, which is wrapped where there are several ranks."""
    model = trainer.model
    inner = getattr(model, "module", None)
    if not has_own_loop(trainer) or not hasattr(inner, "policy"):
        yield
        return
    trainer.model = inner
    try:
        yield
    finally:
        trainer.model = model


@contextlib.contextmanager
def _together(ranks: Ranks) -> Iterator[None]:
    """Do what is in the block on all ranks; then raise on all of them if one had an error: its own, or that it had."""
    failure: Exception | None = None
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the others must hear of it
        failure = error
    failed = ranks.largest([failure is not None])[0]
    if failure is not None:
        raise failure
    if failed:
        raise RuntimeError("another rank could not write its part of a suspect checkpoint")


class LegacyBrake:
    """The brake of legacy PPO, whose loop is the user's: it asks `Exporter.should_stop`. Every rank has one.

    ``asks``: True if `on_critical` asks for anything. ``keeper``: keeps good checkpoints, which the user's loop writes
    by `save_pretrained()`, where this rank does that.
    """

    def __init__(self, trainer: Any, run: TrainedRun, *, asks: bool, keeper: Keeper | None) -> None:
        self._trainer, self._run, self._asks, self._keeper = trainer, run, asks, keeper
        self._ranks: Ranks | None = None
        self._steps = 0

    def install(self) -> None:
        """Act after each call of `step()`, and of `save_pretrained()`."""
        sink = self._run.sink
        sink.on_close(wrap(self._trainer, "step", self._step))
        if self._keeper is not None:
            self._keeper.changed = self._tell_folders
            sink.on_close(wrap(self._trainer, "save_pretrained", self._save_pretrained))
        sink.on_close(self._close)

    def _step(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        stats = step(*args, **kwargs)
        self._steps += 1
        with self._run.sink.guard("on_critical"):
            if self._asks:
                self._ranks = self._ranks or Ranks()
                orders = self._ranks.ask(self._run, stops="sets should_stop")
                self._run.brake.obeyed(orders)
                if orders.save and self._trainer.accelerator.is_main_process:
                    self._save(orders.why)
        if self._keeper is not None:
            with self._run.sink.guard("keep_good"):
                self._keeper.step_done(self._steps, self._run.checkpoints)
        return stats

    def _save_pretrained(self, save: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = save(*args, **kwargs)
        with self._run.sink.guard("keep_good"):
            folder = args[0] if args else kwargs["save_directory"]
            if self._keeper is not None:
                self._keeper.saved(self._steps, Path(folder))
                self._tell_folders()
        return result

    def _tell_folders(self) -> None:
        """Say which checkpoints there are."""
        if self._keeper is not None:
            self._run.sink.folders(Folders(self._keeper.names, self._keeper.earlier))

    def _save(self, why: str) -> None:
        """Write the model and its tokenizer, beside where the trainer keeps what it writes."""
        trainer = self._trainer
        parent = Path(trainer.accelerator.project_dir or ".")
        model = trainer.accelerator.unwrap_model(trainer.model)
        mark = Mark("suspect", self._run.name, self._run.attempt, self._steps)
        number = _number(parent, mark, weights_size(model), copies=2)
        folder = parent / folders.numbered(f"suspect-checkpoint-{self._steps}", number)
        _begin(folder, mark, why)
        try:
            model.save_pretrained(folder)
            trainer.tokenizer.save_pretrained(folder)
            _explain(folder, mark, why)
        except Exception:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _close(self) -> None:
        if self._ranks is not None:
            self._ranks.close()
        if self._keeper is not None:
            with self._run.sink.guard("keep_good"):
                self._keeper.close(self._run.checkpoints)
