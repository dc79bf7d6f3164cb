"""Facts about a recorded run, as its trainer would have given them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import Any

from rlexporter.catalog.algorithms import ALGORITHMS, RLOO
from rlexporter.catalog.run_metrics import HYPERPARAMETERS, INFO_LABELS
from rlexporter.frameworks.known import FRAMEWORKS, family_of
from rlexporter.model.metric import Framework
from rlexporter.model.step import RunFacts

LOG_FILES = ("trainer_state.json", "logging.jsonl", "trainer_log.jsonl")
"""The logs that transformers, ms-swift and LLaMA-Factory write into the folder of a run, the preferred first."""
_LOGGING_STEPS = 10
_INTERVALS = 2
"""A log whose first step is later than this many of its own intervals lacks its beginning."""


def facts(
    metas: Sequence[Mapping[str, Any]], keys: Collection[str], algorithm: str, framework: Framework | None = None
) -> RunFacts:
    """Return the facts of a run that each of ``metas`` began: step and totals from the first, the rest from the last.

    ``keys``: those that were logged; ``algorithm``: overrides the file's if not empty; ``framework``: whose keys they
    are, None for TRL's.
    """
    first, meta = (metas[0], metas[-1]) if metas else ({}, {})
    config, told = (part if isinstance(part, dict) else {} for part in map(meta.get, ("config", "info")))
    algorithm = algorithm or _algorithm(meta, keys)
    framework = FRAMEWORKS.get(str(meta.get("framework")), framework)
    numbers = {name: config[name] for name in HYPERPARAMETERS if isinstance(config.get(name), (int, float))}
    texts = {name: config[name] for name in INFO_LABELS if isinstance(config.get(name), str)}
    level = {"importance_sampling_level": "sequence"} if algorithm == RLOO else {}
    info = {"trainer": meta.get("trainer") or "", **level, **texts, **told}
    planned = meta.get("steps_planned") or numbers.get("max_steps") or 0
    return RunFacts(
        algorithm=algorithm,
        framework=str(meta.get("framework") or (framework.name if framework is not None else "")),
        judged_as=str(meta.get("judged_as") or ("" if framework is None else family_of(framework, keys))),
        info={name: str(value) for name, value in info.items()},
        hyperparameters={name: float(value) for name, value in numbers.items()},
        steps_planned=int(planned) if planned > 0 else None,
        step=first.get("global_step"),
        totals=first.get("totals") or {},
    )


def is_trimmed(steps: Sequence[float]) -> bool:
    """Return True if a log with these ``steps`` lacks the beginning of its run.

    One line alone tells no interval between lines: TRL's default is assumed.
    """
    return bool(steps) and steps[0] > _INTERVALS * interval(steps)


def interval(steps: Sequence[float]) -> float:
    """Return the steps from one log line to the next, by the first ones in ``steps``."""
    apart = [after - before for before, after in pairwise(steps) if after > before]
    return median_low(apart[:20]) if apart else _LOGGING_STEPS


def name(meta: Mapping[str, Any], path: Path) -> str:
    """Return the name of the run. A log with a usual name is called like its folder."""
    folder = path.resolve().parent
    if folder.name.startswith("checkpoint-"):
        folder = folder.parent
    usual = path.name in LOG_FILES or "tfevents" in path.name
    return str(meta.get("run") or (folder.name if usual else "") or path.stem)


def _algorithm(meta: Mapping[str, Any], keys: Collection[str]) -> str:
    """Return the algorithm from ``meta``, else guess it from ``keys``.

    The guess is GRPO for RLOO too, which logs the same ones, and DPO for its relatives.
    """
    own = str(meta.get("algorithm") or "")
    if own and own != "custom":
        return own
    trainer = _letters(str(meta.get("trainer") or ""))
    for known in sorted(ALGORITHMS, key=len, reverse=True):
        if trainer.startswith(_letters(known)):
            return known
    if any(key.startswith("ppo/") for key in keys):
        return "ppo-legacy"
    if "val/ratio" in keys or "policy/approxkl_avg" in keys:
        return "ppo"
    if "rewards/chosen" in keys and "objective/kl" not in keys:
        return "kto" if "kl" in keys else "dpo"
    if "margin" in keys and "mean_reward" in keys:
        return "reward"
    if "mean_token_accuracy" in keys:
        return "sft"
    return "grpo" if any(key.startswith(("rewards/", "completions/")) for key in keys) else "custom"


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))
