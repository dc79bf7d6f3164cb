"""What trl imports from here."""

from __future__ import annotations

from typing import Any


class StructuredOutputsParams:
    """How to constrain what is sampled; not done here."""

    def __init__(self, **_: Any) -> None:
        raise NotImplementedError
