"""Prints what is said of each planted fault that this environment can plant.

    python -m tests.faults [--record FOLDER] [WORDS]

WORDS: part of the names of the faults that are planted. FOLDER gets a recording of each run, and of the healthy ones
that they are planted in, for `python -m scripts.evidence`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlexporter.demo import quiet, tiny

quiet()
warnings.filterwarnings("ignore")
os.environ["RLEXPORTER_LISTEN_PORT"] = "0"

from tests.faults.outcomes import outcome  # noqa: E402 - what it imports must be quiet
from tests.faults.planted import FAULTS, HERE, STEPS, is_here  # noqa: E402
from tests.faults.runs import SEED, Run  # noqa: E402

_LONG = 10_000
"""Characters: a number each of the samples of a step take fewer, one each of its tokens take more."""


def main() -> None:
    """Plant the faults whose name contains the words."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--record", type=Path, metavar="FOLDER")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    words, counts = " ".join(options.words), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        tiny.model(Path(folder) / "tiny-llama", SEED, lambda done, of: None)
        if options.record is not None and not words:
            for algorithm in HERE:
                with recorded(options.record, f"{algorithm}: healthy", algorithm):
                    Run(algorithm, Path(folder), at=STEPS + 1, steps=STEPS).train()
        for fault in FAULTS:
            if words not in fault.id:
                continue
            if fault.unseen and fault.algorithm in HERE:
                print(f"{'unseen':7}{fault.algorithm:11}{fault.name:42}     {fault.unseen}", flush=True)
            if not is_here(fault):
                continue
            about = {"at": fault.at, "names": fault.named_by}
            try:
                with recorded(options.record, fault.id, fault.algorithm, **about):
                    found = outcome(fault, Path(folder))
            except Exception:  # noqa: BLE001 - the others go on
                traceback.print_exc()
                counts["broken"] += 1
            else:
                counts[found.verdict] += 1
                print(found, flush=True)
    print(dict(counts))


@contextmanager
def recorded(folder: Path | None, name: str, algorithm: str, **about: object) -> Iterator[None]:
    """Record the run in the block into ``folder``, compressed, and note in its index what it is ``about``."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    packed = folder / f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.jsonl.gz"
    with tempfile.TemporaryDirectory() as own:
        path = Path(own) / packed.stem
        os.environ["RLEXPORTER_RECORD"] = str(path)
        try:
            yield
        finally:
            del os.environ["RLEXPORTER_RECORD"]
        packed.write_bytes(gzip.compress(_without_tokens(path.read_text()).encode(), mtime=0))
    index = folder / "index.json"
    rows = [row for row in json.loads(index.read_text()) if row["file"] != packed.name] if index.exists() else []
    rows.append({"file": packed.name, "name": name, "algorithm": algorithm, **about})
    index.write_text(json.dumps(sorted(rows, key=lambda row: row["file"]), indent=1) + "\n")


def _without_tokens(recording: str) -> str:
    """Leave the values of each token out of the lines of legacy PPO: what the trainer held was counted beside them."""
    events = [json.loads(line) for line in recording.splitlines()]
    for event in events:
        logs = event.get("logs", {})
        event |= {"logs": {key: value for key, value in logs.items() if not _is_long(value)}} if logs else {}
    return "".join(json.dumps(event) + "\n" for event in events)


def _is_long(value: object) -> bool:
    return isinstance(value, list) and len(json.dumps(value)) > _LONG


if __name__ == "__main__":
    main()
