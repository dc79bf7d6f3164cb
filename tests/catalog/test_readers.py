"""A metric has a name of its own for a reason; any other key is served as it is logged (`rl_logged_value`).

The reasons: somebody reads it, the documents of the project name its key, it is counted at the tensor, or a NaN of it
is no fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from rlexporter.catalog.as_logged import AS_LOGGED
from rlexporter.catalog.metrics import CATALOG
from rlexporter.feed.keys import Resolver
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.model.metric import AS_IT_IS, Metric
from scripts.readers import readers


def _unread(metrics: Iterable[Metric]) -> list[str]:
    """The names of metrics that nobody reads."""
    return [name for name, who in readers(metrics).items() if not who]


def test_a_metric_is_read_by_somebody() -> None:
    """By a condition, a panel, a rule, the page or our own code."""
    assert _unread(CATALOG) == []
    assert _unread([replace(CATALOG[0], series="rl_nobody", keys=())]) == ["rl_nobody"]


def test_a_key_that_nothing_reads_feeds_nothing_else() -> None:
    """Those of TRL have no series in any algorithm that logs them, and are known to it."""
    for key in AS_LOGGED:
        for algorithm in key.algorithms:
            name = re.sub(r"\{\w+\}", "x", key.name)
            resolver = Resolver(CATALOG, algorithm)
            assert (name, algorithm, resolver.resolve(name)) == (name, algorithm, ())
            assert resolver.as_logged(name), name


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_has_such_keys_once(name: str) -> None:
    """None of them feeds a series as well."""
    keys = FRAMEWORKS[name].keys
    plain = {key.name for key in keys if key.series == AS_IT_IS}
    assert plain & {key.name for key in keys if key.series != AS_IT_IS and not key.families} == set()
