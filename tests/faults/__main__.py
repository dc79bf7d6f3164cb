"""Prints what is said of each planted fault that this environment can plant: `python -m tests.faults [WORDS]`.

WORDS: part of the names of the faults that are planted.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

from rlexporter.demo import quiet, tiny

quiet()
warnings.filterwarnings("ignore")
os.environ["RLEXPORTER_LISTEN_PORT"] = "0"

from tests.faults.outcomes import outcome  # noqa: E402 - what it imports must be quiet
from tests.faults.planted import FAULTS, HERE, is_here  # noqa: E402
from tests.faults.runs import SEED  # noqa: E402


def main(words: str) -> None:
    """Plant the faults whose name contains ``words``."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        tiny.model(Path(folder) / "tiny-llama", SEED, lambda done, of: None)
        for fault in FAULTS:
            if words not in fault.id:
                continue
            if fault.unseen and fault.algorithm in HERE:
                print(f"{'unseen':7}{fault.algorithm:11}{fault.name:42}     {fault.unseen}", flush=True)
            if not is_here(fault):
                continue
            try:
                found = outcome(fault, Path(folder))
            except Exception:  # noqa: BLE001 - the others go on
                traceback.print_exc()
                counts["broken"] += 1
            else:
                counts[found.verdict] += 1
                print(found, flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
