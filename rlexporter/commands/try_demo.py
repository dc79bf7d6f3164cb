"""`rlexporter demo`: a real training of a tiny model."""

from __future__ import annotations

import argparse
from typing import Any

from rlexporter import demo
from rlexporter.demo.faults import KINDS


def add_to(commands: Any) -> None:
    """Add the command to ``commands``."""
    trial = commands.add_parser(
        "demo",
        help="train a tiny model with TRL on the CPU, and serve the run",
        epilog="\n".join(
            ["faults, such as --fault nan@200:", *(f"  {kind:15} {what}" for kind, what in KINDS.items())]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    trial.add_argument("--algorithm", choices=demo.ALGORITHMS, default="grpo")
    trial.add_argument("--steps", type=_positive, default=600, metavar="N", help="steps to train (default: 600)")
    trial.add_argument("--port", type=int, metavar="P", help="port to serve on (default: 9750, or the next free one)")
    trial.add_argument("--fault", metavar="KIND@STEP", help="a real fault in this step, of those below")
    trial.add_argument("--linger", type=float, metavar="SECONDS", help="how long the final state is served at least")
    trial.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Run the demo; return the exit status. Raises SetupError if a library is missing or the fault is unknown."""
    return demo.run(
        algorithm=options.algorithm,
        steps=options.steps,
        port=options.port,
        fault=options.fault,
        linger=options.linger,
    )


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)
