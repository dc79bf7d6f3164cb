"""What the exporter costs a real GRPO run: thread-CPU time spent inside it, as a share of the step.

Wall time of a step on a shared machine varies by more than what is looked for. So the time inside is measured where
it is spent: in the callback's events, in what the taps do beside the trainer's own calls, and in the endpoint's thread.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

STEPS = 15
_MODELS = {"60 thousand weights": (48, 2), "10 million weights": (384, 8)}
"""Width and layers: the model of the demo, and the largest that is still quick on two cores."""
_EVENTS = ("on_step_begin", "on_step_end", "on_log", "on_save", "on_epoch_end")


class Inside:
    """Thread-CPU seconds within our own code, counted once where it calls itself."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, measured."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            with self.section():
                return function(*args, **kwargs)

        return measured

    def around(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """A context manager whose entry and exit count, and whose body, which is the trainer's, does not."""

        @contextlib.contextmanager
        def measured(*args: Any) -> Iterator[None]:
            with self.section():
                context = make(*args)
                context.__enter__()
            try:
                yield
            finally:
                with self.section():
                    context.__exit__(None, None, None)

        return measured

    def within(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """A context manager that counts with its body, which is ours."""

        @contextlib.contextmanager
        def measured(*args: Any) -> Iterator[None]:
            with self.section(), make(*args):
                yield

        return measured

    @contextlib.contextmanager
    def section(self) -> Iterator[None]:
        self._depth += 1
        start = time.thread_time()
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.seconds += time.thread_time() - start


@dataclass(frozen=True)
class Run:
    """Thread-CPU milliseconds a step: of the whole, inside the exporter, and of the thread that answers scrapes."""

    step: float
    inside: float
    endpoint: float


def _trainer(size: tuple[int, int], folder: Path) -> Any:
    """GRPO with a reference model and two iterations a batch, of 32 completions of 24 tokens."""
    import datasets
    import trl
    from transformers import LlamaForCausalLM, PrinterCallback

    from rlexporter.demo import groups, tiny

    LlamaForCausalLM(tiny.config(hidden_size=size[0], layers=size[1])).save_pretrained(folder / "model")
    trainer = trl.GRPOTrainer(
        model=LlamaForCausalLM.from_pretrained(folder / "model"),
        processing_class=tiny.tokenizer(),
        reward_funcs=[tiny.letter_reward, tiny.length_reward],
        args=trl.GRPOConfig(**{**groups.settings("grpo", STEPS, folder), "eval_strategy": "no"}),
        train_dataset=datasets.Dataset.from_dict({"prompt": tiny.prompts(512)}),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _measured(size: tuple[int, int], attached: bool) -> Run:
    from rlexporter.integrations.attach import attach

    inside, endpoint = Inside(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(size, Path(folder))
        if not attached:
            return Run(_trained(trainer), 0.0, 0.0)
        exporter = attach(trainer, port=0, run="bench")
        _instrument(trainer, exporter, inside)
        with _scraped(f"{exporter.url}/metrics"):
            step = _trained(trainer)
            endpoint = cpu_of("rlexporter-http")
        exporter.close()
    return Run(step, 1e3 * inside.seconds / STEPS, 1e3 * endpoint / STEPS)


def _instrument(trainer: Any, exporter: Any, inside: Inside) -> None:
    (callback,) = (each for each in trainer.callback_handler.callbacks if hasattr(each, "adopt"))
    for name in _EVENTS:
        setattr(callback, name, inside.call(getattr(callback, name)))
    sink = exporter.run.sink
    sink.observing = inside.within(sink.observing)
    sink.phase = inside.around(sink.phase)
    sink.flush = inside.call(sink.flush)


def _trained(trainer: Any) -> float:
    start = time.thread_time()
    trainer.train()
    return 1e3 * (time.thread_time() - start) / STEPS


@contextlib.contextmanager
def _scraped(url: str) -> Iterator[None]:
    """Once a second, as Prometheus would."""
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(1.0):
            urllib.request.urlopen(url).read()  # noqa: S310 - our own endpoint

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def cpu_of(name: str) -> float:
    """CPU seconds of a thread of this process, of Linux."""
    import os

    thread = next(each for each in threading.enumerate() if each.name.startswith(name))
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(") ")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def rows(rounds: int = 3) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield "| model | a step, not attached | a step, attached | inside the exporter | share | endpoint's thread |"
    yield "|---|---|---|---|---|---|"
    for name, size in _MODELS.items():
        runs = [(_measured(size, False), _measured(size, True)) for _ in range(rounds)]
        plain, attached = [each.step for each, _ in runs], [each for _, each in runs]
        inside = median(each.inside for each in attached)
        step = median(each.step for each in attached)
        yield (
            f"| {name} | {_spread(plain)} | {_spread([each.step for each in attached])} | "
            f"{_spread([each.inside for each in attached])} | {100 * inside / step:.2f} % | "
            f"{_spread([each.endpoint for each in attached])} |"
        )


def _spread(values: list[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
