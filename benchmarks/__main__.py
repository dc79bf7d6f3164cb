"""`python -m benchmarks`: measures, prints, and writes docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from benchmarks import log_line

PAGE = Path(__file__).parent.parent / "docs/benchmarks.md"

_HEAD = """\
<!-- Written by `make bench`. Do not edit. -->

# Benchmarks

Measured by `make bench`: {cores} cores, Python {python}, prometheus_client {client}. Thread-CPU time of each call, the
alternatives in turn in every round; the median, and in brackets the middle half of 25 rounds. The machine is shared
and noisy: read the factors, not the microseconds.
"""


def main() -> None:
    """Measure everything."""
    head = _HEAD.format(cores=os.cpu_count(), python=platform.python_version(), client=version("prometheus-client"))
    parts = [head, "## A log line\n", *log_line.rows(), "\n## A scrape\n", *log_line.scrape_rows()]
    page = "\n".join(parts) + "\n"
    print(page)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
