"""`rlexporter top`: several runs in a terminal, worst first, as their own status pages see them. Needs rich."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rlexporter.commands import status
from rlexporter.model.errors import TOP, SetupError, needed_by
from rlexporter.model.incident import ACT, FINE, LOOK, WORDS
from rlexporter.status.cards import FEW, few
from rlexporter.status.verdict import span
from rlexporter.terminal import shown

_MOST_AT_ONCE = 16
_GONE = "gone"
_STATUSES = (*WORDS, _GONE)
"""The words by their exit status, the worst last."""
_STYLES = {_GONE: "bold magenta", ACT: "bold red", LOOK: "yellow", FINE: "green"}
_VERDICT = ""
"""The column of the verdict, which needs no heading."""
_COLUMNS = ("run", _VERDICT, "state", "step", "steps/s", "left", *FEW, "why")
_DROPPED_FIRST = (*reversed(FEW), "left", "steps/s", "step", "state")
"""The columns in the order in which a narrow terminal drops them."""
_LEAST_WHY = 32
"""The signs of why that are worth more than the columns that are dropped."""
_FEWEST = 8
"""The signs below which why says nothing."""
_APART = 2
_UNLIMITED = 1 << 16
_EPILOG = """\
exit status, of several runs the worst in this order:
  3 there is no answer, or it cannot be used, 2 act, 1 look, 0 fine; without --once 0, once Ctrl-C ends it. A mistake in
  the arguments is 2, as in any command.
"""

Row = Mapping[str, str]
"""What the table shows of one run, by column; a column that is left out is empty."""


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "urls", nargs="*", default=[status.HERE], metavar="URL", help=f"their exporters, each {status.URL_HELP}"
    )
    parser.add_argument("--once", action="store_true", help="print the table once, for a script or a log")
    parser.add_argument(
        "--interval", type=status.seconds, default=2.0, metavar="SECONDS", help="ask this often (default: 2)"
    )
    status.add_access_to(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Show the table until Ctrl-C; return the exit status. Raises SetupError without rich, or for a bad address."""
    with needed_by("rlexporter top", TOP):
        from rich.console import Console
        from rich.live import Live
    urls = list(dict.fromkeys(map(status.base, options.urls)))
    status.headers(options), status.tls(options)  # report unusable files before taking the screen
    whole = not sys.stdout.isatty()
    console = Console(width=_UNLIMITED if whole else None)
    with ThreadPoolExecutor(min(len(urls), _MOST_AT_ONCE)) as pool:

        def now() -> list[Row]:
            return list(pool.map(lambda url: row(url, options), urls))

        def drawn(rows: list[Row]) -> Any:
            return table(rows, None if whole else console.width)

        if options.once:
            rows = now()
            console.print(drawn(rows))
            return max(_STATUSES.index(row[_VERDICT]) for row in rows)
        try:
            with Live(drawn(now()), console=console, screen=True, auto_refresh=False) as live:
                while True:
                    time.sleep(options.interval)
                    live.update(drawn(now()), refresh=True)
        except KeyboardInterrupt:
            console.print(drawn(now()))
    return 0


def row(url: str, options: argparse.Namespace) -> Row:
    """Return the row of the run of the exporter at ``url``; one that does not answer has a row too.

    ``options``: those that `status.add_access_to` adds.
    """
    try:
        with status.reading(url):
            return answered(status.asked(url, options))
    except (status.UnreachableError, SetupError) as error:
        return {"run": url, _VERDICT: _GONE, "why": str(error).removeprefix(url).removeprefix("/api/status").lstrip()}


def answered(document: Mapping[str, Any]) -> Row:
    """Return the row of a status document."""
    run, verdict = document["run"], document["verdict"]
    planned = "" if run["steps_planned"] is None else f"/{run['steps_planned']}"
    return {
        "run": run["name"],
        _VERDICT: verdict["word"] if verdict["word"] in WORDS else LOOK,
        "state": run["state"],
        "step": "" if run["step"] is None else f"{run['step']}{planned}",
        "steps/s": _number(run["steps_per_second"]),
        "left": "" if run["seconds_left"] is None else span(run["seconds_left"]),
        **{name: _number(value) for name, value in few(document["cards"]).items()},
        "why": verdict["text"],
    }


def table(rows: Sequence[Row], width: int | None) -> Any:
    """Return the table of ``rows`` for a rich console that is ``width`` signs wide; None: as wide as its texts.

    A narrow one has fewer columns, and less of why; names are whole. Names and texts are never read as markup.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, padding=(0, _APART, 0, 0), pad_edge=False, expand=width is not None, header_style="bold")
    worst_first = sorted(rows, key=lambda row: (-_STATUSES.index(row[_VERDICT]), row["run"]))
    cells = [{column: shown(row.get(column, "")) for column in _COLUMNS} for row in worst_first]
    kept = _COLUMNS if width is None else tuple(_fitting(cells, width))
    for column in kept:
        justify: Any = "left" if column in ("run", _VERDICT, "state", "why") else "right"
        fills = 1 if column == "why" and width is not None else None
        overflow: Any = "ellipsis" if column == "why" else "fold"
        made.add_column(column, justify=justify, ratio=fills, no_wrap=column != "run", overflow=overflow)
    for row in cells:
        made.add_row(
            *(Text(row[column], style=_STYLES[row[_VERDICT]] if column == _VERDICT else "") for column in kept)
        )
    return made


def _fitting(cells: Sequence[Mapping[str, str]], width: int) -> Iterator[str]:
    """Yield the columns for which ``width`` signs have room."""
    from rich.cells import cell_len

    needed = {column: max(map(cell_len, (column, *(row[column] for row in cells)))) + _APART for column in _COLUMNS}
    room = width + _APART - min(needed.pop("why"), _LEAST_WHY + _APART)
    for column in _DROPPED_FIRST:
        if sum(needed.values()) > room:
            del needed[column]
    yield from needed
    if sum(needed.values()) + _FEWEST <= width:
        yield "why"


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) else str(value or "")
