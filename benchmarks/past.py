"""What a Prometheus holds after it has scraped runs for hours: the series of each of them, and what rules record.

The runs are one real GRPO run of TRL, many times over: its series with all their labels, and what it served after each
of its steps, one step a scrape, over and over, while what counts goes on counting. So every bucket moves. What rules
record and the alerts are those of a server that scraped the run for a while; they stay as they were then.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from transformers import TrainerCallback

import rlexporter
from benchmarks import simulated
from benchmarks.remote_write import Course
from rlexporter.outputs import prometheus
from tests import tiny
from tests.tools import ROOT, free_port

RUN = "run-{}"
"""The name of a run, with a place for its number."""
_TARGET = {"job": "rlexporter", "instance": "node-{}:1"}
_STEPS, _RULED_SECONDS = 60, 20.0
_CLOCK = re.compile(r"^(rlexporter_time_seconds\{.*\}) .*$", re.MULTILINE)


def courses(times: Sequence[float]) -> list[Course]:
    """The series of each run, with a sample at each of these times."""
    texts = _served()
    return [*_scraped(texts, times), *_recorded(texts[-1], len(times))]


def _served() -> list[str]:
    """What a real run serves after each of its steps."""
    texts: list[str] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        options: dict[str, Any] = {
            "eval_strategy": "steps",
            "eval_steps": 10,
            "save_strategy": "steps",
            "save_steps": 20,
        }
        trainer = tiny.grpo(Path(folder), max_steps=_STEPS, num_iterations=2, **options)
        exporter = rlexporter.attach(trainer, run=RUN, port=0)

        class Scrapes(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                texts.append(prometheus.encode(exporter.snapshot, "")[0].decode())

        trainer.add_callback(Scrapes())
        trainer.train()
        exporter.close()
    return texts


def _scraped(texts: Sequence[str], times: Sequence[float]) -> list[Course]:
    """The series that scrapes bring, and those that Prometheus adds to each."""
    found: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault((("__name__", sample.name), *sample.labels.items()), []).append(sample.value)
    for name, value in {"up": 1.0, "scrape_duration_seconds": 0.005, "scrape_samples_scraped": len(found)}.items():
        found[(("__name__", name),)] = [value]
    return [Course({**dict(labels), **_TARGET}, _values(labels[0][1], each, times)) for labels, each in found.items()]


def _values(name: str, known: Sequence[float], times: Sequence[float]) -> Any:
    """The samples of a series: those that are known, over and over; what only rose goes on from where it was."""
    values, (turns, places) = np.array(known), np.divmod(np.arange(len(times)), len(known))
    changed = values[-1] != values[0]
    if values[0] > 1e9 and name.endswith(("_timestamp_seconds", "_time_seconds")):
        return np.array(times) if changed else np.full(len(times), times[0])
    rose = changed and (np.diff(values) >= 0).all()
    return values[places] + (turns * (2 * values[-1] - values[0] - values[-2]) if rose else 0.0)


def _recorded(text: str, samples: int) -> list[Course]:
    """What rules record of a run, and its alerts, when a server has scraped it for a while."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "alerts/rlexporter.rules.yml")],
    }
    answering = simulated.answering(lambda _: _CLOCK.sub(lambda found: f"{found[1]} {time.time()}", text))
    with tempfile.TemporaryDirectory() as folder, answering as port:
        scrapes = [{"job_name": _TARGET["job"], "static_configs": simulated.targets(port, 1)}]
        with simulated.server("3", Path(folder), free_port(), {**config, "scrape_configs": scrapes}) as server:
            time.sleep(_RULED_SECONDS)
            found = server.query(f'{{__name__=~"rl:.+|ALERTS",run="{RUN}"}}')
    one = {name: value.format(0) for name, value in _TARGET.items()}
    return [
        Course(
            {name: _TARGET[name] if one.get(name) == value else value for name, value in each["metric"].items()},
            np.full(samples, float(each["value"][1])),
        )
        for each in found
    ]
