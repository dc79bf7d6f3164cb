"""Real GRPO trainings that end in twelve ways, each in a process of its own, and what is left of them trains on.

    python -m tests.adapters.ended FOLDER

Prints a JSON object a line for each: the end, the checkpoints that are left, the folder of the newest good one as the
verdict names it, the step at which that one trains on, and the one that a trainer resumes from by itself.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from math import isfinite, nan
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

import rlexporter
from rlexporter.adapters import brake, keeper
from tests import tiny

BAD_STEP, STEPS = 7, 9
KILLED = ("before it is marked", "when it is marked", "in the model", "after the model", "before its end")
ENDS = (
    *("finished", "stopped", "exception", "SIGTERM", "Ctrl-C"),
    *(f"kill -9 {moment}" for moment in KILLED),
    *("disk full at the suspect one", "disk full at the copy"),
)


class Ends(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Ends the process, or the training, after the step that is bad."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == BAD_STEP + 1:
            self._end()


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raised() -> None:
    raise RuntimeError("planted")


def _full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _instead(owner: Any, name: str, act: Callable[..., object], *, before: bool = True, of: str = "suspect") -> None:
    """Call ``act`` before or after a method that is called with the folder of a checkpoint of ours."""
    method = getattr(owner, name)

    def either(*args: Any, **kwargs: Any) -> Any:
        ours = any(of in str(argument) for argument in args)
        if ours and before:
            act()
        result = method(*args, **kwargs)
        if ours and not before:
            act()
        return result

    setattr(owner, name, either)


def plant(trainer: Any, end: str) -> None:
    """Have the training end in this way."""
    acts: dict[str, Callable[[], object]] = {
        "exception": _raised,
        "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
        "Ctrl-C": lambda: signal.raise_signal(signal.SIGINT),
    }
    if end in acts:
        trainer.add_callback(Ends(acts[end]))
    moments = {
        KILLED[0]: (brake, "_explain", True),
        KILLED[1]: (trainer, "save_model", True),
        KILLED[2]: (trainer.processing_class, "save_pretrained", True),
        KILLED[3]: (trainer, "_save_optimizer_and_scheduler", True),
        KILLED[4]: (trainer, "_save_rng_state", False),
    }
    if end.startswith("kill"):
        owner, name, before = moments[end.removeprefix("kill -9 ")]
        _instead(owner, name, _killed, before=before)
    if end == "disk full at the suspect one":
        _instead(trainer, "_save_optimizer_and_scheduler", _full)
    if end == "disk full at the copy":
        _instead(keeper, "_copy_file", _full, of="checkpoint-4")


def trainer(folder: Path, *, bad: bool, **options: Any) -> Any:
    """A trainer whose reward is NaN in one step."""
    calls = 0

    def reward(completions: list[str], **_: Any) -> list[float]:
        nonlocal calls
        calls += 1
        return [nan if bad and calls == BAD_STEP else float(len(text)) for text in completions]

    options = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 2, "max_steps": STEPS, **options}
    return tiny.grpo(folder, rewards=[reward], **options)


def train(folder: Path, end: str) -> None:
    """Train until that end."""
    made = trainer(folder, bad=end != "finished", run_name="mine")
    plant(made, end)
    words = (
        "save,stop" if end in ("stopped", *(each for each in ENDS if "suspect" in each or "kill" in each)) else "save"
    )
    exporter = rlexporter.attach(made, port=0, linger=0, on_critical=words, keep_good=True)
    try:
        made.train()
    finally:
        exporter.close()


def resume(folder: Path, found: Path) -> None:
    """Train on from the newest good checkpoint; write which one that is, and how far it came."""
    made = trainer(folder, bad=False, run_name="mine", save_strategy="no", max_steps=STEPS + 3)
    out = Path(made.args.output_dir)
    left = sorted(path.name for path in out.glob("*checkpoint*"))
    good = [name for name in left if name.startswith("good")]
    newest = max(good, key=lambda name: int(name.split("-")[2]), default="")
    taken = get_last_checkpoint(str(out))
    exporter = rlexporter.attach(made, port=0, linger=0, keep_good=True, on_critical="save,stop")
    made.train(resume_from_checkpoint=str(out / newest))
    weights = all(isfinite(float(each.detach().norm())) for each in made.model.parameters())
    errors = sum(value for series, value in exporter.snapshot.samples.items() if "errors" in series.metric.series)
    exporter.close()
    had = {"left": left, "newest": newest, "taken": taken and Path(taken).name, "step": made.state.global_step}
    had |= {"healthy": weights, "after": sorted(path.name for path in out.glob("*checkpoint*")), "errors": errors}
    had |= {"hidden": sorted(path.name for path in out.glob(".*checkpoint*"))}
    found.write_text(json.dumps(had))


def forked(act: Callable[[], None], log: Path) -> int:
    """Run ``act`` in a process of its own, which has all that is loaded here; return how it ended."""
    child = os.fork()
    if not child:
        out = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        try:
            act()
        except BaseException:  # noqa: BLE001 - its end is what is asked for
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def tried(place: Path, end: str) -> dict[str, Any]:
    """Try one end, in the folder ``place``; return what was found."""
    place.mkdir(parents=True)
    status = forked(partial(train, place, end), place / "log")
    resumed = forked(partial(resume, place, place / "found.json"), place / "log")
    found = place / "found.json"
    had = json.loads(found.read_text()) if not resumed else {"log": (place / "log").read_text()[-3000:]}
    return {"end": end, "status": status, "resumed": resumed, **had}


def main(folder: Path) -> None:
    """Try each end."""
    torch.set_num_threads(1)
    for number, end in enumerate(ENDS):
        print(json.dumps(tried(folder / str(number), end)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
