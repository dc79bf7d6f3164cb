"""What an environment lacks, in one line that says what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlexporter.model.errors import SetupError

ENDPOINT = "fastapi uvicorn h11 prometheus-client"
"""What serves, as pip takes it."""
TEXT = "prometheus-client"
"""What writes the text of a scrape."""
OTLP = "'rlexporter[otlp]'"
"""The extra with all that a push needs."""


@contextmanager
def needed_by(what: str, install: str) -> Iterator[None]:
    """Turn an ImportError within into a SetupError: ``what`` needs more, and pip should ``install`` it.

    An import that fails in our own code stays what it is: nothing that can be installed would help.
    """
    try:
        yield
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] == "rlexporter":
            raise
        raise SetupError(f"{what} needs more: pip install {install} ({error})") from error
