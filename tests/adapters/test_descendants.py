"""Trainers of ms-swift and Unsloth, by stand-ins: what they replace in TRL's real trainer is replaced here in the same
shape, on a tiny model. Names and signatures are those of ms-swift 4.6.0 and unsloth 2026.10.9, which need more than a
CPU, or a TRL below 1.0; `make swift` runs ms-swift's own class.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import transformers.trainer
import trl
from trl.trainer import grpo_trainer

import rlexporter
from rlexporter import Exporter
from rlexporter.integrations import registry
from rlexporter.integrations.callback import DefaultCallback
from tests import tiny
from tests.adapters import descendants
from tests.adapters.descendants import names_in, parameters
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import labelled, lost, reasons
from tests.served import errors

pytestmark = REAL_TRAINERS


def _logps(model: Any, ids: Any, attention: Any, keep: int) -> Any:
    logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1][:, -keep:]
    return logits.log_softmax(-1).gather(2, ids[:, -keep:].unsqueeze(2)).squeeze(2)


# ---- Unsloth: the source of TRL's class under another name, with a `compute_loss` of its own ----


def _compute_loss(
    self: Any, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
) -> Any:
    """Ask the method that scores tokens, which has nothing to say then, go to the loss, and note what Unsloth notes."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = inputs["completion_mask"]
    attention = torch.cat([inputs["prompt_mask"], mask], 1)
    assert (
        self._get_per_token_logps_and_entropies(model, ids, attention, mask.shape[1], compute_efficient=True)[0] is None
    )
    logps = _logps(model, ids, attention, mask.shape[1])
    self._metrics["train"]["completion_length"].append(mask.sum(1).float().mean().item())
    self._metrics["train"]["kl"].append(0.0)
    return -(logps * mask * inputs["advantages"].view(-1, 1)).sum() / mask.sum()


def _get_per_token_logps_and_entropies(
    self: Any,
    model: Any,
    input_ids: Any,
    attention_mask: Any,
    logits_to_keep: Any,
    batch_size: Any = None,
    compute_entropy: Any = False,
    compute_efficient: Any = False,
    **kwargs: Any,
) -> Any:
    if compute_efficient:
        return None, None
    ids = (input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy)
    return trl.GRPOTrainer._get_per_token_logps_and_entropies(self, model, *ids, **kwargs)


def _unsloth() -> type:
    source = inspect.getsource(grpo_trainer.GRPOTrainer).replace("class GRPOTrainer", "class _UnslothGRPOTrainer", 1)
    names = dict(vars(grpo_trainer))
    exec(source, names)  # as Unsloth makes its class
    copy = names["_UnslothGRPOTrainer"]
    copy.compute_loss = _compute_loss
    copy._get_per_token_logps_and_entropies = _get_per_token_logps_and_entropies
    return type("UnslothGRPOTrainer", (copy,), {"__module__": "UnslothGRPOTrainer"})


# ---- ms-swift: a class of the same name over TRL's, with batches of its own ----


@dataclass
class GRPOBatch:
    completion_mask: Any
    truncated_mask: Any
    old_per_token_logps: Any = None
    ref_per_token_logps: Any = None
    advantages: Any = None


class _Swift(trl.GRPOTrainer):  # type: ignore[misc] # TRL is not checked
    kl_in_reward = False
    overlong_filter = False

    def _prepare_inputs(self, inputs: Any) -> Any:
        self._buffered = self._generate_and_score_completions(inputs)
        return self._buffered[0]

    def _generate_and_score_completions(self, inputs: Any) -> list[dict[str, Any]]:
        whole = super()._generate_and_score_completions(inputs)
        mask = whole["completion_mask"]
        rewards = self._compute_rewards_per_func(samples=[SimpleNamespace()] * len(mask))
        advantages = (rewards.sum(1) - rewards.sum(1).mean()).view(-1, 1).expand(mask.shape)
        batch = GRPOBatch(
            mask,
            torch.zeros(len(mask), dtype=torch.bool),
            whole.get("old_per_token_logps"),
            whole.get("ref_per_token_logps"),
            advantages,
        )
        ids = torch.cat([whole["prompt_ids"], whole["completion_ids"]], 1)
        attention = torch.cat([whole["prompt_mask"], mask], 1)
        return [{"model_inputs": {"input_ids": ids, "attention_mask": attention}, "grpo_batch": batch}]

    def _compute_rewards_per_func(self, samples: Any) -> Any:
        found = [function(completions=["e" * i for i in range(len(samples))]) for function in self.reward_funcs]
        return torch.tensor(found).T

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        model_inputs: Any,
        grpo_batch: Any,
        compute_entropy: Any = False,
        origin_data: Any = None,
        **kwargs: Any,
    ) -> Any:
        if not isinstance(grpo_batch, GRPOBatch):  # TRL's own call, in its part of the rollout
            own = super()._get_per_token_logps_and_entropies
            return own(model, model_inputs, grpo_batch, compute_entropy, **kwargs)
        keep = grpo_batch.completion_mask.shape[1]
        return _logps(model, model_inputs["input_ids"], model_inputs["attention_mask"], keep), None

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        return self._compute_loss(model, inputs["model_inputs"], inputs["grpo_batch"])

    def _compute_loss(self, model: Any, model_inputs: Any, grpo_batch: Any, origin_data: Any = None) -> Any:
        loss, _ = self._compute_loss_and_metrics(model, model_inputs, grpo_batch)
        self._metrics["train"]["rollout_correction/kl"].append(torch.tensor(0.5))
        return loss

    def _compute_loss_and_metrics(self, model: Any, model_inputs: dict[str, Any], grpo_batch: GRPOBatch) -> Any:
        logps, _ = self._get_per_token_logps_and_entropies(model, model_inputs, grpo_batch, compute_entropy=False)
        mask = grpo_batch.completion_mask
        return -(logps * mask * grpo_batch.advantages).sum() / mask.sum(), {}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        found = self._metrics["train"].pop("rollout_correction/kl", [])
        own = {"rollout_correction/kl": float(torch.stack(found).mean())} if found else {}
        super().log({**logs, **own}, start_time)


_SWIFT = type("GRPOTrainer", (_Swift,), {"__module__": "swift.rlhf_trainers.grpo_trainer"})


@pytest.fixture(scope="module")
def unsloth() -> type:
    return _unsloth()


def _trained(trainer: Any, kind: type) -> Exporter:
    trainer.__class__ = kind
    with rlexporter.attach(trainer) as exporter:
        trainer.train()
    return exporter


def _count(exporter: Exporter, name: str) -> int:
    found = exporter.snapshot.buckets.items()
    return sum(value.count for series, value in found if series.metric.series == name)


def test_the_stand_in_of_unsloth_is_like_the_real_one(unsloth: type) -> None:
    """Its classes, its loss, and what it leaves as TRL has it."""
    names = [kind.__name__ for kind in unsloth.__mro__]
    of_trl = [kind.__name__ for kind in trl.GRPOTrainer.__mro__]
    assert names == [*descendants.UNSLOTH_CLASSES, *of_trl[1:]]
    functions = {name: value for kind in unsloth.__mro__[:2] for name, value in vars(kind).items() if callable(value)}
    own = {name for name, value in functions.items() if inspect.unwrap(value).__module__ == __name__}
    assert {name: parameters(unsloth, name) for name in own} == descendants.UNSLOTH
    called = names_in(unsloth, "compute_loss")
    assert "_get_per_token_logps_and_entropies" in called
    assert "_compute_loss" not in called
    for name in descendants.UNSLOTH_KEEPS:
        assert parameters(unsloth, name) == parameters(trl.GRPOTrainer, name)


def test_the_stand_in_of_ms_swift_is_like_the_real_one() -> None:
    """Every method that it has of its own is one of the real class, with its parameters; so are fields of a batch."""
    own = {name for name, value in vars(_Swift).items() if inspect.isfunction(value)}
    assert {name: parameters(_SWIFT, name) for name in own} == descendants.SWIFT
    for name, called in descendants.SWIFT_CALLS.items():
        assert called in names_in(_SWIFT, name)
    assert {each.name for each in fields(GRPOBatch)} < descendants.SWIFT_BATCH


def test_unsloth(tmp_path: Path, unsloth: type) -> None:
    """It is GRPO; rollout, rewards, loss and gradients are seen, what its loss is made of says why not."""
    assert not issubclass(unsloth, trl.GRPOTrainer)
    exporter = _trained(tiny.grpo(tmp_path, beta=0.0), unsloth)

    facts = exporter._run._facts
    assert (facts.framework, facts.algorithm, facts.info["trainer"]) == ("unsloth", "grpo", "UnslothGRPOTrainer")
    assert lost(exporter) == {"logprob", "entropy", "ratio", "kl", "value", "loss_mask", "reference"}
    why = reasons(exporter)
    assert all(why[name].startswith("Unsloth computes") for name in why.keys() - {"value", "reference"})
    assert _count(exporter, "rl_reward_dist") == _count(exporter, "rl_advantage_dist") == 16
    assert _count(exporter, "rl_completion_length_dist") == 16
    assert _count(exporter, "rl_loss_dist") == _count(exporter, "rl_grad_norm_dist") == 4
    assert (exporter.snapshot.value("rl_completion_length_mean") or 0) > 0


def test_ms_swift(tmp_path: Path) -> None:
    """Rewards, advantages, lengths, log-probabilities and KL are seen in its own batches."""
    exporter = _trained(tiny.grpo(tmp_path, beta=0.04), _SWIFT)

    facts = exporter._run._facts
    assert (facts.framework, facts.algorithm) == ("ms-swift", "grpo")
    assert lost(exporter) == {"entropy", "ratio", "prompt_length", "value", "copies", "loss_mask"}
    assert errors(exporter) == 0
    assert reasons(exporter)["entropy"].startswith("entropies are computed with log_entropy")
    assert _count(exporter, "rl_reward_dist") == _count(exporter, "rl_advantage_dist") == 16
    assert _count(exporter, "rl_reward_function_dist") == 32
    tokens = _count(exporter, "rl_logprob_dist")
    assert 16 <= tokens == _count(exporter, "rl_kl_per_token_dist") <= 16 * 8
    assert _count(exporter, "rl_loss_dist") == _count(exporter, "rl_grad_norm_dist") == 4
    assert exporter.snapshot.value("rl_sampling_kl_per_token") == 0.5


def test_a_nan_reward_and_the_estimators_of_ms_swift(tmp_path: Path) -> None:
    """Estimators keep their names; where the KL is part of the reward, RLOO's conditions apply."""

    def broken(completions: list[str], **_: Any) -> list[float]:
        return [float("nan") if i == 1 else 1.0 for i in range(len(completions))]

    trainer = tiny.grpo(tmp_path, rewards=[broken], max_steps=1)
    trainer.args.advantage_estimator, trainer.args.kl_in_reward = "reinforce_plus_plus", True
    exporter = _trained(trainer, _SWIFT)
    facts = exporter._run._facts

    assert labelled(exporter, "rl_condition_events_total")["nonfinite_reward"]
    assert (facts.algorithm, facts.family) == ("reinforce_plus_plus", "rloo")


def test_ms_swift_replaces_the_default_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list that its patcher puts in place gets ours too, once."""
    monkeypatch.setattr(transformers.trainer, "DEFAULT_CALLBACKS", [])
    patcher = ModuleType("swift.trainers.patcher")
    patcher.trainer = transformers.trainer  # type: ignore[attr-defined] # made above
    registry._add_to_swift(patcher)
    registry._add_to_swift(patcher)

    assert [DefaultCallback] == transformers.trainer.DEFAULT_CALLBACKS
