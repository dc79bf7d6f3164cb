"""Facts about a run from its trainer's object, configuration and state, and what the trainer descends from.

ms-swift (4.6.0) derives its trainers from TRL's, under the same names, in modules of its own. Unsloth (2026.10.9)
writes a copy of each trainer of TRL, `_UnslothGRPOTrainer`, that is no `GRPOTrainer`, and a thin
`UnslothGRPOTrainer` over it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rlexporter.catalog import algorithms
from rlexporter.catalog.run_metrics import HYPERPARAMETERS
from rlexporter.frameworks.known import SWIFT, TRL, UNSLOTH
from rlexporter.model.step import RunFacts

_ALGORITHMS = {
    "GRPOTrainer": algorithms.GRPO,
    "RLOOTrainer": algorithms.RLOO,
    "AsyncGRPOTrainer": algorithms.ASYNC_GRPO,
    "PPOTrainer": algorithms.PPO,
    "PPOv2Trainer": algorithms.PPO,
    "OnlineDPOTrainer": algorithms.ONLINE_DPO,
    "DPOTrainer": "dpo",
    "KTOTrainer": "kto",
    "CPOTrainer": "cpo",
    "ORPOTrainer": "orpo",
    "TPOTrainer": "tpo",
    "SFTTrainer": "sft",
    "RewardTrainer": "reward",
    "DistillationTrainer": "distillation",
    "AsyncDistillationTrainer": "async-distillation",
    "GKDTrainer": "gkd",
    "GOLDTrainer": "gold",
    "IWOPDTrainer": "iw-opd",
    "SDFTTrainer": "sdft",
    "SDPOTrainer": "sdpo",
    "A2POTrainer": "a2po",
}
_SEQUENCE_LEVEL = (algorithms.RLOO,)

_COPY = re.compile("_?Unsloth(?=[A-Z])")
_SWIFT = "swift."


def run_facts(trainer: Any, args: Any, state: Any, model: Any, resume: object = None) -> RunFacts:
    """Return the facts of a run of the Trainer family. ``trainer`` may be None if it was not found.

    ``resume`` is what `train()` was asked to resume; only ``state`` tells whether it did.
    """
    resumed = None
    if state.global_step:
        if isinstance(resume, (str, os.PathLike)):
            resumed = os.fspath(resume)
        else:
            resumed = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
    algorithm = _algorithm(trainer, args)
    return RunFacts(
        algorithm=algorithm,
        framework=framework_of(trainer),
        judged_as=_judged_as(args),
        rank=int(args.process_index),
        local_rank=int(args.local_process_index),
        world_size=int(args.world_size),
        gpus=gpus(getattr(args, "device", None), int(args.world_size)),
        run_name=getattr(args, "run_name", None),
        output_dir=args.output_dir,
        resumed_from=resumed,
        info={
            "trainer": type(trainer).__name__ if trainer is not None else type(args).__name__,
            "model": model_name(model),
            "loss_type": _text(args, "loss_type"),
            "importance_sampling_level": _text(args, "importance_sampling_level")
            or ("sequence" if algorithm in _SEQUENCE_LEVEL else ""),
            **{name: version_of(name) for name in ("trl", "transformers")},
        },
        hyperparameters={**hyperparameters(args), **_saving(args, state)},
        steps_planned=max(state.max_steps, getattr(args, "max_steps", 0)) or None,
        step=state.global_step,
        totals={"num_tokens": getattr(state, "num_input_tokens_seen", 0), "episode": 0},
    )


def hyperparameters(args: Any) -> Mapping[str, float]:
    """Return the numeric settings of the configuration ``args`` that are in the catalog."""
    generation = getattr(args, "generation_kwargs", None)
    own = generation if isinstance(generation, dict) else {}  # TRL hands them to the sampler over its own settings
    settings = {name: own.get(name, getattr(args, name, None)) for name in HYPERPARAMETERS}
    if _strategy(args) not in ("", "steps"):
        del settings["save_steps"]  # it does nothing
    return {name: float(value) for name, value in settings.items() if isinstance(value, (int, float))}


def _saving(args: Any, state: Any) -> Mapping[str, float]:
    """Return after how many steps a checkpoint is written: 0 is never; nothing where that depends on something else."""
    if (strategy := _strategy(args)) == "no":
        return {"save_steps": 0.0}
    every = getattr(state, "save_steps", None)  # also where the setting is a share of all steps
    return {"save_steps": float(every)} if strategy == "steps" and every else {}


def _strategy(args: Any) -> str:
    """Return when checkpoints are written, as transformers names it; empty where the configuration does not say."""
    strategy = getattr(args, "save_strategy", "")
    return str(getattr(strategy, "value", strategy))


def _algorithm(trainer: Any, args: Any) -> str:
    """Return the algorithm by the classes of trainer and configuration; of ms-swift's GRPO, the estimator."""
    names = names_of(type(trainer)) if trainer is not None else []
    algorithm = algorithm_of([*names, *(base.__name__.replace("Config", "Trainer") for base in type(args).__mro__)])
    return (_text(args, "advantage_estimator") if algorithm == algorithms.GRPO else "") or algorithm


def algorithm_of(names: Sequence[str]) -> str:
    """Return the algorithm by the first of TRL's classes in ``names``, of a class and its bases: users derive own."""
    known = [_ALGORITHMS[name] for name in names if name in _ALGORITHMS]
    own = names[0].removesuffix("Trainer").lower()
    return known[0] if known else own or "custom"


def _judged_as(args: Any) -> str:
    """Return the algorithm of TRL whose conditions apply to ms-swift's estimators of GRPO, which it calls by names.

    Where the KL is part of the reward, it is logged as a sum over the completion, and signed.
    """
    if not _text(args, "advantage_estimator"):
        return ""
    return algorithms.RLOO if getattr(args, "kl_in_reward", False) else algorithms.GRPO


def gpus(device: Any, ranks: int) -> int | None:
    """Return how many accelerators ``ranks`` train on, of which one is ``device``; None if that is unknown."""
    kind = getattr(device, "type", None)
    return None if kind is None else 0 if kind == "cpu" else ranks


def model_name(model: Any) -> str:
    """Return the name of ``model`` without the path to it, else its architecture."""
    path = str(getattr(getattr(model, "config", None), "_name_or_path", "") or "")
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or type(model).__name__


def _text(args: Any, name: str) -> str:
    value = getattr(args, name, None)
    return value if isinstance(value, str) else ""


def version_of(package: str) -> str:
    """Return the version of ``package`` if it is loaded, else an empty string."""
    return str(getattr(sys.modules.get(package), "__version__", ""))


def framework_of(trainer: Any) -> str:
    """Return the name of the framework that ``trainer`` is of: that which its class is declared in."""
    kinds = type(trainer).__mro__
    if any(kind.__module__.startswith(_SWIFT) for kind in kinds):
        return SWIFT
    return UNSLOTH if any(_COPY.match(kind.__name__) for kind in kinds) else TRL


def names_of(kind: type) -> list[str]:
    """Return the names of ``kind`` and its bases; for a copy that of the class of TRL."""
    return [_COPY.sub("", base.__name__) for base in kind.__mro__]
