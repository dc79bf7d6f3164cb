"""Errors that the user can fix, such as a missing package, with what to install."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import ClassVar

ENDPOINT = "fastapi uvicorn h11 prometheus-client"
"""The packages of the HTTP endpoint, as arguments of ``pip install``."""
TEXT = "prometheus-client"
"""The package that writes the Prometheus text format."""
OTLP = "'rlexporter[otlp]'"
"""The extra with the packages of the OTLP push."""
NOTIFY = "'rlexporter[notify]'"
"""The extra with the package that sends messages."""
TOP = "'rlexporter[top]'"
"""The extra with the package that draws in a terminal."""
TORCH = "'rlexporter[torch]'"
"""The extra with torch, which every trainer needs, and no reader of logs."""
TENSORBOARD = "tensorboard"
"""The package that reads TensorBoard event files."""


class SetupError(Exception):
    """An error that the user must fix before the exporter can start; the message says what, where and how."""

    status: ClassVar[int] = 2
    """The exit status of a command that it ends."""


class UnreadableError(SetupError):
    """A file is not what it should be, such as a recorded run. The message is one line: which, where, what is wrong."""

    status: ClassVar[int] = 3


@contextmanager
def needed_by(what: str, install: str) -> Iterator[None]:
    """Turn an ImportError in the block into a SetupError that tells the user to ``pip install`` what ``what`` needs.

    An ImportError of rlexporter's own modules passes unchanged: installing a package would not help.
    """
    try:
        yield
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] == "rlexporter":
            raise
        raise SetupError(f"{what} needs more: pip install {install} ({error})") from error


def require_torch(what: str) -> None:
    """Raise SetupError if torch, which ``what`` needs, is not installed. This does not import it."""
    with needed_by(what, TORCH):
        if sys.modules.get("torch") is None and find_spec("torch") is None:
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
