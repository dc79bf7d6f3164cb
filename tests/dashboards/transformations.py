"""What Grafana's transformations make of tables, as far as a panel over steps and a matrix of settings need them.

Written from the sources of @grafana/data and of the Prometheus data source, and compared with the packages 10.4.19,
11.6.16, 12.4.10 and 13.2.3 from npm, run in Node on the same tables: they gave the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]
Frame = dict[str, list[Any]]
"""A table: the values of each column."""


def table(results: Sequence[Json], value: str, *, ordered: bool = True) -> Frame:
    """The table that the data source makes of a result: a row a sample; labels are columns.

    ``ordered``: by time, as from Grafana 11.5 on (grafana/grafana#99223); before that, one series after the other.
    """
    labels = sorted({name for each in results for name in each["metric"]})
    rows = []
    for each in results:
        for time, text in each.get("values") or [each["value"]]:
            rows.append((float(time), *(each["metric"].get(label, "") for label in labels), float(text)))
    if ordered:
        rows.sort(key=lambda row: row[0])
    names = ("Time", *labels, value)
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def tables(answers: Mapping[str, Sequence[Json]], *, ordered: bool = True) -> list[Frame]:
    """The tables of a panel's targets, by their letters. Of several each value has a name of its own."""
    return [
        table(found, f"Value #{ref}" if len(answers) > 1 else "Value", ordered=ordered)
        for ref, found in answers.items()
    ]


def transformed(panel: Json, frames: list[Frame]) -> Frame:
    """The one table that is left when all transformations of the panel are done."""
    for each in panel.get("transformations", ()):
        frames = _KNOWN[each["id"]](frames, each["options"])
    [frame] = frames
    return frame


def _merge(frames: list[Frame], options: Json) -> list[Frame]:
    if len(frames) < 2:
        return frames
    names = list(dict.fromkeys(name for frame in frames for name in frame))
    keys = [name for name in names if all(name in frame for frame in frames)]
    found: dict[tuple[Any, ...], list[Json]] = {}
    rows: list[Json] = []
    for frame in frames:
        for row in records(frame):
            same = found.setdefault(tuple(row[key] for key in keys), [])
            mergeable = [each for each in same if all(each.get(name) in (None, row[name]) for name in row)]
            for each in mergeable:
                each.update(row)
            if not mergeable:
                same.append(row)
                rows.append(row)
    return [{name: [row.get(name) for row in rows] for name in names}]


def _group(frames: list[Frame], options: Json) -> list[Frame]:
    [frame] = frames
    fields = options["fields"]
    keys = [name for name in frame if fields.get(name, {}).get("operation") == "groupby"]
    groups: dict[tuple[Any, ...], list[Json]] = {}
    for row in records(frame):
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    made: Frame = {key: [group[i] for group in groups] for i, key in enumerate(keys)}
    for name, field in fields.items():
        for reducer in field["aggregations"]:
            assert reducer == "lastNotNull", reducer
            made[f"{name} ({reducer})"] = [_last([row[name] for row in rows]) for rows in groups.values()]
    return [made]


def _last(values: list[Any]) -> float | None:
    return next((value for value in reversed(values) if value is not None and not math.isnan(value)), None)


def _matrix(frames: list[Frame], options: Json) -> list[Frame]:
    [frame] = frames
    column, row, value = (options[f"{name}Field"] for name in ("column", "row", "value"))
    assert options["emptyValue"] == "null", "a text would be no number"
    found = {(each[column], each[row]): each[value] for each in records(frame)}
    rows = list(dict.fromkeys(frame[row]))
    corner = f"{row}\\{column}"
    return [
        {corner: rows, **{name: [found.get((name, each)) for each in rows] for name in dict.fromkeys(frame[column])}}
    ]


def _convert(frames: list[Frame], options: Json) -> list[Frame]:
    targets = {each["targetField"] for each in options["conversions"] if each["destinationType"] == "number"}
    assert targets <= set(frames[0]), "the field is not there"
    return [
        {name: list(map(float, values)) if name in targets else values for name, values in frame.items()}
        for frame in frames
    ]


def _organize(frames: list[Frame], options: Json) -> list[Frame]:
    names = options["renameByName"]
    assert set(names) <= set(frames[0]), "the field is not there"
    hidden = {name for name, is_hidden in options["excludeByName"].items() if is_hidden}
    order = options["indexByName"]
    return [
        {
            names.get(name, name): frame[name]
            for name in sorted(frame, key=lambda name: order.get(name, len(order)))
            if name not in hidden
        }
        for frame in frames
    ]


def _sort(frames: list[Frame], options: Json) -> list[Frame]:
    [by] = options["sort"]
    made = []
    for frame in frames:
        order = sorted(range(len(frame[by["field"]])), key=frame[by["field"]].__getitem__)
        made.append({name: [values[i] for i in order] for name, values in frame.items()})
    return made


def records(frame: Frame) -> list[Json]:
    """Its rows."""
    return [dict(zip(frame, values, strict=True)) for values in zip(*frame.values(), strict=True)]


_KNOWN: dict[str, Callable[[list[Frame], Json], list[Frame]]] = {
    "merge": _merge,
    "groupBy": _group,
    "groupingToMatrix": _matrix,
    "convertFieldType": _convert,
    "organize": _organize,
    "sortBy": _sort,
}
