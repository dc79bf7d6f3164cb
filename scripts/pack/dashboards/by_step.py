"""Curves over steps instead of time, of one run or of several over each other, whenever each of them ran.

Grafana's trend panel draws one table: a column of x, and a column a line. Prometheus knows no steps, so that two
queries bring the step and the value of each run at the same times, and transformations make the table of them: a row a
step, a column a run. Of a step that was done twice, by a run that went back to a checkpoint, the newest value is drawn.

A run without a value has a column all the same, for its steps: so each run has its color in every panel, and a panel
without any value draws its axes, where a trend panel without a table shows an error.

An XY chart would need less of that, but its options were others before Grafana 11.1, and its tooltip shows one run.

Not seen in a real Grafana. The transformations were run in Node, with @grafana/data 10.4.19, 11.6.16, 12.4.10 and
13.2.3, on tables as the Prometheus data source makes them; what the panel asks of its table is from its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rlexporter.catalog.metrics import NAMED
from rlexporter.commands.generate import OWNERS, PLACES
from rlexporter.model.metric import Kind, Metric
from scripts.pack.dashboards.frame import RUN, ZERO, Json, select
from scripts.pack.dashboards.panels import Query, described, mean, override, timeseries

POINTS = 3000
"""Most points of a curve: within a week one every two minutes, so that a run of an hour has thirty."""
X = "step"
STEP = f"max by ({RUN}) (rl_step{{{ZERO}}})"
ABSENT = "not in this run"
"""Value of a run in the legend where it has none."""

_EVERYWHERE = {"unit": "none", "decimals": 0, "custom__scaleDistribution": {"type": "linear"}}
"""Look of the x axis, for which Grafana would take unit and scale of the values."""
_A, _B = "Value #A", "Value #B"
_CORNER = f"{_A}\\run"
_TABLE: list[Json] = [
    {"id": "merge", "options": {}},
    {
        "id": "groupBy",
        "options": {
            "fields": {
                "run": {"aggregations": [], "operation": "groupby"},
                _A: {"aggregations": [], "operation": "groupby"},
                _B: {"aggregations": ["lastNotNull"], "operation": "aggregate"},
            }
        },
    },
    {
        "id": "groupingToMatrix",
        "options": {"columnField": "run", "rowField": _A, "valueField": f"{_B} (lastNotNull)", "emptyValue": "null"},
    },
    # The transformation before makes texts of the steps, whatever they were.
    {
        "id": "convertFieldType",
        "options": {"conversions": [{"targetField": _CORNER, "destinationType": "number"}]},
    },
    {"id": "organize", "options": {"excludeByName": {}, "indexByName": {}, "renameByName": {_CORNER: X}}},
    {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": X}]}},
]


def by_step(title: str, names: Sequence[str], *more: str, log: bool = False) -> Json:
    """Return a panel of the first of the series ``names`` that a run has, a line a run, over the steps of the runs.

    A histogram among ``names`` stands for its mean. ``more``: further matchers of the series.
    """
    shown = NAMED[names[0]]
    text = f"{described(shown)} Over the steps of each run; of a step that was done twice, the newest value."
    return over_steps(title, " or ".join(_sources(names, more)), shown, text, log=log)


def over_steps(title: str, expr: str, shown: Metric, text: str, *, log: bool = False) -> Json:
    """Return a panel of ``expr``, a value of each run by the label ``run``, with the unit of ``shown``."""
    queries = [Query(named(STEP), format="table"), Query(named(expr), format="table")]
    axis = override(X, **_EVERYWHERE, custom__axisLabel=X)
    made = timeseries(title, queries, replace(shown, healthy=None), log=log, description=text, overrides=[axis])
    made["type"] = "trend"
    made["fieldConfig"]["defaults"]["noValue"] = ABSENT  # stands in the legend
    made["maxDataPoints"] = POINTS
    made["fieldConfig"]["defaults"]["custom"]["spanNulls"] = True  # each run has steps that another one has not
    made["options"]["xField"] = X
    made["options"]["legend"].update(displayMode="table", calcs=["lastNotNull", "min", "max"])
    made["transformations"] = _TABLE
    return made


def named(expr: str) -> str:
    """Return ``expr`` with owner and place of a run in its name, so that two runs of one name are two columns or lines.

    Its job is left out: it would be in every name.
    """
    labels = ", ".join(f'"{name}"' for name in ("run", *OWNERS, *reversed(PLACES)))
    joined = f'label_join({expr}, "run", " ", {labels})'
    return f'label_replace({joined}, "run", "$1", "run", "(.*?) *")'


def _sources(names: Sequence[str], more: Sequence[str]) -> Iterator[str]:
    for name in names:
        if NAMED[name].kind is Kind.HISTOGRAM:
            # A rate outlives the series by its window, and a value without a step has no place.
            yield f"{mean(NAMED[name], select(*more))} and on ({RUN}) {STEP}"
        else:
            matchers = select('rank="0"', *more)
            yield f"max by ({RUN}) ({name}{{{matchers}}})"
