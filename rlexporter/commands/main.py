"""Entry point of the command line: runs a command, prints the errors that it raises, and has the smallest ones."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlexporter import demo
from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.commands import generate, run, status, top
from rlexporter.conditions.from_catalog import alerts_on
from rlexporter.config.settings import Settings
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.logs.commands import check, replay, report, tail
from rlexporter.model.errors import SetupError, UnreadableError
from rlexporter.model.metric import AS_IT_IS, Kind, Metric
from rlexporter.terminal import shown
from rlexporter.version import __version__

_PIPE_CLOSED = 141
"""The status of a shell's command that ends with SIGPIPE: 128 + 13."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 2 for a mistake or a missing package, 3 for an unreadable file."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    if not words:
        parser.print_help()
        return 0
    commands: Any = parser.get_default("commands")
    if not words[0].startswith("-") and words[0] not in commands:
        near = difflib.get_close_matches(words[0], commands, n=1)
        said = f"did you mean {near[0]}?" if near else f"there are {', '.join(commands)}"
        parser.error(f"there is no command {words[0]!r}: {said}")
    options, unknown = parser.parse_known_args(words)
    if unknown:
        options.mistake(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        status = int(options.command(options))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # `| head` has read enough. What is left in the buffer must not be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except SetupError as error:
        print(f"rlexporter: {error}", file=sys.stderr)
        return check.UNREADABLE if isinstance(error, UnreadableError) else 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rlexporter", description="Prometheus metrics for RL post-training.")
    parser.add_argument("--version", action="version", version=f"rlexporter {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (demo, run, status, top):
        command.add_to(commands)
    messages = commands.add_parser("notify", help="send a message to try RLEXPORTER_NOTIFY")
    messages.add_argument("--test", action="store_true", required=True, help="send one to each address")
    messages.set_defaults(command=_notify)
    metrics = commands.add_parser("metrics", help="list what is served")
    metrics.add_argument(
        "word", nargs="?", default="", metavar="WORD", help="list only what has this word in its name, key or help"
    )
    metrics.add_argument("--json", action="store_true", help="as JSON")
    metrics.set_defaults(command=_metrics)
    for command in (check, report, replay, tail, generate):
        command.add_to(commands)
    targets = commands.add_parser(
        "discovery", help="remove the Prometheus target files that killed processes left behind"
    )
    actions = targets.add_subparsers(required=True, metavar="ACTION")
    pruned = actions.add_parser("prune", help="remove target files that nobody has made fresh for a while")
    pruned.add_argument("folder", type=Path, metavar="FOLDER", help="RLEXPORTER_DISCOVERY_DIR of the exporters")
    pruned.add_argument(
        "--older-than",
        type=_age,
        default="15m",
        metavar="AGE",
        help="90s, 15m, 2h or 1d (default: 15m; an exporter that lives makes its file fresh every minute)",
    )
    pruned.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    pruned.set_defaults(command=_prune, mistake=pruned.error)
    for subparser in commands.choices.values():  # a mistake in its options is answered with its own usage
        subparser.set_defaults(mistake=subparser.error)
        if "\n" in (subparser.epilog or ""):
            subparser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(commands=tuple(commands.choices))
    return parser


def _notify(options: argparse.Namespace) -> int:
    """Send a message to each address and say who took one; return 1 if one of them did not. Raises SetupError."""
    from rlexporter.outputs import services

    addresses = Settings.load({}).notify
    if not addresses:
        raise SetupError("RLEXPORTER_NOTIFY is not set: export RLEXPORTER_NOTIFY='discord://ID/TOKEN', for example")
    taken = []
    for kind, took in services.trial(addresses):
        print(f"{kind}: {'sent' if took else 'not taken; is the address right, and can it be reached from here?'}")
        taken.append(took)
    return 0 if all(taken) else 1


def _metrics(options: argparse.Namespace) -> int:
    """Print the catalog, or what matches a word of it; 1 if nothing does."""
    word = options.word.lower()
    found = [metric for metric in CATALOG if word in _searched(metric)]
    as_logged = sorted({key for key in _keys(NAMED[AS_IT_IS]) if word in key.lower()}) if word else []
    if not found and not as_logged:
        print(
            f"rlexporter: no metric has {shown(options.word)!r} in its name, key or help; a key that is not known is "
            f"served as {AS_IT_IS}{{key=...}}",
            file=sys.stderr,
        )
        return 1
    if options.json:
        plain = _described(NAMED[AS_IT_IS])
        both = [*map(_described, found), *({**plain, "keys": [key]} for key in as_logged)]
        print(json.dumps(both, indent=1))
        return 0
    width = max((len(metric.series) for metric in found), default=0)
    for metric in found:
        print(f"{metric.series:{width}}  {metric.kind.value:9}  {metric.help}")
    for key in as_logged:
        print(f'{AS_IT_IS}{{key="{key}"}}  {Kind.GAUGE.value}  Served as it is logged.')
    return 0


def _keys(metric: Metric) -> Iterator[str]:
    """Yield the keys, of TRL and of all frameworks, that feed a metric."""
    yield from (key.name for key in metric.keys)
    for framework in FRAMEWORKS.values():
        yield from (key.name for key in framework.keys if key.series == metric.series)


def _searched(metric: Metric) -> str:
    """Return the name, the help and the keys of a metric, those of all frameworks too, in small letters."""
    keys = _keys(metric) if metric.series != AS_IT_IS else ()  # those are listed one by one
    return "\n".join((metric.series, metric.help, *keys)).lower()


def _described(metric: Metric) -> dict[str, Any]:
    healthy = metric.healthy
    return {
        "series": metric.series,
        "kind": metric.kind.value,
        "unit": metric.unit,
        "level": metric.level.value,
        "scope": metric.scope.value,
        "keys": list(dict.fromkeys(key.name for key in metric.keys)),
        "labels": list(metric.labels),
        "healthy": [healthy.low, healthy.high] if healthy else None,
        "help": metric.help,
        "reading": metric.reading,
        "alerts": alerts_on(metric),
    }


def _prune(options: argparse.Namespace) -> int:
    """Remove old target files. Raises SetupError if the folder is not readable or writable."""
    from rlexporter.outputs import discovery

    try:
        paths = list(discovery.left_over(options.folder, options.older_than))
        for path in paths:
            if not options.dry_run:
                path.unlink(missing_ok=True)
            print(f"{'would remove' if options.dry_run else 'removed'} {path}")
    except OSError as error:
        raise SetupError(f"cannot prune {error.filename or options.folder}: {error.strerror}") from None
    print(f"{len(paths)} left over in {options.folder}")
    return 0


def _age(text: str) -> float:
    """Return an age in seconds. Raises argparse.ArgumentTypeError."""
    number, unit = text[:-1], {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:])
    if not number.isdigit() or not unit:
        raise argparse.ArgumentTypeError(f"{text!r} is no age: 90s, 15m, 2h or 1d")
    return float(number) * unit
