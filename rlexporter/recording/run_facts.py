"""Facts about a recorded run, as its trainer would have given them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlexporter.catalog import ALGORITHMS, HYPERPARAMETERS, INFO_LABELS, RLOO
from rlexporter.model.step import RunFacts

_STATE_FILE = "trainer_state.json"


def facts(metas: Sequence[Mapping[str, Any]], keys: Collection[str], algorithm: str) -> RunFacts:
    """Return the facts of a run begun by each of ``metas``: step and totals from the first, the rest from the last.

    ``keys`` are the logged ones; ``algorithm`` overrides the file's if it is not empty.
    """
    first, meta = (metas[0], metas[-1]) if metas else ({}, {})
    config, told = (found if isinstance(found, dict) else {} for found in map(meta.get, ("config", "info")))
    algorithm = algorithm or _algorithm(meta, keys)
    numbers = {name: config[name] for name in HYPERPARAMETERS if isinstance(config.get(name), (int, float))}
    texts = {name: config[name] for name in INFO_LABELS if isinstance(config.get(name), str)}
    level = {"importance_sampling_level": "sequence"} if algorithm == RLOO else {}
    info = {"trainer": meta.get("trainer") or "", **level, **texts, **told}
    planned = meta.get("steps_planned") or numbers.get("max_steps") or 0
    return RunFacts(
        algorithm=algorithm,
        info={name: str(value) for name, value in info.items()},
        hyperparameters={name: float(value) for name, value in numbers.items()},
        steps_planned=int(planned) if planned > 0 else None,
        step=first.get("global_step"),
        totals=first.get("totals") or {},
    )


def name(meta: Mapping[str, Any], path: Path) -> str:
    """Return the name of the run; for a `trainer_state.json`, as all are called the same, the name of its folder."""
    folder = path.resolve().parent
    if folder.name.startswith("checkpoint-"):
        folder = folder.parent
    return str(meta.get("run") or (folder.name if path.name == _STATE_FILE else "") or path.stem)


def _algorithm(meta: Mapping[str, Any], keys: Collection[str]) -> str:
    """Return the algorithm from ``meta``, else guess it from ``keys``: GRPO for RLOO too, which logs the same ones."""
    own = str(meta.get("algorithm") or "")
    if own and own != "custom":
        return own
    trainer = _letters(str(meta.get("trainer") or ""))
    for each in sorted(ALGORITHMS, key=len, reverse=True):
        if trainer.startswith(_letters(each)):
            return each
    if any(key.startswith("ppo/") for key in keys):
        return "ppo-legacy"
    if "val/ratio" in keys or "policy/approxkl_avg" in keys:
        return "ppo"
    return "grpo" if any(key.startswith(("rewards/", "completions/")) for key in keys) else "custom"


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))
