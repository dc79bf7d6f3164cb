"""`rlexporter status`: prints the verdict on a run that is being served, and says it by the exit status too."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rlexporter.commands import client
from rlexporter.display import wrapped
from rlexporter.model.errors import SetupError
from rlexporter.model.incident import WORDS
from rlexporter.run.shutdown import shown
from rlexporter.status.samples import COUNTED, quantity
from rlexporter.status.steps import ADDRESS

_UNREACHABLE = 3
_WIDEST = 100
_EPILOG = """\
exit status:
  0 fine, 1 look: a warning, 2 act: something critical, or the run has failed or hangs, 3 there is no verdict:
  nobody answers, or the answer cannot be used. A mistake in the arguments is 2, as in any command.
"""


def add_to(commands: Any) -> None:
    """Add the command to ``commands``."""
    asks = commands.add_parser("status", help="say how a run is doing: fine, look or act", epilog=_EPILOG)
    asks.add_argument("url", nargs="?", default=client.HERE, metavar="URL", help=f"its exporter: {client.ADDRESS}")
    asks.add_argument("--json", action="store_true", help="print the whole answer, as docs/api.md describes it")
    client.add_access_to(asks)
    asks.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Print the verdict; return the exit status."""
    try:
        document = client.status(options.url, options)
        with client.reading(options.url):
            text = (
                json.dumps(document, indent=1) if options.json else "\n".join(lines(document, client.base(options.url)))
            )
    except (client.UnreachableError, SetupError) as error:
        print(f"rlexporter: {shown(error)}", file=sys.stderr)
        return _UNREACHABLE
    print(text)
    word = document["verdict"].get("word")
    return WORDS.index(word) if word in WORDS else _UNREACHABLE


def lines(document: Mapping[str, Any], address: str) -> Iterator[str]:
    """Yield the lines of the ``document`` from this address for a person, without control characters."""
    verdict, run = document["verdict"], document["run"]
    yield from _wrapped(f"{verdict['word']:5} {verdict['text']}")
    planned = "" if run["steps_planned"] is None else f" of {run['steps_planned']}"
    step = "" if run["step"] is None else f", step {run['step']}{planned}"
    yield from _wrapped(f"  run {run['name']}: {run['algorithm'] or 'unknown'}, {run['state']}{step}")
    for name in verdict["conditions"]:
        for condition in document["conditions"]:
            if condition["name"] == name:
                yield from _wrapped(_described(condition))
    steps = verdict.get("steps") or [{"text": text} for text in verdict["actions"]]  # of an older exporter
    if steps:
        yield "  what to do:"
    for place, step in enumerate(steps, 1):
        yield from _wrapped(f"    {place}. {step['text']}")
        if step.get("command"):
            yield f"         {shown(step['command'].replace(ADDRESS, address))}"
    if verdict["runbook"]:
        yield f"  {shown(verdict['runbook'])}"


def _described(condition: Mapping[str, Any]) -> str:
    """Return severity, alert, step, value and limit."""
    value, limit, unit = condition["value"], condition["threshold"], condition["signal_unit"]
    of = f" of {condition['subject']}" if condition.get("subject") else ""
    text = f"  {condition['severity']}: {condition['alert']} ({condition['name']}){of}, step {condition['step']}"
    if isinstance(value, (int, float)) and isinstance(limit, (int, float)):
        what = " NaN or infinite" if unit == "values" else ""
        text += f": {quantity(value, unit)}{what}" + ("" if unit in COUNTED else f", limit {quantity(limit, unit)}")
    return text if condition["holds"] else f"{text}; {condition['standing']}"


def _wrapped(text: str) -> list[str]:
    columns = shutil.get_terminal_size((_WIDEST, 24)).columns
    return wrapped(shown(text), min(columns, _WIDEST), later=" " * 6)
