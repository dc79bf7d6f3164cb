"""Planted faults in real GRPO and RLOO runs: each is counted in its step, under the name of what it is in.

Each is planted with a log line for every step, and with one for every tenth, which no run here reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

import rlexporter
from rlexporter import Exporter
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import labelled
from tests.conditions.began import began
from tests.served import errors, nonfinite

pytestmark = REAL_TRAINERS

NAN, INF = math.nan, math.inf
FAULTY_STEP = 2


class Watch(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """What had been counted when each step was over. With a log line for each step that is when it is logged."""

    def __init__(self, exporter: Exporter) -> None:
        self.exporter = exporter
        self.after: dict[int, dict[str, float]] = {0: {}}
        self.undefined: dict[int, dict[str, float]] = {0: {}}
        self.sick_since: int | None = None
        """The step in whose log lines a condition had begun for the first time."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.after[state.global_step] = nonfinite(self.exporter)
        undefined = labelled(self.exporter, "rl_undefined_values_total")  # those of a log line among them
        self.undefined[state.global_step] = {name: v for name, v in undefined.items() if name.endswith("_dist")}

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.on_step_end(args, state, control)
        if self.sick_since is None and began(self.exporter):
            self.sick_since = state.global_step


Train = Callable[..., tuple[Exporter, Watch]]


@pytest.fixture(params=[("GRPO", 1), ("GRPO", 10), ("RLOO", 10)], ids=lambda param: "-".join(map(str, param)))
def train(request: pytest.FixtureRequest, tmp_path: Path) -> Train:
    """Trains, and says how it went step by step; a training that fails is let fail."""
    kind, logging_steps = request.param

    def run(*overrides: type[Any], **options: Any) -> tuple[Exporter, Watch]:
        trainer = tiny.grpo(tmp_path, kind=kind, logging_steps=logging_steps, **{"max_steps": 3, **options})
        trainer.__class__ = type("Broken", (*overrides, type(trainer)), {})
        exporter = rlexporter.attach(trainer)
        watch = Watch(exporter)
        trainer.add_callback(watch)
        try:
            trainer.train()
        except RuntimeError as error:
            if "probability tensor" not in str(error):
                raise
        return exporter, watch

    return run


@dataclass(frozen=True)
class Step:
    """What two reward functions give to the 4 samples of a step, and what is then counted."""

    letters: list[float | None]
    shortness: list[float | None]
    nonfinite: dict[str, float] = field(default_factory=dict)
    undefined: dict[str, float] = field(default_factory=dict)
    """No fault of a number, and no 0: values that were not given."""


FINE: list[float | None] = [1.0, 2.0, 0.0, 3.0]
STEPS = {
    "nothing": Step(FINE, FINE),
    "one reward is NaN, which TRL takes for a None and leaves out": Step(
        [NAN, *FINE[1:]], FINE, {"rl_reward_function_dist": 1}
    ),
    "all rewards of one function are NaN, the reward itself stays finite": Step(
        [NAN] * 4, FINE, {"rl_reward_function_dist": 4}
    ),
    "all rewards are NaN, and TRL sets the advantages to 0": Step(
        [NAN] * 4, [NAN] * 4, {"rl_reward_function_dist": 8, "rl_reward_dist": 4, "rl_advantage_dist": 4}
    ),
    "all rewards are None": Step(
        [None] * 4, [None] * 4, {}, {"rl_reward_function_dist": 8, "rl_reward_dist": 4, "rl_advantage_dist": 4}
    ),
    "two tasks, of which each function judges one": Step(
        [1.0, 2.0, None, None], [None, None, 3.0, 1.0], {}, {"rl_reward_function_dist": 4}
    ),
    "the loss is NaN, and transformers logs the mean of the others": Step(FINE, FINE, {"rl_loss": 1}),
}
"""What happens in each step of one training."""


def test_what_is_counted_after_each_step(train: Train) -> None:
    """Each fault in the step in which it happens, and nothing else; to judge half of the samples is none."""
    steps = list(STEPS.values())

    def letters(completions: list[str], trainer_state: Any, **_: Any) -> list[float | None]:
        return steps[int(trainer_state.global_step)].letters

    async def shortness(completions: list[str], trainer_state: Any, **_: Any) -> list[float | None]:
        return steps[int(trainer_state.global_step)].shortness

    class NaNLoss:
        def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
            return loss * NAN if self.state.global_step == len(steps) - 1 else loss

    exporter, watch = train(NaNLoss, rewards=[letters, shortness], max_steps=len(steps))

    for number, (what, step) in enumerate(STEPS.items(), 1):
        assert _grown(watch.after, number) == step.nonfinite, what
        assert _grown(watch.undefined, number) == step.undefined, what
    judged = {s.labels[0]: b.count for s, b in exporter.snapshot.buckets.items() if "function" in s.metric.series}
    assert judged == {"letters": 4 + 3 + 0 + 0 + 0 + 2 + 4, "shortness": 4 + 4 + 4 + 0 + 0 + 2 + 4}
    train_loss = exporter.snapshot.value("rl_logged_value", key="train_loss")
    assert train_loss is not None
    assert math.isfinite(train_loss)
    assert errors(exporter) == 0


def _grown(counts: dict[int, dict[str, float]], step: int) -> dict[str, float]:
    """By how much each count has grown in a step."""
    grown = {name: count - counts[step - 1].get(name, 0) for name, count in counts[step].items()}
    return {name: count for name, count in grown.items() if count}


def test_an_infinite_reward(train: Train) -> None:
    """The advantages of its group are 0 afterwards, or the largest number."""

    def letters(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        rewards = tiny.letters(completions)
        return [INF, *rewards[1:]] if trainer_state.global_step + 1 == FAULTY_STEP else rewards

    exporter, watch = train(rewards=[letters])
    value = exporter.snapshot.value

    assert watch.after[1] == {}
    assert watch.after[2].keys() >= {"rl_reward_dist", "rl_advantage_dist"}
    assert value("rl_nonfinite_values_total", metric="rl_reward_function_dist", kind="+inf") == 1
    assert value("rl_nonfinite_values_total", metric="rl_reward_dist", kind="+inf") == 1
    assert watch.after[2]["rl_advantage_dist"] == 2


def test_what_is_returned_in_an_evaluation(train: Train) -> None:
    """It is counted and judged in the step of the evaluation, by data set, and nothing of it is of the training."""
    within: list[str] = []

    class TwoSets:
        def evaluate(self: Any, eval_dataset: Any = None, **kwargs: Any) -> Any:
            within.append(kwargs.get("metric_key_prefix", ""))
            try:
                chosen = eval_dataset or {"old": self.eval_dataset, "new": self.eval_dataset}
                return super().evaluate(chosen, **kwargs)  # type: ignore[misc]
            finally:
                within.pop()

    def letters(completions: list[str], trainer_state: Any, **_: Any) -> list[float | None]:
        fails = within[-1:] == ["eval_old"] and trainer_state.global_step != FAULTY_STEP
        return [NAN, NAN, None, *tiny.letters(completions[3:])] if fails else [*tiny.letters(completions)]

    evaluations = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}
    exporter, watch = train(TwoSets, rewards=[letters, tiny.shortness], **evaluations)
    value, metric = exporter.snapshot.value, "rl_eval_reward_function_unfiltered_mean"
    limit = {"condition": "nonfinite_eval_reward", "severity": "warning"}

    assert [_grown(watch.after, step) for step in (1, 2, 3)] == [{metric: 2}, {}, {metric: 2}]
    assert value("rl_undefined_values_total", metric=metric) == 2
    assert watch.sick_since == 1
    assert began(exporter) == {("nonfinite_eval_reward", "warning"): 3}
    assert value("rl_condition_events_total", **limit) == 2
    assert value("rl_condition_last_event_value", **limit) == 2
    assert value("rl_condition", **limit) == 1, "the other data set, which is evaluated after it, does not end it"
    of_function = {name: value(metric, dataset=name, reward_function="letters") for name in ("old", "new")}
    assert {name: math.isfinite(mean or 0) for name, mean in of_function.items()} == {"old": False, "new": True}
    assert {b.count for s, b in exporter.snapshot.buckets.items() if s.metric.series.startswith("rl_reward_f")} == {12}
    assert errors(exporter) == 0


def test_nan_in_advantages(train: Train) -> None:
    """Planted after TRL has mended them: the loss is NaN from there, and logged as 0.0."""

    class Broken:
        def _generate_and_score_completions(self: Any, inputs: Any) -> Any:
            found = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
            if self.model.training and self.state.global_step + 1 == FAULTY_STEP:
                found["advantages"][0] = NAN
            return found

    _, watch = train(Broken)

    assert watch.after[1] == {}
    assert watch.after[2]["rl_advantage_dist"] == watch.after[2]["rl_loss"] == watch.after[2]["rl_grad_norm"] == 1


def test_nan_in_one_gradient(train: Train) -> None:
    """The weights are lost with it, and the next rollout fails; with ten steps a line nothing is logged."""

    hooks: list[Any] = []

    def once(gradient: Any) -> Any:
        hooks.pop().remove()
        return gradient * NAN

    class Spoil(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            if state.global_step + 1 == FAULTY_STEP:
                hooks.append(next(model.parameters()).register_hook(once))

    exporter, watch = train(callbacks=[Spoil()])

    assert watch.after[1] == {}
    assert watch.after[2] == {"rl_grad_norm": 1}
    assert 3 not in watch.after
    bad = {s.labels[:2]: v for s, v in exporter.snapshot.samples.items() if "nonfinite" in s.metric.series and v}
    assert bad[("rl_grad_norm", "nan")] == 1


def test_a_penalty_that_changes_its_sign_is_judged_in_its_step(train: Train) -> None:
    """No log of TRL has the coefficient, with a line for each step or without."""

    class Turned:
        def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.state.global_step == FAULTY_STEP - 1:
                self.beta = -0.04
            return super().training_step(*args, **kwargs)  # type: ignore[misc]

    exporter, _ = train(Turned, beta=0.04)

    assert exporter.snapshot.value("rl_kl_coef") == -0.04
    assert began(exporter)[("kl_coef_lost", "critical")] == FAULTY_STEP
