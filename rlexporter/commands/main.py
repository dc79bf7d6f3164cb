"""The command line."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlexporter import demo, generate, recording
from rlexporter.catalog import ALGORITHMS, CATALOG
from rlexporter.commands import check, replay
from rlexporter.commands import run as launch
from rlexporter.conditions.judged import alerts_on
from rlexporter.config.settings import Settings
from rlexporter.model.metric import Metric, SetupError
from rlexporter.version import __version__

_UNREADABLE = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 2 where something has to be set up first."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except SetupError as error:
        print(f"rlexporter: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rlexporter", description="Prometheus metrics for RL post-training.")
    parser.add_argument("--version", action="version", version=f"rlexporter {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    trial = commands.add_parser("demo", help="train a tiny model with TRL on the CPU, and serve the run")
    trial.add_argument("--algorithm", choices=demo.ALGORITHMS, default="grpo")
    trial.add_argument("--steps", type=_positive, default=600, metavar="N", help="steps to train (default: 600)")
    trial.add_argument("--port", type=int, metavar="P", help="port to serve on (default: 9750; 0: a free one)")
    trial.add_argument("--fault", metavar="KIND@STEP", help="a real fault in this step: lr_spike, nan or stall")
    trial.add_argument("--linger", type=float, metavar="SECONDS", help="how long the final state is served at least")
    trial.set_defaults(command=_demo)

    launch.add_to(commands)

    metrics = commands.add_parser("metrics", help="list what is served")
    metrics.add_argument("--json", action="store_true", help="as JSON")
    metrics.set_defaults(command=_metrics)

    checks = commands.add_parser("check", help="which alerts a recorded run would have raised")
    checks.add_argument("files", nargs="+", metavar="FILE", help="trainer_state.json, or JSON lines")
    checks.add_argument("--json", action="store_true", help="as JSON")
    checks.add_argument("--algorithm", choices=list(ALGORITHMS), default="", help="where a file does not say")
    checks.add_argument("--thresholds", metavar="LIMITS", help="kl_high=0.5,entropy_low=off, or a TOML file")
    checks.set_defaults(command=_check)

    _add_replay(commands)
    _add_discovery(commands)

    files = commands.add_parser("generate", help="write the files that derive from the catalogue")
    files.add_argument("--check", action="store_true", help="write nothing; fail where one is not up to date")
    files.add_argument("--root", type=Path, default=Path(), help="root of the repository (default: here)")
    files.set_defaults(command=_generate)
    return parser


def _add_replay(commands: Any) -> None:
    again = commands.add_parser("replay", help="serve a recorded run as if live, or write it for promtool")
    again.add_argument("file", metavar="FILE", help="trainer_state.json, JSON lines, or a state file")
    again.add_argument("--algorithm", choices=list(ALGORITHMS), default="", help="where the file does not say")
    again.add_argument(
        "--speed", type=_speed, default=1.0, metavar="X", help="times its own pace (default: 1; 0 or max: at once)"
    )
    again.add_argument("--port", type=int, metavar="P", help="port to serve on (default: 9750; 0: a free one)")
    again.add_argument(
        "--linger",
        type=float,
        default=replay.LINGER_SECONDS,
        metavar="SECONDS",
        help="how long the final state is served (default: %(default)g)",
    )
    again.add_argument(
        "--openmetrics",
        type=Path,
        metavar="OUT",
        help="serve nothing; write what scrapes would have given, for `promtool tsdb create-blocks-from openmetrics`",
    )
    again.add_argument(
        "--interval",
        type=float,
        default=replay.INTERVAL_SECONDS,
        metavar="SECONDS",
        help="with --openmetrics: from one scrape to the next at least (default: %(default)g; 0: each step)",
    )
    again.set_defaults(command=_replay)


def _add_discovery(commands: Any) -> None:
    targets = commands.add_parser("discovery", help="target files of Prometheus: remove what killed processes left")
    actions = targets.add_subparsers(required=True, metavar="ACTION")
    prune = actions.add_parser("prune", help="remove target files that nobody has made fresh for a while")
    prune.add_argument("folder", type=Path, metavar="FOLDER", help="RLEXPORTER_DISCOVERY_DIR of the exporters")
    prune.add_argument(
        "--older-than",
        type=_seconds,
        default=_seconds("15m"),
        metavar="AGE",
        help="90s, 15m, 2h or 1d (default: 15m; an exporter that lives makes its file fresh every minute)",
    )
    prune.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    prune.set_defaults(command=_prune)


def _seconds(text: str) -> float:
    number, unit = text[:-1], {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:])
    if not number.isdigit() or not unit:
        raise argparse.ArgumentTypeError(f"{text!r} is no age: 90s, 15m, 2h or 1d")
    return float(number) * unit


def _speed(text: str) -> float:
    with contextlib.suppress(ValueError):
        speed = math.inf if text == "max" else float(text)
        if speed >= 0:
            return speed or math.inf
    raise argparse.ArgumentTypeError(f"{text!r} is neither a number from 0 on nor max")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _demo(options: argparse.Namespace) -> int:
    return demo.run(
        algorithm=options.algorithm,
        steps=options.steps,
        port=options.port,
        fault=options.fault,
        linger=options.linger,
    )


def _check(options: argparse.Namespace) -> int:
    limits = Settings.load({"thresholds": options.thresholds}).thresholds
    reports, status = [], 0
    for file in options.files:
        try:
            report = check.check(recording.read(file, options.algorithm), limits)
        except recording.UnreadableError as error:
            print(f"rlexporter: {error}", file=sys.stderr)
            status = _UNREADABLE
            continue
        status = max(status, report.status)
        reports.append(report)
        if not options.json:
            print(report.as_text())
    if options.json:
        print(json.dumps([report.as_json() for report in reports], indent=1))
    return status


def _replay(options: argparse.Namespace) -> int:
    kept = recording.read_kept(options.file)
    if kept and options.openmetrics is None:
        return replay.serve_kept(kept, port=options.port, linger=options.linger)
    found = recording.read(options.file, options.algorithm)
    if options.openmetrics is None:
        return replay.serve(found, speed=options.speed, port=options.port, linger=options.linger)
    scrapes = replay.write(found, options.openmetrics, interval=options.interval)
    print(f"wrote {options.openmetrics}: {scrapes} scrapes of run {found.run}")
    print(f"promtool tsdb create-blocks-from openmetrics {options.openmetrics} DATA makes the blocks of a Prometheus")
    return 0


def _prune(options: argparse.Namespace) -> int:
    from rlexporter.outputs import discovery

    try:
        found = list(discovery.left_over(options.folder, options.older_than))
        for path in found:
            if not options.dry_run:
                path.unlink(missing_ok=True)
            print(f"{'would remove' if options.dry_run else 'removed'} {path}")
    except OSError as error:
        raise SetupError(f"cannot prune {error.filename or options.folder}: {error.strerror}") from None
    print(f"{len(found)} left over in {options.folder}")
    return 0


def _metrics(options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps([_described(metric) for metric in CATALOG], indent=1))
        return 0
    width = max(len(metric.series) for metric in CATALOG)
    for metric in CATALOG:
        print(f"{metric.series:{width}}  {metric.kind.value:9}  {metric.help}")
    return 0


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


def _generate(options: argparse.Namespace) -> int:
    if options.check:
        found = generate.stale(options.root)
        for path in found:
            print(f"{path} is not what the catalogue says: run `rlexporter generate`", file=sys.stderr)
        return 1 if found else 0
    for path in generate.write(options.root):
        print(f"wrote {path}")
    return 0
