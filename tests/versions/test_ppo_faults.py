"""Faults that are planted in live PPO trainers of both generations, and the step in which each of them is named.

The trainers are the demo's: a model that was taught to write, and learns what it is rewarded for. `make versions` has
environments with them.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import trl
from transformers import LlamaForCausalLM, PrinterCallback, TrainerCallback, set_seed

import rlexporter
from rlexporter import Exporter
from rlexporter.demo import ppo_loops, tiny
from rlexporter.model.condition import Family
from tests.conditions.began import began

VERSION = tuple(int(part) for part in trl.__version__.split(".")[:2])
MODERN = VERSION >= (0, 12)
FAULT = 16
"""The first step with a fault."""
_SEED = 1
_ACTIONS = {"critical", "warning"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(VERSION > (1, 12), reason="PPO ended with trl 1.12"),
]
modern = pytest.mark.skipif(not MODERN, reason="modern PPO begins with trl 0.12")
legacy = pytest.mark.skipif(MODERN, reason="legacy PPO ended with trl 0.11")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo's model."""
    folder = tmp_path_factory.mktemp("taught")
    tiny.model(folder / "tiny-llama", _SEED, lambda done, of: None)
    return folder


class Run(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """One training of either generation.

    ``rewarded``: changes the rewards of a step, which it is told. ``options``: settings of the trainer.
    """

    def __init__(
        self,
        folder: Path,
        steps: int,
        *,
        rewarded: Callable[[int, list[float]], list[float]] = lambda step, rewards: rewards,
        **options: Any,
    ) -> None:
        set_seed(_SEED)  # each trains as if it were the only one
        self.step = 0
        self._plant: Callable[[], object] = lambda: None
        self._at = FAULT

        def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
            letters, lengths = tiny.letter_reward(prompts, completions), tiny.length_reward(completions)
            return rewarded(self.step, [a + b for a, b in zip(letters, lengths, strict=True)])

        with pytest.MonkeyPatch.context() as patch:
            if MODERN:
                settings = ppo_loops._settings
                patch.setattr(ppo_loops, "_settings", lambda *args: {**settings(*args), "seed": _SEED, **options})
                model = LlamaForCausalLM.from_pretrained(folder / "tiny-llama")
                self.trainer = ppo_loops.trainer(steps, folder, model, [reward])
                self.trainer.remove_callback(PrinterCallback)
                self.trainer.add_callback(self)
            else:
                config = trl.PPOConfig
                patch.setattr(trl, "PPOConfig", lambda **found: config(**{**found, "seed": _SEED, **options}))
                self._loop = ppo_loops.LegacyRun(steps, folder, [reward])
                self.trainer = self._loop.trainer

    @property
    def module(self) -> ModuleType:
        """The module of the trainer's loop."""
        kind = next(each for each in type(self.trainer).__mro__ if each.__name__ in ("PPOTrainer", "PPOv2Trainer"))
        return sys.modules[kind.__module__]

    def train(self, plant: Callable[[], object] = lambda: None, at: int = FAULT) -> Exporter:
        """Train, with a fault that is planted before the step ``at``; where a rollout dies of it, stop."""
        self._plant, self._at = plant, at
        exporter = rlexporter.attach(self.trainer)
        try:
            if MODERN:
                self._before(1)
                self.trainer.train()
            else:
                self._loop.train(lambda model, optimizer, step: self._before(step), lambda: None)
        except RuntimeError as error:
            if "probability tensor" not in str(error):
                raise
            exporter.end(error)
        return exporter

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._before(state.global_step + 1)

    def _before(self, step: int) -> None:
        self.step = step
        if step == self._at:
            with torch.no_grad():
                self._plant()


def _alerts(exporter: Exporter) -> dict[str, int]:
    """The steps in which warnings and critical conditions have begun, the earlier one of each condition."""
    found: dict[str, int] = {}
    for (name, severity), step in sorted(began(exporter).items(), key=lambda item: item[1]):
        if severity in _ACTIONS:
            found.setdefault(name, step)
    exporter.close()
    return found


def test_without_a_fault(taught: Path) -> None:
    """Nothing at all, in what all the others plant their faults in."""
    exporter = Run(taught, 30).train()

    assert exporter.snapshot.value("rl_condition_judged", condition="advantage_flat") == 1
    assert exporter.snapshot.value("rl_condition_judged", condition="kl_coef_lost") == 1
    if MODERN:
        assert exporter.snapshot.value("rl_condition_judged", condition="reference_dropout") == 1
        assert exporter.snapshot.value("rl_condition_judged", condition="sampling_jump") == 1
    assert began(exporter) == {}
    exporter.close()


def test_advantages_without_spread(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whitening leaves nothing of them."""
    run = Run(taught, FAULT + 2)
    nothing: Callable[..., Any] = lambda values, mask, shift_mean=True: values * 0.0  # noqa: E731
    exporter = run.train(lambda: monkeypatch.setattr(run.module, "masked_whiten", nothing))

    assert began(exporter, Family.ADVANTAGE) == {
        ("advantage_flat", "warning"): FAULT,
        ("advantage_flat", "critical"): FAULT + 2,
    }
    assert min(_alerts(exporter).values()) == FAULT


class TestKLCoefficient:
    """0 from the start is a setting; 0 later is a fault, and so is one that does not move."""

    def test_it_is_0_from_the_start(self, taught: Path) -> None:
        """Told once."""
        setting: dict[str, Any] = {"kl_coef" if MODERN else "init_kl_coef": 0.0}
        exporter = Run(taught, 3, **setting).train()

        assert began(exporter) == {("kl_coef_off", "info"): 1}
        assert exporter.snapshot.value("rl_condition_events_total", condition="kl_coef_off", severity="info") == 1
        assert exporter.snapshot.value("rl_kl_coef") == 0
        exporter.close()

    def test_it_becomes_0(self, taught: Path) -> None:
        """In the middle of the run: legacy PPO's controller then leaves it there."""
        run = Run(taught, FAULT + 1)

        def lose() -> None:
            if MODERN:
                run.trainer.args.kl_coef = 0.0
            else:
                run.trainer.kl_ctl.value = 0.0

        assert _alerts(run.train(lose)) == {"kl_coef_lost": FAULT}

    @legacy
    def test_it_is_at_its_bound(self, taught: Path) -> None:
        """The target of KL is far below what the policy does; for some steps the coefficient follows."""
        run = Run(taught, FAULT + 6, target=0.01, horizon=1000)

        def bind() -> None:
            controller = run.trainer.kl_ctl
            update, bound = controller.update, controller.value

            def bounded(current: float, batch: int) -> None:
                update(current, batch)
                controller.value = min(controller.value, bound)

            controller.update = bounded

        found = _alerts(run.train(bind))

        assert set(found) == {"kl_coef_stuck"}
        assert FAULT + 5 <= found["kl_coef_stuck"] <= FAULT + 6  # the coefficient of a step is that of the one before


class TestWeights:
    """They are NaN before a step begins: something else than its updates has done it."""

    def test_of_the_policy(self, taught: Path) -> None:
        """The rollout dies of it, so that no step follows."""
        run = Run(taught, FAULT + 2)
        policy = run.trainer.model.policy if MODERN else run.trainer.model.pretrained_model
        exporter = run.train(lambda: _spoil(policy.lm_head.weight))

        assert exporter.snapshot.value("rl_step") == FAULT - 1
        assert _alerts(exporter) == {"nonfinite_weights": FAULT - 1}

    def test_of_the_value_function(self, taught: Path) -> None:
        """The rollout is fine, the update is not: what was NaN before it is named too, in the same step."""
        run = Run(taught, FAULT + 2)
        model = run.trainer.model
        head = model.value_model.score if MODERN else model.v_head.summary
        exporter = run.train(lambda: _spoil(head.weight))
        found = {name: step for (name, _), step in began(exporter, Family.NONFINITE).items()}

        assert {"nonfinite_weights", "nonfinite_advantage", "nonfinite_loss"} <= set(found)
        assert set(found.values()) == {FAULT}
        exporter.close()

    def test_and_the_update_fails(self, taught: Path) -> None:
        """They are looked at before it."""
        run = Run(taught, FAULT)
        model = run.trainer.model
        head = model.value_model.score if MODERN else model.v_head.summary

        def break_off(*args: Any, **kwargs: Any) -> None:
            raise RuntimeError("probability tensor: as after a failed sampling")

        def spoil() -> None:
            _spoil(head.weight)
            run.trainer.accelerator.backward = break_off

        exporter = run.train(spoil)

        assert exporter.snapshot.value("rl_step") == FAULT - 1
        assert began(exporter, Family.NONFINITE)["nonfinite_weights", "critical"] == FAULT - 1
        exporter.close()


class TestTheEndOfTheWeights:
    """They are numbers when the step begins, and NaN when it ends: what ended them is the cause, and they are not."""

    def test_by_a_reward(self, taught: Path) -> None:
        """All updates of the step follow from it."""

        def nan(step: int, rewards: list[float]) -> list[float]:
            return [math.nan, *rewards[1:]] if step == FAULT else rewards

        assert _causes(Run(taught, FAULT + 1, rewarded=nan).train()) == {"nonfinite_reward": FAULT}

    def test_by_a_gradient(self, taught: Path) -> None:
        """Of each update, the first of which had a loss that was a number."""
        run = Run(taught, FAULT + 1)
        policy = run.trainer.model.policy if MODERN else run.trainer.model.pretrained_model
        exporter = run.train(lambda: next(policy.parameters()).register_hook(lambda gradient: gradient * math.nan))

        assert _causes(exporter) == {"nonfinite_grad": FAULT}

    def test_before_the_step(self, taught: Path) -> None:
        """Then they are the cause, although all updates of the step are NaN as well."""
        run = Run(taught, FAULT + 2)
        model = run.trainer.model
        head = model.value_model.score if MODERN else model.v_head.summary

        assert _causes(run.train(lambda: _spoil(head.weight))) == {"nonfinite_weights": FAULT}


def _causes(exporter: Exporter) -> dict[str, int]:
    """What is not finite and no symptom, with the step in which it began. The weights have ended in it."""
    found = {
        name: step
        for (name, severity), step in began(exporter, Family.NONFINITE).items()
        if exporter.snapshot.value("rl_condition_symptom", condition=name, severity=severity) != 1
    }
    assert began(exporter, Family.NONFINITE)["nonfinite_weights", "critical"] == FAULT
    assert exporter.snapshot.value("rl_condition_symptom", condition="run_failed", severity="critical") == 1
    exporter.close()
    return found


def _spoil(weight: Any) -> None:
    weight.view(-1)[0] = math.nan


class TestRewards:
    """They come from one model, or from the user's loop."""

    def test_one_is_far_off(self, taught: Path) -> None:
        """Once."""

        def far(step: int, rewards: list[float]) -> list[float]:
            return [1000.0, *rewards[1:]] if step == FAULT else rewards

        found = _alerts(Run(taught, FAULT + 1, rewarded=far).train())

        assert found["reward_outlier"] == FAULT
        assert min(found.values()) == FAULT

    @pytest.mark.parametrize("level", [0.0, 1.1, 2.5])
    def test_they_are_all_the_same(self, taught: Path, level: float) -> None:
        """Below what they were, in the middle of it, and above."""

        def constant(step: int, rewards: list[float]) -> list[float]:
            return [level] * len(rewards) if step >= FAULT else rewards

        found = _alerts(Run(taught, FAULT + 7, rewarded=constant).train())

        assert found["reward_function_dead"] == FAULT + 7
        assert min(found.values()) >= FAULT


def test_the_learning_rate_jumps(taught: Path) -> None:
    """For one step, and not by its scheduler, which is what modern PPO logs."""
    run = Run(taught, FAULT + 1)

    def raise_it() -> None:
        for group in run.trainer.optimizer.param_groups:
            group["lr"] *= 100

    found = _alerts(run.train(raise_it))

    assert found["learning_rate_jump"] == FAULT
    assert min(found.values()) == FAULT


def test_the_policy_is_frozen(taught: Path) -> None:
    """The optimizer does nothing any more; the first rollout that shows it is that of the step after."""
    run = Run(taught, FAULT + 3)

    def freeze() -> None:
        run.trainer.optimizer.step = lambda *args, **kwargs: None

    assert _alerts(run.train(freeze)) == {"weights_frozen": FAULT + 3}


@modern
def test_dropout_in_the_reference(taught: Path) -> None:
    """Somebody has put it into training mode."""
    run = Run(taught, FAULT)
    reference = run.trainer.ref_model

    def drop() -> None:
        for module in reference.modules():
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.2
        reference.train()

    exporter = run.train(drop)

    assert exporter.snapshot.value("rl_ref_dropout") == 0.2
    assert _alerts(exporter) == {"reference_dropout": FAULT}


@legacy
class TestLegacySampler:
    """It is no longer the policy: tokens are likelier than its entropy says."""

    @staticmethod
    def _train(folder: Path, **sampling: Any) -> dict[str, int]:
        run = Run(folder, FAULT + 14)

        def change() -> None:
            generate = run.trainer.generate
            run.trainer.generate = lambda *args, **kwargs: generate(*args, **{**kwargs, **sampling})

        return _alerts(run.train(change))

    @pytest.mark.parametrize("sampling", [{"temperature": 0.5}, {"do_sample": False}])
    def test_is_another(self, taught: Path, sampling: dict[str, Any]) -> None:
        """Cooler, or greedy."""
        found = self._train(taught, **sampling)

        assert FAULT < found["sampler_differs"] <= FAULT + 14
        assert min(found.values()) > FAULT


@modern
class TestSampler:
    """It is no longer the policy: modern PPO takes the sampler's probabilities for the old ones."""

    @staticmethod
    def _train(folder: Path, patch: pytest.MonkeyPatch, change: Callable[[Any, Any], Any], more: int) -> dict[str, int]:
        """``change`` is given the model and the settings of each rollout, and returns the model to sample from."""
        run = Run(folder, FAULT + more)
        generate = run.module.batch_generation

        def sample(model: Any, queries: Any, size: int, pad: int, config: Any) -> Any:
            return generate(change(model, config), queries, size, pad, config)

        return _alerts(run.train(lambda: patch.setattr(run.module, "batch_generation", sample)))

    def test_has_another_temperature(self, taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A lower one."""

        def cool(model: Any, config: Any) -> Any:
            config.temperature = 0.5
            return model

        assert self._train(taught, monkeypatch, cool, 3)["sampling_jump"] == FAULT + 1

    def test_is_greedy(self, taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The likeliest token, whatever its probability."""

        def take_the_best(model: Any, config: Any) -> Any:
            config.do_sample = False
            return model

        assert self._train(taught, monkeypatch, take_the_best, 3)["sampling_jump"] == FAULT + 1

    def test_is_stale(self, taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A copy that is never brought up to date: it is noticed when the policy has moved away from it."""
        kept: list[Any] = []

        def old(model: Any, config: Any) -> Any:
            if not kept:
                kept.append(copy.deepcopy(model))
            return kept[0]

        assert FAULT < self._train(taught, monkeypatch, old, 8)["sampling_jump"] <= FAULT + 8
