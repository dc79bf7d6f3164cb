"""Frame of all dashboards: annotations, links, and the layout of panels."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.commands.generate import IDENTITY
from scripts.pack.outside import MANY_RUNS
from scripts.pack.template import template

Json = dict[str, Any]

SCHEMA_VERSION = 39
"""Schema of Grafana 10.4; later versions migrate it on loading. Provisioning from files takes no newer format."""
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
ROW_HEIGHT = 1

_CHOSEN = tuple(f'{name}=~"${name}"' for name in IDENTITY if name != "job")
FIRING = ",".join(('alertname=~"RL.+"', f'alertname!="{MANY_RUNS.alert}"', 'alertstate="firing"', *_CHOSEN))
"""What fires for the runs that are shown; a storm only stands for it."""


def select(*more: str) -> str:
    """Return the label matchers of a query: those of the run that is chosen, by its identity, and ``more``.

    There is none for the instance, as in other dashboards: a preempted run goes on in another one.
    """
    return ",".join(('job=~"$job"', *_CHOSEN, *more))


RUN = ", ".join(IDENTITY)
"""Labels that tell runs apart: two of one name, of two teams, are two. Which ones a site has, `generate` is told."""
RANK_0 = 'rank="0"'
ZERO = select(RANK_0)


def dashboard(uid: str, title: str, description: str, panels: list[Json], *, variables: Iterable[Json]) -> Json:
    """Return a dashboard with these panels, which have their places already."""
    made = skeleton("dashboard")
    made.update(uid=uid, title=title, description=description, schemaVersion=SCHEMA_VERSION, panels=panels)
    made["annotations"]["list"] = _annotations()
    made["links"][-1]["url"] = RUNBOOKS
    made["templating"]["list"] = list(variables)
    return made


def skeleton(name: str) -> Json:
    """Return the template ``name``; where it says null, the caller fills in a value."""
    return json.loads(template(f"dashboards/{name}.json"))  # type: ignore[no-any-return]


_RUNBOOK = f'<a href="{RUNBOOKS}/{{{{alertname}}}}.md" target="_blank">Runbook</a>'
_ALERT = f"{{{{run}}}}: {{{{severity}}}}. {_RUNBOOK}"
"""Text of an alert's mark; Grafana cleans HTML there, and leaves links."""


def _annotations() -> list[Json]:
    """Return the annotations: alerts as regions, and events as lines at their own time, whenever they were scraped."""
    ended = select(RANK_0, 'state=~"failed|preempted|stopped|finished"')
    begun = select('severity=~"critical|warning"')
    return [
        _annotation("Alerts", f"ALERTS{{{FIRING}}}", "red", "{{alertname}}", _ALERT),
        _annotation(
            "Conditions begin",
            f"1000 * max by ({RUN}, condition, severity) (rl_condition_last_event_timestamp_seconds{{{begun}}})",
            "orange",
            "{{condition}}",
            "{{run}}: {{severity}}, begins to hold in this step",
            timed=True,
        ),
        _annotation(
            "Checkpoints",
            f"1000 * max by ({RUN}) (rl_last_checkpoint_timestamp_seconds{{{ZERO}}})",
            "blue",
            "Checkpoint",
            "{{run}}",
            timed=True,
        ),
        _annotation(
            "Starts",
            f"1000 * max by ({RUN}) (rl_run_start_timestamp_seconds{{{ZERO}}})",
            "green",
            "Start",
            "{{run}}: a process begins or resumes the run",
            timed=True,
        ),
        _annotation(
            "Ends",
            f"max by ({RUN}, state) (rl_run_state{{{ended}}} == 1)",
            "purple",
            "End: {{state}}",
            "{{run}}: its process is over; drawn as long as it serves what it saw last",
        ),
    ]


def evaluations() -> Json:
    """Return the annotation of evaluations: of one run, where there are not too many."""
    when = f"1000 * max by ({RUN}) (rl_eval_timestamp_seconds{{{ZERO}}})"
    return _annotation("Evaluations", when, "yellow", "Evaluation", "{{run}}", timed=True)


def _annotation(name: str, expr: str, color: str, title: str, text: str, *, timed: bool = False) -> Json:
    """Return an annotation; with ``timed`` the value of ``expr`` is its time, in milliseconds."""
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": expr,
        "target": {"refId": "Anno", "expr": expr},
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "severity",
        "step": "30s",
        "useValueForTime": timed,
    }


class Page:
    """Lays out panels from left to right and rows below each other, and numbers them."""

    def __init__(self) -> None:
        self.panels: list[Json] = []
        self._next_id = 1
        self._x = self._y = self._height = 0
        self._row: Json | None = None

    def row(self, title: str, *, collapsed: bool = False) -> None:
        """Begin a row; a ``collapsed`` one holds its panels, which are not queried before it is opened."""
        self._break()
        made = {"type": "row", "title": title, "collapsed": collapsed, "panels": []}
        self._row = None
        self._add(made, WIDTH, ROW_HEIGHT)
        self._break()
        self._row = made if collapsed else None

    def add(self, panel: Json, width: int = 8, height: int = 8) -> None:
        """Add a panel of ``width`` (of 24) and ``height`` units of the grid."""
        if self._x + width > WIDTH:
            self._break()
        self._add(panel, width, height)

    def all(self) -> list[Json]:
        """Return every panel so far, including those of collapsed rows."""
        return [each for panel in self.panels for each in (panel, *panel.get("panels", ()))]

    def _add(self, panel: Json, width: int, height: int) -> None:
        panel.setdefault("id", self._next_id)
        panel["gridPos"] = {"x": self._x, "y": self._y, "w": width, "h": height}
        self._next_id += 1
        self._x += width
        self._height = max(self._height, height)
        (self._row["panels"] if self._row is not None else self.panels).append(panel)

    def _break(self) -> None:
        self._x, self._y, self._height = 0, self._y + self._height, 0
