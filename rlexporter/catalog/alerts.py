"""Alerts on the process of a run, and their runbooks.

``expr`` is PromQL as in `scripts.pack.recording_rules`. What a description says beside the value stands in labels of
`rl:alert`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
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
    meaning: str
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    source: str = ""
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


RESUME = "Resume from the last good checkpoint."
"""What the first step of a verdict says already, with the checkpoint."""
STACK = "`rl_phase` says where; `py-spy dump --pid` shows the stack."
"""What the steps about a run that hangs have as a command."""

RUN_FAILED = PrometheusAlert(
    alert="RLRunFailed",
    family=Family.CRASH,
    severity=Severity.CRITICAL,
    condition="run_failed",
    expr='rl:alert{condition="run_failed"}',
    summary="A run has ended with an exception.",
    description="it has ended with {{ with $labels.subject }}{{ . }}{{ else }}an exception{{ end }}.",
    meaning="`train()` raised, and the run is over. The alert fires until the run is back, for a day at most. Silent "
    "where the run died of a value that was NaN or infinite: the alert on that is the one, and lasts as long.",
    causes=(
        "NaN weights: sampling fails with a probability tensor that contains inf, nan or negative elements.",
        "Out of memory.",
        "An exception in a reward function or a tool.",
    ),
    remedies=("Read the exception, and look for an alert on NaN before it.", RESUME),
    source="the state that the exporter serves after the end",
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
    meaning="Its last word was that it is running, and then no scrape succeeded any more: the process was killed, or "
    "cannot be reached. A run that ends, fails or is preempted says so. One that was still starting counts as "
    "vanished when the time for its start is over. The alert fires until the run is back, for a day at most.\n\n"
    "A run is known by its labels. If a label is added or changed while runs train (a reload with `cluster`, say), all "
    "of them vanish under their old labels, and this alert fires for up to a day: that is expected. Silence it by the "
    'old labels, such as `alertname="RLRunVanished"` with `cluster=""`. To make the rules forget runs at once, delete '
    "what they remember: `curl -X POST -g 'http://PROMETHEUS/api/v1/admin/tsdb/delete_series?match[]="
    '{__name__=~"rl:.+",cluster=""}\'`, which needs `--web.enable-admin-api`.',
    causes=(
        "SIGKILL: the OOM killer, a lost node, a time limit of the scheduler.",
        "A network or discovery problem: other targets of the node are down too.",
    ),
    remedies=(
        "Look at the scheduler's and the kernel's log of the node.",
        RESUME,
    ),
    source="three and a half minutes without a scrape: 14 at 15 seconds; a network that is away for less is no death",
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
    meaning="The run was there in the last evaluation before a gap in those of Prometheus, and was not seen since. "
    "It may have finished, failed or been killed: nobody was there to see it. The process serves its end for as long "
    "as a scraper that came regularly is missing, for 150 seconds at most, so this needs a longer absence, or a kill "
    "in it. A run that vanishes while Prometheus is there is `RLRunVanished`, which pages. The alert fires until the "
    "run is back, for a day at most.",
    causes=(
        "The run ended, well or not, while Prometheus was restarted, updated or out of memory.",
        "Its node was lost together with Prometheus.",
    ),
    remedies=(
        "Read the end of the run's log.",
        "Look at why Prometheus was away: two of them do not miss the same end.",
    ),
    source="two evaluations that are missing: 45 seconds at 15 seconds; one that comes late is no absence",
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
    meaning="The process is alive and is scraped, but its last step (or its start) is longer ago than ten times its "
    "own pace, and than ten minutes; before the first step, half an hour.",
    causes=(
        "A reward function, a tool or a judge that does not answer.",
        "A rank that is gone while the others wait in a collective.",
        "A sampler that hangs, a data loader that waits.",
    ),
    remedies=(
        STACK,
        "Give reward functions a time-out.",
        'A run with slow steps: `thresholds={"run_stalled": seconds}`.',
    ),
    source="600 seconds: prime-rl; ten times the own median: `rl_stall_after_seconds`",
)


def runbook(name: str) -> str | None:
    """Return the page about an alert, as Markdown; None for a name that no alert has, or where the pages are gone."""
    file = _runbooks().get(name)  # whoever asks may send any name: it is compared, and never becomes part of a path
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return None


@cache
def _runbooks() -> Mapping[str, Path]:
    return {file.stem: file for file in (PACK / "alerts" / "runbooks").glob("*.md")}
