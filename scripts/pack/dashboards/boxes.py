"""Panels of single numbers, and tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from rlexporter.commands.generate import IDENTITY, OWNERS, PLACES
from scripts.pack.dashboards.frame import RUN, Json, skeleton
from scripts.pack.dashboards.panels import Query, Step, empty, letter, limits, override, panel

GREEN, YELLOW, ORANGE, RED, BLUE, GRAY = "green", "yellow", "orange", "red", "blue", "text"
_ID = "of"
COLORED: Json = {"type": "color-text"}


class Column(NamedTuple):
    """A column of a table: the value of a query, under ``name``. The labels of the query are columns too."""

    name: str
    expr: str
    properties: Mapping[str, object] = {}


def stat(
    title: str,
    query: Query,
    description: str,
    *,
    beside: Sequence[Query] = (),
    unit: str = "none",
    steps: Sequence[Step] = ((GRAY, None),),
    mappings: Sequence[Json] = (),
    links: Sequence[Json] = (),
    text: str = "auto",
    fill: bool = False,
    shares: Sequence[str] = (),
    none: str = "-",
) -> Json:
    """Return a panel with a number, or its word in ``mappings``, colored by ``steps``.

    ``text``: Grafana's name for what is shown: ``name`` is the legend, ``value_and_name`` both. ``beside``: further
    numbers, each shown with its legend, as the first one is then. With ``fill`` the whole panel has the color. Those of
    ``shares`` are shown as percentages.
    """
    made = {**panel("stat", title, description, [query, *beside]), **skeleton("stat")}
    defaults = {"unit": unit, "noValue": none, "mappings": list(mappings), "thresholds": limits(*steps)}
    made["fieldConfig"]["defaults"].update(defaults, links=list(links))
    made["fieldConfig"]["overrides"] = [override(each, unit="percentunit") for each in shares]
    made["options"].update(textMode=text, colorMode="background" if fill else "value")
    return made


def said(title: str, expr: str, fields: Sequence[str], description: str, *, instant: bool = False, **look: Any) -> Json:
    """Return a panel with the newest values of the labels ``fields`` of ``expr``, below each other; see `stat`."""
    made = stat(title, Query(expr, format="table", instant=instant), description, text="value", **look)
    made["options"]["reduceOptions"]["fields"] = f"/^({'|'.join(fields)})$/"
    # Before Grafana 11.5 a table of a range has one value after the other, and the last row is not the newest.
    made["transformations"] = [{"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "Time"}]}}]
    return made


def table(
    title: str,
    columns: Sequence[Column],
    description: str,
    *,
    labels: Mapping[str, Mapping[str, object]],
    hidden: Sequence[str] = (),
    order: Sequence[str] = (),
    sort: str = "",
    first: str = "",
    none: str = "there is none",
) -> Json:
    """Return a table of instant values, merged by the labels that they share.

    ``labels`` maps the columns of labels to their look; they come first unless ``order`` says otherwise. ``hidden``
    columns only bring labels. The rows are in the order of the column ``sort``, the largest first; or of ``first``,
    which may be hidden, the smallest first.
    """
    apart = len(columns) > 1 and all(RUN in column.expr for column in columns)
    asked = [_identified(column.expr) if apart else column.expr for column in columns]
    queries = [Query(expr, instant=True, format="table") for expr in asked]
    made = {**panel("table", title, description, queries), **skeleton("table")}
    overrides = [override(column.name, **column.properties) for column in columns if column.properties]
    overrides += [override(name, **properties) for name, properties in labels.items() if properties]
    made["fieldConfig"]["defaults"]["noValue"] = empty(none)
    made["fieldConfig"]["overrides"] = overrides
    made["options"]["sortBy"] = [{"displayName": sort, "desc": True}] if sort else []
    made["transformations"][-1]["options"] = _organized(columns, labels, hidden, order)
    if first:  # a table sorts by no column that it does not show
        [value] = [value for value, name in _values(columns).items() if name == first]
        sorts = {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": value}]}}
        made["transformations"].insert(-1, sorts)
    return made


def info(title: str, names: Sequence[str], series: str, description: str, *, none: str = "there is none") -> Json:
    """Show the labels ``names`` of ``series``, a column each; an instance leads to its status page."""
    labels: dict[str, Mapping[str, object]] = {**{name: {} for name in names}, **IN_PLACE}
    labels["instance"] = {"links": [STATUS_PAGE]}
    columns = [Column("one", f"max by ({', '.join(dict.fromkeys((*IDENTITY, *names)))}) ({series})")]
    return table(title, columns, description, labels=labels, hidden=("one",), none=none)


def _organized(columns: Sequence[Column], labels: Collection[str], hidden: Sequence[str], order: Sequence[str]) -> Json:
    """Return names and places of columns. A single frame is not merged, and its value is not numbered.

    Labels that all rows of a page of one run share, its job and its name, have columns only where they are asked for.
    """
    named = _values(columns)
    by_name = {name: value for value, name in named.items() if name not in hidden}
    unsaid = {name: True for name in (_ID, "job", "run") if name not in labels}
    places = dict.fromkeys((*(by_name.get(name, name) for name in order), *labels, *by_name.values()))
    return {
        "excludeByName": {"Time": True, **unsaid, **{value: True for value, name in named.items() if name in hidden}},
        "indexByName": {name: index for index, name in enumerate(places)},
        "renameByName": {value: name for value, name in named.items() if name not in hidden},
    }


def _identified(expr: str) -> str:
    """Return ``expr`` with all that tells a run apart in one label, by which tables are merged.

    A table in which no run has a team has no such column, and would be merged with a run of that name that has one.
    """
    names = ", ".join(f'"{name}"' for name in IDENTITY)
    return f'label_join({expr}, "{_ID}", "/", {names})'


def _values(columns: Sequence[Column]) -> dict[str, str]:
    """Return the columns' names by those that Grafana gives to their values."""
    return {f"Value #{letter(i)}" if columns[1:] else "Value": column.name for i, column in enumerate(columns)}


def words(texts: Mapping[str, tuple[str, str]]) -> Json:
    """Return a mapping from each value to a text and its color."""
    options = {
        value: {"text": text, "color": color, "index": i} for i, (value, (text, color)) in enumerate(texts.items())
    }
    return {"type": "value", "options": options}


def sentences(texts: Mapping[str, tuple[str, str]], start: int = 0) -> list[Json]:
    """Return a mapping from each regular expression to a text, in which $1 is its first group, and its color."""
    return [
        {
            "type": "regex",
            "options": {"pattern": f"/^{pattern}$/", "result": {"text": text, "color": color, "index": i}},
        }
        for i, (pattern, (text, color)) in enumerate(texts.items(), start)
    ]


def link(title: str, url: str, *, away: bool = False) -> Json:
    """Return a link to ``url``; with ``away`` it opens a new tab."""
    return {"title": title, "url": url, "targetBlank": away}


def panel_link(title: str, url: str, *, away: bool = False) -> Json:
    """Return a link in the corner of a panel; Grafana's types ask for what a link of a whole page needs."""
    made = {**link(title, url, away=away), "type": "link", "icon": "", "tooltip": ""}
    return {**made, "asDropdown": False, "includeVars": False, "keepTime": False, "tags": []}


SEVERITY: Mapping[str, object] = {
    "mappings": [words({"critical": ("critical", RED), "warning": ("warning", ORANGE), "info": ("info", BLUE)})],
    "custom__cellOptions": COLORED,
}
"""Look of an alert's severity in a table."""
OPEN_RUN = link(
    "Open", "/d/${__data.fields.dashboard}var-run=${__value.raw}&${datasource:queryparam}&${__url_time_range}"
)
"""Link from the name of a run in a table to its dashboard."""
STATUS_PAGE = link("Status page of the process", "http://${__data.fields.instance}/", away=True)
IN_PLACE: Mapping[str, Mapping[str, object]] = {name: {} for name in (*PLACES, *OWNERS)}
"""Columns that only tables of runs with such labels have: runs of one name, in two places or of two teams, are two."""
HIDDEN: Mapping[str, object] = {"custom__hidden": True}
"""Look of a column that only links read."""
