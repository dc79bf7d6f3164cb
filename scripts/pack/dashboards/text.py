"""Dashboards as text that can be reviewed: what fits on a line is on one."""

from __future__ import annotations

import json

from scripts.pack.dashboards.frame import Json

_WIDTH = 120


def written(dashboard: Json) -> str:
    """Return ``dashboard`` as JSON, three times shorter in lines than with each value on a line of its own."""
    return _written(dashboard, 0) + "\n"


def _written(value: object, indent: int, key: str = "") -> str:
    head = f"{json.dumps(key)}: " if key else ""
    line = head + json.dumps(value, ensure_ascii=False)
    if indent + len(line) < _WIDTH or not isinstance(value, (dict, list)) or not value:
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        parts = [_written(each, indent + 2, name) for name, each in value.items()]
        opening, closing = "{}"
    else:
        parts = [_written(each, indent + 2) for each in value]
        opening, closing = "[]"
    lines = f",\n{inner}".join(parts)
    return f"{head}{opening}\n{inner}{lines}\n{' ' * indent}{closing}"
