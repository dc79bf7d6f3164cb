"""Demo: a real TRL trainer on a tiny model, served like any other run. Nothing is downloaded."""

from __future__ import annotations

import os
import re
import warnings
from importlib.metadata import PackageNotFoundError, version

from rlexporter.config.settings import Settings
from rlexporter.demo.faults import Fault
from rlexporter.model.errors import SetupError, needed_by

_VERSIONS = {
    "grpo": ((1, 0), None, "trl>=1.16"),
    "rloo": ((1, 0), None, "trl>=1.16"),
    "ppo": ((0, 12), (1, 12), "trl==1.12.0"),
    "ppo-legacy": ((0, 7), (0, 11), "trl==0.11.4' 'transformers==4.45.2' 'numpy<2"),
}
"""First and last version of TRL with the trainer of an algorithm, and one to install."""
ALGORITHMS = tuple(_VERSIONS)


def run(*, algorithm: str, steps: int, port: int | None, fault: str | None, linger: float | None) -> int:
    """Run the demo, and return the exit status.

    Raises:
        SetupError: no fitting TRL is installed, or ``fault`` or ``port`` is unusable.
    """
    planned = Fault.parse(fault, algorithm, steps) if fault else None
    Settings.load({"port": port})
    _check_trl(algorithm)
    print("loading torch, transformers and trl ...", flush=True)
    with needed_by(f"the demo of {algorithm}", f"torch '{_VERSIONS[algorithm][-1]}'"):
        quiet()
        from rlexporter.demo import training

    return training.run(algorithm=algorithm, steps=steps, port=port, fault=planned, linger=linger)


def _check_trl(algorithm: str) -> None:
    first, last, install = _VERSIONS[algorithm]
    try:
        have = version("trl")
    except PackageNotFoundError:
        have = ""
    found = tuple(map(int, re.findall(r"\d+", have)[:2]))  # 1.0rc1 is a 1.0
    if found < first or (last and found > last):
        here = f"trl {have} has no such trainer" if have else "trl is not installed"
        raise SetupError(f"the demo of {algorithm} trains with TRL, and {here}: pip install '{install}'")


def quiet() -> None:
    """Silence progress bars and advice of the libraries, and give torch, not yet imported, one thread.

    A model this small gains nothing from a second, and waits for it where the machine has something else to do: a
    hundred steps took 81 to 97 s beside other work with two threads, and 19 to 25 s with one.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    import datasets
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
