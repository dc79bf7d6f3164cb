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
    """One run as it is now: what is shown of it, by column."""

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
        """Return its place in the table: the worst first, then by name."""
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
    access.headers(), access.context()  # what is wrong with the files is said before the screen is taken
    console = Console()
    with ThreadPoolExecutor(min(len(urls), _MOST_AT_ONCE)) as pool:

        def found() -> Any:
            return table(list(pool.map(lambda url: row(url, access), urls)), console.width)

        if options.once:
            console.print(found())
            return 0
        try:
            with Live(found(), console=console, screen=True, auto_refresh=False) as live:
                while True:
                    time.sleep(options.interval)
                    live.update(found(), refresh=True)
        except KeyboardInterrupt:
            console.print(found())
    return 0


def row(url: str, access: client.Access) -> Row:
    """Return what the exporter at ``url`` says of its run now; that it does not answer is a row too."""
    try:
        with client.reading(url):
            return answered(client.status(url, access))
    except (client.UnreachableError, SetupError) as error:
        return Row(_GONE, url, why=str(error).removeprefix(f"{url}/api/status "))


def answered(found: Mapping[str, Any]) -> Row:
    """Return the row of a status document."""
    run, verdict = found["run"], found["verdict"]
    planned = "" if run["steps_planned"] is None else f"/{run['steps_planned']}"
    return Row(
        verdict["word"] if verdict["word"] in WORDS else LOOK,
        run["name"],
        run["state"],
        "" if run["step"] is None else f"{run['step']}{planned}",
        _number(run["steps_per_second"]),
        "" if run["seconds_left"] is None else span(run["seconds_left"]),
        tuple(map(_number, few(found["cards"]).values())),
        verdict["text"],
    )


def table(rows: Sequence[Row], width: int) -> Any:
    """Return the table of ``rows`` for a rich console of ``width`` signs; narrow ones leave the numbers out.

    Names and texts are shown as they are, never as markup.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    made.add_column("run", ratio=2, no_wrap=True, overflow="ellipsis")
    numbers = FEW if width >= _WIDE else ()
    for name in ("", "state", "step", "steps/s", "left", *numbers):
        made.add_column(name, justify="left" if name in ("", "state") else "right", no_wrap=True)
    made.add_column("why", ratio=5, no_wrap=True, overflow="ellipsis")
    for each in sorted(rows, key=lambda each: each.order):
        shown_numbers = each.numbers[: len(numbers)]
        cells = (each.run, each.word, each.state, each.step, each.pace, each.left, *shown_numbers, each.why)
        style = _STYLES[each.word]
        made.add_row(*(Text(shown(cell), style=style if i == 1 else "") for i, cell in enumerate(cells)))
    return made


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) else str(value or "")
