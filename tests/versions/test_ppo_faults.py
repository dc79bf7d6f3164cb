"""Faults that are planted in live PPO trainers of both generations, and the step in which each of them is named.

The trainers are the demo's: a model that was taught to write, and learns what it is rewarded for. `make versions` has
environments with them. `make healthy` runs all of this in the newest version of each, and some of it in the older ones.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from transformers import LlamaForCausalLM, TrainerCallback, set_seed

import rlexporter
from rlexporter import Exporter
from rlexporter.demo import tiny
from rlexporter.model.condition import Family
from tests.conditions.began import began
from tests.served import nonfinite
from tests.versions import demo_trainers
from tests.versions.trls import MODERN, has_ppo, once, once_modern

FAULT = 16
"""The first step with a fault."""
UPDATES = 4 if MODERN else 16
"""Those of a step."""
_SEED = 1
_ACTIONS = {"critical", "warning"}

pytestmark = [
    pytest.mark.soak,
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore"),
    has_ppo,
]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo's model."""
    folder = tmp_path_factory.mktemp("taught")
    tiny.model(folder / "tiny-llama", _SEED, lambda done, of: None)
    return folder


class Run(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """One training of either generation, with a fault from a step on. ``options``: settings of the trainer."""

    def __init__(self, folder: Path, steps: int, **options: Any) -> None:
        set_seed(_SEED)  # each trains as if it were the only one
        self.step = 0
        self.rewarded: Callable[[list[float]], list[float]] = lambda rewards: rewards
        """Changes the rewards of a step."""

        def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
            letters, lengths = tiny.letter_reward(prompts, completions), tiny.length_reward(completions)
            return self.rewarded([a + b for a, b in zip(letters, lengths, strict=True)])

        options = {"seed": _SEED, **options}
        if MODERN:
            model = LlamaForCausalLM.from_pretrained(folder / "tiny-llama")
            self.trainer = demo_trainers.modern("ppo", steps, folder, model, [reward], **options)
            self.trainer.add_callback(self)
        else:
            self._loop = demo_trainers.legacy(steps, folder, [reward], **options)
            self.trainer = self._loop.trainer

    @property
    def module(self) -> ModuleType:
        """The module of the trainer's loop."""
        kind = next(each for each in type(self.trainer).__mro__ if each.__name__ in ("PPOTrainer", "PPOv2Trainer"))
        return sys.modules[kind.__module__]

    @property
    def policy(self) -> Any:
        """The model that is trained and sampled from, without its value head."""
        model = self.trainer.model
        return model.policy if MODERN else model.pretrained_model

    @property
    def value_head(self) -> Any:
        """The last layer of the value function."""
        model = self.trainer.model
        return model.value_model.score if MODERN else model.v_head.summary

    def train(self, plant: Callable[[], object] = lambda: None) -> Exporter:
        """Train, with a fault that is planted before its step; where a rollout dies of it, stop."""
        self._plant = plant
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
        if step == FAULT:
            with torch.no_grad():
                self._plant()


def _alerts(exporter: Exporter) -> dict[str, int]:
    """The steps in which warnings and critical conditions have begun, the earlier one of each condition."""
    found: dict[str, int] = {}
    for (name, severity), step in sorted(began(exporter).items(), key=lambda item: item[1]):
        if severity in _ACTIONS:
            found.setdefault(name, step)
    return found


def test_without_a_fault(taught: Path) -> None:
    """Nothing at all, in what all the others plant their faults in."""
    exporter = Run(taught, 30).train()
    judged = {"advantage_flat", "kl_coef_lost"}
    judged |= {"reference_dropout", "sampling_jump", "length_low"} if MODERN else {"ratio_tail"}

    assert {name for name in judged if exporter.snapshot.value("rl_condition_judged", condition=name) == 1} == judged
    assert began(exporter) == {}


class Fault(NamedTuple):
    """A fault, and the condition that names it: nothing begins before the fault."""

    plant: Callable[[Run, pytest.MonkeyPatch], object]
    condition: str
    first: int
    last: int
    """The first and the last step after that of the fault in which the condition may begin."""
    alone: bool = False
    """True if nothing else begins."""


def _whiten_to_nothing(run: Run, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run.module, "masked_whiten", lambda values, mask, shift_mean=True: values * 0.0)


def _lose_coefficient(run: Run, _: pytest.MonkeyPatch) -> None:
    """Legacy PPO's controller then leaves it there."""
    if MODERN:
        run.trainer.args.kl_coef = 0.0
    else:
        run.trainer.kl_ctl.value = 0.0


def _reward_far_off(run: Run, _: pytest.MonkeyPatch) -> None:
    run.rewarded = lambda rewards: [1000.0, *rewards[1:]] if run.step == FAULT else rewards


def _reward_alike(run: Run, _: pytest.MonkeyPatch) -> None:
    """As much as is usual."""
    run.rewarded = lambda rewards: [1.1] * len(rewards)


def _learn_faster(run: Run, _: pytest.MonkeyPatch) -> None:
    """Not by its scheduler, which is what modern PPO logs."""
    for group in run.trainer.optimizer.param_groups:
        group["lr"] *= 100


def _freeze(run: Run, _: pytest.MonkeyPatch) -> None:
    """The first rollout that shows it is that of the step after."""
    run.trainer.optimizer.step = lambda *args, **kwargs: None


def _drop_out(run: Run, _: pytest.MonkeyPatch) -> None:
    """Somebody has put the reference into training mode."""
    for module in run.trainer.ref_model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.2
    run.trainer.ref_model.train()


def _cool_down(run: Run, _: pytest.MonkeyPatch) -> None:
    """Tokens are likelier than the entropy of the policy says."""
    generate = run.trainer.generate
    run.trainer.generate = lambda *args, **kwargs: generate(*args, **{**kwargs, "temperature": 0.5})


def _sample_cooler(run: Run, patch: pytest.MonkeyPatch) -> None:
    """Modern PPO takes the sampler's probabilities for the old ones."""
    generate = run.module.batch_generation

    def cool(model: Any, queries: Any, size: int, pad: int, config: Any) -> Any:
        config.temperature = 0.5
        return generate(model, queries, size, pad, config)

    patch.setattr(run.module, "batch_generation", cool)


OF_BOTH = {
    "advantages without spread": Fault(_whiten_to_nothing, "advantage_flat", 0, 0),
    "a KL coefficient that becomes 0": Fault(_lose_coefficient, "kl_coef_lost", 0, 0, alone=True),
    "a reward that is far off": Fault(_reward_far_off, "reward_outlier", 0, 0),
    "rewards that are all the same": Fault(_reward_alike, "reward_function_dead", 7, 7),
    "a learning rate that jumps": Fault(_learn_faster, "learning_rate_jump", 0, 0),
    "a frozen policy": Fault(_freeze, "weights_frozen", 2, 2, alone=True),
}
OF_MODERN = {
    "dropout in the reference": Fault(_drop_out, "reference_dropout", 0, 0, alone=True),
    "a sampler at another temperature": Fault(_sample_cooler, "sampling_jump", 1, 1),
}
OF_LEGACY = {"a sampler at another temperature": Fault(_cool_down, "sampler_differs", 1, 14)}
FAULTS = OF_BOTH | (OF_MODERN if MODERN else OF_LEGACY)


@once
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_named(taught: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """In its step, or as soon as it can be told; nothing begins before."""
    fault = FAULTS[name]
    run = Run(taught, FAULT + max(fault.last, 1))
    found = _alerts(run.train(lambda: fault.plant(run, monkeypatch)))

    assert FAULT + fault.first <= found[fault.condition] <= FAULT + fault.last
    assert min(found.values()) >= FAULT
    assert not fault.alone or set(found) == {fault.condition}


def _spoil(weight: Any, value: float = math.nan) -> None:
    with torch.no_grad():
        weight.view(-1)[0] = value


class TestWeights:
    """They are NaN before a step begins: something else than its updates has done it."""

    def test_of_the_policy(self, taught: Path) -> None:
        """The rollout dies of it, so that no step follows."""
        run = Run(taught, FAULT + 2)
        exporter = run.train(lambda: _spoil(run.policy.lm_head.weight))

        assert exporter.snapshot.value("rl_step") == FAULT - 1
        assert _alerts(exporter) == {"nonfinite": FAULT - 1}

    @once
    def test_of_the_value_function(self, taught: Path) -> None:
        """The rollout is fine, the update is not: what was NaN before it is the cause, and named in the same step."""
        run = Run(taught, FAULT + 2)
        exporter = run.train(lambda: _spoil(run.value_head.weight))
        found = {name: step for (name, _), step in began(exporter, Family.NONFINITE).items()}
        counted = nonfinite(exporter)

        assert set(found) == {"nonfinite", "nonfinite_value_loss"}
        assert set(found.values()) == {FAULT}
        assert {"rl_value_dist", "rl_return_dist", "rl_value_loss", "rl_grad_norm"} <= set(counted)
        assert counted["rl_value_loss"] == UPDATES or not MODERN  # legacy PPO skips some
        assert exporter.snapshot.value("rl_run_state", state="failed") == 1
        assert exporter.snapshot.value("rl_step") == FAULT
        assert _causes(exporter) == {"nonfinite": FAULT}

    @once
    def test_and_the_update_fails(self, taught: Path) -> None:
        """They are looked at before it."""
        run = Run(taught, FAULT)

        def break_off(*args: Any, **kwargs: Any) -> None:
            raise RuntimeError("probability tensor: as after a failed sampling")

        def spoil() -> None:
            _spoil(run.value_head.weight)
            run.trainer.accelerator.backward = break_off

        exporter = run.train(spoil)

        assert exporter.snapshot.value("rl_step") == FAULT - 1
        assert began(exporter, Family.NONFINITE)["nonfinite", "critical"] == FAULT - 1


@once
class TestTheEndOfTheWeights:
    """They are numbers when the step begins, and NaN when it ends: what ended them is the cause, and they are not."""

    @pytest.mark.parametrize(
        ("value", "kind", "rewards"), [(math.nan, "nan", 1), pytest.param(math.inf, "+inf", 32, marks=once_modern)]
    )
    def test_by_a_reward(self, taught: Path, value: float, kind: str, rewards: int) -> None:
        """All updates of the step follow from one of them, or from all; each is counted."""
        run = Run(taught, FAULT + 1)

        def plant() -> None:
            run.rewarded = lambda found: [value] * rewards + found[rewards:] if run.step == FAULT else found

        exporter = run.train(plant)
        assert exporter.snapshot.value("rl_nonfinite_values_total", metric="rl_reward_dist", kind=kind) == rewards
        assert _causes(exporter) == {"nonfinite_reward": FAULT}

    def test_by_a_gradient(self, taught: Path) -> None:
        """Of each update, the first of which had a loss that was a number."""
        run = Run(taught, FAULT + 1)
        exporter = run.train(lambda: next(run.policy.parameters()).register_hook(lambda gradient: gradient * math.nan))

        assert _causes(exporter) == {"nonfinite": FAULT}

    def test_by_the_last_update(self, taught: Path) -> None:
        """Nothing else of the step is NaN, and the next rollout dies of it."""
        run = Run(taught, FAULT + 1)

        def plant() -> None:
            take, updates = run.trainer.optimizer.step, itertools.count(1)

            def take_and_spoil(*args: Any, **kwargs: Any) -> Any:
                found = take(*args, **kwargs)
                if next(updates) == UPDATES:
                    _spoil(run.policy.lm_head.weight)
                return found

            run.trainer.optimizer.step = take_and_spoil

        exporter = run.train(plant)

        assert exporter.snapshot.value("rl_step") == FAULT
        assert began(exporter, Family.NONFINITE) == {("nonfinite", "critical"): FAULT}
        assert set(nonfinite(exporter)) == {"rl_weight_norm"}
        assert exporter.snapshot.value("rl_run_state", state="failed") == 1


def _causes(exporter: Exporter) -> dict[str, int]:
    """What is not finite and no symptom, with the step in which it began. The weights have ended in it."""
    found = {
        name: step
        for (name, severity), step in began(exporter, Family.NONFINITE).items()
        if exporter.snapshot.value("rl_condition_symptom", condition=name, severity=severity) != 1
    }
    assert began(exporter, Family.NONFINITE)["nonfinite", "critical"] == FAULT
    assert exporter.snapshot.value("rl_condition_symptom", condition="run_failed", severity="critical") == 1
    return found


@once_modern
class TestWhatNoLineShows:
    """Modern PPO logs neither gradients nor lengths, and means of what is far off in one update."""

    def test_an_overflow_of_the_value_loss(self, taught: Path) -> None:
        """1e30 in the value head: its square is beyond every float32."""
        run = Run(taught, FAULT + 1)
        exporter = run.train(lambda: _spoil(run.value_head.weight, 1e30))

        assert exporter.snapshot.value("rl_nonfinite_values_total", metric="rl_value_loss", kind="+inf")
        value = next(b for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_value_dist")
        assert value.counts[0] + value.counts[-1] > 0
        assert began(exporter, Family.NONFINITE)["nonfinite_value_loss", "critical"] == FAULT

    def test_exploding_gradients(self, taught: Path) -> None:
        """For one step: in the upper buckets."""
        run = Run(taught, FAULT)
        exporter = run.train(lambda: run.value_head.weight.register_hook(lambda gradient: gradient * 1e8))
        found = next(b for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_grad_norm_dist")

        assert found.maximum > 1e6
        assert sum(found.counts[-2:]) >= UPDATES

    def test_lengths_collapse(self, taught: Path) -> None:
        """The policy ends at once."""
        run = Run(taught, FAULT + 4)

        def prefer_the_end(module: Any, inputs: Any, logits: Any) -> Any:
            end = torch.tensor(tiny.token(tiny.END))
            return logits + 50.0 * torch.nn.functional.one_hot(end, logits.shape[-1])

        exporter = run.train(lambda: run.policy.lm_head.register_forward_hook(prefer_the_end))

        assert not any("length" in key for line in run.trainer.state.log_history for key in line)
        assert began(exporter, Family.LENGTH) == {
            ("length_low", "warning"): FAULT + 3,
            ("length_low", "critical"): FAULT + 3,
        }
