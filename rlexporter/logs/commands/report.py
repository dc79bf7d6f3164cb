"""`rlexporter report`: writes the page of a recorded run as one file that needs no server."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rlexporter.catalog.algorithms import ALGORITHMS
from rlexporter.catalog.languages import CODES, language
from rlexporter.config.settings import Settings
from rlexporter.logs import playback, reader, recorded_alerts
from rlexporter.logs.commands.check import said, written
from rlexporter.logs.saved_state import read_saved_state
from rlexporter.run.run import Run
from rlexporter.status import document, earlier, page
from rlexporter.status.history import History
from rlexporter.status.samples import Samples
from rlexporter.status.verdict import verdict

_EPILOG = "exit status: 0, 3 if the file cannot be read, 2 for any other mistake"


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command."""
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE", help="a log, as `rlexporter check --help` lists them, or a state file")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="file to write (default: RUN.html)")
    parser.add_argument("--algorithm", choices=list(ALGORITHMS), default="", help="where the file does not say")
    parser.add_argument("--thresholds", metavar="LIMITS", help="kl_high=0.5,entropy_low=off, or a TOML file")
    parser.add_argument("--map", metavar="KEYS", help="what unknown keys mean: train/score=reward, or a TOML file")
    parser.add_argument("--language", choices=CODES, default=CODES[0], help="of the page (default: %(default)s)")
    parser.add_argument("--compare", metavar="OTHER", help="a log, or the page of a run, to draw in gray beside it")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Write the page; print its verdict. Raises SetupError for a file that cannot be read or written."""
    own = Settings.load({"thresholds": options.thresholds, "map": options.map})
    spoken = language(options.language)
    history = History()
    kept = read_saved_state(options.file)
    if kept is not None:
        name, check = kept.snapshot.labels.get("run", ""), {}
        run = Run(Settings.load({}), clock=lambda: kept.time)
        playback.restore(run, kept)
        found = verdict(Samples(run.feed.snapshot), run.clock())
        word, text = found.word, found.text
    else:
        recorded = reader.read(options.file, options.algorithm)
        given = {"thresholds": own.thresholds, "map": own.map}
        name, run = recorded.run, playback.played(recorded, given, lambda run: history.see(run.feed.snapshot)).run
        if recorded.part:
            print(f"{recorded.part}; `rlexporter check` judges each")
        checked = recorded_alerts.report(run, recorded)
        word, text = said(checked)
        check = {"check": written(checked, verbose=True)}
    if options.compare and options.compare.endswith(".html"):
        history.earlier = page.read(Path(options.compare))
    elif options.compare:
        other, beside = reader.read(options.compare, options.algorithm), History()
        old = playback.played(other, {}, lambda run: beside.see(run.feed.snapshot)).run
        history.earlier = earlier.of_page(document.kept(old.feed.snapshot, beside, old.clock()))
    data = {**document.kept(run.feed.snapshot, history, run.clock(), spoken), **check}
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100] or "run"
    out = options.output or Path(f"{stem}.html")
    playback.write_beside(options.file, out, [page.page(data).encode()], "--output")
    print(f"wrote {out}: {word}. {text}")  # in English, as all that a terminal says
    return 0
