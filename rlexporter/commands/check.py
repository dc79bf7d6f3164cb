"""`rlexporter check`: prints which alerts recorded runs would have raised."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rlexporter import recording
from rlexporter.catalog import ALGORITHMS
from rlexporter.commands import report_text
from rlexporter.commands.recorded_alerts import judge
from rlexporter.config.settings import Settings

_UNREADABLE = 3


def add_to(commands: Any) -> None:
    """Add the command to ``commands``."""
    checks = commands.add_parser("check", help="which alerts a recorded run would have raised")
    checks.add_argument("files", nargs="+", metavar="FILE", help="trainer_state.json, or JSON lines")
    checks.add_argument("--json", action="store_true", help="as JSON")
    checks.add_argument("--algorithm", choices=list(ALGORITHMS), default="", help="where a file does not say")
    checks.add_argument("--thresholds", metavar="LIMITS", help="kl_high=0.5,entropy_low=off, or a TOML file")
    checks.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Check each file; return 0 (no alert), 1 (warning), 2 (critical) or 3 (unreadable). Raises SetupError."""
    limits = Settings.load({"thresholds": options.thresholds}).thresholds
    reports, status = [], 0
    for file in options.files:
        try:
            report = judge(recording.read(file, options.algorithm), limits)
        except recording.UnreadableError as error:
            print(f"rlexporter: {error}", file=sys.stderr)
            status = _UNREADABLE
            continue
        status = max(status, report.status)
        reports.append(report)
        if not options.json:
            print(report_text.written(report))
    if options.json:
        print(json.dumps([report.as_json() for report in reports], indent=1))
    return status
