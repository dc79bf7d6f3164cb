"""What attaching costs a whole training: CPU time of two processes that take turns, one with the exporter, one without.

Time that is counted inside the exporter misses what it does to others: caches that the model has to fill again, objects
that the garbage collector looks at, the endpoint's thread. So the whole process counts. A shared machine may be half as
fast in one second as in the next; so both processes of a pair train the same run at the same time, and hand each other
the turn after every batch.

As a program it is one process of a pair: `python -m benchmarks.paired KIND READ WRITE [PORT]`; it waits for its turn at
the file descriptor READ, and hands it on at WRITE.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
_PAIRS = 20
_SCRAPE_SECONDS = 5.0


@dataclass(frozen=True)
class Kind:
    """A run whose cost is looked at: so many steps of a warm-up, and after them.

    ``collects``: False to take TRL's own calls of `gc.collect` out of both processes.
    """

    name: str
    algorithm: str
    width: int
    layers: int
    warm_up: int
    steps: int
    turn: int
    venv: str = ".venv"
    collects: bool = True


_PPO, _LEGACY = ".venv-ppo", ".venv-legacy"
KINDS = {
    "grpo": Kind("GRPO", "grpo", 48, 2, 20, 80, turn=2),
    "rloo": Kind("RLOO", "rloo", 48, 2, 20, 80, turn=2),
    "ppo": Kind("PPO of trl 1.12, beside collections", "ppo", 48, 2, 4, 16, 1, _PPO, collects=False),
    "ppo-legacy": Kind("PPO of trl 0.11, beside collections", "ppo-legacy", 48, 2, 4, 24, 1, _LEGACY, collects=False),
    "ppo-collecting": Kind("PPO of trl 1.12, with its collections", "ppo", 48, 2, 4, 12, 1, _PPO),
    "large": Kind("GRPO, 10 million weights", "grpo", 384, 8, 4, 10, turn=2),
}


@dataclass(frozen=True)
class Pair:
    """CPU milliseconds a step of the process without the exporter, and of the one with it."""

    plain: float
    attached: float

    @property
    def more(self) -> float:
        """How much more the one with it takes, in milliseconds."""
        return self.attached - self.plain


def rows() -> Iterator[str]:
    """The lines of a Markdown table."""
    yield "| trainer | a step without: CPU ms | more: CPU ms, median and its 95 % interval | more: % | pairs |"
    yield "|---|---|---|---|---|"
    for name in KINDS:
        yield row(name, [pair(name, attached_first=bool(number % 2)) for number in range(_PAIRS)])


def row(name: str, pairs: list[Pair]) -> str:
    """A line of the table."""
    low, high = interval([each.more for each in pairs])
    plain, more = median(each.plain for each in pairs), median(each.more for each in pairs)
    return (
        f"| {KINDS[name].name} | {plain:.1f} | {more:+.1f} ({low:+.1f} to {high:+.1f}) | "
        f"{100 * more / plain:+.1f} | {len(pairs)} |"
    )


def interval(values: list[float]) -> tuple[float, float]:
    """Return the values between which the median of what ``values`` were drawn from lies in 19 of 20 cases.

    By order statistics, with the normal approximation of the binomial distribution; for a dozen values and more.
    """
    ordered, count = sorted(values), len(values)
    reach = 1.96 * count**0.5 / 2
    return ordered[max(int(count / 2 - reach), 0)], ordered[min(int(count / 2 + reach), count - 1)]


def pair(name: str, *, attached_first: bool) -> Pair:
    """Train one of each side by side, in turns."""
    from tests.tools import free_port  # not in the processes that are measured

    port = free_port()
    first, second = os.pipe(), os.pipe()
    started = [
        _start(name, port if attached_first else None, first[0], second[1]),
        _start(name, None if attached_first else port, second[0], first[1]),
    ]
    for each in (first[0], second[0], second[1]):
        os.close(each)
    os.write(first[1], b".")
    os.close(first[1])
    with scraped(port, _SCRAPE_SECONDS):
        found = [_milliseconds(each) for each in started]
    return Pair(*(reversed(found) if attached_first else found))


def _start(name: str, port: int | None, read: int, write: int) -> subprocess.Popen[str]:
    command = [str(ROOT / KINDS[name].venv / "bin/python"), "-m", "benchmarks.paired", name, str(read), str(write)]
    return subprocess.Popen(  # noqa: S603 - our own program
        [*command, *([str(port)] if port else [])],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        pass_fds=(read, write),
    )


def _milliseconds(process: subprocess.Popen[str]) -> float:
    printed, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"one of a pair ended with status {process.returncode}; run it by hand: {process.args!r}")
    found: float = json.loads(printed.splitlines()[-1])
    return found


@contextlib.contextmanager
def scraped(port: int, seconds: float) -> Iterator[None]:
    """Scrape the port every so many ``seconds``, as Prometheus would, until the body is done."""
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(seconds):
            with contextlib.suppress(OSError, HTTPException):  # not yet there, or gone
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _main(kind: Kind, read: int, write: int, port: int | None) -> None:
    from rlexporter.demo import quiet

    quiet()
    if not kind.collects:
        gc.collect = lambda generation=2: 0  # of TRL, in this process
    spent: list[float] = []

    def turn(step: int) -> None:
        """Mark the CPU time of this process at the end of each turn, and wait for the next."""
        if not step % kind.turn:
            spent.append(time.process_time())
            os.write(write, b".")
            os.read(read, 1)

    with tempfile.TemporaryDirectory() as folder:
        trainer, train = _trainer(kind, Path(folder), turn)
        if port is not None:
            from rlexporter import attach

            attach(trainer, port=port, run="bench")
        os.read(read, 1)
        train()
    first = kind.warm_up // kind.turn - 1
    print(json.dumps(1e3 * (spent[-1] - spent[first]) / kind.turn / (len(spent) - 1 - first)), flush=True)
    os._exit(0)  # the last state has no reader


def _trainer(kind: Kind, folder: Path, turn: Callable[[int], None]) -> tuple[Any, Callable[[], object]]:
    """Return a trainer, and what trains it; ``turn`` is called after each step with its number."""
    from transformers import LlamaForCausalLM, PrinterCallback, TrainerCallback

    from rlexporter.demo import tiny, trainers

    class Turns(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        """Passes on which step has ended."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            turn(state.global_step)

    steps = kind.warm_up + kind.steps
    rewards: list[Any] = [*tiny.REWARDS]
    LlamaForCausalLM(tiny.config(hidden_size=kind.width, layers=kind.layers)).save_pretrained(folder / "tiny-llama")
    if kind.algorithm == "ppo-legacy":
        legacy, done = trainers.LegacyRun(steps, folder, rewards), count(1)
        return legacy.trainer, lambda: legacy.train(None, lambda: turn(next(done)))
    model = LlamaForCausalLM.from_pretrained(folder / "tiny-llama")
    if kind.algorithm == "ppo":
        trainer = trainers.of_ppo(steps, folder, model, rewards)
    else:
        trainer = trainers.of_groups(kind.algorithm, steps, folder, model, rewards)
        trainer.args.eval_strategy = "no"
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Turns())
    return trainer, trainer.train


if __name__ == "__main__":
    _main(KINDS[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else None)
