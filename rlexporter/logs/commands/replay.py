"""`rlexporter replay`: serves a recorded run as if live, or writes it as OpenMetrics for promtool.

A served replay happens now: it has the timestamps of this moment, and conditions on time see the time that the replay
takes. A written one keeps the times of the recording.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlexporter.catalog.algorithms import ALGORITHMS
from rlexporter.config.arguments import Rank
from rlexporter.display import Display
from rlexporter.exporter import Exporter
from rlexporter.logs import playback, reader
from rlexporter.logs.playback import Player
from rlexporter.logs.reader import Recording
from rlexporter.logs.saved_state import SavedState, read_saved_state
from rlexporter.model.errors import TEXT, needed_by

if TYPE_CHECKING:
    from rlexporter.outputs.prometheus import Backfill

_LABELS = {"job": "rlexporter", "instance": "replay"}
"""Labels that a scrape would have added, for dashboards that filter by them."""

_GAP_SECONDS = 240.0
"""Longest gap between samples: Prometheus lets a series end five minutes after its last one."""

_EPILOG = "exit status: 0, 3 if the file cannot be read, 2 for any other mistake"


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command."""
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE", help="a log, as `rlexporter check --help` lists them, or a state file")
    parser.add_argument("--algorithm", choices=list(ALGORITHMS), default="", help="where the file does not say")
    parser.add_argument(
        "--speed", type=_speed, default=1.0, metavar="X", help="times its own pace (default: 1; 0 or max: at once)"
    )
    parser.add_argument("--port", type=int, metavar="P", help="port to serve on (default: 9750; 0: a free one)")
    parser.add_argument(
        "--linger",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long the final state is served (default: %(default)g)",
    )
    parser.add_argument(
        "--openmetrics",
        type=Path,
        metavar="OUT",
        help="serve nothing; write what scrapes would have given, for `promtool tsdb create-blocks-from openmetrics`",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="with --openmetrics: from one scrape to the next at least (default: %(default)g; 0: each step)",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Serve or write the recording; return the exit status. Raises SetupError for an unusable file or address."""
    kept = read_saved_state(options.file)
    if kept and options.openmetrics is None:
        _serve_saved_state(kept, options)
        return 0
    recorded = reader.read(options.file, options.algorithm)
    if recorded.part:
        print(f"{recorded.part}; `rlexporter check` judges each")
    if options.openmetrics is None:
        _serve(recorded, options)
        return 0
    out, history = options.openmetrics, _history(recorded, options.interval)
    playback.write_beside(recorded.path, out, history.text(), "--openmetrics")
    print(f"wrote {out}: {history.moments} scrapes of run {recorded.run}")
    print(f"promtool tsdb create-blocks-from openmetrics {out} DATA makes the blocks of a Prometheus")
    return 0


def _speed(text: str) -> float:
    with contextlib.suppress(ValueError):
        speed = math.inf if text == "max" else float(text)
        if speed >= 0:
            return speed or math.inf
    raise argparse.ArgumentTypeError(f"{text!r} is neither a number from 0 on nor max")


def _serve(recording: Recording, options: argparse.Namespace) -> None:
    """Serve ``recording``. The endpoint stays after a recorded end, and closes at once after a run that just stopped.

    Raises SetupError if the address is not available.
    """
    exporter = _served_alone(**playback.settings(recording), port=options.port)
    with _shown(exporter) as display:
        player = Player(exporter._run, recording)
        began, dues = playback.schedule(recording)
        started = time.monotonic()
        player.begin(recording.facts)
        for event, at, _ in dues:
            ahead = (at - began) / options.speed - (time.monotonic() - started)
            if ahead > 0:
                time.sleep(ahead)
            player.take(event)
            if event.state is None:
                display.step()
                player.run.note()  # each step is in the curves of the page, however fast they are played
        if not exporter.state.over and recording.watched:
            display.summary()
            display.say("the recording just stops, as a killed run does: so does the endpoint")
        else:
            player.end()
            display.summary()
            display.stay(options.linger)


def _serve_saved_state(kept: SavedState, options: argparse.Namespace) -> None:
    """Serve the last state of a process. One whose state says that it runs was killed: it is served as failed.

    Raises SetupError as `_serve`.
    """
    labels = kept.snapshot.labels
    exporter = _served_alone(run=labels.get("run"), rank=Rank(0, world_size=1), port=options.port)
    playback.restore(exporter._run, kept)
    with _shown(exporter) as display:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(kept.time))
        display.say(f"rank {labels.get('rank')} as it was at {when}, {kept.state.value}")
        display.summary()
        display.stay(options.linger)


def _served_alone(**settings: Any) -> Exporter:
    """Return an exporter whose only output is its endpoint: the environment may name the very file that is read."""
    exporter = Exporter(**settings)
    exporter._run.settings = replace(
        exporter._run.settings, record=None, state_file="", discovery_dir=None, otlp="", notify=()
    )
    return exporter


@contextlib.contextmanager
def _shown(exporter: Exporter) -> Iterator[Display]:
    """Start ``exporter``, show its run inside the block, and close it."""
    exporter.start()
    display = Display()
    try:
        display.watch(exporter)
        yield display
    finally:
        exporter.close()


def _history(recording: Recording, interval: float) -> Backfill:
    """Return the scrapes after steps at least ``interval`` seconds apart."""
    with needed_by("--openmetrics", TEXT):
        from rlexporter.outputs.prometheus import Backfill

    player, dues = playback.begun(recording)
    run, history, gap = player.run, Backfill(_LABELS), max(interval, _GAP_SECONDS)
    history.add(run.feed.snapshot, player.now())
    for event, at, ends_step in dues:
        while at - history.last > gap and not run.state.over:
            history.add(run.feed.snapshot, history.last + gap)
        player.time = at
        player.take(event)
        if ends_step and (interval <= 0 or at - history.last >= interval):
            history.add(run.feed.snapshot, at)
    if not recording.watched:
        player.end()
    if run.feed.snapshot is not history.newest:
        history.add(run.feed.snapshot, player.now())
    return history
