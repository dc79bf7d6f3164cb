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
from rlexporter.adapters.selection import taps_for
from rlexporter.catalog import TENSOR_SIGNALS
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.tensors.tally import Tally
from tests.waits import Watch, watched_by_cuda

SAMPLES, TOKENS = 4, 6


def half(completions: list[str], **_: Any) -> list[float | None]:
    """A reward function that leaves half of the samples to others."""
    return [None if i % 2 else 1.0 for i in range(len(completions))]


def full(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text)) for text in completions]


class Accelerator:
    """Of one process."""

    process_index = 0
    sync_gradients = True
    scaler = None

    def accumulate(self, model: Any) -> Any:
        return contextlib.nullcontext()

    def backward(self, loss: Any) -> None:
        pass

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
        old, _ = self._get_per_token_logps_and_entropies(self.model)
        reference, _ = self._get_per_token_logps_and_entropies(self.model)
        mask = torch.ones(SAMPLES, TOKENS, dtype=torch.int64, device=self.device)
        output = {"completion_mask": mask, "tool_mask": mask, "completion_ids": mask, "advantages": rewards.nansum(1)}
        return {**output, "old_per_token_logps": old, "ref_per_token_logps": reference}

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any) -> Any:
        for function in self.reward_funcs:
            function(completions=completions)
        return torch.zeros(SAMPLES, 2, device=self.device)

    def _get_per_token_logps_and_entropies(self, model: Any, trained: bool = False) -> Any:
        logps = -torch.ones(SAMPLES, TOKENS, device=self.device)
        return logps.requires_grad_(trained), logps.detach()

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        logps, _ = self._get_per_token_logps_and_entropies(model, trained=True)
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


def _drive(exporter: Exporter, kind: type[Any]) -> None:
    """Two steps; the first allocates."""
    trainer = kind("cuda")
    exporter.run.begin(RunFacts(algorithm="ppo" if kind is PPOTrainer else "grpo", step=0))
    taps = taps_for(trainer, exporter.run.sink)
    for step in (1, 2):
        trainer.train()
        for each in taps:
            each.step_end()
        exporter.observe("value_loss", torch.ones(3, device="cuda"))
        exporter.run.sink.log({"kl": torch.ones((), device="cuda")}, step=step, update=StepUpdate(step=step))


def _check(exporter: Exporter, kind: type[Any]) -> None:
    signals = {s.labels[0]: v for s, v in exporter.snapshot.samples.items() if s.metric.series == "rl_signal_available"}
    assert signals == {**dict.fromkeys(TENSOR_SIGNALS, 1.0), "value": float(kind is PPOTrainer)}
    assert exporter.snapshot.value("rlexporter_errors_total", where="tap") is None
    assert exporter.snapshot.value("rlexporter_errors_total", where="observe") is None
    assert exporter.snapshot.value("rlexporter_errors_total", where="log") is None


KINDS = [GRPOTrainer, RLOOTrainer, PPOTrainer]
_OF_EACH = "advantage_dist logprob_dist ref_logprob_dist entropy_per_token_dist kl_per_token_dist reward_dist loss_dist"
_OF_GROUPS = "reward_function_dist reward_group_range_dist ref_logprob_noise weight_changed_fraction"
_ALSO = {
    GRPOTrainer: f"sequence_ratio_dist policy_ratio_dist {_OF_GROUPS}",
    RLOOTrainer: f"sequence_ratio_dist {_OF_GROUPS}",
    PPOTrainer: "policy_ratio_dist policy_loss_dist value_dist return_dist kl_per_sequence_dist completion_length_dist "
    "prompt_length_dist weight_changed_fraction sampling_logp_difference_mean",
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_tap_waits_for_a_pretended_gpu(exporter: Exporter, kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """All signals are seen there, and sent with one copy a step that does not block."""
    monkeypatch.setattr(Tally, "arrived", lambda _: [])  # the buffers, of the host on a real GPU, pretend as well
    with FakeTensorMode(), Watch() as watch:
        _drive(exporter, kind)

    _check(exporter, kind)
    (tally,) = exporter.run.sink._pending.tally._devices.values()
    counted = {series.metric.series for series in tally._slot_of}
    names = f"{_OF_EACH} {_ALSO[kind]} grad_norm_dist weight_norm value_loss_dist kl_per_token"
    assert counted == {f"rl_{name}" for name in names.split()}
    assert len(watch.calls) > 400


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU with CUDA on this machine")
def test_no_tap_waits_for_a_real_gpu(exporter: Exporter, kind: type[Any]) -> None:
    """The first step may wait (page-locked memory is allocated); what is counted is there after the second."""
    with watched_by_cuda():
        _drive(exporter, kind)
    torch.cuda.synchronize()
    exporter.run.current()

    _check(exporter, kind)
    assert exporter.snapshot.value("rl_weight_norm") is not None
