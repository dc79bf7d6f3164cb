"""`rlexporter check`: prints which alerts recorded runs would have raised."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rlexporter import recording
from rlexporter.catalog import ALGORITHMS
from rlexporter.commands import report_text
from rlexporter.commands.recorded_alerts import NOTHING_JUDGED, judge
from rlexporter.config.settings import Settings
from rlexporter.model.errors import SetupError

_UNREADABLE = 3
_WORST_FIRST = (_UNREADABLE, 2, NOTHING_JUDGED, 1, 0)
"""The exit statuses: of several files that of the worst counts."""
_EPILOG = """\
what is read, told apart by what a file holds:
  trainer_state.json, or a checkpoint or output folder with one (of several checkpoints the newest)
  JSON lines, one object a log line: of rlexporter's own recorder, verl's `file` logger, ms-swift (logging.jsonl),
    LLaMA-Factory (trainer_log.jsonl), a W&B history
  console output of TRL (dicts, between progress bars) and of verl (step:1 - key:value - ...)
  CSV, as W&B exports it or pandas writes it
  TensorBoard event files, or a folder of them (pip install tensorboard)

exit status, of several files the worst in this order:
  3 a file cannot be read, 2 a critical alert, 4 nothing could be judged, 1 a warning, 0 no alert
"""


def add_to(commands: Any) -> None:
    """Add the command to ``commands``."""
    checks = commands.add_parser(
        "check",
        help="which alerts a recorded run would have raised",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    checks.add_argument("files", nargs="+", metavar="FILE", help="a log, or the folder of a run")
    checks.add_argument("--json", action="store_true", help="as JSON")
    checks.add_argument("--algorithm", choices=list(ALGORITHMS), default="", help="where a file does not say")
    checks.add_argument("--thresholds", metavar="LIMITS", help="kl_high=0.5,entropy_low=off, or a TOML file")
    checks.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Check each file and return the worst exit status. Raises SetupError for limits that are none."""
    limits = Settings.load({"thresholds": options.thresholds}).thresholds
    reports, statuses = [], [0]
    for file in options.files:
        try:
            report = judge(recording.read(file, options.algorithm), limits)
        except SetupError as error:
            print(f"rlexporter: {error}", file=sys.stderr)
            statuses.append(_UNREADABLE)
            continue
        statuses.append(report.status)
        reports.append(report)
        if not options.json:
            print(report_text.written(report))
    if options.json:
        print(json.dumps([report.as_json() for report in reports], indent=1))
    return min(statuses, key=_WORST_FIRST.index)
