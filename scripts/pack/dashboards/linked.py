"""Panels that links of alerts lead to: each has the same id on every dashboard of a run."""

from __future__ import annotations

from collections.abc import Mapping

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.catalog.questions import QUESTIONS
from rlexporter.conditions.table import CONDITIONS
from rlexporter.model.condition import Family
from scripts.pack.dashboards.boxes import panel_link
from scripts.pack.dashboards.frame import Json

_FIRST = 1000
"""Above the ids of all other panels."""
_IDS = {shown.name: _FIRST + i for i, shown in enumerate(shown for each in QUESTIONS for shown in each.main)}
_SIGNALS = {shown.signal: shown.name for question in QUESTIONS for shown in question.main if shown.signal}
_NAN = "NaN and infinite values"
PANEL: Mapping[Family, str] = {
    Family.NONFINITE: _NAN,
    Family.EVALUATION: _NAN,
    Family.GRAD: "gradient norm",
    Family.GRAD_DEAD: "gradient norm",
    Family.POLICY_STEP: "ratio",
    Family.KL_HIGH: "KL",
    Family.KL_NEGATIVE: "KL",
    Family.KL_COEF: "KL",
    Family.ENTROPY_LOW: "entropy",
    Family.ENTROPY_HIGH: "entropy",
    Family.VALUE: "value loss",
    Family.ADVANTAGE: "reward",
    Family.REWARD_FLAT: "reward",
    Family.REWARD_JUMP: "reward",
    Family.REWARD_DROP: "reward",
    Family.PLATEAU: "reward",
    Family.LR: "reward",
    Family.DATA: "reward",
    Family.OBJECTIVE: "reward",
    Family.OPTIMIZER: "gradient norm",
    Family.WEIGHTS: "gradient norm",
    Family.TRUNCATION: "completion length",
    Family.LENGTH: "completion length",
    Family.SLOW: "step time",
    Family.STALL: "step time",
}
"""The number that shows best what alerts of a family are about, where a dashboard has one."""


def linked(name: str, panel: Json) -> Json:
    """Return ``panel``, which shows the number ``name``, with its id, and links to the runbooks of its own alerts."""
    alerts = dict.fromkeys(each.alert for each in CONDITIONS if _SIGNALS.get(each.signal) == name)
    pages = {f"Runbook: {alert}": alert for alert in alerts} or {"Runbooks": "README"}
    links = [panel_link(title, f"{RUNBOOKS}/{page}.md", away=True) for title, page in pages.items()]
    return {**panel, "id": _IDS[name], "links": links}


def panel_id(family: Family) -> str:
    """Return the id of the panel that shows what alerts of ``family`` are about; empty if there is none."""
    return str(_IDS[PANEL[family]]) if family in PANEL else ""
