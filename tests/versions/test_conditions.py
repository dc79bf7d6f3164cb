"""Faults that no log line of an older TRL shows, and the conditions that begin in the step of the fault.

Each trainer where TRL has it: `make versions` has environments for that. GRPO and RLOO of today are in
`tests/conditions/test_hidden.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import LlamaForCausalLM, TrainerCallback

import rlexporter
from rlexporter import Exporter
from rlexporter.demo import tiny
from rlexporter.model.condition import Family
from tests import tiny as trainers
from tests.conditions.began import began, is_over

VERSION = tuple(int(part) for part in trl.__version__.split(".")[:2])
EOS = 1
FAULT = 6
"""The first step that has a past of five to be measured with."""
STEPS = 10

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class After(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Does something when the update of a step is done."""

    def __init__(self, step: int, how: Callable[[], object]) -> None:
        self._step, self._how = step, how

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self._step:
            with torch.no_grad():
                self._how()


def _run(trainer: Any, plant: Callable[[], object] | None = None) -> Exporter:
    """Attach and train, with a fault from the step `FAULT` on; a rollout that dies of it is let die."""
    exporter = rlexporter.attach(trainer)
    if plant is not None:
        trainer.add_callback(After(FAULT - 1, plant))
    try:
        trainer.train()
    except RuntimeError as error:
        if "probability tensor" not in str(error):
            raise
    return exporter


def _logs(trainer: Any, word: str) -> bool:
    return any(word in key for line in trainer.state.log_history for key in line)


@pytest.mark.skipif(VERSION < (0, 19), reason="GRPO has taps from trl 0.19 on")
@pytest.mark.skipif(VERSION >= (0, 20), reason="from trl 0.20 on GRPO logs its entropy")
class TestGroupWithoutEntropy:
    """Minus the log-probability of the sampled tokens stands in."""

    def test_it_collapses(self, tmp_path: Path) -> None:
        """Every logit is a hundred thousand times itself: each prompt has one answer."""
        trainer = trainers.grpo(tmp_path, max_steps=STEPS, logging_steps=10)
        exporter = _run(trainer, lambda: trainer.model.lm_head.weight.mul_(1e5))

        assert not _logs(trainer, "entropy")
        assert began(exporter, Family.ENTROPY_LOW) == {
            ("entropy_low", "warning"): FAULT + 2,
            ("entropy_collapsed", "critical"): FAULT + 4,
        }
        exporter.close()

    def test_it_does_not(self, tmp_path: Path) -> None:
        """It is judged all the same."""
        exporter = _run(trainers.grpo(tmp_path, max_steps=STEPS, logging_steps=10))

        assert exporter.snapshot.value("rl_condition_judged", condition="entropy_collapsed") == 1
        assert began(exporter, Family.ENTROPY_LOW) == {}
        exporter.close()


@pytest.mark.skipif(VERSION < (0, 19), reason="GRPO has taps from trl 0.19 on")
@pytest.mark.parametrize("logging_steps", [1, 5])
def test_a_task_that_is_not_in_the_batch_is_no_fault(tmp_path: Path, logging_steps: int) -> None:
    """A reward function gives None for every sample of a rollout: trl 0.19 logs its mean as NaN."""
    calls = itertools.count(1)

    def task(completions: list[str], **_: Any) -> list[float | None]:
        return [None] * len(completions) if next(calls) == FAULT else [*trainers.letters(completions)]

    rewards = [task, trainers.shortness]
    exporter = _run(trainers.grpo(tmp_path, rewards=rewards, max_steps=STEPS, logging_steps=logging_steps))

    assert exporter.snapshot.value("rl_undefined_values_total", metric="rl_reward_function_dist") == 4
    assert began(exporter, Family.NONFINITE) == {}
    exporter.close()


@pytest.mark.skipif(VERSION < (0, 19), reason="GRPO has taps from trl 0.19 on")
@pytest.mark.parametrize("num_iterations", [1, 3])
def test_without_kl_all_else_is_seen(tmp_path: Path, num_iterations: int) -> None:
    """No tap fails, though trl 0.19 has a reference of None then; that KL cannot be seen is said."""
    exporter = _run(trainers.grpo(tmp_path, beta=0.0, num_iterations=num_iterations, max_steps=STEPS))
    seen = exporter.snapshot

    assert [series for series in seen.samples if series.metric.series == "rlexporter_errors_total"] == []
    assert seen.value("rl_signal_available", signal="kl") == 0
    assert seen.value("rl_signal_available", signal="advantage") == 1
    exporter.close()


@pytest.mark.skipif(VERSION < (0, 12), reason="modern PPO begins with trl 0.12")
@pytest.mark.skipif(VERSION > (1, 12), reason="modern PPO ended with trl 1.12")
class TestModernPPO:
    """Logs no length, and a step before its weights are looked at."""

    @staticmethod
    def _trainer(folder: Path) -> Any:
        from tests.versions.ppo import ppo

        return ppo(folder, steps=STEPS)

    def test_without_a_fault(self, tmp_path: Path) -> None:
        """Nothing of what is planted here, and nothing critical at all."""
        exporter = _run(self._trainer(tmp_path))

        assert began(exporter, Family.LENGTH) == began(exporter, Family.NONFINITE) == {}
        assert exporter.snapshot.value("rl_condition_judged", condition="length_low") == 1
        assert not [name for name in began(exporter) if name[1] == "critical"]
        exporter.close()

    def test_lengths_collapse(self, tmp_path: Path) -> None:
        """The policy ends at once."""
        trainer = self._trainer(tmp_path)

        def prefer_the_end(module: Any, inputs: Any, logits: Any) -> Any:
            return logits + 50.0 * torch.nn.functional.one_hot(torch.tensor(EOS), logits.shape[-1])

        exporter = _run(trainer, lambda: trainer.model.policy.lm_head.register_forward_hook(prefer_the_end))

        assert not _logs(trainer, "length")
        assert began(exporter, Family.LENGTH) == {
            ("length_low", "warning"): FAULT + 4,
            ("same_length", "warning"): FAULT + 4,
        }
        exporter.close()

    def test_a_weight(self, tmp_path: Path) -> None:
        """Lost in the last update of a step, whose line is fine; the next rollout dies of it."""
        trainer = self._trainer(tmp_path)
        step, calls = trainer.optimizer.step, 0

        def poisoned(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            found = step(*args, **kwargs)
            if calls == 4 * FAULT:
                _spoil(trainer.model.policy.lm_head.weight)
            return found

        trainer.optimizer.step = poisoned
        exporter = _run(trainer)

        assert len(trainer.state.log_history) == FAULT
        assert all(math.isfinite(number) for number in trainer.state.log_history[-1].values())
        assert began(exporter, Family.NONFINITE) == {("nonfinite_weights", "critical"): FAULT}
        exporter.close()


def _spoil(weight: Any) -> None:
    with torch.no_grad():
        weight.view(-1)[0] = math.nan


@pytest.mark.skipif(VERSION >= (0, 12), reason="legacy PPO ended with trl 0.11")
class TestLegacyPPO:
    """The loop is the user's."""

    @staticmethod
    def _train(before: Callable[[Any, int], None], after: Callable[[Any, int], None]) -> tuple[Exporter, Any]:
        """Hear of the trainer and the step between rollout and update, and after the update. Its last statistics."""
        models = []
        for _ in range(2):
            torch.manual_seed(1)
            made = LlamaForCausalLM(tiny.config(hidden_size=16, layers=1))
            models.append(trl.AutoModelForCausalLMWithValueHead.from_pretrained(made))
        config = trl.PPOConfig(batch_size=8, mini_batch_size=4, ppo_epochs=4, learning_rate=1e-4)
        trainer = trl.PPOTrainer(config, *models, tiny.tokenizer())
        exporter = rlexporter.attach(trainer)
        queries = [torch.tensor(tiny.tokenizer()(text)["input_ids"]) for text in tiny.prompts(8)]
        sampling = {"max_new_tokens": 8, "do_sample": True, "top_k": 0, "pad_token_id": 0}
        stats: Any = None
        for step in range(1, STEPS + 1):
            try:
                responses = trainer.generate(queries, return_prompt=False, **sampling)
            except RuntimeError as error:
                if "probability tensor" not in str(error):
                    raise
                break
            before(trainer, step)
            scores = [(response == 7).sum().float() + 0.1 * i for i, response in enumerate(responses)]
            stats = trainer.step(queries, responses, scores)
            trainer.log_stats(stats, {"query": [""] * 8, "response": [""] * 8}, scores)
            after(trainer, step)
        return exporter, stats

    def test_without_a_fault(self) -> None:
        """Nothing of what is planted here, and nothing critical at all."""
        exporter, _ = self._train(lambda trainer, step: None, lambda trainer, step: None)

        assert began(exporter, Family.POLICY_STEP) == began(exporter, Family.NONFINITE) == {}
        assert exporter.snapshot.value("rl_condition_judged", condition="ratio_tail") == 1
        assert not [name for name in began(exporter) if name[1] == "critical"]
        exporter.close()

    def test_a_weight(self) -> None:
        """Lost in the last update of a step, whose statistics are fine; the next rollout dies of it."""
        calls = 0

        def plant(trainer: Any, step: int) -> None:
            if step == FAULT:
                trainer.optimizer.step = poisoned(trainer, trainer.optimizer.step)

        def poisoned(trainer: Any, take: Any) -> Any:
            def take_and_spoil(*args: Any, **kwargs: Any) -> Any:
                nonlocal calls
                calls += 1
                found = take(*args, **kwargs)
                if calls == 8:
                    _spoil(trainer.model.v_head.summary.weight)
                    _spoil(trainer.model.pretrained_model.lm_head.weight)
                return found

            return take_and_spoil

        exporter, stats = self._train(plant, lambda trainer, step: None)

        assert calls == 8
        assert math.isfinite(stats["ppo/loss/total"])
        assert math.isfinite(stats["objective/kl"])
        assert began(exporter, Family.NONFINITE) == {("nonfinite_weights", "critical"): FAULT}
        exporter.close()

    def test_a_ratio_that_blows_up_for_one_step(self) -> None:
        """The optimizer goes far too far once; what the trainer skips then it logs as a loss of 0."""
        kept: list[Any] = []

        def plant(trainer: Any, step: int) -> None:
            if step == FAULT:
                kept.extend(each.detach().clone() for each in trainer.model.parameters())
            for group in trainer.optimizer.param_groups:
                group["lr"] = 5.0 if step == FAULT else 1e-4

        def mend(trainer: Any, step: int) -> None:
            if step == FAULT:
                with torch.no_grad():
                    for each, before in zip(trainer.model.parameters(), kept, strict=True):
                        each.copy_(before)

        exporter, _ = self._train(plant, mend)
        found = began(exporter, Family.POLICY_STEP)

        assert found["ratio_tail", "critical"] == FAULT
        assert min(found.values()) == FAULT
        assert is_over(exporter, "ratio_tail", "critical")
        exporter.close()
