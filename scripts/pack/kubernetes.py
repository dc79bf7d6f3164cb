"""Rules and Alertmanager configuration -> objects of the Prometheus operator, for deploy/kubernetes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from rlexporter.commands.generate import IDENTITY
from scripts.pack.alertmanager import Inhibition, inhibitions
from scripts.pack.outside import MANY_RUNS, WATCHDOG
from scripts.pack.template import filled

_MATCHER = re.compile(r'^(\w+)(=~|!~|!=|=)"(.*)"$')

# What a page and a message say. An AlertmanagerConfig cannot bring a template file, and one that names a template
# which is not there tells nobody: so the texts stand by themselves. A page is always critical, a heartbeat never seen.
_LABELS = "stringSlice " + " ".join(f'"{name}"' for name in IDENTITY)
_IS_CAUSE = "(and .Annotations.cause (eq .Annotations.cause .Labels.condition))"
_EACH = (
    "{{{{ range (or .Alerts.Firing .Alerts) }}}}{{{{ if {} }}}} {{{{ .Labels.alertname }}}}{{{{ end }}}}{{{{ end }}}}"
)
_TITLE = (
    '[{{ if eq .Status "firing" }}{{ .CommonLabels.severity }}{{ else }}resolved{{ end }}] '
    '{{ or .CommonLabels.run .CommonLabels.cluster "RL training" }}'
    "{{ with .CommonLabels.team }}, team {{ . }}{{ end }}{{ with .CommonLabels.user }}, user {{ . }}{{ end }}:"
) + "".join(map(_EACH.format, (_IS_CAUSE, f"not {_IS_CAUSE}")))
_TIME = (
    '&from={{ (.StartsAt.Add -10800000000000).UnixMilli }}&to={{ (.StartsAt.Add 120000000000).UnixMilli }}{{ "\\n" }}'
)
_TEXT = (
    '{{ range .Alerts }}*[{{ if eq .Status "resolved" }}resolved{{ else }}{{ .Labels.severity }}{{ end }}] '
    '{{ .Labels.alertname }}*{{ "\\n" }}{{ .Annotations.summary }}{{ "\\n" }}'
    '{{ with .Annotations.description }}{{ . }}{{ "\\n" }}{{ end }}'
    '{{ with .Annotations.action }}First: {{ . }}{{ "\\n" }}{{ end }}'
    '{{ with .Annotations.runbook_url }}Runbook: {{ . }}{{ "\\n" }}{{ end }}'
    f"{{{{ if .Annotations.dashboard_url }}}}Dashboard: {{{{ .Annotations.dashboard_url }}}}{_TIME}{{{{ end }}}}"
    f"{{{{ if .Annotations.panel_url }}}}Panel: {{{{ .Annotations.panel_url }}}}{_TIME}{{{{ end }}}}{{{{ end }}}}"
    "{{ if and .Alerts.Firing .CommonLabels.run }}Silence this run: {{ .ExternalURL }}/#/silences/new?filter=%7B"
    f'{{{{ $labels := .CommonLabels }}}}{{{{ range {_LABELS} }}}}{{{{ if ne . "{IDENTITY[0]}" }}}}%2C{{{{ end }}}}'
    '{{ printf "%s=%q" . (index $labels .) | urlquery | reReplaceAll "[+]" "%20" }}{{ end }}%7D{{ end }}'
)


def prometheus_rule(rules_text: str) -> str:
    """Return the rules file as a PrometheusRule: its groups, indented, evaluated as often as the operator scrapes."""
    rules_text = rules_text.replace("interval: 15s", "interval: 30s", 1)
    groups = textwrap.indent(rules_text[rules_text.index("groups:\n") :].rstrip(), "  ")
    return filled("prometheusrule.yaml", groups=groups)


def alertmanager_config(hides: Sequence[tuple[Sequence[str], Sequence[str]]], order: Sequence[str] = ()) -> str:
    """Return the AlertmanagerConfig; the arguments are those of `scripts.pack.alertmanager.config`."""
    rules = "".join(map(_rule, inhibitions(hides, order))).rstrip()
    names = {"watchdog": WATCHDOG, "storm": MANY_RUNS.alert, "identity": ", ".join(IDENTITY)}
    gaps = {"title": _TITLE, "text": _TEXT, **names}
    return filled("alertmanagerconfig.yaml", inhibit_rules=rules, **gaps)


def _rule(each: Inhibition) -> str:
    comment = f"    # {each.comment}\n" if each.comment else ""
    return (
        f"{comment}    - sourceMatch:\n{_matchers(each.source)}"
        f"      targetMatch:\n{_matchers(each.target)}"
        f"      equal: [{', '.join(each.equal)}]\n"
    )


def _matchers(written: Sequence[str]) -> str:
    lines = []
    for each in written:
        ((name, kind, value),) = _MATCHER.findall(each)
        lines.append(f'        - {{name: {name}, matchType: "{kind}", value: "{value}"}}\n')
    return "".join(lines)
