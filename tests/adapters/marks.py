"""Marks of tests with real trainers."""

from __future__ import annotations

import pytest

REAL_TRAINERS = [
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
"""For a module's `pytestmark`: exporters take a free port, and torch, transformers and trl may warn of each other."""
