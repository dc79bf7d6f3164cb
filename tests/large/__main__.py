"""Prints what is said of each log of a large run, broken and healthy: `python -m tests.large [WORDS]`.

WORDS: part of the names of the logs that are judged.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.large.judged import judged
from tests.large.logs import LOGS
from tests.large.twins import SEEDS, TWINS


def main(words: str) -> None:
    """Judge the logs whose name contains ``words``."""
    counts: Counter[str] = Counter()
    cases = [(log, 0) for log in LOGS] + [(twin, seed) for twin in TWINS for seed in SEEDS]
    with tempfile.TemporaryDirectory() as folder:
        for log, seed in cases:
            if words in log.id:
                found = judged(log, Path(folder), seed)
                counts[found.verdict] += 1
                print(found, flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
