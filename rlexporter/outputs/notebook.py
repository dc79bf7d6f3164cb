"""What a notebook shows of a run: its card, with the verdict and a few numbers; and messages.

The only file that knows IPython, which it never loads itself.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from rlexporter.model.incident import ACT, FINE, LOOK
from rlexporter.outputs.notify import notifier
from rlexporter.status.cards import few
from rlexporter.status.verdict import span

if TYPE_CHECKING:
    from rlexporter.outputs import Served
    from rlexporter.outputs.courier import Message
    from rlexporter.outputs.periodic import Ticker

_COLOURS = {FINE: "#2e8b57", LOOK: "#b8860b", ACT: "#d0342c"}
_BOX = (
    "border:1px solid #8886;border-left:6px solid {};border-radius:6px;padding:8px 12px;max-width:44em;line-height:1.5"
)


def kernel() -> Any:
    """Return the shell of the notebook that this process is the kernel of; None if it is of none."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell if hasattr(shell, "kernel") else None


def ticker(run: Served, port: int) -> Ticker | None:
    """Return a ticker that shows messages in the cell that trains; None outside a notebook."""
    return None if kernel() is None else notifier(run, port, [Cell()])


class Cell:
    """The cell that trains, as a `Receiver` of messages. That of the end is none: the log has that line."""

    kind = "notebook"

    def send(self, message: Message) -> bool:
        """Show ``message`` below what the cell has shown; return False if that fails."""
        if not message.last:
            title, lines = (escape(text).replace("\n", "<br>") for text in (message.title, message.body))
            color = _COLOURS[message.word]
            html = f'<div style="{_BOX.format(color)}"><b style="color:{color}">{title}</b><br>{lines}</div>'
            with contextlib.suppress(Exception):  # a kernel that ends
                kernel().display_pub.publish({"text/html": html, "text/plain": f"{message.title}\n{message.body}"})
                return True
        return message.last


def card(document: Mapping[str, Any], url: str | None) -> str:
    """Return the HTML of a status ``document``; ``url``: the page to link to, if one is served.

    It needs no script, and takes colors and fonts from the notebook, light or dark.
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
