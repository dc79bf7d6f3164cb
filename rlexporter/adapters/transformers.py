"""Adapter for trainers of transformers and TRL, by log lines and events. The only file that imports transformers.

A callback is not told which trainer calls it, so it searches its callers. The trainer's `train` is wrapped on the
instance, since no event is fired when training raises.
"""

from __future__ import annotations

import functools
import logging
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from transformers.trainer_callback import CallbackHandler, TrainerCallback

from rlexporter.adapters import folders
from rlexporter.adapters.brake import TrainerBrake, TrainingStop, has_own_loop
from rlexporter.adapters.keeper import Keeper
from rlexporter.adapters.selection import taps_for
from rlexporter.adapters.taps import Taps, callers, local, wrap
from rlexporter.adapters.trainer_facts import run_facts
from rlexporter.model.checkpoint import Folders
from rlexporter.model.sink import TrainedRun
from rlexporter.model.step import RunFacts, StepUpdate

logger = logging.getLogger("rlexporter")


def _event(handle: Callable[..., None]) -> Callable[..., None]:
    """Make ``handle`` an event that never raises, and runs on serving ranks only; the brake is asked on every rank."""

    @functools.wraps(handle)
    def call(self: RunCallback, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:
            if self.watches(args):
                handle(self, args, state, control, **kwargs)
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach a trainer
            self.report(error)

    return call


class RunCallback(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Feeds one run, which ``open_run`` opens when it is first needed, from the trainer's facts if it is known."""

    def __init__(self, open_run: Callable[[RunFacts | None], TrainedRun], *, every_rank: bool = False) -> None:
        self._open_run = open_run
        self.every_rank = every_rank
        """True if ranks other than 0 are watched too."""
        self.brakes: Any = ()
        self.keeps_good = False
        """`on_critical` and `keep_good`: then every rank takes part."""
        self._brake: TrainerBrake | None = None
        self._keeper: Keeper | None = None
        self._in_train = self._own_loop = self._act_at_log = False
        self._trainer: Any = None
        self._resume: object = None
        self._resumed: dict[int, str] = {}
        """The step of the checkpoint that the training resumes, and its folder; empty for one from scratch."""
        self._pending: StepUpdate | None = None
        self._step_began = 0.0
        self._undo: Callable[[], None] = lambda: None
        self._taps: list[Taps] = []
        self._closed = False
        self.run: TrainedRun | None = None

    def __reduce__(self) -> Any:
        """Reduce to an inert callback: a trainer can be pickled and copied, but only the attached one reports."""
        return (TrainerCallback, ())

    def adopt(self, trainer: Any, run: TrainedRun | None = None) -> None:
        """Watch ``trainer`` and feed ``run``; without one, a run is opened when training begins."""
        if self._trainer is None:
            self._trainer = trainer
            self._undo = wrap(trainer, "train", self._train)
        if run is not None:
            self._closed = False
            self._use(run)
            run.prepare(run_facts(trainer, trainer.args, trainer.state, trainer.model))

    def maker(self) -> Any:
        """Return the trainer whose handler is creating this callback; None if it is created by anything else.

        Its `train` is then watched whichever events it fires. Code that creates a callback to hand it on (a user's,
        `attach`) may run in a method of another trainer, which must not be taken.
        """
        handled = False
        for frame in callers():
            creator = local(frame, "self")
            if creator is self:
                continue
            if not isinstance(creator, CallbackHandler):
                return creator if handled and hasattr(type(creator), "train") else None
            handled = True
        return None

    def watches(self, args: Any) -> bool:
        """Tell whether this callback feeds a run: on a rank that serves, the first one that the trainer has does."""
        return (self.every_rank or args.process_index == 0) and self._is_chosen()

    def _is_chosen(self) -> bool:
        """Return True for the first callback of ours that the trainer has, until its run is closed."""
        if self._closed:
            return False
        if self._trainer is None and (trainer := self._caller()) is not None:
            self.adopt(trainer)
        if self._trainer is None:
            return True
        callbacks = self._trainer.callback_handler.callbacks
        return self is next((callback for callback in callbacks if isinstance(callback, RunCallback)), self)

    def report(self, error: Exception, where: str = "event") -> None:
        """Count an error of our own, and log the first of its kind. Any thread may call this."""
        if self.run is None:
            what = "cannot watch this training" if where == "event" else f"cannot do what {where} asks for"
            logger.warning("rlexporter %s: %s", what, error, exc_info=error)
            return
        with self.run.sink.guard(where):
            raise error

    @_event
    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Do nothing more: the decorator has found the trainer, and watches its `train`."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._begin(args, state, control, **kwargs)
        self._apply("event", self._take_hold, args)

    @_event
    def _begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        run = self._open(state)
        facts = run_facts(self._trainer, args, state, kwargs.get("model"), self._resume)
        self._resumed = _resumed(facts)
        run.begin(facts)
        if self._trainer is not None and not self._taps:
            self._taps = taps_for(self._trainer, run.sink)
        self._tell_folders(args)
        self._step_began = time.perf_counter()

    @_event
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._flush()
        self._step_began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the step in; where no log line follows at once, that is all of it, and it is acted upon."""
        self._step_end(args, state, control)
        self._act_at_log = control.should_log and not self._own_loop
        if not self._act_at_log:
            self._act(state, control)

    def _act(self, state: Any, control: Any) -> None:
        """Do what is asked for after a step that was judged. Every rank comes here at the same point."""
        if self._brake is not None:
            self._apply("on_critical", self._brake.step_done, state, control)
        if self._keeper is not None and self.run is not None:
            self._apply("keep_good", self._keeper.step_done, state.global_step, self.run.checkpoints)

    @_event
    def _step_end(self, args: Any, state: Any, control: Any) -> None:
        """Publish the step; if a log line follows at once, with that line, so that no scrape sees half a step."""
        if self._log_ends_step:
            return
        self._step_done(state)
        if not control.should_log:
            self._flush()

    @property
    def _log_ends_step(self) -> bool:
        return any(taps.log_ends_step for taps in self._taps)

    def _step_done(self, state: Any) -> None:
        now = time.perf_counter()
        for taps in self._taps:
            taps.step_end()
        self._pending = StepUpdate(step=state.global_step, duration=now - self._step_began)
        self._step_began = now

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self._log(args, state, control, logs=logs)
        if self._act_at_log:
            self._act_at_log = False
            self._act(state, control)

    @_event
    def _log(self, args: Any, state: Any, control: Any, *, logs: Any) -> None:
        run = self.run or self._open(state)
        if self._log_ends_step:
            self._step_done(state)
        update, self._pending = self._pending, None
        run.sink.log(logs or {}, step=state.global_step, update=update)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._saved(args, state, control)
        if self._keeper is not None:
            written = Path(args.output_dir, f"checkpoint-{state.global_step}")
            self._apply("keep_good", self._keeper.saved, state.global_step, written)

    @_event
    def _saved(self, args: Any, state: Any, control: Any) -> None:
        self._flush()
        if self.run is not None:
            self.run.sink.saved(state.global_step)
            self._tell_folders(args)

    def _tell_folders(self, args: Any) -> None:
        """Say which checkpoints there are: a trainer deletes old ones."""
        if self.run is None or args.process_index != 0:
            return
        keeper, resumed = self._keeper, self._resumed
        kept = keeper.names if keeper is not None else {}
        by_step = {**resumed, **folders.of_trainer(Path(args.output_dir)), **kept}
        self.run.sink.folders(Folders(by_step, keeper.earlier if keeper is not None else ""))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._epoch_end(args, state, control)
        if self._brake is not None:
            self._apply("on_critical", self._brake.epoch_done, state, control)

    @_event
    def _epoch_end(self, args: Any, state: Any, control: Any) -> None:
        self._flush()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._ends(args, state, control, error=None)
        self._let_go()

    def _flush(self) -> None:
        update, self._pending = self._pending, None
        if update is not None and self.run is not None:
            self.run.sink.advance(update)

    def _open(self, state: Any) -> TrainedRun:
        """Return the run, opened if need be. ``state`` is the trainer's, which may log before it trains."""
        if self.run is None:
            trainer = self._trainer
            facts = None if trainer is None else run_facts(trainer, trainer.args, state, trainer.model)
            self._use(self._open_run(facts))
        assert self.run is not None
        return self.run

    def _use(self, run: TrainedRun) -> None:
        """Feed ``run`` until it is closed, without keeping the trainer alive."""
        self.run = run
        run.sink.on_close(self._undo)
        run.sink.on_close(partial(_release, weakref.ref(self)))

    def release(self) -> None:
        """Stop watching, because the run was closed, until the next `adopt`."""
        self._closed = True
        self.run = self._trainer = None
        self._taps = []

    def _train(self, train: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `Trainer.train`, and note its end, with or without an error."""
        trainer = self._trainer
        if trainer is None:  # closed, but the wrapper could not be removed: another one is around it
            return train(*args, **kwargs)
        self._resume = kwargs.get("resume_from_checkpoint", args[0] if args else None)
        self._starts(trainer.args, trainer.state, None)
        self._in_train = True
        try:
            result = train(*args, **kwargs)
        except TrainingStop:
            result = None
            trainer.control = trainer.callback_handler.on_train_end(trainer.args, trainer.state, trainer.control)
        except BaseException as error:
            self._ends(trainer.args, trainer.state, None, error=error)
            raise
        finally:
            self._in_train = False
            self._let_go()
        self._ends(trainer.args, trainer.state, None, error=None)
        return result

    def _take_hold(self, args: Any) -> None:
        """Prepare to stop, to save, or to keep checkpoints, on every rank of a training that may be asked for it."""
        self._let_go()
        trainer = self._trainer
        if trainer is None or not (self.brakes or self.keeps_good) or not self._is_chosen():
            return
        self._own_loop = has_own_loop(trainer)
        if self.keeps_good and args.should_save and (run := self.run) is not None:
            failed, changed = partial(self.report, where="keep_good"), partial(self._tell_folders, args)
            self._keeper = Keeper(lambda: (run.name, run.attempt), failed, changed)
            self._keeper.begin(Path(args.output_dir), apart=args.push_to_hub)
            self._tell_folders(args)
        if self.brakes:
            failed = partial(self.report, where="on_critical")
            self._brake = TrainerBrake(
                trainer, lambda: self.run, asks=self.brakes, caught=self._in_train, failed=failed
            )

    def _let_go(self) -> None:
        """End what `_take_hold` has prepared, whether the training has ended or another one begins."""
        brake, self._brake, keeper, self._keeper = self._brake, None, self._keeper, None
        if keeper is not None and self.run is not None:
            self._apply("keep_good", keeper.close, self.run.checkpoints)
        if brake is not None:
            self._apply("on_critical", brake.close)

    def _apply(self, where: str, act: Callable[..., None], *args: Any) -> None:
        """Call ``act``, which may change the trainer's control; it never raises."""
        try:
            act(*args)
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach a trainer
            self.report(error, where)

    @_event
    def _starts(self, args: Any, state: Any, control: Any) -> None:
        self._open(state)

    @_event
    def _ends(self, args: Any, state: Any, control: Any, error: BaseException | None) -> None:
        self._flush()
        for taps in self._taps:
            taps.train_end()
        if self.run is not None:
            self.run.end(error)

    def _caller(self) -> Any:
        """Return the calling trainer: the nearest object on the stack that has this callback."""
        for frame in callers():
            owner = local(frame, "self")
            handler = getattr(owner, "callback_handler", None)
            if handler is not None and self in getattr(handler, "callbacks", ()):
                return owner
        return None


def _release(callback: weakref.ref[RunCallback]) -> None:
    still = callback()
    if still is not None:
        still.release()


def _resumed(facts: RunFacts) -> dict[int, str]:
    folder = Path(facts.resumed_from or "")
    if not facts.step or not facts.resumed_from or not folder.is_dir():
        return {}
    beside = facts.output_dir is not None and folder.absolute().parent == Path(facts.output_dir).absolute()
    return {facts.step: folder.name if beside else str(folder)}
