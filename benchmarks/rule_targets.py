"""What runs serve to the benchmark of the rules: `python -m benchmarks.rule_targets` prints it as JSON.

It runs in any checkout, so that the rules of another revision meet what its exporter served.
"""

from __future__ import annotations

import json
import urllib.request
from dataclasses import fields
from math import nan
from typing import Any

from rlexporter import Exporter
from rlexporter.model.step import RunFacts
from tests.conditions.planted import LINES

RUN = "@RUN@"
HEALTHY, KL, NAN, DEAD, FAILED = "healthy", "kl", "nan", "dead of a nan", "failed"
_WARM = 60
_SET = {"save_steps": 50.0, "beta": 0.1}
_GPUS: dict[str, Any] = {"gpus": 8} if "gpus" in {each.name for each in fields(RunFacts)} else {}
_WRONG = {KL: {"kl": 9.0}, NAN: {"loss": nan}, DEAD: {"loss": nan}}


def texts() -> dict[str, str]:
    """Scrapes of GRPO runs after 80 steps, by what is wrong with them; the name of the run is `RUN`."""
    return {kind: _scrape(kind) for kind in (HEALTHY, KL, NAN, DEAD, FAILED)}


def _scrape(kind: str) -> str:
    with Exporter(run=RUN, algorithm="grpo", port=0, linger=0).start() as exporter:
        exporter.run.begin(RunFacts(algorithm="grpo", step=0, steps_planned=200, hyperparameters=_SET, **_GPUS))
        for step in range(1, 81):
            wrong = _WRONG.get(kind, {}) if step > _WARM else {}
            exporter.log({**LINES["grpo"](step), **wrong}, step=step)
        exporter.run.sink.saved(50)
        if kind in (DEAD, FAILED):
            exporter.run.end(RuntimeError("probability tensor contains nan"))
        with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics") as response:
            return str(response.read().decode())


if __name__ == "__main__":
    print(json.dumps(texts()))
