"""Legacy PPO: real trainers of trl 0.11 and earlier against an independent count, with planted faults and errors.

Skipped where trl is newer; `make versions` runs it in environments with the old ones.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import random
import warnings
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import trl
from accelerate.state import AcceleratorState  # type: ignore[import-untyped]
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import LlamaForCausalLM

import rlexporter
from rlexporter import Exporter, SetupError
from rlexporter.adapters.instance import wrap
from rlexporter.adapters.ppo_legacy import LegacyTaps
from rlexporter.catalog import TENSOR_SIGNALS
from rlexporter.demo import tiny
from rlexporter.model.snapshot import RunState
from rlexporter.run import shutdown
from rlexporter.tensors.tally import Tally
from tests.adapters.kept import SavedState, buckets
from tests.adapters.twice import random_states
from tests.conftest import fetch
from tests.served import errors, nonfinite
from tests.waits import Watch

if tuple(int(part) for part in trl.__version__.split(".")[:2]) >= (0, 12):
    pytest.skip(f"legacy PPO ended with trl 0.11, this is {trl.__version__}", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("any_port")

BATCH = 8
_E = tiny.tokenizer()("e")["input_ids"][0]
_COUNTED_AS = {f"rl_{name}_dist": f"rl_{name}" for name in ("loss", "policy_loss", "value_loss", "grad_norm")}
_TRAINER_TAPS = ("generate", "step", "compute_advantages", "loss", "record_step_stats")
_ACCELERATOR_TAPS = ("backward", "log")


class Adam(torch.optim.Adam):  # type: ignore[misc] # torch is not checked
    """Keeps the norm of the gradients that it takes its steps with."""

    kept: SavedState | None = None

    def step(self, closure: Any = None) -> Any:
        if self.kept:
            gradients = [each.grad for group in self.param_groups for each in group["params"] if each.grad is not None]
            flat = np.concatenate([each.detach().double().numpy().ravel() for each in gradients])
            self.kept.add("rl_grad_norm_dist", [np.sqrt(np.sum(flat**2))])
        return super().step(closure)


class Keeping(trl.PPOTrainer):  # type: ignore[misc] # trl is not checked
    """Overrides on the class, as a user's subclass would have them; values are copied when they are there."""

    kept: SavedState

    def step(self, queries: Any, responses: Any, scores: Any, response_masks: Any = None) -> Any:
        self.kept.add("rl_reward_dist", [float(score) for score in scores])
        self.kept.add("rl_prompt_length_dist", [query.numel() for query in queries])
        self.kept.add("rl_completion_length_dist", [response.numel() for response in responses])
        return super().step(queries, responses, scores, response_masks)

    def compute_advantages(self, values: Any, rewards: Any, mask: Any) -> Any:
        masked, advantages, returns = super().compute_advantages(values, rewards, mask)
        self.kept.add("rl_value_dist", values, mask)
        self.kept.add("rl_advantage_dist", advantages, mask)
        self.kept.add("rl_return_dist", returns, mask)
        return masked, advantages, returns

    def loss(
        self,
        old_logprobs: Any,
        values: Any,
        logits: Any,
        vpreds: Any,
        logprobs: Any,
        mask: Any,
        advantages: Any,
        returns: Any,
    ) -> Any:
        policy, value, stats = super().loss(old_logprobs, values, logits, vpreds, logprobs, mask, advantages, returns)
        self.kept.add("rl_policy_ratio_dist", torch.exp(logprobs - old_logprobs), mask)
        self.kept.add("rl_policy_loss_dist", policy)
        self.kept.add("rl_value_loss_dist", value / self.config.vf_coef)
        self.kept.add("rl_loss_dist", policy + value)
        return policy, value, stats

    def record_step_stats(self, kl_coef: Any, **data: Any) -> Any:
        masks = data["masks"]
        self.kept.add("rl_kl_per_token_dist", data["kls"], masks)
        self.kept.add("rl_kl_per_sequence_dist", (data["kls"] * masks).sum(1))
        self.kept.add("rl_logprob_dist", data["logprobs"], masks)
        self.kept.add("rl_ref_logprob_dist", data["ref_logprobs"], masks)
        return super().record_step_stats(kl_coef, **data)


def _trainer(kind: Any = trl.PPOTrainer, *, adapter: Any = None, dtype: Any = torch.float32, **options: Any) -> Any:
    """A policy with a value head, of 5,000 weights.

    ``adapter``: options of one that is trained in place of the policy, whose reference then is the policy without it.
    ``dtype``: of the weights.
    """
    if missing := options.keys() - {field.name for field in dataclasses.fields(trl.PPOConfig)}:
        pytest.skip(f"trl {trl.__version__} has no {missing}")
    AcceleratorState._reset_state(reset_partial_state=True)  # its precision is that of the first trainer, else
    models: list[Any] = []
    given = {} if adapter is None else {"peft_config": _lora(**adapter)}
    for _ in range(2 if adapter is None else 1):
        torch.manual_seed(1)
        made = LlamaForCausalLM(tiny.config(hidden_size=16, layers=1)).to(dtype)
        models.append(trl.AutoModelForCausalLMWithValueHead.from_pretrained(made, **given))
    settings = {"batch_size": BATCH, "mini_batch_size": 4, "ppo_epochs": 2, "learning_rate": 1e-2, **options}
    optimizer = Adam(models[0].parameters(), lr=settings["learning_rate"])
    policy, reference = (*models, None)[:2]
    trainer = kind(trl.PPOConfig(**settings), policy, reference, tiny.tokenizer(), optimizer=optimizer)
    if kind is Keeping:
        trainer.kept = optimizer.kept = SavedState()
    return trainer


def _lora(**options: Any) -> Any:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    targets = ["q_proj", "v_proj"]
    return peft.LoraConfig(r=4, lora_alpha=16, target_modules=targets, task_type="CAUSAL_LM", **options)


def _letters(step: int, responses: list[Any]) -> list[Any]:
    """Reward: how many letters are an e, and a bit for a place in the batch, so that it is never the same."""
    return [(response == _E).sum().float() + 0.1 * i for i, response in enumerate(responses)]


def _queries() -> list[Any]:
    return [torch.tensor(tiny.tokenizer()(text)["input_ids"]) for text in tiny.prompts(BATCH)]


class Loop:
    """The loop of a user. ``plant``: called between the rollout of a step and the step itself."""

    def __init__(
        self,
        trainer: Any,
        *,
        rewards: Callable[[int, list[Any]], list[Any]] = _letters,
        plant: Callable[[Any, int], None] = lambda trainer, step: None,
    ) -> None:
        self.trainer, self.rewards, self.plant = trainer, rewards, plant
        self.exporter: Exporter | None = None
        self.after: dict[int, dict[str, float]] = {}
        self.stats: list[dict[str, Any]] = []
        self.scores: list[Any] = []

    def run(self, steps: int = 4, *, masked: bool = False, logged: bool = True) -> Loop:
        """Train; where a rollout fails because the weights are lost, stop."""
        generation = {"max_new_tokens": 8, "do_sample": True, "top_k": 0, "pad_token_id": 0}
        masks = [torch.tensor([0, 1] * 4) for _ in range(BATCH)] if masked else None
        for step in range(1, steps + 1):
            queries = _queries()
            try:
                if masked:  # as long as their masks
                    generation["min_new_tokens"] = 8
                responses = self.trainer.generate(queries, return_prompt=False, **generation)
            except RuntimeError as error:
                if "probability tensor" in str(error):
                    break
                raise
            self.plant(self.trainer, step)
            scores = self.scores = self.rewards(step, responses)
            self.stats.append(self.trainer.step(queries, responses, scores, masks))
            if logged:
                self.trainer.log_stats(self.stats[-1], {"query": [""] * BATCH, "response": [""] * BATCH}, scores)
            if self.exporter:
                self.after[step] = nonfinite(self.exporter)
        return self

    def began(self, metric: str) -> int:
        """The first step after which a metric had bad values."""
        return min((step for step, bad in self.after.items() if metric in bad), default=0)


def _run(trainer: Any, steps: int = 4, **how: Any) -> tuple[Exporter, Loop]:
    """Attach and train."""
    loop = Loop(trainer, **how)
    loop.exporter = rlexporter.attach(trainer)
    return loop.exporter, loop.run(steps)


def _signals(exporter: Exporter) -> dict[str, float]:
    return {s.labels[0]: v for s, v in exporter.snapshot.samples.items() if s.metric.series == "rl_signal_available"}


def _bad_of_kind(exporter: Exporter, metric: str, kind: str) -> float | None:
    return exporter.snapshot.value("rl_nonfinite_values_total", metric=metric, kind=kind)


def _count(exporter: Exporter, name: str) -> Any:
    return next(b for s, b in exporter.snapshot.buckets.items() if s.metric.series == name)


def _assert_equal(exporter: Exporter, kept: SavedState) -> None:
    """What a scrape says is what was kept: every bucket, and what is not finite."""
    _, text, _ = fetch(f"{exporter.url}/metrics")
    served = {name: (bounds, counts) for name, bounds, counts in buckets(text)}
    of_the_line = {"rl_policy_approxkl_dist", "rl_step_duration_seconds"}
    bad = nonfinite(exporter)

    assert set(served) - of_the_line == set(kept.values)
    for name in kept.values:
        bounds, counts = served[name]
        assert counts == kept.histogram(name, bounds), name
        assert bad.get(_COUNTED_AS.get(name, name), 0) == kept.nonfinite(name), name


# ---- equal to an independent count ----

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "one update a step": {"mini_batch_size": 8, "ppo_epochs": 1},
    "accumulating": {"mini_batch_size": 2, "gradient_accumulation_steps": 2},
    "full kl": {"kl_penalty": "full"},
    "clipped scores": {"score_clip": 0.5},
    "whitened rewards": {"whiten_rewards": True},
    "stopping early": {"early_stopping": True, "target_kl": 1e-6, "ppo_epochs": 4},
    "masked responses": {},
    "LoRA": {"adapter": {}},
    "LoRA, full kl": {"adapter": {}, "kl_penalty": "full"},
    "LoRA, accumulating": {"adapter": {}, "mini_batch_size": 2, "gradient_accumulation_steps": 2},
    "DoRA": {"adapter": {"use_dora": True}},
    "checkpointing": {"gradient_checkpointing": True},
    "bf16": {"accelerator_kwargs": {"mixed_precision": "bf16"}},
    "weights in bf16": {"dtype": torch.bfloat16},
}
STACK = ("LoRA", "DoRA", "accumulating", "checkpointing", "bf16", "weights in bf16")
"""Cases of which it is seen too that training is the same without an exporter."""


@pytest.mark.parametrize("case", CASES)
def test_every_histogram_equals_an_independent_count(case: str) -> None:
    """Bucket for bucket; prompts, padding and what the user masks count nothing."""
    trainer = _trainer(Keeping, **CASES[case])
    exporter = rlexporter.attach(trainer)
    Loop(trainer).run(6, masked=case == "masked responses")

    _assert_equal(exporter, trainer.kept)
    assert all(sum(map(len, values)) for values in trainer.kept.values.values())
    trained = [each for each in trainer.model.parameters() if each.requires_grad]
    weights = [each.detach().double().numpy().ravel() for each in trained]
    exact = 2**-8 if case == "weights in bf16" else 1e-5  # each tensor's norm is rounded as its numbers are
    assert exporter.snapshot.value("rl_weight_norm") == pytest.approx(np.linalg.norm(np.concatenate(weights)), exact)
    assert _signals(exporter) == {**dict.fromkeys(TENSOR_SIGNALS, 1.0), "entropy": 0.0}
    assert errors(exporter) == 0
    exporter.close()


def test_a_step_is_a_call_of_step() -> None:
    """`log_stats()` adds its own keys to the step, and is none; nor is a line of the user's."""
    trainer = _trainer()
    exporter = rlexporter.attach(trainer)
    loop = Loop(trainer).run(3)
    value = exporter.snapshot.value
    scores = [score.item() for score in loop.scores]

    assert (value("rl_step"), value("rl_steps_total")) == (3, 3)
    assert value("rl_reward_mean") == pytest.approx(np.mean(scores))
    assert value("rl_reward_std") == pytest.approx(np.std(scores, ddof=1))
    assert value("rl_kl_per_sequence") == loop.stats[-1]["objective/kl"]
    assert value("rlexporter_unmapped_keys") == 0
    trainer.accelerator.log({"accuracy": 0.5, "objective/kl": 7.0})
    assert value("rl_steps_total") == 3
    assert exporter.snapshot.value("rl_logged_value", key="accuracy") == 0.5
    assert exporter.snapshot.value("rl_kl_per_sequence") != 7.0
    assert _count(exporter, "rl_reward_dist").count == 3 * BATCH
    assert _count(exporter, "rl_step_duration_seconds").count == 3
    exporter.close()


def test_without_log_stats_the_rest_is_there() -> None:
    """Its mean and spread of rewards are missing, their distribution is not."""
    trainer = _trainer()
    exporter = rlexporter.attach(trainer)
    Loop(trainer).run(2, logged=False)

    assert exporter.snapshot.value("rl_steps_total") == 2
    assert exporter.snapshot.value("rl_reward_mean") is None
    assert _count(exporter, "rl_reward_dist").count == 2 * BATCH
    exporter.close()


def test_skipped_updates_are_counted() -> None:
    """As often as the trainer warns of them."""
    trainer = _trainer(ratio_threshold=1.0)
    exporter = rlexporter.attach(trainer)
    assert exporter.snapshot.value("rl_skipped_updates_total") in (None, 0.0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        Loop(trainer).run(5)
    skipped = sum("exceeds threshold" in str(each.message) for each in warned)

    assert 0 < skipped < 5 * 4
    assert exporter.snapshot.value("rl_skipped_updates_total") == skipped
    exporter.close()


def test_a_ratio_beyond_the_threshold_is_counted_in_its_step() -> None:
    """The optimizer takes one step that is far too long: the rest of its updates are skipped."""
    seen: list[Any] = []

    def plant(trainer: Any, step: int) -> None:
        seen.append(exporter.snapshot.value("rl_skipped_updates_total") or 0)
        for group in trainer.optimizer.param_groups:
            group["lr"] = 5.0 if step == 3 else 1e-3

    trainer = _trainer(ppo_epochs=8, ratio_threshold=2.0)
    exporter = rlexporter.attach(trainer)
    Loop(trainer, plant=plant).run(3)
    ratios = _count(exporter, "rl_policy_ratio_dist")

    assert seen == [0, 0, 0]
    assert (exporter.snapshot.value("rl_skipped_updates_total") or 0) > 0
    assert ratios.maximum > 10
    exporter.close()


# ---- planted faults ----


def _rewards(step: int, count: int, kind: float) -> Callable[[int, list[Any]], list[Any]]:
    """Rewards of which ``count`` are of this kind in one step."""

    def rewards(now: int, responses: list[Any]) -> list[Any]:
        given = _letters(now, responses)
        return [torch.tensor(kind)] * count + given[count:] if now == step else given

    return rewards


def _in(step: int, how: Callable[[Any], Any]) -> Callable[[Any, int], None]:
    """Break something between the rollout of a step and the step."""

    def plant(trainer: Any, now: int) -> None:
        if now == step:
            with torch.no_grad():
                how(trainer)

    return plant


def _explode(factor: float) -> Callable[[Any], None]:
    def plant(trainer: Any) -> None:
        hooks: list[Any] = []

        def once(gradient: Any) -> Any:
            hooks.pop().remove()
            return gradient * factor

        hooks.append(trainer.model.v_head.summary.weight.register_hook(once))

    return plant


def _value_head(number: float) -> Callable[[Any], Any]:
    return lambda trainer: trainer.model.v_head.summary.weight.fill_(number)


def _policy_weight(trainer: Any) -> None:
    next(trainer.model.pretrained_model.parameters()).fill_(math.nan)


FAULTS: dict[str, tuple[dict[str, Any], dict[str, float | None]]] = {
    "one NaN reward": ({"rewards": _rewards(2, 1, math.nan)}, {"rl_reward_dist": 1, "rl_advantage_dist": None}),
    "all rewards NaN": ({"rewards": _rewards(2, BATCH, math.nan)}, {"rl_reward_dist": 8, "rl_return_dist": None}),
    "an infinite reward": ({"rewards": _rewards(2, 1, math.inf)}, {"rl_reward_dist": 1, "rl_advantage_dist": None}),
    "NaN in the value head": ({"plant": _in(2, _value_head(math.nan))}, {"rl_value_dist": None, "rl_value_loss": 4}),
    "1e30 in the value head": ({"plant": _in(2, _value_head(1e30))}, {"rl_value_loss": 4, "rl_loss": 4}),
    "NaN weight": ({"plant": _in(2, _policy_weight)}, {"rl_weight_norm": 1, "rl_logprob_dist": None}),
    "NaN gradient": ({"plant": _in(2, _explode(math.nan))}, {"rl_grad_norm": 4, "rl_weight_norm": 1}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_counted_in_its_step(fault: str) -> None:
    """As often as it is there, under the name of what it is in; what is counted before and after agrees as well."""
    how, expected = FAULTS[fault]
    trainer = _trainer(Keeping)
    exporter, loop = _run(trainer, 3, **how)

    assert loop.after[1] == {}
    for metric, count in expected.items():
        assert loop.began(metric) == 2, metric
        assert count is None or loop.after[2][metric] == count, metric
    _assert_equal(exporter, trainer.kept)
    assert errors(exporter) == 0
    exporter.close()


def test_an_infinite_reward_is_no_nan() -> None:
    """It is counted for what it was when it was given; what it makes of the advantages is NaN."""
    exporter, _ = _run(_trainer(), 2, rewards=_rewards(2, 1, math.inf))

    assert _bad_of_kind(exporter, "rl_reward_dist", "+inf") == 1
    assert _bad_of_kind(exporter, "rl_reward_dist", "nan") is None
    assert (_bad_of_kind(exporter, "rl_advantage_dist", "nan") or 0) > 0
    exporter.close()


def test_a_huge_value_is_in_the_last_bucket() -> None:
    """It is finite."""
    exporter, loop = _run(_trainer(), 2, plant=_in(2, _value_head(1e30)))
    values = _count(exporter, "rl_value_dist")

    assert loop.after[2].get("rl_value_dist") is None
    assert values.counts[0] + values.counts[-1] > BATCH
    assert max(-values.minimum, values.maximum) > 1e28
    exporter.close()


def test_exploding_gradients_stay_visible() -> None:
    """One of four updates of a step, long averaged away: it is in the histogram."""
    exporter, loop = _run(_trainer(), 3, plant=_in(2, _explode(1e12)))
    norms = _count(exporter, "rl_grad_norm_dist")

    assert norms.count == 12
    assert norms.counts[-1] == 1
    assert norms.maximum > 1e6
    assert loop.after[3] == {}
    exporter.close()


# ---- training is sacred ----


def test_of_a_policy_with_an_adapter_only_that_is_watched() -> None:
    """And the value head. The reference is the policy with the adapter switched off: its KL begins at 0, and grows."""
    trainer = _trainer(adapter={})
    before = {name: weight.clone() for name, weight in trainer.model.named_parameters()}
    exporter, loop = _run(trainer, 3)
    after = dict(trainer.model.named_parameters())
    changed = {name for name, weight in after.items() if not torch.equal(weight, before[name])}

    assert trainer.ref_model is None
    assert changed == {name for name, weight in after.items() if weight.requires_grad}
    assert all("lora_" in name or "v_head" in name for name in changed)
    assert loop.stats[0]["objective/kl"] == 0 != loop.stats[2]["objective/kl"]
    assert exporter.snapshot.value("rl_kl_per_sequence") == loop.stats[2]["objective/kl"]
    exporter.close()


def _trained(attached: bool, **options: Any) -> tuple[list[dict[str, Any]], dict[str, Any], Any]:
    random.seed(0)
    trainer = _trainer(**options)
    exporter = rlexporter.attach(trainer) if attached else None
    loop = Loop(trainer).run(4)
    if exporter:
        fetch(f"{exporter.url}/metrics")
        exporter.close()
    return loop.stats, trainer.model.state_dict(), random_states()


@pytest.mark.parametrize("case", ["plain", *STACK])
def test_training_is_the_same_with_and_without(case: str) -> None:
    """Bit for bit: statistics, weights and the random state of python, numpy and torch."""
    (lines, weights, state), others = (_trained(attached, **CASES[case]) for attached in (False, True))
    other_lines, other_weights, other_state = others

    for line, other in zip(lines, other_lines, strict=True):
        assert set(line) == set(other)
        assert all(np.array_equal(line[key], other[key]) for key in line if not key.startswith("time/"))
    assert all(torch.equal(a, b) for a, b in zip(weights.values(), other_weights.values(), strict=True))
    assert state == other_state


@pytest.mark.parametrize("broken", [("observe",), ("log",), ("begin",), ("observe", "log", "begin")])
def test_an_error_in_every_tap_leaves_training_alone(broken: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at a tensor or line fails: the run ends as it would have, the errors are counted."""
    plain = _trainer()
    Loop(plain).run(2)
    trainer = _trainer()
    exporter = rlexporter.attach(trainer)

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("planted")

    for name in broken:
        monkeypatch.setattr(exporter.run if name == "begin" else exporter.run.sink, name, fail)
    monkeypatch.setattr(exporter.run.store, "phase", fail)
    loop = Loop(trainer).run(2)

    assert len(loop.stats) == 2
    same = zip(plain.model.state_dict().values(), trainer.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in same)
    assert errors(exporter) > (20 if "observe" in broken else 0)
    if "observe" in broken:
        assert not any(_signals(exporter).values())
        assert set(_signals(exporter)) == set(TENSOR_SIGNALS)
    monkeypatch.undo()
    exporter.close()


@pytest.mark.parametrize("name", [*_TRAINER_TAPS, *_ACCELERATOR_TAPS])
def test_a_method_that_is_gone_costs_its_signals(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of TRL: the rest is seen as before, and the reason names the method."""

    def missing(owner: Any, method: str, around: Any) -> Any:
        if method == name:
            raise AttributeError(method)
        return wrap(owner, method, around)

    monkeypatch.setattr("rlexporter.adapters.taps.wrap", missing)
    exporter, _ = _run(_trainer(), 2)
    reasons = {s.labels for s in exporter.snapshot.samples if s.metric.series == "rl_signal_unavailable_info"}
    lost = {signal: reason for signal, cause, reason in reasons if signal != "entropy" and cause == "error"}

    assert errors(exporter) == 0
    assert all(name in reason for reason in lost.values())
    assert bool(lost) is (name not in ("generate", "log"))
    assert exporter.snapshot.value("rl_step") == (0 if name == "step" else 2)
    exporter.close()


def test_a_step_that_raises_is_the_users() -> None:
    """The error is the trainer's own; the run goes on, and nothing is under way that is not."""
    trainer = _trainer()
    exporter, loop = _run(trainer, 1)
    with pytest.raises(ValueError, match="number of examples"):
        trainer.step([torch.tensor([2])], [torch.tensor([3])], [torch.tensor(1.0)])
    with pytest.raises(ValueError, match="must be a list of tensors"):
        trainer.step(None, None, None)

    assert exporter.state is RunState.RUNNING
    assert exporter.snapshot.value("rl_phase", phase="rollout") == 1
    assert exporter.snapshot.value("rl_phase", phase="update") == 0
    assert exporter.snapshot.value("rl_steps_total") == 1
    loop.run(1)
    assert exporter.snapshot.value("rl_steps_total") == 2
    exporter.close()


def test_nothing_outlives_its_step() -> None:
    """No activations, logits, losses or advantages, and no graph."""
    alive: list[weakref.ref[Any]] = []
    left: list[int] = []

    class Tracking(trl.PPOTrainer):  # type: ignore[misc] # trl is not checked
        def loss(self, *args: Any, **kwargs: Any) -> Any:
            found = super().loss(*args, **kwargs)
            alive.extend(weakref.ref(each) for each in (*args, *found[:2], *found[2].values()))
            return found

        def record_step_stats(self, *args: Any, **data: Any) -> Any:
            alive.extend(weakref.ref(each) for each in data.values() if torch.is_tensor(each))
            return super().record_step_stats(*args, **data)

        def step(self, *args: Any) -> Any:
            found = super().step(*args)
            left.append(sum(ref() is not None for ref in alive))
            return found

    def activation(module: Any, inputs: Any, output: Any) -> None:
        if torch.is_tensor(output):
            alive.append(weakref.ref(output))

    trainer = _trainer(Tracking)
    for module in trainer.model.modules():
        module.register_forward_hook(activation)
    exporter, loop = _run(trainer, 3)
    arrays = [weakref.ref(value) for value in loop.stats[-1].values() if isinstance(value, np.ndarray)]
    loop.stats.clear()

    assert len(alive) > 300
    assert left == [0, 0, 0]
    assert len(arrays) > 5
    assert not any(ref() is not None for ref in arrays)
    exporter.close()


class _Accelerator:
    process_index, local_process_index, num_processes, sync_gradients = 0, 0, 1, True
    device = torch.device("cuda")

    def backward(self, loss: Any) -> None:
        pass

    def log(self, values: Any) -> None:
        pass

    def unwrap_model(self, model: Any) -> Any:
        return model


class StandIn:
    """What the taps look at, on ``device``: a real trainer reads its own tensors, which waits."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.model = torch.nn.ParameterList([torch.ones(3, device=device)])
        self.accelerator = _Accelerator()
        self.config = SimpleNamespace(ratio_threshold=0.5)

    def generate(self) -> None:
        pass

    def step(self, queries: Any, responses: Any, scores: Any) -> Any:
        plain = torch.ones(4, 6, device=self.device)
        mask = plain > 0
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)  # a pretended tensor has no autograd
        self.compute_advantages(plain, plain, mask)
        self.loss(plain, mask=mask)
        self.accelerator.backward(plain)
        self.record_step_stats(
            0.1, masks=mask, kls=plain, logprobs=plain, ref_logprobs=plain, queries=queries, responses=responses
        )
        return {"objective/kl": 0.1}

    def compute_advantages(self, values: Any, rewards: Any, mask: Any) -> Any:
        return values, rewards, rewards

    def loss(self, ratio: Any, mask: Any) -> Any:
        losses = {f"loss/{name}": ratio.sum() for name in ("total", "policy", "value")}
        return 0, 0, {"policy/ratio": ratio, **losses}

    def record_step_stats(self, kl_coef: float, **data: Any) -> Any:
        return {"objective/kl_dist": data["kls"].sum(1)}


def test_no_tap_waits_for_a_pretended_gpu(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """All signals are seen there, the skipped updates among them, and nothing reads what lies there."""
    monkeypatch.setattr(Tally, "arrived", lambda _: [])  # the buffers, of the host on a real GPU, pretend as well
    with FakeTensorMode(), Watch() as watch:
        trainer = StandIn("cuda")
        LegacyTaps(trainer, exporter.run).install()
        for _ in range(2):
            trainer.step([[1]], [[1, 2]], [torch.ones((), device="cuda"), torch.ones(1, device="cuda")])
    (tally,) = exporter.run.sink._pending.tally._devices.values()
    counted = {series.metric.series for series in tally._slot_of}

    assert _signals(exporter) == {**dict.fromkeys(TENSOR_SIGNALS, 1.0), "entropy": 0.0}
    assert errors(exporter) == 0
    assert {"rl_skipped_updates_total", "rl_reward_dist", "rl_weight_norm", "rl_grad_norm_dist"} < counted
    assert len(watch.calls) > 200


# ---- attach, close, end ----


def test_twice_is_once_and_anew_after_close() -> None:
    """Nothing is left on the trainer by then; what it had before is."""
    trainer = _trainer()
    first = rlexporter.attach(trainer)
    assert rlexporter.attach(trainer, run="another") is first
    Loop(trainer).run(1)
    assert first.snapshot.value("rl_steps_total") == 1
    assert _count(first, "rl_reward_dist").count == BATCH
    assert {name for name in _TRAINER_TAPS if name in vars(trainer)} == set(_TRAINER_TAPS)
    first.close()
    assert not {*_TRAINER_TAPS} & {*vars(trainer)}
    assert not {*_ACCELERATOR_TAPS} & {*vars(trainer.accelerator)}

    second = rlexporter.attach(trainer)
    assert second is not first
    Loop(trainer).run(2)
    assert (first.snapshot.value("rl_steps_total"), second.snapshot.value("rl_steps_total")) == (1, 2)
    assert errors(first) == errors(second) == 0
    second.close()


def test_a_setting_that_is_wrong_leaves_nothing_behind() -> None:
    """Neither wrappers nor an exporter."""
    trainer = _trainer()
    with pytest.raises(SetupError):
        rlexporter.attach(trainer, prot=1)  # type: ignore[call-arg]

    assert not {*_TRAINER_TAPS} & {*vars(trainer)}
    exporter = rlexporter.attach(trainer)
    assert exporter.port
    exporter.close()


def test_the_exporter_does_not_keep_the_trainer_alive() -> None:
    """Its closing after that is no error."""
    trainer = _trainer()
    exporter, loop = _run(trainer, 1)
    gone = weakref.ref(trainer)
    del trainer, loop
    gc.collect()

    assert gone() is None
    exporter.close()
    assert errors(exporter) == 0


def test_a_rank_that_is_not_the_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an exporter that serves nothing, and no taps."""
    trainer = _trainer()
    monkeypatch.setattr(type(trainer.accelerator), "process_index", property(lambda self: 1))
    exporter = rlexporter.attach(trainer)

    assert rlexporter.attach(trainer) is exporter
    assert exporter.port is None
    assert list(shutdown.live()) == []
    assert not {*_TRAINER_TAPS} & {*vars(trainer)}


@pytest.mark.parametrize(
    ("steps", "error", "state"),
    [
        (2, None, RunState.FINISHED),
        (2, ValueError(), RunState.FAILED),
        (2, KeyboardInterrupt(), RunState.STOPPED),
        (0, None, RunState.STOPPED),
    ],
)
def test_how_it_ends(steps: int, error: BaseException | None, state: RunState) -> None:
    """Nobody says when: with the process. What never began was stopped."""
    exporter, _ = _run(_trainer(), steps)
    before = exporter.state
    exporter.run.exit(error)

    assert before is (RunState.RUNNING if steps else RunState.STARTING)
    assert exporter.state is state
    exporter.close()


def test_what_is_known_of_the_run() -> None:
    """Its facts, and its name where a person gave one."""
    unnamed = rlexporter.attach(_trainer())
    assert unnamed.name not in ("trl", trl.PPOConfig().exp_name)
    unnamed.close()
    project = rlexporter.attach(_trainer(tracker_project_name="reviews"))
    assert project.name == "reviews"
    project.close()
    exporter, _ = _run(_trainer(exp_name="sentiment", learning_rate=3e-4, target=5), 1)
    (info,) = [s for s in exporter.snapshot.samples if s.metric.series == "rl_run_info"]
    known = dict(zip(info.metric.labels, info.labels, strict=True))
    value = exporter.snapshot.value

    assert exporter.name == "sentiment"
    assert known["algorithm"] == "ppo-legacy"
    assert known["trainer"] == "PPOTrainer"
    assert known["model"] == "LlamaForCausalLM"
    assert (known["trl"], known["world_size"], known["rank_scope"]) == (trl.__version__, "1", "all")
    assert value("rl_gpus") == 0
    assert value("rl_hyperparameter", name="learning_rate") == 3e-4
    assert value("rl_hyperparameter", name="target") == 5
    assert value("rl_hyperparameter", name="ratio_threshold") == 10
    exporter.close()


def test_phases_add_up_to_the_step() -> None:
    """What comes between two steps is the rollout."""
    import time

    during: list[set[str]] = []

    def slow(step: int, responses: list[Any]) -> list[Any]:
        during.append(
            {s.labels[0] for s, v in exporter.snapshot.samples.items() if s.metric.series == "rl_phase" and v}
        )
        time.sleep(2)
        return _letters(step, responses)

    trainer = _trainer()
    exporter = rlexporter.attach(trainer)
    Loop(trainer, rewards=slow).run(2)
    value = exporter.snapshot.value

    assert during == [{"rollout"}, {"rollout"}]
    rollout, update = (value("rl_phase_time_seconds", phase=each) or 0 for each in ("rollout", "update"))
    durations = _count(exporter, "rl_step_duration_seconds")
    assert rollout >= 2
    assert update > 0
    assert rollout + update <= durations.maximum + 0.01, "the two ends are read one after the other"
    assert durations.count == 2
    assert durations.minimum >= 2
    exporter.close()


# ---- the tracker ----


def test_the_tracker_serves_each_line_as_a_step() -> None:
    """`PPOConfig(log_with=[tracker])`, without attaching: what is logged, with the settings of the run."""
    exporter = Exporter(run="tracked", port=0)
    trainer = _trainer(log_with=[rlexporter.RLExporterTracker(exporter)])
    loop = Loop(trainer).run(3)
    value = exporter.snapshot.value
    _, text, _ = fetch(f"{exporter.url}/metrics")

    assert trainer.accelerator.get_tracker("rlexporter", unwrap=True) is exporter
    assert (value("rl_step"), value("rl_steps_total")) == (3, 3)
    assert value("rl_kl_per_sequence") == loop.stats[-1]["objective/kl"]
    assert value("rl_hyperparameter", name="mini_batch_size") == 4
    assert 'algorithm="ppo-legacy"' in text
    assert value("rl_reward_mean") is not None
    assert _count(exporter, "rl_reward_dist").count == 3 * BATCH
    assert value("rl_run_state", state="running") == 1
    trainer.accelerator.end_training()
    assert exporter.snapshot.value("rl_run_state", state="finished") == 1
    assert errors(exporter) == 0
    exporter.close()


def test_a_tracker_of_any_other_loop() -> None:
    """With steps of its own; without settings; an error of ours is ours."""
    from accelerate import Accelerator  # type: ignore[import-untyped]

    exporter = Exporter(run="tracked", port=0)
    accelerator = Accelerator(log_with=[rlexporter.RLExporterTracker(exporter)], cpu=True)
    accelerator.init_trackers("project")
    accelerator.log({"loss": 1.5}, step=10)
    accelerator.log({"loss": math.nan}, step=20)

    assert exporter.snapshot.value("rl_step") == 20
    assert nonfinite(exporter) == {"rl_loss": 1}
    exporter.run.exit(None)
    assert exporter.state is RunState.FINISHED
    exporter.close()
