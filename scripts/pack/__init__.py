"""The compiler of the pack: rules, runbooks, dashboards and Kubernetes objects, as texts made of the catalog.

What it writes is committed, and part of the wheel; `rlexporter generate` fills in what differs from site to site.
"""

from __future__ import annotations

from rlexporter.catalog.metrics import CATALOG
from rlexporter.conditions.causes import INHIBITIONS, NONFINITE_CONDITIONS
from scripts.pack import alertmanager, grafana_alerting, kubernetes, links, rules, runbooks
from scripts.pack.dashboards import dashboards
from scripts.pack.template import template


def files() -> dict[str, str]:
    """Return what Prometheus, Alertmanager, Grafana and Kubernetes take, by path in the repository."""
    hides = [([each.label for each in causes], [each.label for each in symptoms]) for causes, symptoms in INHIBITIONS]
    rules_text = rules.rules()
    return {
        "alerts/rlexporter.rules.yml": rules_text,
        "alerts/alertmanager.yml": alertmanager.config(hides, NONFINITE_CONDITIONS),
        "alerts/rlexporter.tmpl": alertmanager.messages(),
        **{f"alerts/runbooks/{name}": page for name, page in runbooks.pages().items()},
        **{f"grafana/dashboards/{name}": text for name, text in dashboards(CATALOG).items()},
        **{f"grafana/alerting/{name}": text for name, text in grafana_alerting.files(rules_text).items()},
        "rlexporter/commands/links.json": links.as_json(),
        "grafana/kustomization.yaml": template("dashboards/kustomization.yaml"),
        "deploy/kubernetes/kustomization.yaml": template("kustomization.yaml"),
        "deploy/kubernetes/podmonitor.yaml": template("podmonitor.yaml"),
        "deploy/kubernetes/prometheusrule.yaml": kubernetes.prometheus_rule(rules_text),
        "deploy/kubernetes/alertmanagerconfig.yaml": kubernetes.alertmanager_config(hides, NONFINITE_CONDITIONS),
    }
