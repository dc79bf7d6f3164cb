"""By hand, and on purpose not derived: which alert each limit of each condition raises, and those from outside."""

from __future__ import annotations

from tests.tools import ROOT

_LIMITS = (ROOT / "tests/data/alerts.txt").read_text().splitlines()[1:]
_EACH = [
    (alert, condition, severity) for alert, condition, *severities in map(str.split, _LIMITS) for severity in severities
]
RAISED = [each for each in _EACH if each[2] != "info"]
INFORMS = [each for each in _EACH if each[2] == "info"]
"""What is known of a run and is no alert."""
PROMETHEUS_ALERTS = {
    "RLManyRunsSick": "critical",
    "RLManyRunsWarn": "warning",
    "RLRunVanished": "critical",
    "RLRunStalled": "critical",
    "RLRunFailed": "critical",
    "RLRunRestarting": "warning",
    "RLRunLostProgress": "warning",
    "RLRunNotBack": "warning",
    "RLTargetSilent": "warning",
    "RLRankZeroMissing": "warning",
    "RLClockOff": "warning",
    "RLExporterErrors": "warning",
    "RLExporterWatchdog": "none",
}
