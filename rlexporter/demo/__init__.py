"""The demo: a real TRL trainer on a tiny model, served as any other run would be. Nothing is downloaded."""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec

from rlexporter.config import Settings
from rlexporter.demo.faults import Fault
from rlexporter.model import SetupError

ALGORITHMS = ("grpo", "rloo")


def run(*, algorithm: str, steps: int, port: int | None, fault: str | None, linger: float | None) -> int:
    """Run the demo; the exit status. Raises SetupError where TRL is missing, or the fault is none."""
    planned = Fault.parse(fault) if fault else None
    Settings.load({"port": port})
    if find_spec("trl") is None:
        raise SetupError("the demo trains with TRL, which is not installed: pip install 'rlexporter[demo]'")
    print("loading torch, transformers and trl ...", flush=True)
    quiet()
    from rlexporter.demo import training

    return training.run(algorithm=algorithm, steps=steps, port=port, fault=planned, linger=linger)


def quiet() -> None:
    """Only the demo's own lines: no progress bars, and no advice, from the libraries that it uses."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    import datasets
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
