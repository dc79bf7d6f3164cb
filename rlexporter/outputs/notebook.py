"""What a notebook shows of a run: its card, with the verdict and a few numbers, kept up to date; and messages.

The only file that knows IPython, which it never loads itself.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rlexporter.model.incident import ACT, FINE, LOOK
from rlexporter.outputs.periodic import Ticker
from rlexporter.status.cards import few
from rlexporter.status.verdict import span

if TYPE_CHECKING:
    from rlexporter.outputs.courier import Message

_SECONDS = 2.0
_COLOURS = {FINE: "#2e8b57", LOOK: "#b8860b", ACT: "#d0342c"}
_BOX = (
    "border:1px solid #8886;border-left:6px solid {};border-radius:6px;padding:8px 12px;max-width:44em;line-height:1.5"
)


def _shell() -> Any:
    """Return the shell of IPython that runs this process; None without one."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def kernel() -> Any:
    """Return the shell of the notebook that this process is the kernel of; None if it is of none."""
    shell = _shell()
    return shell if hasattr(shell, "kernel") else None


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


def show(html: Callable[[], str], text: str, failed: Callable[[Exception], None]) -> Ticker | None:
    """Show what ``html`` returns in the cell that runs now; return the ticker that updates it, not yet started.

    ``text`` is shown where HTML cannot be. Return None where the cell cannot change later: in a terminal, or without
    IPython.
    """
    shell = _shell()
    if shell is None:
        print(text)
        return None
    shown, name = html(), uuid4().hex
    live = hasattr(shell, "kernel")

    def publish(*, update: bool) -> None:
        data = {"text/html": shown, "text/plain": text}
        shell.display_pub.publish(data, transient={"display_id": name} if live else None, update=update)

    def tick() -> None:
        nonlocal shown
        now = html()
        if now != shown:
            shown = now
            publish(update=True)

    publish(update=False)
    return Ticker("card", _SECONDS, tick, failed, last=tick) if live else None


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
