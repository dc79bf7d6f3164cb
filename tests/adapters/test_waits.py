"""No tap makes the training thread wait for a GPU.

The trainer is a stand-in with the methods and tensors of TRL's (a real one reads its own tensors, and would need a
real GPU). Without a GPU its tensors pretend to be on one, and refuse every read by the host; with one CUDA itself
watches.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from rlexporter import Exporter
from rlexporter.adapters.ppo_legacy import LegacyTaps
from rlexporter.adapters.selection import taps_for
from rlexporter.catalog.run_metrics import TENSOR_SIGNALS
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.tensors.tally import Tally
from tests.adapters.seen import signals
from tests.served import errors
from tests.waits import Watch, watched_by_cuda

SAMPLES, TOKENS = 4, 6


def half(completions: list[str], **_: Any) -> list[float | None]:
    """A reward function that leaves half of the samples to others."""
    return [None if i % 2 else 1.0 for i in range(len(completions))]


def full(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text)) for text in completions]


class Accelerator:
    """Of one process."""

    process_index, local_process_index, num_processes = 0, 0, 1
    device = torch.device("cuda")
    sync_gradients = True
    scaler = None

    def accumulate(self, model: Any) -> Any:
        return contextlib.nullcontext()

    def backward(self, loss: Any) -> None:
        pass

    def log(self, values: Any) -> None:
        pass

    def unwrap_model(self, model: Any) -> Any:
        return model

    def clip_grad_norm_(self, parameters: Any, max_norm: float) -> Any:
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)


class GRPOTrainer:
    """What the taps look at, on ``device``, in the order in which TRL calls it."""

    beta = 0.04
    num_generations = 2
    importance_sampling_level = "sequence"

    def __init__(self, device: str) -> None:
        self.device = device
        self.model = torch.nn.ParameterList([torch.ones(3, device=device)])
        self.ref_model = torch.nn.ParameterList([torch.ones(3, device=device)])
        self.args = SimpleNamespace()
        self.processing_class = SimpleNamespace(pad_token_id=0)
        self.accelerator = Accelerator()
        self.reward_funcs: list[Any] = [half, full]
        self.reward_func_names = ["half", "full"]
        self.reward_weights = [1.0, 0.5]
        self._metrics: dict[str, Any] = {"train": {"kl": [0.1]}}

    def train(self) -> None:
        inputs = self._generate_and_score_completions([])
        self.training_step(self.model, inputs)
        self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
        self.evaluate()
        self._save_checkpoint()

    def evaluate(self) -> None:
        self.model.eval()
        self._generate_and_score_completions([])
        self.model.train()

    def _save_checkpoint(self) -> None:
        pass

    def training_step(self, model: Any, inputs: Any) -> Any:
        loss = self._compute_loss(model, inputs)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)  # a pretended tensor has no autograd
        return loss

    def _generate(self, prompts: Any) -> Any:
        return [[1, 2]] * SAMPLES, [[3, 4, 5]] * SAMPLES

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._generate(inputs)
        rewards = self._calculate_rewards(inputs, ["p"] * SAMPLES, ["c"] * SAMPLES)
        old, _ = self._get_per_token_logps_and_entropies(self.model, trained=False)
        reference, _ = self._get_per_token_logps_and_entropies(self.model, trained=False)
        mask = torch.ones(SAMPLES, TOKENS, dtype=torch.int64, device=self.device)
        output = {"completion_mask": mask, "completion_ids": mask, "advantages": rewards.nansum(1)}
        return {**output, "old_per_token_logps": old, "ref_per_token_logps": reference}

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any) -> Any:
        for function in self.reward_funcs:
            function(completions=completions)
        return torch.zeros(SAMPLES, 2, device=self.device)

    def _get_per_token_logps_and_entropies(self, model: Any, ids: Any = None, mask: Any = None, *, trained: Any) -> Any:
        logps = -torch.ones(SAMPLES, TOKENS, device=self.device)
        return logps.requires_grad_(trained), logps.detach()

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        batch = inputs["completion_ids"], inputs["completion_mask"]
        logps, _ = self._get_per_token_logps_and_entropies(model, *batch, trained=True)
        return logps.detach().mean()


class RLOOTrainer(GRPOTrainer):
    """RLOO keeps log-probabilities of sequences."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        old = output.pop("old_per_token_logps")
        del output["ref_per_token_logps"]
        return {**output, "old_logps": old.sum(1)}


class PPOTrainer:
    """Modern PPO has its tensors in the local variables of one method."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.model = torch.nn.ParameterList([torch.ones(3, device=device)])
        self.ref_model = torch.nn.ParameterList([torch.ones(3, device=device)])
        self.accelerator = Accelerator()
        self.processing_class = SimpleNamespace(pad_token_id=0)
        self.args = SimpleNamespace(
            local_mini_batch_size=SAMPLES,
            per_device_train_batch_size=SAMPLES,
            gradient_accumulation_steps=1,
            kl_coef=0.05,
        )

    def log(self, logs: dict[str, float]) -> None:
        pass

    def generate_completions(self) -> None:
        pass

    def _save_checkpoint(self) -> None:
        pass

    def train(self) -> None:
        values = torch.ones(SAMPLES, TOKENS, device=self.device)
        padding_mask = padding_mask_p1 = values > 2
        kl, logprobs, ref_logprobs, advantages, returns = values, -values, -values, values, values
        scores, sequence_lengths = values.select(1, 0), values.sum(1)
        queries = torch.ones(SAMPLES, 2, dtype=torch.int64, device=self.device)
        with self.accelerator.accumulate(self.model):
            new_logprobs, mb_logprobs, ratio, entropy = -values, -values, values, values
            loss = pg_loss = vf_loss = values.mean()
            for parameter in self.model.parameters():
                parameter.grad = torch.ones_like(parameter)
            self.accelerator.backward(loss)
        self.log({"val/ratio": 1.0})
        del padding_mask, padding_mask_p1, kl, logprobs, ref_logprobs, advantages, returns, scores, sequence_lengths
        del queries, new_logprobs, mb_logprobs, ratio, entropy, pg_loss, vf_loss


class LegacyPPOTrainer:
    """Legacy PPO hands its tensors from method to method; a user calls `step()`."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.model = torch.nn.ParameterList([torch.ones(3, device=device)])
        self.ref_model = torch.nn.ParameterList([torch.ones(3, device=device)])
        self.accelerator = Accelerator()
        self.config = SimpleNamespace(ratio_threshold=0.5)

    def generate(self) -> None:
        pass

    def step(self, queries: Any, responses: Any, scores: Any) -> Any:
        plain = torch.ones(SAMPLES, TOKENS, device=self.device)
        mask = plain > 0
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.compute_advantages(plain, plain, mask)
        self.loss(plain, mask=mask, advantages=plain, returns=plain, values=plain)
        self.accelerator.backward(plain)
        self.record_step_stats(
            0.1, masks=mask, kls=plain, logprobs=plain, ref_logprobs=plain, queries=queries, responses=responses
        )
        return {"objective/kl": 0.1}

    def compute_advantages(self, values: Any, rewards: Any, mask: Any) -> Any:
        return values, rewards, rewards

    def loss(self, ratio: Any, mask: Any, advantages: Any, returns: Any, values: Any) -> Any:
        losses = {f"loss/{name}": ratio.sum() for name in ("total", "policy", "value")}
        return 0, 0, {"policy/ratio": ratio, **losses}

    def record_step_stats(self, kl_coef: float, **data: Any) -> Any:
        return {"objective/kl_dist": data["kls"].sum(1)}


def _drive(exporter: Exporter, kind: type[Any]) -> None:
    """Five steps; the first allocates, and the fifth has a second look at the reference."""
    trainer = kind("cuda")
    if kind is LegacyPPOTrainer:
        LegacyTaps(trainer, exporter.run).install()
        for _ in range(5):
            trainer.step(
                [torch.ones(1, device="cuda")], [[1, 2]], [torch.ones((), device="cuda"), torch.ones(1, device="cuda")]
            )
        return
    exporter.run.begin(RunFacts(algorithm="ppo" if kind is PPOTrainer else "grpo", step=0))
    taps = taps_for(trainer, exporter.run.sink)
    for step in range(1, 6):
        trainer.train()
        for each in taps:
            each.step_end()
        exporter.observe("value_loss", torch.ones(3, device="cuda"))
        exporter.run.sink.log({"kl": torch.ones((), device="cuda")}, step=step, update=StepUpdate(step=step))


def _check(exporter: Exporter, kind: type[Any]) -> None:
    lost = {"value"} if kind in (GRPOTrainer, RLOOTrainer) else {"copies", "loss_mask"}
    lost |= {"entropy"} if kind is LegacyPPOTrainer else set()
    assert signals(exporter) == {signal: float(signal not in lost) for signal in TENSOR_SIGNALS}
    assert errors(exporter) == 0


KINDS = [GRPOTrainer, RLOOTrainer, PPOTrainer, LegacyPPOTrainer]
_OF_EACH = "advantage_dist logprob_dist ref_logprob_dist kl_per_token_dist reward_dist loss_dist value_loss_dist "
_OF_EACH += "grad_norm_dist weight_norm weight_changed_fraction weight_update_size ref_weight_changed_fraction "
_OF_EACH += "reward_zero_fraction advantage_reward_correlation"
_LOGGED = "entropy_per_token_dist kl_per_token"
_OF_GROUPS = f"{_LOGGED} sequence_ratio_dist reward_function_dist reward_group_range_dist ref_logprob_noise"
_OF_GROUPS += " eval_reward_function_unfiltered_mean loss_mask_wrong_fraction"
_OF_GROUPS += " completion_copied_fraction completion_copied_expected_fraction"
_OF_GROUPS += " reward_function_zero_fraction reward_function_flat_fraction"
_OF_PPO = "policy_ratio_dist policy_loss_dist value_dist return_dist kl_per_sequence_dist prompts_repeated_fraction"
_ALSO = {
    GRPOTrainer: f"{_OF_GROUPS} policy_ratio_dist first_use_log_ratio",
    RLOOTrainer: _OF_GROUPS,
    PPOTrainer: f"{_OF_PPO} {_LOGGED} completion_length_dist prompt_length_dist sampling_logp_difference_mean",
    LegacyPPOTrainer: f"{_OF_PPO} skipped_updates_total",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_tap_waits_for_a_pretended_gpu(exporter: Exporter, kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """All signals are seen there, and sent with one copy a step that does not block."""
    monkeypatch.setattr(Tally, "arrived", lambda _: [])  # the buffers, of the host on a real GPU, pretend as well
    with FakeTensorMode(), Watch() as watch:
        _drive(exporter, kind)

    _check(exporter, kind)
    (tally,) = exporter._run.feed._tally.devices.values()
    counted = {series.metric.series for series in tally._slot_of}
    names = f"{_OF_EACH} {_ALSO[kind]}"
    assert counted == {f"rl_{name}" for name in names.split()}
    assert len(watch.calls) > (200 if kind is LegacyPPOTrainer else 400)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU with CUDA on this machine")
def test_no_tap_waits_for_a_real_gpu(exporter: Exporter, kind: type[Any]) -> None:
    """The first step may wait (page-locked memory is allocated); what is counted is there after the second."""
    with watched_by_cuda():
        _drive(exporter, kind)
    torch.cuda.synchronize()
    exporter._run.current()

    _check(exporter, kind)
    assert exporter.snapshot.value("rl_weight_norm") is not None
