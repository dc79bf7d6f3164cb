"""What differs from site to site: where runbooks and Grafana are, and names of jobs. Links of alerts, made from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from rlexporter.catalog import RUNBOOKS
from rlexporter.generate.dashboards import fleet
from rlexporter.generate.dashboards.families import GRPO, PPO
from rlexporter.generate.promql import JOBS

VARIABLES = ("cluster", "namespace", "job")
"""Labels of an alert that a link hands to a dashboard as variables; Grafana passes over those it does not know."""

_ADDRESS = re.compile(r"https?://[^\s\"'`<>\\^{|}$?#]+")


@dataclass(frozen=True)
class Site:
    """Bases of links, as `base` returns them, and the jobs that runs are scraped in.

    Without ``grafana_url`` no alert has a link to a dashboard.
    """

    runbooks_url: str = RUNBOOKS
    grafana_url: str | None = None
    jobs: str = JOBS

    def runbook(self, alert: str) -> str:
        """Return the address of the runbook of an alert."""
        return f"{self.runbooks_url}/{alert}.md"

    def links(self, alert: str, panel: str, *, of_run: bool = True) -> dict[str, str]:
        """Return the annotations of an alert that are links; the dashboard is that of its run, or of all runs.

        ``panel``: the id of the one that shows best what it is about, or a template of that; empty if there is none.

        Alertmanager's template adds the time to it: it knows when an alert began, and Prometheus would have to ask.
        """
        found = {"runbook_url": self.runbook(alert)}
        if self.grafana_url:
            found["dashboard_url"] = f"{self.grafana_url}/d/{_OF_RUN if of_run else _OF_ALL}{_WHERE}"
            if of_run and panel:
                found["panel_url"] = f"{found['dashboard_url']}&viewPanel={panel}"
        return found


_PPO_RUNS = PPO.runs.replace('"', '\\"')
_IS_PPO = f'printf "last_over_time(rl_run_info{{run=%q,{_PPO_RUNS}}}[1d])" $labels.run | query'
_UID = f"{{{{ with {_IS_PPO} }}}}{PPO.uid}{{{{ else }}}}{GRPO.uid}{{{{ end }}}}"
_OF_RUN = f"{_UID}?var-run={{{{ urlquery $labels.run }}}}"
_OF_ALL = f"{fleet.UID}?var-run=%24__all"
_WHERE = "".join(f"{{{{ with $labels.{name} }}}}&var-{name}={{{{ urlquery . }}}}{{{{ end }}}}" for name in VARIABLES)


def base(address: str) -> str:
    """Return an address that paths can be put behind, without a slash at the end. Raises ValueError if it is none."""
    if not _ADDRESS.fullmatch(address) or not _has_host(address):
        raise ValueError(f"{address!r} is no address such as https://example.org/folder")
    return address.rstrip("/")


def _has_host(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or half of an IPv6 address
        return False
