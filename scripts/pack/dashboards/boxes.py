"""Panels of single numbers, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from scripts.pack.dashboards.frame import PLACE, Json, skeleton
from scripts.pack.dashboards.panels import Query, Step, empty, letter, limits, override, panel

GREEN, YELLOW, ORANGE, RED, BLUE, GRAY = "green", "yellow", "orange", "red", "blue", "text"
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
    name: bool = False,
    fill: bool = False,
    shares: Sequence[str] = (),
    none: str = "-",
) -> Json:
    """Return a panel with a number, or its word in ``mappings``, or with ``name`` the legend, colored by ``steps``.

    ``beside``: further numbers, each shown with its legend, as the first one is then. With ``fill`` the whole panel
    has the color. Those of ``shares`` are shown as percentages.
    """
    made = {**panel("stat", title, description, [query, *beside]), **skeleton("stat")}
    defaults = {"unit": unit, "noValue": none, "mappings": list(mappings), "thresholds": limits(*steps)}
    made["fieldConfig"]["defaults"].update(defaults, links=list(links))
    made["fieldConfig"]["overrides"] = [override(each, unit="percentunit") for each in shares]
    made["options"].update(textMode="name" if name else "auto", colorMode="background" if fill else "value")
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
    oldest: bool = False,
    none: str = "there is none",
) -> Json:
    """Return a table of instant values, merged by the labels that they share.

    ``labels`` maps the columns of labels to their look; they come first unless ``order`` says otherwise. ``hidden``
    columns only bring labels. ``sort``: the column by which the rows are in order, the largest first, or with
    ``oldest`` the smallest.
    """
    queries = [Query(column.expr, instant=True, format="table") for column in columns]
    made = {**panel("table", title, description, queries), **skeleton("table")}
    overrides = [override(column.name, **column.properties) for column in columns if column.properties]
    overrides += [override(name, **properties) for name, properties in labels.items() if properties]
    made["fieldConfig"]["defaults"]["noValue"] = empty(none)
    made["fieldConfig"]["overrides"] = overrides
    made["options"]["sortBy"] = [{"displayName": sort, "desc": not oldest}] if sort else []
    made["transformations"][-1]["options"] = _organized(columns, labels, hidden, order)
    return made


def info(title: str, names: Sequence[str], series: str, description: str, *, none: str = "there is none") -> Json:
    """Show the labels ``names`` of ``series``, a column each; an instance leads to its status page."""
    labels: dict[str, Mapping[str, object]] = {**{name: {} for name in names}, **IN_PLACE}
    labels["instance"] = {"links": [STATUS_PAGE]}
    columns = [Column("one", f"max by ({', '.join((PLACE, *names))}) ({series})")]
    return table(title, columns, description, labels=labels, hidden=("one",), none=none)


def _organized(columns: Sequence[Column], labels: Iterable[str], hidden: Sequence[str], order: Sequence[str]) -> Json:
    """Return names and places of columns. A single frame is not merged, and its value is not numbered."""
    values = ["Value"] if len(columns) == 1 else [f"Value #{letter(i)}" for i in range(len(columns))]
    named = {value: column.name for value, column in zip(values, columns, strict=True)}
    by_name = {name: value for value, name in named.items() if name not in hidden}
    places = dict.fromkeys((*(by_name.get(name, name) for name in order), *labels, *by_name.values()))
    return {
        "excludeByName": {"Time": True, **{value: True for value, name in named.items() if name in hidden}},
        "indexByName": {name: index for index, name in enumerate(places)},
        "renameByName": {value: name for value, name in named.items() if name not in hidden},
    }


def words(texts: Mapping[str, tuple[str, str]]) -> Json:
    """Return a mapping from each value to a text and its color."""
    options = {
        value: {"text": text, "color": color, "index": i} for i, (value, (text, color)) in enumerate(texts.items())
    }
    return {"type": "value", "options": options}


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
IN_PLACE: Mapping[str, Mapping[str, object]] = {"cluster": {}, "namespace": {}}
"""Columns that only tables of runs with such labels have: runs of one name in two places are told apart."""
HIDDEN: Mapping[str, object] = {"custom__hidden": True}
"""Look of a column that only links read."""
