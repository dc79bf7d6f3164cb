"""Outputs that no variable of this machine changes."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = ("OTEL_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    for name in [each for each in os.environ if each.startswith(foreign)]:
        monkeypatch.delenv(name)
