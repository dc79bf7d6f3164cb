"""The small card of a run, for a notebook: the verdict in words, and a few numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from rlexporter.model.incident import ACT, FINE, LOOK
from rlexporter.status.cards import few
from rlexporter.status.verdict import span

_COLOURS = {FINE: "#2e8b57", LOOK: "#b8860b", ACT: "#d0342c"}
_BOX = (
    "border:1px solid #8886;border-left:6px solid {};border-radius:6px;padding:8px 12px;max-width:44em;line-height:1.5"
)


def card(document: Mapping[str, Any], url: str | None) -> str:
    """Return the HTML of a status ``document``; ``url``: the page to link to, if one is served.

    It needs no script, and takes colours and fonts from the notebook, light or dark.
    """
    run, verdict = document["run"], document["verdict"]
    word = verdict["word"]
    link = f' <a href="{escape(url, quote=True)}/" target="_blank" rel="noopener">open its page</a>' if url else ""
    numbers = " · ".join(_numbers(document))
    return (
        f'<div style="{_BOX.format(_COLOURS[word])}">'
        f'<b style="color:{_COLOURS[word]}">{escape(word)}</b> {escape(verdict["text"])}<br>'
        f"<span>{escape(' · '.join(_facts(run)))}</span>{link}"
        f"{f'<br><span>{escape(numbers)}</span>' if numbers else ''}</div>"
    )


def _facts(run: Mapping[str, Any]) -> Iterator[str]:
    planned = "" if run["steps_planned"] is None else f" of {run['steps_planned']}"
    yield from filter(None, (run["name"], run["algorithm"], run["state"]))
    if run["step"] is not None:
        yield f"step {run['step']}{planned}"
    if run["seconds_left"] is not None:
        yield f"{span(run['seconds_left'])} left"


def _numbers(document: Mapping[str, Any]) -> Iterator[str]:
    for name, value in few(document["cards"]).items():
        if value is not None:
            yield f"{name} {value if isinstance(value, str) else format(value, '.3g')}"
