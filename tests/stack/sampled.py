"""A real GRPO training whose completions a stand-in for vLLM samples: python -m tests.stack.sampled FOLDER.

FOLDER/had.json: what was logged last, and what was served at the end.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

from transformers.utils import logging

import rlexporter
from tests import tiny
from tests.adapters.twice import Lines
from tests.served import errors, nonfinite


def main() -> None:
    """Train."""
    folder = Path(sys.argv[1])
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    lines = Lines()
    trainer = tiny.grpo(
        folder,
        use_vllm=True,
        vllm_mode="colocate",
        num_iterations=2,
        learning_rate=1e-2,
        max_steps=24,
        callbacks=[lines],
    )
    exporter = rlexporter.attach(trainer, port=0, linger=0)
    trainer.train()
    samples = exporter.snapshot.samples
    series = {s.metric.series: v for s, v in samples.items() if not s.labels}
    counts = {s.metric.series: b.count for s, b in exporter.snapshot.buckets.items()}
    conditions = {s.labels[0] for s, v in samples.items() if s.metric.series == "rl_condition_events_total" and v}
    had: dict[str, Any] = {
        "logged": [line for line in lines.logs if "loss" in line],
        "series": series,
        "counts": counts,
    }
    had |= {"errors": errors(exporter), "nonfinite": nonfinite(exporter), "conditions": sorted(conditions)}
    (folder / "had.json").write_text(json.dumps(had))
    exporter.close()


if __name__ == "__main__":
    main()
