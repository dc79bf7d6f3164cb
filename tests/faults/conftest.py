"""The model of the planted faults, taught once, and what was said of them, for the summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlexporter.demo import tiny
from tests.adapters.conftest import _closed_at_the_end as _closed_at_the_end
from tests.faults.runs import SEED


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the demo's model, taught to write words."""
    folder = tmp_path_factory.mktemp("taught")
    tiny.model(folder / "tiny-llama", SEED, lambda done, of: None)
    return folder
