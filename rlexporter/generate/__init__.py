"""Generators of committed files: each is a pure function from the catalogue to a text."""

from __future__ import annotations

from pathlib import Path

from rlexporter.catalog import CATALOG, INHIBITIONS
from rlexporter.catalog.causes import NONFINITE_ALERTS
from rlexporter.generate import alertmanager, docs, kubernetes, rules, runbooks
from rlexporter.generate.dashboards import dashboards

_RUNBOOKS = "alerts/runbooks"


def files() -> dict[str, str]:
    """Return the generated texts, by path below the root of the repository."""
    hides = [([each.label for each in causes], [each.label for each in symptoms]) for causes, symptoms in INHIBITIONS]
    return {
        "docs/metrics.md": docs.metrics(CATALOG),
        "alerts/rlexporter.rules.yml": rules.rules(),
        "alerts/alertmanager.yml": alertmanager.config(hides, NONFINITE_ALERTS),
        "deploy/kubernetes/prometheusrule.yaml": kubernetes.prometheus_rule(rules.rules()),
        "deploy/kubernetes/alertmanagerconfig.yaml": kubernetes.alertmanager_config(hides, NONFINITE_ALERTS),
        **{f"{_RUNBOOKS}/{name}": page for name, page in runbooks.pages().items()},
        **{f"grafana/dashboards/{name}": text for name, text in dashboards(CATALOG).items()},
    }


def stale(root: Path) -> list[str]:
    """Return the generated files that are missing, differ from the catalogue, or are not generated any more."""
    wanted = files()
    left = {f"{_RUNBOOKS}/{path.name}" for path in (root / _RUNBOOKS).glob("*.md")} - set(wanted)
    return [*(path for path, text in wanted.items() if _text(root / path) != text), *sorted(left)]


def write(root: Path) -> list[str]:
    """Write stale files, remove files that are not generated any more, and return the paths of both."""
    wanted, changed = files(), stale(root)
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if path in wanted:
            (root / path).write_bytes(wanted[path].encode())
        else:
            (root / path).unlink()
    return changed


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
