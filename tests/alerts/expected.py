"""By hand, and on purpose not derived: which alert each limit of each condition raises, and those from outside."""

from __future__ import annotations

from tests.tools import ROOT

_LIMITS = (ROOT / "tests/data/alerts.txt").read_text().splitlines()[1:]
RAISED = [
    (alert, condition, severity) for alert, condition, *severities in map(str.split, _LIMITS) for severity in severities
]
PROMETHEUS_ALERTS = {
    "RLManyRunsSick": "critical",
    "RLManyRunsWarn": "warning",
    "RLRunVanished": "critical",
    "RLRunStalled": "critical",
    "RLRunFailed": "critical",
    "RLRunRestarting": "warning",
    "RLRunLostProgress": "warning",
    "RLRunResumed": "info",
    "RLRunPreempted": "info",
    "RLRunNotBack": "warning",
    "RLTargetSilent": "warning",
    "RLRankZeroMissing": "warning",
    "RLClockOff": "warning",
    "RLExporterErrors": "warning",
    "RLSignalUnavailable": "info",
    "RLExporterWatchdog": "none",
}
