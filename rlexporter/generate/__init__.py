"""Generators of files: each is a pure function from the catalogue, and the site that links point to, to a text."""

from __future__ import annotations

from rlexporter.catalog import CATALOG, INHIBITIONS
from rlexporter.catalog.causes import NONFINITE_ALERTS
from rlexporter.generate import alertmanager, kubernetes, rules, runbooks
from rlexporter.generate.dashboards import dashboards
from rlexporter.generate.site import Site
from rlexporter.generate.template import template


def files(site: Site) -> dict[str, str]:
    """Return what Prometheus, Alertmanager, Grafana and Kubernetes take, by path: the same as in the repository."""
    hides = [([each.label for each in causes], [each.label for each in symptoms]) for causes, symptoms in INHIBITIONS]
    rules_text = rules.rules(site)
    return {
        "alerts/rlexporter.rules.yml": rules_text,
        "alerts/alertmanager.yml": alertmanager.config(hides, NONFINITE_ALERTS),
        "alerts/rlexporter.tmpl": template("rlexporter.tmpl"),
        **{f"alerts/runbooks/{name}": page for name, page in runbooks.pages(site.jobs).items()},
        **{f"grafana/dashboards/{name}": text for name, text in dashboards(CATALOG, site.runbooks_url).items()},
        "grafana/kustomization.yaml": template("dashboards/kustomization.yaml"),
        "deploy/kubernetes/kustomization.yaml": template("kustomization.yaml"),
        "deploy/kubernetes/podmonitor.yaml": template("podmonitor.yaml"),
        "deploy/kubernetes/prometheusrule.yaml": kubernetes.prometheus_rule(rules_text),
        "deploy/kubernetes/alertmanagerconfig.yaml": kubernetes.alertmanager_config(hides, NONFINITE_ALERTS),
    }
