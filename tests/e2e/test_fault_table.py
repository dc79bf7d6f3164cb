"""What goes wrong around a training: it trains as it would have, and is counted right afterwards.

A fault is there while a real GRPO trainer takes its steps. Afterwards losses, weights and random state are compared
with those of a run without rlexporter, bit for bit, and what is served with what the trainer did.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import TrainerCallback

import rlexporter
from rlexporter.exporter import Exporter
from rlexporter.outputs import discovery, otlp, prometheus, state_file
from tests import tiny, tools
from tests.adapters.twice import random_states
from tests.conftest import fetch
from tests.tools import eventually, free_port

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

STEPS = 6
SAMPLES = 4 * STEPS // 2  # each is used in two steps


@dataclass
class Around:
    """What faults may do: settings of the exporter, something in each step, checks at the end."""

    folder: Path
    patch: pytest.MonkeyPatch
    stack: ExitStack
    settings: dict[str, Any] = field(default_factory=dict)
    each_step: Callable[[Exporter], None] = field(default=lambda _: None)
    afterwards: Callable[[Exporter], object] = field(default=lambda _: None)
    errors: set[str] = field(default_factory=set)
    """Where errors of the exporter's own are expected."""


class EachStep(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Calls what the fault wants in the middle of each step."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._call()


def _train(folder: Path, watch: Callable[[Any], Callable[[], None]]) -> tuple[Any, ...]:
    """Losses, weights and random state of a training."""
    random.seed(7)
    np.random.seed(7)
    trainer = tiny.grpo(folder, max_steps=STEPS, num_iterations=2, seed=7)
    trainer.add_callback(EachStep(watch(trainer)))
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    weights = {name: tensor.tolist() for name, tensor in trainer.model.state_dict().items()}
    return losses, weights, random_states()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """The training without rlexporter."""
    return _train(tmp_path_factory.mktemp("alone"), lambda _: lambda: None)


def prometheus_is_down_and_back(around: Around) -> None:
    """It is gone in the middle; counters hold what happened meanwhile."""
    port = free_port()
    around.settings["port"] = port
    servers = ExitStack()
    around.stack.enter_context(servers)
    folder = around.folder / "prometheus"
    server = [servers.enter_context(tools.prometheus("3", folder, [f"127.0.0.1:{port}"]))]
    counted = "rl_reward_dist_bucket{le='+Inf'}"

    def disturb(exporter: Exporter) -> None:
        step = exporter.snapshot.value("rl_step")
        if step == 2:
            eventually(lambda: server[0].value(counted))
            servers.pop_all().close()
        if step == 5:
            server[0] = servers.enter_context(tools.prometheus("3", folder, [f"127.0.0.1:{port}"]))

    around.each_step = disturb
    around.afterwards = lambda _: eventually(lambda: server[0].value(counted) == SAMPLES)


def clock_jumps(around: Around) -> None:
    """A day ahead and two back, as a clock does that is set. The machine's own cannot be: Python's is."""
    real, ahead = time.time, [0.0]
    around.patch.setattr(time, "time", lambda: real() + ahead[0])

    def jump(exporter: Exporter) -> None:
        exporter._run.feed._clock = time.time  # which it took before it was replaced
        ahead[0] = {2.0: 86400.0, 4.0: -86400.0}.get(exporter.snapshot.value("rl_step") or 0, ahead[0])

    def sane(exporter: Exporter) -> None:
        seconds = exporter.snapshot.buckets
        durations = next(
            found for series, found in seconds.items() if series.metric.series == "rl_step_duration_seconds"
        )
        assert 0 <= durations.minimum <= durations.maximum < 60
        assert (exporter.snapshot.value("rl_stall_after_seconds") or 0) < 7200

    around.each_step = jump
    around.afterwards = sane


def every_output_fails(around: Around) -> None:
    """An exception of its own in each of them, and a collector that is away."""
    around.settings |= {"state_file": around.folder / "state.json", "discovery": around.folder / "targets"}
    around.settings["otlp"] = f"http://127.0.0.1:{free_port()}"
    around.patch.setattr(discovery, "FRESH_SECONDS", 0.02)
    done: list[int] = []

    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("planted")

    def break_all(exporter: Exporter) -> None:
        if not done:
            around.patch.setattr(prometheus, "encode", fail)
            around.patch.setattr(state_file, "text", fail)
            around.patch.setattr(discovery, "write_whole", fail)
            around.patch.setattr(otlp, "metrics_data", fail)
        done.append(fetch(f"{exporter.url}/metrics")[0])
        for outlet in exporter._outlets:
            outlet.wake()
        eventually(lambda: {"state", "discovery"} <= _errors(exporter))

    def mend(_: Exporter) -> None:
        assert set(done) == {500}
        around.patch.undo()

    around.each_step = break_all
    around.afterwards = mend
    around.errors |= {"scrape", "state", "discovery", "otlp"}


@pytest.mark.slow
@pytest.mark.parametrize("fault", [prometheus_is_down_and_back, clock_jumps, every_output_fails])
def test_a_training_survives(fault: Callable[[Around], None], tmp_path: Path, alone: tuple[Any, ...]) -> None:
    """Each fault has a text of its own."""
    made: list[Exporter] = []
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        around = Around(tmp_path, patch, stack, {"port": 0, "linger": 0})
        fault(around)

        def watch(trainer: Any) -> Callable[[], None]:
            made.append(rlexporter.attach(trainer, run="r", **around.settings))
            return lambda: around.each_step(made[0])

        try:
            assert _train(tmp_path, watch) == alone
            exporter = made[0]
            around.afterwards(exporter)
            _figures_are_right(exporter)
        finally:
            for each in made:
                each.close()
        assert _errors(exporter) == around.errors
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("rlexporter")])


def _figures_are_right(exporter: Exporter) -> None:
    text = _scrape(exporter)
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    labels = 'rank="0",run="r"'
    assert lines[f"rl_step{{{labels}}}"] == str(float(STEPS))
    assert lines[f"rl_steps_total{{{labels}}}"] == str(float(STEPS))
    assert lines[f"rl_step_duration_seconds_count{{{labels}}}"] == str(float(STEPS))
    assert lines[f'rl_advantage_dist_bucket{{le="+Inf",{labels}}}'] == str(float(SAMPLES))
    assert lines[f'rl_run_state{{{labels},state="finished"}}'] == "1.0"
    assert len(lines) < 1700


def _scrape(exporter: Exporter) -> str:
    status, text, _ = fetch(f"{exporter.url}/metrics")
    assert status == 200
    return text


def _errors(exporter: Exporter) -> set[str]:
    found = exporter.snapshot.samples.items()
    return {s.labels[0] for s, value in found if s.metric.series == "rlexporter_errors_total" and value}
