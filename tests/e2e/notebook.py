"""A notebook: a real kernel, the cells that it runs, and the cards of runs that it shows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from tests.tools import ROOT

QUIET = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""What a client of a kernel warns of."""
_CARD = "border-left:6px"
"""What our cards have, and what transformers shows of a training has not."""


@dataclass
class Notebook:
    """One of a running kernel."""

    manager: Any
    client: Any
    cards: list[str] = field(default_factory=list)
    """The HTML of what was shown. Also between two cells."""

    def run(self, code: str) -> str:
        """Execute a cell; what it printed, or how it failed."""
        texts: list[str] = []
        cell = self.client.execute(code)
        while True:
            message = self.client.get_iopub_msg(timeout=1200)
            content = message["content"]
            if _CARD in (html := content.get("data", {}).get("text/html", "")):
                self.cards.append(html)
            if message["parent_header"].get("msg_id") == cell:
                texts.append(content.get("text") or " ".join(content.get("traceback", [])))
                if content.get("execution_state") == "idle":
                    return "".join(texts)


@contextmanager
def opened(folder: Path) -> Iterator[Notebook]:
    """An empty notebook whose kernel works in ``folder``."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(extra_arguments=["--HistoryManager.enabled=False"], env=environ, cwd=str(folder))
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=600)
        yield Notebook(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
