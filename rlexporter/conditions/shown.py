"""Where a number that answers a question is read: the first of a signal's series that a run has."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from rlexporter.catalog import NAMED
from rlexporter.catalog.questions import Shown
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.model.condition import Read
from rlexporter.model.metric import Kind


class Source(NamedTuple):
    """A series at which a number may be read. ``limited``: the limits of the signal are in its unit."""

    series: str
    limited: bool


@cache
def sources(shown: Shown) -> tuple[Source, ...]:
    """Return where a number is read, the best first: gauges, which agree with the trainer's log, then histograms."""
    if shown.series or not shown.signal:
        return tuple(Source(name, bool(shown.signal)) for name in shown.series)
    found, limited = [], True
    for source in SIGNAL_NAMED[shown.signal].sources:
        if source.read is Read.DERIVED:
            limited = False  # what comes after it has another unit
        elif source.read in (Read.VALUE, Read.MEAN):
            found.append(Source(source.series, limited))
    unique = {each.series: each for each in reversed(found)}
    order = [unique[name] for name in dict.fromkeys(each.series for each in found)]
    return tuple(sorted(order, key=lambda each: (not each.limited, NAMED[each.series].kind is Kind.HISTOGRAM)))
