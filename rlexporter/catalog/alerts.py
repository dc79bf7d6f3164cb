"""Alerts on the process of a run, and where the pack is that has their rules and runbooks.

``expr`` is PromQL as in `scripts.pack.recording_rules`. What a description says beside the value stands in labels of
`rl:alert`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlexporter.model.condition import Family, Severity

_PACKAGE = Path(__file__).parents[1]
PACK = _PACKAGE / "pack" if (_PACKAGE / "pack").is_dir() else _PACKAGE.parent
"""The folder with the rules, runbooks and dashboards that come with the package: in the wheel, or in a checkout."""

RUNBOOKS = "https://github.com/rlexporter/rlexporter/blob/main/alerts/runbooks"
"""The folder that `runbook_url` points to: alerts/runbooks in the repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusAlert:
    """An alert that only Prometheus can raise, because the process cannot see its cause."""

    alert: str
    family: Family
    severity: Severity
    expr: str
    summary: str
    description: str
    """A Prometheus template; the rule puts the name of the run in front of it."""
    wait: str = ""
    """The time that ``expr`` must hold before the alert fires."""
    keep: str = ""
    """The time for which the alert goes on firing when ``expr`` does not hold any more."""
    of_run: bool = True
    condition: str = ""
    """The value of the label ``condition``, which tells alerts of one name apart; empty for a name of its own."""
    milder: bool = False
    """Whether ``expr`` selects a severity, which is ``severity`` at worst."""
    tells_checkpoint: bool = False
    """Whether the description ends with the last step, and with that of the last good checkpoint."""


RUN_FAILED = PrometheusAlert(
    alert="RLRunFailed",
    family=Family.CRASH,
    severity=Severity.CRITICAL,
    condition="run_failed",
    expr='rl:alert{condition="run_failed"}',
    summary="A run has ended with an exception.",
    description="it has ended with {{ with $labels.subject }}{{ . }}{{ else }}an exception{{ end }}.",
    tells_checkpoint=True,
)
RUN_VANISHED = PrometheusAlert(
    alert="RLRunVanished",
    family=Family.STALL,
    severity=Severity.CRITICAL,
    condition="run_vanished",
    expr='rl:alert{condition="run_vanished"}',
    summary="A run that was training is unreachable.",
    description="it was training, and has not been seen for more than three minutes.",
    tells_checkpoint=True,
)
RUN_END_UNSEEN = PrometheusAlert(
    alert="RLRunVanished",
    family=Family.STALL,
    severity=Severity.WARNING,
    condition="run_end_unseen",
    expr='rl:alert{condition="run_end_unseen"}',
    summary="The end of a run was not seen.",
    description="it was training when Prometheus went away, and gone when it was back. It may have ended well.",
    tells_checkpoint=True,
)
RUN_STALLED = PrometheusAlert(
    alert="RLRunStalled",
    family=Family.STALL,
    severity=Severity.CRITICAL,
    condition="run_stalled",
    expr='rl:alert{condition="run_stalled"}',
    summary="A run makes no steps any more.",
    description="no step has ended for {{ $value | humanizeDuration }}"
    "{{ with $labels.subject }}, in the phase {{ . }}{{ end }}.",
)
