"""A plugin of pytest for TRL's tests: seeds each, and writes what became of it and of the weights it trained.

`TRL_SUITE_FOLDER`: where `hub.py` has written; `TRL_SUITE_RESULTS`: the file for the results; `TRL_SUITE_PORT`: where
this exporter serves, if it does. Nothing of this project is imported here: both arms load the same plugin.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.request
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import transformers
from transformers import trainer as transformers_trainer

FOLDER = Path(os.environ["TRL_SUITE_FOLDER"])
PORT = os.environ.get("TRL_SUITE_PORT")

results: dict[str, dict[str, Any]] = {}
_test = ""


def _load_dataset(path: str, name: str = "default", *_: Any, split: str | None = None, **__: Any) -> Any:
    kept = datasets.load_from_disk(str(FOLDER / "data" / path / name))
    return kept if split is None else kept[split]


datasets.load_dataset = _load_dataset
datasets.disable_progress_bars()


class Hashed(transformers.TrainerCallback):  # type: ignore[misc, unused-ignore] # untyped
    """Writes a hash of the weights, and what the exporter says, when a training ends."""

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        digest = hashlib.blake2b(digest_size=16)
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        found = results.setdefault(_test, {})
        found.setdefault("weights", []).append(digest.hexdigest())
        found["steps"] = found.get("steps", 0) + state.global_step
        if PORT:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=60) as response:
                text = response.read().decode()
            errors = re.findall(r"^rlexporter_errors_total\{.*\} (.+)$", text, re.MULTILINE)
            found.setdefault("errors", []).append(sum(map(float, errors)))


transformers_trainer.DEFAULT_CALLBACKS.append(Hashed)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed what is random in it."""
    global _test
    _test = item.nodeid
    transformers.set_seed(0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the outcome; what fails before or after the test fails it."""
    found = results.setdefault(report.nodeid, {})
    if report.when == "call" or report.outcome != "passed":
        found["outcome"] = report.outcome


def pytest_sessionfinish() -> None:
    """Write what was found."""
    Path(os.environ["TRL_SUITE_RESULTS"]).write_text(json.dumps(results, indent=1))
