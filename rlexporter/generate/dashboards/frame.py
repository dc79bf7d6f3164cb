"""What all dashboards have: variables, annotations, links; and how panels are put below each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

SCHEMA_VERSION = 39
"""Grafana 10.4; later versions migrate it when they load it. Provisioning from files takes no newer format."""
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
TAG = "rlexporter"
WIDTH = 24
ROW_HEIGHT = 1

_MEASURED = "rl_step_duration_seconds_sum{SELECT} / rl_step_duration_seconds_count{SELECT}"
PACE = f"max(rl_step_time_seconds{{SELECT}}) or max({_MEASURED})"
"""Seconds a step takes: as the trainer logs it, else as it was measured."""


def select(*more: str) -> str:
    """The label matchers of every query: the job, the run, and others."""
    return ",".join(('job=~"$job"', 'run=~"$run"', *more))


def dashboard(uid: str, title: str, description: str, panels: list[Json], *, variables: Iterable[Json]) -> Json:
    """A dashboard with these panels, which have their places already."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": _annotations()},
        "links": [_link()],
        "templating": {"list": [_datasource(), _job(), *variables]},
        "panels": panels,
    }


def run_variable(*, multi: bool = False) -> Json:
    """Which run; its name is unique over clusters, or the job tells them apart."""
    return variable("run", "Run", 'label_values(rl_run_info{job=~"$job"}, run)', multi=multi)


def rank_variable() -> Json:
    """Which ranks; rank 0 serves what is already reduced over all of them."""
    return variable("rank", "Rank", f"label_values(rl_step_duration_seconds_count{{{select()}}}, rank)", multi=True)


def window_variable() -> Json:
    """How wide a column of a heatmap has to be so that a step is in it: it follows the pace of the run.

    A step, a fifth for those that take longer, and two scrapes.
    """
    pace = PACE.replace("SELECT", select())
    made = variable("window", "Window", f"query_result(ceil(clamp_min(1.2 * ({pace}) + 30, 60)))", multi=False)
    made.update(hide=2, regex="/ (\\d+) /", includeAll=False, description="Seconds; at least a minute.")
    del made["allValue"]
    return made


def variable(name: str, label: str, query: str, *, multi: bool) -> Json:
    """A variable that is filled by a query."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "sort": 1,
        "multi": multi,
        "includeAll": multi,
        "allValue": ".+",
        "hide": 0,
        "regex": "",
        "options": [],
        "current": {"text": ["All"], "value": ["$__all"]} if multi else {},
    }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "options": [],
        "current": {},
    }


def _job() -> Json:
    return {**variable("job", "Job", "label_values(rl_run_info, job)", multi=True)}


def _annotations() -> list[Json]:
    """Alerts as regions, checkpoints as lines."""
    return [
        _annotation("Alerts", 'ALERTS{alertname=~"RL.+",alertstate="firing",run=~"$run"}', "red", "{{alertname}}"),
        _annotation(
            "Checkpoints",
            f"changes(rl_last_checkpoint_step{{{select()}}}[$__interval]) > 0",
            "blue",
            "checkpoint",
        ),
    ]


def _annotation(name: str, expr: str, color: str, title: str) -> Json:
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": expr,
        "target": {"refId": "Anno", "expr": expr},
        "titleFormat": title,
        "textFormat": "{{run}} {{severity}}",
        "tagKeys": "severity",
        "step": "30s",
    }


def _link() -> Json:
    return {
        "type": "dashboards",
        "title": "RL training",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


class Page:
    """Puts panels from left to right and rows below each other, and numbers them."""

    def __init__(self) -> None:
        self.panels: list[Json] = []
        self._next_id = 1
        self._x = self._y = self._height = 0
        self._row: Json | None = None

    def row(self, title: str, *, collapsed: bool = False) -> None:
        """Begin a row; the panels of a collapsed one are inside it, and not queried before it is opened."""
        self._break()
        made = {"type": "row", "title": title, "collapsed": collapsed, "panels": []}
        self._row = None
        self._add(made, WIDTH, ROW_HEIGHT)
        self._break()
        self._row = made if collapsed else None

    def add(self, panel: Json, width: int = 8, height: int = 8) -> None:
        """The next panel, so wide of 24 and so high."""
        if self._x + width > WIDTH:
            self._break()
        self._add(panel, width, height)

    def _add(self, panel: Json, width: int, height: int) -> None:
        panel["id"] = self._next_id
        panel["gridPos"] = {"x": self._x, "y": self._y, "w": width, "h": height}
        self._next_id += 1
        self._x += width
        self._height = max(self._height, height)
        (self._row["panels"] if self._row is not None else self.panels).append(panel)

    def _break(self) -> None:
        self._x, self._y, self._height = 0, self._y + self._height, 0
