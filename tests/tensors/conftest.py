"""Both ways of counting on the host, whatever the size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlexporter.tensors import host


@pytest.fixture(scope="module", params=[host._FEW, 0], ids=["sorting", "comparing"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Few values as they are counted by default, then as many are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "_FEW", request.param)
        yield
