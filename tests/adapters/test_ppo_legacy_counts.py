"""Legacy PPO against an independent count, which changes nothing of the training; and what its steps are."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import rlexporter
from rlexporter.catalog.run_metrics import TENSOR_SIGNALS
from rlexporter.demo import tiny
from tests.adapters import legacy
from tests.adapters.legacy import BATCH, Loop, make, run
from tests.adapters.seen import histogram, signals
from tests.adapters.twice import random_states
from tests.served import errors

pytestmark = pytest.mark.usefixtures("any_port")

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
COMPARED = ("plain", "LoRA", "DoRA", "accumulating", "checkpointing", "bf16", "weights in bf16")
"""Cases of which it is seen too that training is the same without an exporter."""


@pytest.mark.parametrize("case", CASES)
def test_every_histogram_equals_an_independent_count_and_training_is_the_same(case: str) -> None:
    """Bucket for bucket; prompts, padding and what the user masks count nothing."""
    random.seed(0)
    trainer = make(legacy.Keeping, **CASES[case])
    exporter, loop = run(trainer, masked=case == "masked responses")

    legacy.assert_equal(exporter, trainer.kept)
    assert all(sum(map(len, values)) for values in trainer.kept.values.values())
    trained = [each for each in trainer.model.parameters() if each.requires_grad]
    weights = [each.detach().double().numpy().ravel() for each in trained]
    exact = 2**-8 if case == "weights in bf16" else 1e-5  # each tensor's norm is rounded as its numbers are
    assert exporter.snapshot.value("rl_weight_norm") == pytest.approx(np.linalg.norm(np.concatenate(weights)), exact)
    lost = {"entropy", "copies", "loss_mask"} | ({"reference"} if trainer.ref_model is None else set())
    assert signals(exporter) == {name: float(name not in lost) for name in TENSOR_SIGNALS}
    assert errors(exporter) == 0
    exporter.close()
    if case in COMPARED:
        _assert_same_without(loop, CASES[case])


def _assert_same_without(watched: Loop, options: dict[str, Any]) -> None:
    """Bit for bit: statistics, weights and the random state of python, numpy and torch, which is now that after it."""
    state = random_states()
    random.seed(0)
    plain = Loop(make(**options)).run()

    for line, other in zip(plain.stats, watched.stats, strict=True):
        assert set(line) == set(other)
        assert all(np.array_equal(line[key], other[key]) for key in line if not key.startswith("time/"))
    weights = (loop.trainer.model.state_dict().values() for loop in (plain, watched))
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))
    assert random_states() == state


def test_a_step_is_a_call_of_step() -> None:
    """`log_stats()` adds its own keys to the step, and is none; nor is a line of the user's."""
    trainer = make()
    exporter, loop = run(trainer, 3)
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
    assert histogram(exporter, "rl_reward_dist").count == 3 * BATCH
    assert histogram(exporter, "rl_step_duration_seconds").count == 3


def _completions(exporter: rlexporter.Exporter) -> dict[str, Any]:
    assert exporter._run.completions is not None
    return exporter._run.completions.as_json()


def test_texts_come_with_log_stats() -> None:
    """With the scores, the best first; nothing is kept by who did not ask for it, nor of a batch without texts."""
    trainer = make()
    exporter = rlexporter.attach(trainer, completions=2)
    loop = Loop(trainer).run(2)
    found = _completions(exporter)
    assert found["step"] == 2
    scores = sorted(((score.item(), str(i)) for i, score in enumerate(loop.scores)), reverse=True)
    assert [(each["reward"], each["completion"]) for each in found["best"]] == scores[:2]
    assert [each["completion"] for each in found["last"]] == [str(BATCH - 1), str(BATCH - 2)]
    assert found["last"][0]["prompt"] == tiny.prompts(BATCH)[-1]
    trainer.log_stats(loop.stats[-1], {}, loop.scores)
    assert _completions(exporter) == found
    assert errors(exporter) == 0

    exporter, _ = run(make(), 1)
    assert exporter._run.completions is None


def test_without_log_stats_the_rest_is_there() -> None:
    """Its mean and spread of rewards are missing, their distribution is not."""
    exporter, _ = run(make(), 2, logged=False)

    assert exporter.snapshot.value("rl_steps_total") == 2
    assert exporter.snapshot.value("rl_reward_mean") is None
    assert histogram(exporter, "rl_reward_dist").count == 2 * BATCH


def test_skipped_updates_are_counted_in_their_step() -> None:
    """As often as the trainer warns of them: the optimizer takes one step that is far too long."""
    before: list[Any] = []

    def plant(trainer: Any, step: int) -> None:
        exporter = rlexporter.attach(trainer)  # the one that it has
        before.append(exporter.snapshot.value("rl_skipped_updates_total") or 0)
        for group in trainer.optimizer.param_groups:
            group["lr"] = 5.0 if step == 3 else 1e-3

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        exporter, _ = run(make(ppo_epochs=8, ratio_threshold=2.0), 3, plant=plant)
    skipped = sum("exceeds threshold" in str(each.message) for each in warned)

    assert before == [0, 0, 0]
    assert 0 < skipped < 8 * 2
    assert exporter.snapshot.value("rl_skipped_updates_total") == skipped
    assert histogram(exporter, "rl_policy_ratio_dist").maximum > 10


def test_of_a_policy_with_an_adapter_only_that_is_watched() -> None:
    """And the value head. The reference is the policy with the adapter switched off: its KL begins at 0, and grows."""
    trainer = make(adapter={})
    before = {name: weight.clone() for name, weight in trainer.model.named_parameters()}
    exporter, loop = run(trainer, 3)
    after = dict(trainer.model.named_parameters())
    changed = {name for name, weight in after.items() if not torch.equal(weight, before[name])}

    assert trainer.ref_model is None
    assert changed == {name for name, weight in after.items() if weight.requires_grad}
    assert all("lora_" in name or "v_head" in name for name in changed)
    assert loop.stats[0]["objective/kl"] == 0 != loop.stats[2]["objective/kl"]
    assert exporter.snapshot.value("rl_kl_per_sequence") == loop.stats[2]["objective/kl"]
