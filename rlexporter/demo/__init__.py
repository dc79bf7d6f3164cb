"""`rlexporter demo`: a real TRL trainer on a tiny model, served like any other run. Nothing is downloaded."""

from __future__ import annotations

import argparse
import os
import re
import warnings
from importlib.metadata import PackageNotFoundError, version

from rlexporter.config.settings import Settings
from rlexporter.demo.faults import KINDS, Fault
from rlexporter.model.errors import SetupError, needed_by, require_torch

_VERSIONS = {
    "grpo": ((1, 0), None, "trl>=1.16"),
    "rloo": ((1, 0), None, "trl>=1.16"),
    "ppo": ((0, 12), (1, 12), "trl==1.12.0"),
    "ppo-legacy": ((0, 7), (0, 11), "trl==0.11.4' 'transformers==4.45.2' 'numpy<2"),
}
"""First and last version of TRL with the trainer of an algorithm, and one to install."""


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command."""
    parser.epilog = "\n".join(
        ["faults, such as --fault nan@200:", *(f"  {kind:15} {what}" for kind, what in KINDS.items())]
    )
    parser.add_argument("--algorithm", choices=tuple(_VERSIONS), default="grpo")
    parser.add_argument("--steps", type=_positive, default=600, metavar="N", help="steps to train (default: 600)")
    parser.add_argument("--port", type=int, metavar="P", help="port to serve on (default: 9750, or the next free one)")
    parser.add_argument("--fault", metavar="KIND@STEP", help="inject a real fault at this step, one of those below")
    parser.add_argument("--linger", type=float, metavar="SECONDS", help="how long the final state is served at least")
    parser.set_defaults(command=run)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Run the demo; return the exit status.

    Raises SetupError if torch or a fitting TRL is not installed, or the fault or the port is unusable.
    """
    algorithm, steps, port = options.algorithm, options.steps, options.port
    fault = Fault.parse(options.fault, algorithm, steps) if options.fault else None
    Settings.load({"port": port})
    _check_trl(algorithm)
    require_torch(f"the demo of {algorithm}")
    print("loading torch, transformers and trl ...", flush=True)
    with needed_by(f"the demo of {algorithm}", f"'{_VERSIONS[algorithm][-1]}'"):
        quiet()
        from rlexporter.demo import training

    return training.run(algorithm=algorithm, steps=steps, port=port, fault=fault, linger=options.linger)


def _check_trl(algorithm: str) -> None:
    first, last, install = _VERSIONS[algorithm]
    try:
        have = version("trl")
    except PackageNotFoundError:
        have = ""
    release = tuple(map(int, re.findall(r"\d+", have)[:2]))  # 1.0rc1 is a 1.0
    if release < first or (last and release > last):
        here = f"trl {have} has no such trainer" if have else "trl is not installed"
        raise SetupError(f"the demo of {algorithm} trains with TRL, and {here}: pip install '{install}'")


def quiet() -> None:
    """Silence progress bars and advice of the libraries, and give torch one thread. Call it before torch is imported.

    A model this small gains nothing from a second thread, and waits for it on a busy machine: a hundred steps took 81
    to 97 s beside other work with two threads, and 19 to 25 s with one.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    import datasets
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
