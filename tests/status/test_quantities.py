"""A number with its unit, as people write it."""

from __future__ import annotations

import pytest

from rlexporter.catalog.languages import language
from rlexporter.status.page import STRINGS, page
from rlexporter.status.samples import UNITS, quantity


@pytest.mark.parametrize(
    ("value", "unit", "code", "text"),
    [
        (1.0, "values", "en", "1 value"),
        (1.0, "tokens per second", "en", "1 token per second"),
        (1.0, "entries", "en", "1 entry"),
        (1.0, "batches per second", "en", "1 batch per second"),
        (1.0, "TFLOP/s", "en", "1 TFLOP/s"),
        (2.5, "nats per token", "en", "2.5 nats per token"),
        (0.25, "fraction", "zh", "25 %"),
        (0.5, "reward", "vi", "0.5"),
        (1.0, "values", "zh", "1 个值"),
        (3.0, "seconds", "vi", "3 giây"),
        (4.0, "orders of magnitude", "en", "a chance of 1 in 10^4"),
        (4.0, "orders of magnitude", "zh", "1/10^4 的概率"),
    ],
)
def test_a_quantity_reads_as_a_person_writes_it(value: float, unit: str, code: str, text: str) -> None:
    """One of a thing is singular in English; a share is in percent; a reward has no unit."""
    assert quantity(value, unit, language(code)) == text


def test_the_page_has_the_units_of_every_language() -> None:
    """The page says one token, and tokens; in Chinese both are the same word."""
    for text in ('"tokens.one": "token"', '"tokens": "个 token"', '"seconds": "giây"'):
        assert page().count(text) == 1
    assert not {*UNITS} & {*STRINGS}, "an id of the page is a unit too"
