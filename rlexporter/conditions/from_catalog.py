"""Makes the judge of the catalogue's conditions; holds the signals that it evaluates."""

from __future__ import annotations

from rlexporter.catalog import CONDITIONS, SERIES_SIGNALS
from rlexporter.conditions import coefficient_signals, nonfinite, reward_signals, signals, tensor_signals
from rlexporter.conditions.declare import ordered
from rlexporter.conditions.judge import Judge, Thresholds
from rlexporter.conditions.stall import STALLED
from rlexporter.conditions.watch import Watch

_DECLARED = (
    *(nonfinite.declared, reward_signals.declared, signals.declared),
    *(tensor_signals.declared, coefficient_signals.declared),
)

SIGNALS = ordered((*SERIES_SIGNALS, *(signal for each in _DECLARED for signal in each.signals)))
"""All signals, in the order of evaluation."""

SIGNAL_NAMED = {signal.name: signal for signal in SIGNALS}
FUNCTIONS = {name: function for each in _DECLARED for name, function in each.functions.items()}


def watch(thresholds: Thresholds | None = None) -> Watch:
    """Make a watch for one run. ``thresholds``: limits that replace those of the catalogue."""
    stalled = (thresholds or {}).get(STALLED)
    return Watch(Judge(CONDITIONS, SIGNALS, FUNCTIONS, thresholds), stalled if isinstance(stalled, float) else None)
