"""`rlexporter top`: several runs in a terminal, worst first, as their own status pages see them. Needs rich."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rlexporter.commands import client
from rlexporter.display import shown
from rlexporter.model.errors import TOP, SetupError, needed_by
from rlexporter.model.incident import ACT, FINE, LOOK, WORDS
from rlexporter.status.cards import FEW, few
from rlexporter.status.verdict import span

_MOST_AT_ONCE = 16
_GONE = "gone"
_WORST_FIRST = (_GONE, *reversed(WORDS))
_STYLES = {_GONE: "bold magenta", ACT: "bold red", LOOK: "yellow", FINE: "green"}
_WIDE = 120


@dataclass(frozen=True, slots=True)
class Row:
    """What the table shows of one run, by column."""

    word: str
    run: str
    state: str = ""
    step: str = ""
    pace: str = ""
    left: str = ""
    numbers: tuple[str, ...] = ("",) * len(FEW)
    why: str = ""

    @property
    def order(self) -> tuple[int, str]:
        """Return what sorts the table: the worst first, then by name."""
        return _WORST_FIRST.index(self.word), self.run


def add_to(commands: Any) -> None:
    """Add the command to ``commands``."""
    watches = commands.add_parser("top", help="several runs in a terminal, the worst first")
    watches.add_argument(
        "urls", nargs="*", default=[client.HERE], metavar="URL", help=f"their exporters (default: {client.HERE})"
    )
    watches.add_argument("--once", action="store_true", help="print the table once, for a script or a log")
    watches.add_argument(
        "--interval", type=client.seconds, default=2.0, metavar="SECONDS", help="ask this often (default: 2)"
    )
    client.Access.add_to(watches)
    watches.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Show the table until Ctrl-C; return the exit status. Raises SetupError without rich, or for a bad address."""
    with needed_by("rlexporter top", TOP):
        from rich.console import Console
        from rich.live import Live
    access, urls = client.Access.of(options), list(dict.fromkeys(map(client.base, options.urls)))
    access.headers(), access.context()  # report unusable files before taking the screen
    console = Console()
    with ThreadPoolExecutor(min(len(urls), _MOST_AT_ONCE)) as pool:

        def now() -> Any:
            return table(list(pool.map(lambda url: row(url, access), urls)), console.width)

        if options.once:
            console.print(now())
            return 0
        try:
            with Live(now(), console=console, screen=True, auto_refresh=False) as live:
                while True:
                    time.sleep(options.interval)
                    live.update(now(), refresh=True)
        except KeyboardInterrupt:
            console.print(now())
    return 0


def row(url: str, access: client.Access) -> Row:
    """Return the row of the run of the exporter at ``url``; one that does not answer has a row too."""
    try:
        with client.reading(url):
            return answered(client.status(url, access))
    except (client.UnreachableError, SetupError) as error:
        return Row(_GONE, url, why=str(error).removeprefix(f"{url}/api/status "))


def answered(document: Mapping[str, Any]) -> Row:
    """Return the row of a status document."""
    run, verdict = document["run"], document["verdict"]
    planned = "" if run["steps_planned"] is None else f"/{run['steps_planned']}"
    return Row(
        verdict["word"] if verdict["word"] in WORDS else LOOK,
        run["name"],
        run["state"],
        "" if run["step"] is None else f"{run['step']}{planned}",
        _number(run["steps_per_second"]),
        "" if run["seconds_left"] is None else span(run["seconds_left"]),
        tuple(map(_number, few(document["cards"]).values())),
        verdict["text"],
    )


def table(rows: Sequence[Row], width: int) -> Any:
    """Return the table of ``rows`` for a rich console; one of small ``width``, in signs, leaves the numbers out.

    Names and texts are never read as markup.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    made.add_column("run", ratio=2, no_wrap=True, overflow="ellipsis")
    numbers = FEW if width >= _WIDE else ()
    for name in ("", "state", "step", "steps/s", "left", *numbers):
        made.add_column(name, justify="left" if name in ("", "state") else "right", no_wrap=True)
    made.add_column("why", ratio=5, no_wrap=True, overflow="ellipsis")
    for row in sorted(rows, key=lambda row: row.order):
        shown_numbers = row.numbers[: len(numbers)]
        cells = (row.run, row.word, row.state, row.step, row.pace, row.left, *shown_numbers, row.why)
        style = _STYLES[row.word]
        made.add_row(*(Text(shown(cell), style=style if i == 1 else "") for i, cell in enumerate(cells)))
    return made


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) else str(value or "")
