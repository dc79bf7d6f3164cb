"""Shows HTML in a notebook, and keeps it up to date. The only file that knows IPython, which it never loads itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from rlexporter.outputs.periodic import Ticker

_SECONDS = 2.0


def show(html: Callable[[], str], text: str, failed: Callable[[Exception], None]) -> Ticker | None:
    """Show what ``html`` returns in the cell that runs now; return what keeps it up to date, not yet started.

    ``text``: what is shown where there is no HTML. Returns None where nothing can be changed later: in a terminal, or
    without IPython.
    """
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
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
