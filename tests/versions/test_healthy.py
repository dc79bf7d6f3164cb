"""Healthy runs of every trainer and generation, watched at the tensor: no alert may begin in any of them.

Takes minutes, hence `make healthy`. The models are the demo's: taught to write, and learning what they are rewarded
for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, ClassVar

import datasets
import pytest
import torch
import trl
from transformers import TrainerCallback

import rlexporter
from rlexporter import Exporter
from rlexporter.conditions.judge import Judge
from rlexporter.conditions.table import CONDITIONS
from rlexporter.conditions.view import View
from rlexporter.demo import quiet, tiny
from rlexporter.model.condition import Family
from rlexporter.model.incident import Transition
from tests.served import errors
from tests.versions import demo_trainers
from tests.versions.trls import VERSION

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("any_port"), pytest.mark.filterwarnings("ignore")]


def plain() -> list[Any]:
    """The rewards of the demo."""
    return [tiny.letter_reward, tiny.length_reward]


def with_none() -> list[Any]:
    """Two tasks, of four letters each, and the length of all: each judges what is its business, one of them seldom."""
    calls = itertools.count()

    def half(prompts: list[str], completions: list[str], **_: Any) -> list[float | None]:
        scores = tiny.letter_reward(prompts, completions)
        return [score if prompt[0] in "aeio" else None for prompt, score in zip(prompts, scores, strict=True)]

    def seldom(prompts: list[str], completions: list[str], **_: Any) -> list[float | None]:
        if next(calls) % 3 == 2:
            return [None] * len(prompts)
        scores = tiny.letter_reward(prompts, completions)
        return [None if prompt[0] in "aeio" else score for prompt, score in zip(prompts, scores, strict=True)]

    return [half, seldom, tiny.length_reward]


def sparse() -> list[Any]:
    """0 or 1, and 0 for nearly all completions at first: three of the letter asked for, or nothing."""

    def solved(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        return [float(score == 1.0) for score in tiny.letter_reward(prompts, completions)]

    return [solved]


def solvable() -> list[Any]:
    """0 or 1, and 0 for nine completions of ten at first: the letter asked for begins the first word, or nothing.

    Only one token of a completion is asked for. So it can be learned without another length, and without losing entropy
    in the others.
    """

    def begins(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        return [float(text.startswith(prompt[0])) for prompt, text in zip(prompts, completions, strict=True)]

    return [begins]


def brief() -> list[Any]:
    """0 or 1: at most five characters, which hardly any completion has at first.

    The policy finds it late, and has to leave its reference for it by more than in any other run here.
    """

    def short(completions: list[str], **_: Any) -> list[float]:
        return [float(1 <= len(text) <= 5) for text in completions]

    return [short]


class _Curriculum(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """The letter counts first, then the length."""

    WEIGHTS: ClassVar = {1: (1.0, 0.2), 60: (0.6, 0.6), 100: (0.0, 2.0)}

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if (weights := self.WEIGHTS.get(state.global_step + 1)) is not None:
            self.trainer.reward_weights = torch.tensor(weights)


def curriculum(trainer: Any) -> None:
    """Weights of the reward functions that change in mid-run, one of them to 0."""
    trainer.add_callback(_Curriculum(trainer))


def mixture(trainer: Any) -> None:
    """Prompts of two kinds, one of them eight times as long."""
    given = [*tiny.prompts(256), *(f"{text[0]} in a few short words:" for text in tiny.prompts(256))]
    trainer.train_dataset = datasets.Dataset.from_dict({"prompt": given})


def adapter(trainer: Any) -> None:
    """A LoRA adapter is trained in place of the policy, which without it is the reference."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer.model = trainer.model_wrapped = peft.get_peft_model(trainer.model, config)


@dataclass(frozen=True)
class Healthy:
    """A run. ``options``: where it differs from the demo's."""

    algorithm: str
    options: dict[str, Any] = field(default_factory=dict)
    rewards: Callable[[], list[Any]] = plain
    steps: int = 150
    plant: Callable[[Any], None] = lambda trainer: None
    """What else is done to the trainer before it is watched."""
    resumes: int = 0
    """The step of the checkpoint from which the watched training goes on."""
    solved: bool = False
    """True if the rewards, 0 or 1, must be few at first and nearly all at last."""


_EVERY_TENTH = {"logging_steps": 10}
_LINEAR = {"lr_scheduler_type": "linear"}
_ON_POLICY = {"num_iterations": 1}
_REUSED = {"num_iterations": 1, "steps_per_generation": 4}
_ACCUMULATING = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 16}
_GSPO = {"importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4}
_FAST = {"learning_rate": 1e-3, "lr_scheduler_type": "linear"}
_NO_KL = {"beta": 0.0, "learning_rate": 1e-4}
_SOLVING = {"learning_rate": 1e-3, "beta": 0.04, "num_iterations": 1}

_FOUND = {"beta": 0.01, "num_iterations": 1}

_NEWEST = {
    "grpo": Healthy("grpo"),
    "grpo every tenth": Healthy("grpo", {**_EVERY_TENTH, "seed": 1}),
    "grpo on-policy without kl": Healthy("grpo", {**_ON_POLICY, **_NO_KL, **_LINEAR, "seed": 2}),
    "grpo reusing": Healthy("grpo", {**_REUSED, "seed": 3}),
    "grpo reusing every tenth": Healthy("grpo", {**_REUSED, **_EVERY_TENTH, **_LINEAR, "seed": 4}),
    "gspo": Healthy("grpo", {**_GSPO, "seed": 5}),
    "gspo reusing without kl every tenth": Healthy("grpo", {**_GSPO, **_REUSED, **_NO_KL, **_EVERY_TENTH, "seed": 6}),
    "grpo none": Healthy("grpo", {"seed": 7}, with_none),
    "grpo none every tenth": Healthy("grpo", {**_EVERY_TENTH, **_ON_POLICY, "seed": 8}, with_none),
    "grpo accumulating": Healthy("grpo", {**_ACCUMULATING, **_LINEAR, "seed": 9}),
    "grpo accumulating, reusing, evaluating": Healthy(
        "grpo", {**_ACCUMULATING, "steps_per_generation": 4, "eval_steps": 10, "seed": 10}
    ),
    "grpo bf16": Healthy("grpo", {"bf16": True, "seed": 11}),
    "grpo dr": Healthy("grpo", {"loss_type": "dr_grpo", "scale_rewards": "none", "seed": 12, "learning_rate": 4e-4}),
    "grpo learning fast": Healthy("grpo", {**_FAST, "seed": 13}, steps=400),
    "grpo learning fast without kl": Healthy("grpo", {**_FAST, **_ON_POLICY, "beta": 0.0, "seed": 14}, steps=300),
    "rloo learning fast": Healthy("rloo", {**_FAST, **_EVERY_TENTH, "seed": 5}, steps=400),
    "grpo sparse": Healthy("grpo", {"learning_rate": 1e-3, "seed": 15}, sparse, steps=300),
    "grpo sparse every tenth": Healthy("grpo", {"learning_rate": 1e-3, **_EVERY_TENTH, "seed": 16}, sparse, steps=300),
    "rloo sparse": Healthy("rloo", {"learning_rate": 1e-3, "seed": 17}, sparse, steps=300),
    "grpo sparse, solved": Healthy("grpo", {**_SOLVING, "seed": 18}, solvable, steps=400, solved=True),
    "grpo sparse, solved, every tenth": Healthy(
        "grpo", {**_SOLVING, **_EVERY_TENTH, "seed": 19}, solvable, steps=400, solved=True
    ),
    "grpo sparse, far": Healthy("grpo", {**_FOUND, "learning_rate": 1e-3, "seed": 504}, brief, solved=True),
    "rloo sparse, far": Healthy("rloo", {**_FOUND, "learning_rate": 5e-4, "seed": 504}, brief, solved=True),
    "grpo curriculum": Healthy("grpo", {"seed": 21}, plant=curriculum),
    "rloo curriculum every tenth": Healthy("rloo", {**_EVERY_TENTH, "seed": 22}, plant=curriculum),
    "grpo mixture": Healthy("grpo", {"seed": 23}, plant=mixture),
    "rloo mixture": Healthy("rloo", {**_ON_POLICY, "seed": 24}, plant=mixture),
    "grpo resumed": Healthy("grpo", {**_LINEAR, "seed": 25}, resumes=60),
    "rloo resumed, cosine": Healthy("rloo", {"lr_scheduler_type": "cosine", "seed": 26}, resumes=60),
    "rloo": Healthy("rloo"),
    "rloo every tenth": Healthy("rloo", {**_EVERY_TENTH, **_LINEAR, "seed": 1}),
    "rloo none": Healthy("rloo", {"seed": 2}, with_none),
    "rloo on-policy without kl": Healthy("rloo", {**_ON_POLICY, **_NO_KL, "seed": 3}),
    "rloo accumulating, reusing": Healthy(
        "rloo", {**_ACCUMULATING, "steps_per_generation": 4, **_EVERY_TENTH, "seed": 4}
    ),
}
_LATE = {
    "grpo": Healthy("grpo", {"seed": 20}),
    "grpo adapter": Healthy("grpo", {"learning_rate": 2e-3, "seed": 23}, plant=adapter),
    "rloo adapter every tenth": Healthy("rloo", {"learning_rate": 2e-3, **_EVERY_TENTH, "seed": 24}, plant=adapter),
    "gspo none every tenth": Healthy("grpo", {**_GSPO, **_EVERY_TENTH, "seed": 21}, with_none),
    "rloo": Healthy("rloo", {**_LINEAR, "seed": 22}),
    "ppo": Healthy("ppo", {"seed": 1}),
    "ppo accumulating": Healthy(
        "ppo", {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "seed": 2, **_LINEAR}
    ),
    # Not with kl_estimator="k3": its heavy tail enters the reward, and KL and value loss run away by themselves.
    "ppo four epochs": Healthy("ppo", {"num_ppo_epochs": 4, "learning_rate": 1e-4, "seed": 4}),
}
_MID = {
    "grpo": Healthy("grpo", {"seed": 30}),
    "grpo none": Healthy("grpo", {"seed": 31}, with_none),
    "grpo reusing every tenth": Healthy("grpo", {**_REUSED, **_EVERY_TENTH, "seed": 32}),
    "grpo three iterations without kl": Healthy("grpo", {"num_iterations": 3, **_NO_KL, **_LINEAR, "seed": 33}),
    "grpo accumulating, bf16": Healthy("grpo", {**_ACCUMULATING, "bf16": True, "seed": 34}),
    "ppo": Healthy("ppo", {"seed": 5}),
    "ppo one mini-batch": Healthy("ppo", {"num_mini_batches": 1, "num_ppo_epochs": 1, "seed": 6, **_LINEAR}),
    "ppo slots": Healthy(
        "ppo",
        {
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 4,
            "num_mini_batches": 4,
            "missing_eos_penalty": 1.0,
            "seed": 7,
        },
    ),
}
_LEGACY = {
    "legacy ppo": Healthy("ppo-legacy", {"seed": 40 + VERSION[1]}),
    "legacy ppo whitened": Healthy("ppo-legacy", {"whiten_rewards": True, "seed": 41 + VERSION[1]}),
    "legacy ppo accumulating": Healthy(
        "ppo-legacy",
        {"mini_batch_size": 4, "gradient_accumulation_steps": 2, "seed": 42 + VERSION[1], "learning_rate": 2e-4},
    ),
    "legacy ppo fixed kl": Healthy("ppo-legacy", {"adap_kl_ctrl": False, "ppo_epochs": 2, "seed": 43 + VERSION[1]}),
    "legacy ppo stopping early": Healthy(
        "ppo-legacy", {"early_stopping": True, "target_kl": 0.1, "seed": 44 + VERSION[1]}
    ),
}
RUNS = _LEGACY if VERSION < (0, 12) else _MID if VERSION < (1, 0) else _LATE if VERSION <= (1, 12) else _NEWEST


@pytest.mark.parametrize("name", RUNS)
def test_nothing_begins(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No warning and nothing critical, but for what a busy machine does; what else began is printed."""
    run = RUNS[name]
    quiet()
    began: list[str] = []
    judges: set[Judge] = set()
    step = Judge.step

    def keep(judge: Judge, view: View) -> list[Transition]:
        judges.add(judge)
        transitions = step(judge, view)
        for each in transitions:
            if each.began:
                kind, threshold = each.limit.severity.value, each.threshold
                began.append(f"{kind} {each.condition.name} step {view.step} value {each.value:.4g} of {threshold:.4g}")
        return transitions

    monkeypatch.setattr(Judge, "step", keep)
    trainer, train = _built(run, tmp_path)
    exporter = rlexporter.attach(trainer)
    train()
    judged = sum(s.metric.series == "rl_condition_judged" and v for s, v in exporter.snapshot.samples.items())
    (judge,) = judges
    pasts = {signal: judge.past(signal) for signal in ("reward", "entropy")}
    went = ", ".join(f"{name} {median(p.first):.3g} -> {median(p.values[-30:]):.3g}" for name, p in pasts.items())
    told = f"\ntrl {trl.__version__} {name}: {_steps(exporter):.0f} steps, {judged:.0f} conditions judged, {went}"
    with capsys.disabled():
        print(told, *began, sep="\n    ", flush=True)

    assert _steps(exporter) == run.steps - run.resumes
    assert judged > 25
    assert errors(exporter) == 0
    assert _begun(exporter) == {}
    assert not run.solved or mean(pasts["reward"].first[:10]) < 0.3
    assert not run.solved or mean(pasts["reward"].values[-30:]) >= 0.85


def _steps(exporter: Exporter) -> float:
    return exporter.snapshot.value("rl_steps_total") or 0


def _begun(exporter: Exporter) -> dict[str, float]:
    samples = exporter.snapshot.samples.items()
    assert any(s.labels[1] == "critical" for s, _ in samples if s.metric.series == "rl_threshold")
    counts = {s.labels: v for s, v in samples if s.metric.series == "rl_condition_events_total"}
    busy = {each.name for each in CONDITIONS if each.family in (Family.SLOW, Family.STALL)}
    return {
        name: count for (name, severity), count in counts.items() if severity != "info" and count and name not in busy
    }


def _built(run: Healthy, folder: Path) -> tuple[Any, Callable[[], object]]:
    model = tiny.model(folder / "tiny-llama", run.options.get("seed", 0), lambda done, of: None)
    if run.algorithm == "ppo-legacy":
        loop = demo_trainers.legacy(run.steps, folder, run.rewards(), **run.options)
        return loop.trainer, lambda: loop.train(None, lambda: None)
    options = {"save_strategy": "steps", "save_steps": run.resumes, **run.options} if run.resumes else run.options
    if run.resumes:
        demo_trainers.modern(run.algorithm, run.resumes, folder, model, run.rewards(), **options).train()
        model = tiny.model(folder / "tiny-llama", run.options.get("seed", 0), lambda done, of: None)
    trainer = demo_trainers.modern(run.algorithm, run.steps, folder, model, run.rewards(), **options)
    run.plant(trainer)
    return trainer, (lambda: trainer.train(resume_from_checkpoint=True)) if run.resumes else trainer.train
