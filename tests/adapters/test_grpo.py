"""Truth at the tensor: real GRPO and RLOO runs against an independent count, with planted faults and errors of ours."""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import TrainerCallback

import rlexporter
from rlexporter import Exporter
from rlexporter.adapters.instance import wrap
from tests import tiny
from tests.adapters import independent
from tests.adapters.kept import SavedState, assert_counted
from tests.conftest import fetch
from tests.served import errors, nonfinite

pytestmark = [
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def _signals(exporter: Exporter) -> dict[str, float]:
    """All but that of a value function, which these trainers never have."""
    found = {s.labels[0]: v for s, v in exporter.snapshot.samples.items() if s.metric.series == "rl_signal_available"}
    assert found.pop("value") == 0
    return found


def _reasons(exporter: Exporter) -> dict[str, str]:
    """Why signals are lost, but for that of a value function, which these trainers never have."""
    infos = [s.labels for s in exporter.snapshot.samples if s.metric.series == "rl_signal_unavailable_info"]
    found = {labels[0]: labels[2] for labels in infos}
    assert found.pop("value").startswith("there is no value function")
    return found


class Watch(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """What had been counted when each step was over. With a log line for each step that is when it is logged."""

    def __init__(self) -> None:
        self.exporter: Exporter | None = None
        self.after: dict[int, dict[str, float]] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self.exporter
        self.after[state.global_step] = nonfinite(self.exporter)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.on_step_end(args, state, control)

    def began(self, metric: str) -> int:
        """The first step after which a metric had bad values."""
        return min((step for step, bad in self.after.items() if metric in bad), default=0)


def _run(trainer: Any) -> tuple[Exporter, Watch]:
    """Attach, train, and say how it went step by step; a training that fails is let fail."""
    watch = Watch()
    exporter = rlexporter.attach(trainer)
    watch.exporter = exporter
    trainer.add_callback(watch)
    try:
        trainer.train()
    except RuntimeError as error:
        if "probability tensor" not in str(error):
            raise
    return exporter, watch


# ---- equal to an independent count ----

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("GRPO", {"num_iterations": 2, "learning_rate": 1e-2}),
    "grpo on-policy": ("GRPO", {"beta": 0.0}),
    "gspo": ("GRPO", {"num_iterations": 2, "importance_sampling_level": "sequence", "learning_rate": 1e-2}),
    "cispo": ("GRPO", {"num_iterations": 2, "loss_type": "cispo", "epsilon_high": 5.0}),
    "grpo accumulating": (
        "GRPO",
        {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2, "steps_per_generation": 4},
    ),
    "grpo masking truncated": ("GRPO", {"num_iterations": 2, "mask_truncated_completions": True}),
    "grpo checkpointing": ("GRPO", {"num_iterations": 2, "gradient_checkpointing": True}),
    "rloo": ("RLOO", {"num_iterations": 2, "learning_rate": 1e-2}),
    "rloo without kl": ("RLOO", {"beta": 0.0}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_histogram_equals_an_independent_count(tmp_path: Path, case: str) -> None:
    """Bucket for bucket; evaluation, and scoring without gradients, count nothing."""
    kind, options = CASES[case]
    trainer = tiny.grpo(
        tmp_path, kind=kind, max_steps=6, eval_strategy="steps", eval_steps=3, logging_steps=2, **options
    )
    trainer.__class__ = {"GRPO": independent.KeepingGRPO, "RLOO": independent.KeepingRLOO}[kind]
    trainer.kept, trainer.losses = SavedState(), []
    exporter = rlexporter.attach(trainer)
    trainer.train()
    served = assert_counted(fetch(f"{exporter.url}/metrics")[1], trainer)

    assert served["rl_grad_norm_dist"][1][-1] == served["rl_loss_dist"][1][-1] == 6
    assert nonfinite(exporter) == {}
    assert errors(exporter) == 0
    exporter.close()


def test_the_feed_has_each_number_once_and_the_log_line_their_mean(tmp_path: Path) -> None:
    """Whatever is logged when: a step's own numbers are in its event."""
    trainer = tiny.grpo(tmp_path, max_steps=7, logging_steps=3, num_iterations=2)
    rlexporter.attach(trainer, record=str(tmp_path / "run.jsonl"))
    trainer.train()
    rlexporter.attach(trainer).close()
    events = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    steps = {event["global_step"]: event["values"] for event in events if event["event"] == "step"}
    lines = {event["global_step"]: event["logs"] for event in events if event["event"] == "log"}

    assert list(steps) == [1, 2, 3, 4, 5, 6, 7]
    for logged in (3, 6):
        for key in ("kl", "entropy", "reward", "completions/mean_length"):
            numbers = [number for step in range(logged - 2, logged + 1) for number in steps[step].get(key, [])]
            assert numbers, key
            assert lines[logged][key] == pytest.approx(math.fsum(numbers) / len(numbers)), (logged, key)
    assert [len(values["kl"]) for values in steps.values()] == [1] * 7


def test_only_the_call_that_is_trained_on_counts(tmp_path: Path) -> None:
    """A loss that scores something else besides, without gradients, counts as one that does not."""

    class Curious(trl.GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            with torch.no_grad():
                ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
                self._get_per_token_logps_and_entropies(model, ids, ids > 0, inputs["completion_ids"].size(1) - 1)
            return super()._compute_loss(model, inputs)

    seen = []
    for kind in (trl.GRPOTrainer, Curious):
        trainer = tiny.grpo(tmp_path / kind.__name__, max_steps=2)
        trainer.__class__ = kind
        exporter, _ = _run(trainer)
        seen.append({s: b for s, b in exporter.snapshot.buckets.items() if "duration" not in s.metric.series})
        exporter.close()

    assert seen[0] == seen[1]


def _signals_of(folder: Path, calls: type[Any]) -> dict[str, float]:
    trainer_class = type("GRPOTrainer", (calls, trl.GRPOTrainer), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trl, "GRPOTrainer", trainer_class)
        exporter, _ = _run(tiny.grpo(folder, num_iterations=2))
    signals = _signals(exporter)
    assert errors(exporter) == 0
    exporter.close()
    return signals


class _ByKeyword:
    """A trainer of a user's that names every argument."""

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        return self._compute_loss(inputs=inputs, model=model)  # type: ignore[attr-defined]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        def named(inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
            return calculate(
                completion_ids_list=completion_ids_list, completions=completions, inputs=inputs, prompts=prompts
            )

        calculate: Callable[..., Any] = self._calculate_rewards  # type: ignore[has-type]
        self._calculate_rewards = named
        try:
            return super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        finally:
            self._calculate_rewards = calculate


class _Passing:
    """A trainer of a user's that hands on whatever it gets."""

    def _compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super()._compute_loss(*args, **kwargs)  # type: ignore[misc]

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        return super()._calculate_rewards(*args, **kwargs)  # type: ignore[misc]


@pytest.mark.parametrize("calls", [_ByKeyword, _Passing])
def test_arguments_are_found_however_they_are_given(tmp_path: Path, calls: type[Any]) -> None:
    """By position, by keyword, or through a method that does not name them."""
    assert set(_signals_of(tmp_path, calls).values()) == {1.0}


def test_a_loss_without_log_probabilities_says_so(tmp_path: Path) -> None:
    """As Liger's, which needs a GPU, computes it: what else can be seen is seen."""

    class Fused(trl.GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            return model(torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)).logits.logsumexp(-1).mean()

    trainer = tiny.grpo(tmp_path, max_steps=2)
    trainer.__class__ = Fused
    exporter, _ = _run(trainer)

    assert set(_reasons(exporter)) == {"logprob", "entropy", "ratio", "kl"}
    assert all("use_liger_kernel" in reason for reason in _reasons(exporter).values())
    assert errors(exporter) == 0
    assert exporter.snapshot.value("rl_signal_available", signal="advantage") == 1
    exporter.close()


@pytest.mark.parametrize(
    ("kind", "options", "missing"),
    [
        ("GRPO", {"beta": 0.0}, {"kl": "beta is 0", "ratio": "every update is on-policy"}),
        ("GRPO", {"num_iterations": 2}, {}),
        ("RLOO", {"beta": 0.0}, {"kl": "beta is 0"}),
        ("RLOO", {}, {}),
    ],
)
def test_silence_is_explained(tmp_path: Path, kind: str, options: dict[str, Any], missing: dict[str, str]) -> None:
    """A signal that this run does not have says why; it is not an empty histogram."""
    exporter, _ = _run(tiny.grpo(tmp_path, kind=kind, max_steps=2, **options))
    signals, reasons = _signals(exporter), _reasons(exporter)

    assert {name for name, available in signals.items() if not available} == set(missing) == set(reasons)
    assert all(reasons[name].startswith(reason) for name, reason in missing.items())
    assert set(signals) == set(rlexporter.catalog.TENSOR_SIGNALS) - {"value"}
    names = {series.metric.series for series in exporter.snapshot.buckets}
    assert ("rl_policy_ratio_dist" in names or "rl_sequence_ratio_dist" in names) is ("ratio" not in missing)
    exporter.close()


def test_a_blow_up_of_one_step_stays_visible(tmp_path: Path) -> None:
    """The learning rate is ten thousand times too high once: the ratios of the next update are in the histogram."""

    class Spike(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        def on_step_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
            if state.global_step == 4:
                for group in optimizer.param_groups:
                    group["lr"] *= 1e4

    counts: list[int] = []

    class PrometheusAlert(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            found = next(b for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_policy_ratio_dist")
            inside = [i for i, bound in enumerate(found.bounds) if 0.5 < bound <= 2.0]
            counts.append(found.count - sum(found.counts[i] for i in inside))

    trainer = tiny.grpo(
        tmp_path, max_steps=8, num_iterations=4, learning_rate=1e-4, logging_steps=10, callbacks=[Spike()]
    )
    exporter = rlexporter.attach(trainer)
    trainer.add_callback(PrometheusAlert())
    trainer.train()

    assert counts[:5] == [0] * 5
    assert counts[5] > 0
    jump = {"condition": "learning_rate_jump", "severity": "warning"}  # the trainer logs what its scheduler set
    assert exporter.snapshot.value("rl_condition_last_event_step", **jump) == 5
    exporter.close()


# ---- hiding places: each with every logging step, and with every tenth ----


def _nan_rewards(step: int, share: float, kind: Any = math.nan) -> Callable[..., list[Any]]:
    """A reward function that gives ``kind`` to a share of the samples of the rollout for one step."""

    def letters(completions: list[str], trainer_state: Any, **_: Any) -> list[Any]:
        rewards: list[Any] = tiny.letters(completions)
        if trainer_state.global_step + 1 == step:
            count = max(1, int(share * len(rewards)))
            rewards[:count] = [kind] * count
        return rewards

    return letters


class _Break(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Breaks something at the beginning of one step."""

    def __init__(self, step: int, how: Callable[[Any], Any]) -> None:
        self._step, self._how = step, how

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step + 1 == self._step:
            self._how(model)


def _nan_gradient(model: Any) -> None:
    weight = next(model.parameters())
    hooks: list[Any] = []

    def once(gradient: Any) -> Any:
        hooks.pop().remove()
        return gradient * math.nan

    hooks.append(weight.register_hook(once))


def _nan_weight(model: Any) -> None:
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)


@pytest.mark.parametrize("logging_steps", [1, 10])
@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
class TestHidingPlaces:
    """Each fault is counted in the step in which it happens, under the name of what it is in."""

    def test_nan_in_one_reward(self, tmp_path: Path, kind: str, logging_steps: int) -> None:
        """TRL takes it for a None and leaves it out."""
        rewards = [_nan_rewards(3, 0.25), tiny.shortness]
        trainer = tiny.grpo(tmp_path, kind=kind, rewards=rewards, max_steps=5, logging_steps=logging_steps)
        exporter, watch = _run(trainer)

        assert watch.after[5] == {"rl_reward_function_dist": 1}
        assert watch.began("rl_reward_function_dist") == 3
        exporter.close()

    def test_nan_in_all_rewards_of_one_function(self, tmp_path: Path, kind: str, logging_steps: int) -> None:
        """The reward itself stays finite."""
        rewards = [_nan_rewards(3, 1.0), tiny.shortness]
        trainer = tiny.grpo(tmp_path, kind=kind, rewards=rewards, max_steps=5, logging_steps=logging_steps)
        exporter, watch = _run(trainer)

        assert watch.after[5] == {"rl_reward_function_dist": 4}
        assert watch.began("rl_reward_function_dist") == 3
        assert exporter.snapshot.value("rl_undefined_values_total", metric="rl_reward_function_dist") is None
        exporter.close()

    def test_nan_in_all_rewards(self, tmp_path: Path, kind: str, logging_steps: int) -> None:
        """Reward and advantage are lost; TRL sets the advantage to 0."""
        trainer = tiny.grpo(
            tmp_path, kind=kind, rewards=[_nan_rewards(3, 1.0)], max_steps=5, logging_steps=logging_steps
        )
        exporter, watch = _run(trainer)

        assert watch.after[2] == {}
        assert watch.after[3] == {"rl_reward_function_dist": 4, "rl_reward_dist": 4, "rl_advantage_dist": 4}
        exporter.close()

    def test_an_infinite_reward(self, tmp_path: Path, kind: str, logging_steps: int) -> None:
        """The advantages of its group are 0 afterwards, or the largest number."""
        trainer = tiny.grpo(
            tmp_path, kind=kind, rewards=[_nan_rewards(3, 0.25, math.inf)], max_steps=5, logging_steps=logging_steps
        )
        exporter, watch = _run(trainer)
        value = exporter.snapshot.value

        assert watch.began("rl_reward_dist") == watch.began("rl_advantage_dist") == 3
        assert value("rl_nonfinite_values_total", metric="rl_reward_function_dist", kind="+inf") == 1
        assert value("rl_nonfinite_values_total", metric="rl_reward_dist", kind="+inf") == 1
        assert watch.after[3]["rl_advantage_dist"] == 2
        exporter.close()

    def test_nan_in_advantages(self, tmp_path: Path, kind: str, logging_steps: int) -> None:
        """Planted after TRL has mended them: the loss is NaN from there, and logged as 0.0."""

        class Broken(type(tiny.grpo(tmp_path, kind=kind))):  # type: ignore[misc]
            def _generate_and_score_completions(self, inputs: Any) -> Any:
                found = super()._generate_and_score_completions(inputs)
                if self.model.training and self.state.global_step == 2:
                    found["advantages"][0] = math.nan
                return found

        trainer = tiny.grpo(tmp_path, kind=kind, max_steps=5, logging_steps=logging_steps)
        trainer.__class__ = Broken
        exporter, watch = _run(trainer)

        assert watch.began("rl_advantage_dist") == watch.began("rl_loss") == watch.began("rl_grad_norm") == 3
        assert watch.after[3]["rl_advantage_dist"] == watch.after[3]["rl_loss"] == watch.after[3]["rl_grad_norm"] == 1
        exporter.close()

    def test_nan_in_the_loss(self, tmp_path: Path, kind: str, logging_steps: int) -> None:
        """transformers logs the mean of the others."""

        class Broken(type(tiny.grpo(tmp_path, kind=kind))):  # type: ignore[misc]
            def training_step(self, *args: Any, **kwargs: Any) -> Any:
                loss = super().training_step(*args, **kwargs)
                return loss * math.nan if self.state.global_step == 2 else loss

        trainer = tiny.grpo(tmp_path, kind=kind, max_steps=5, logging_steps=logging_steps)
        trainer.__class__ = Broken
        exporter, watch = _run(trainer)

        assert watch.after[2] == {}
        assert watch.after[3] == watch.after[5] == {"rl_loss": 1}
        assert math.isfinite(exporter.snapshot.value("rl_train_loss") or math.nan)
        exporter.close()

    def test_nan_in_one_gradient(self, tmp_path: Path, kind: str, logging_steps: int) -> None:
        """The weights are lost with it, and the next rollout fails; with ten steps a line nothing is logged."""
        trainer = tiny.grpo(
            tmp_path, kind=kind, max_steps=5, logging_steps=logging_steps, callbacks=[_Break(3, _nan_gradient)]
        )
        exporter, watch = _run(trainer)

        assert watch.after[3] == {"rl_grad_norm": 1}
        assert 4 not in watch.after
        bad = {
            s.labels[:2]: v for s, v in exporter.run.current().samples.items() if "nonfinite" in s.metric.series and v
        }
        assert bad[("rl_grad_norm", "nan")] == 1
        exporter.close()

    def test_nan_in_the_weights(self, tmp_path: Path, kind: str, logging_steps: int) -> None:
        """Counted before the rollout that dies of it."""
        trainer = tiny.grpo(
            tmp_path, kind=kind, max_steps=5, logging_steps=logging_steps, callbacks=[_Break(3, _nan_weight)]
        )
        exporter, watch = _run(trainer)
        _, text, _ = fetch(f"{exporter.url}/metrics")

        assert watch.after[2] == {}
        assert 3 not in watch.after
        assert 'rl_nonfinite_values_total{kind="nan",metric="rl_weight_norm"' in text
        assert nonfinite(exporter) == {"rl_weight_norm": 1}
        assert math.isnan(exporter.snapshot.value("rl_weight_norm") or 0.0)
        exporter.close()

    def test_a_window_of_none(self, tmp_path: Path, kind: str, logging_steps: int) -> None:
        """No fault of a number, and no 0: values that were not given."""
        trainer = tiny.grpo(
            tmp_path, kind=kind, rewards=[_nan_rewards(3, 1.0, None)], max_steps=5, logging_steps=logging_steps
        )
        exporter, _ = _run(trainer)
        value = exporter.snapshot.value

        assert nonfinite(exporter) == {}
        for metric in ("rl_reward_function_dist", "rl_reward_dist", "rl_advantage_dist"):
            assert value("rl_undefined_values_total", metric=metric) == 4
        exporter.close()

    def test_a_healthy_run_of_two_tasks(self, tmp_path: Path, kind: str, logging_steps: int) -> None:
        """Each reward function judges half of the samples: nothing is wrong."""

        def even(completions: list[str], **_: Any) -> list[float | None]:
            return [1.0 * len(text) if i % 4 < 2 else None for i, text in enumerate(completions)]

        async def odd(completions: list[str], **_: Any) -> list[float | None]:
            return [0.5 * len(text) if i % 4 >= 2 else None for i, text in enumerate(completions)]

        trainer = tiny.grpo(tmp_path, kind=kind, rewards=[even, odd], max_steps=4, logging_steps=logging_steps)
        exporter, _ = _run(trainer)
        value = exporter.snapshot.value
        counts = {
            s.labels: b.count for s, b in exporter.snapshot.buckets.items() if "reward_function" in s.metric.series
        }

        assert nonfinite(exporter) == {}
        assert counts == {("even",): 8, ("odd",): 8}
        assert value("rl_undefined_values_total", metric="rl_reward_function_dist") == 16
        assert value("rl_undefined_values_total", metric="rl_reward_dist") is None
        assert errors(exporter) == 0
        exporter.close()


# ---- training is sacred ----

_TAPS = [
    *("_generate_and_score_completions", "_generate", "_calculate_rewards", "_get_per_token_logps_and_entropies"),
    *("_compute_loss", "training_step", "evaluate", "_save_checkpoint"),
]


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_an_error_in_every_tap_leaves_training_alone(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at a tensor fails: the run ends as it would have, the errors are counted, the signals are lost."""
    plain = tiny.grpo(tmp_path / "plain", kind=kind, max_steps=3)
    plain.train()
    trainer = tiny.grpo(tmp_path / "watched", kind=kind, max_steps=3, save_strategy="steps", save_steps=2)
    exporter = rlexporter.attach(trainer)

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("planted")

    for name in ("observe", "undefined", "values"):
        monkeypatch.setattr(exporter.run.sink, name, fail)
    monkeypatch.setattr(exporter.run.store, "phase", fail)
    trainer.train()

    assert trainer.state.global_step == 3
    same = zip(plain.model.state_dict().values(), trainer.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in same)
    errors = exporter.snapshot.value("rlexporter_errors_total", where="tap")
    assert errors
    assert errors > 20
    assert not any(_signals(exporter).values())
    assert set(_reasons(exporter).values()) <= {"ZeroDivisionError: see the log of the training"} | {
        reason for reason in _reasons(exporter).values() if "on-policy" in reason
    }
    monkeypatch.undo()
    exporter.close()


@pytest.mark.parametrize("name", _TAPS)
def test_a_method_that_is_gone_costs_its_signals(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of TRL: the rest is seen as before, and the reason names the method."""

    def missing(owner: Any, method: str, around: Any) -> Any:
        if method == name:
            raise AttributeError(method)
        return wrap(owner, method, around)

    monkeypatch.setattr("rlexporter.adapters.taps.wrap", missing)
    exporter, _ = _run(tiny.grpo(tmp_path, max_steps=2, num_iterations=2))
    lost = {signal for signal, available in _signals(exporter).items() if not available}

    assert exporter.snapshot.value("rl_step") == 2
    assert errors(exporter) == 0
    assert all(name in reason or "per-token" in reason for reason in _reasons(exporter).values())
    assert bool(lost) is (name not in ("evaluate", "_save_checkpoint"))
    exporter.close()


def test_nothing_outlives_its_step(tmp_path: Path) -> None:
    """No log-probabilities, entropies, losses or advantages, and no graph."""
    alive: list[weakref.ref[Any]] = []

    class Tracking(trl.GRPOTrainer):  # type: ignore[misc]
        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
            alive.extend(weakref.ref(tensor) for tensor in found if tensor is not None)
            return found

        def _compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super()._compute_loss(*args, **kwargs)
            alive.append(weakref.ref(loss))
            return loss

    def activation(module: Any, inputs: Any, output: Any) -> None:
        if torch.is_tensor(output):
            alive.append(weakref.ref(output))

    seen: list[int] = []

    class Count(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # What TRL itself keeps for the next update of the same rollout is its buffer's.
            buffered = {id(value) for batch in trainer._buffered_inputs or [] for value in batch.values()}
            seen.append(sum(ref() is not None and id(ref()) not in buffered for ref in alive))

    trainer = tiny.grpo(tmp_path, max_steps=4, num_iterations=2, callbacks=[Count()])
    trainer.__class__ = Tracking
    for module in trainer.model.modules():
        module.register_forward_hook(activation)
    exporter = rlexporter.attach(trainer)
    trainer.train()

    assert len(alive) > 300
    assert seen == [0, 0, 0, 0]
    exporter.close()


def test_phases_add_up_to_the_step(tmp_path: Path) -> None:
    """Rollout, reward and update, each with its own time; where the run is now is served while it is there."""
    import time

    during: list[set[str]] = []

    def slow(completions: list[str], **_: Any) -> list[float]:
        phase = {s.labels[0] for s, v in exporter.snapshot.samples.items() if s.metric.series == "rl_phase" and v}
        during.append(phase)
        time.sleep(1.5)
        return tiny.letters(completions)

    trainer = tiny.grpo(tmp_path, rewards=[slow], max_steps=2, save_strategy="steps", save_steps=1)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    value = exporter.snapshot.value
    spent = {
        name: value("rl_phase_time_seconds", phase=name) or 0.0 for name in ("rollout", "reward", "update", "save")
    }

    assert during == [{"reward"}, {"reward"}]
    assert spent["reward"] >= 1.5
    assert min(spent["update"], spent["rollout"]) > 0
    (steps,) = (b for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_step_duration_seconds")
    assert spent["reward"] + spent["update"] + spent["rollout"] <= steps.maximum + 0.01
    assert spent["save"] > 0
    assert all(value("rl_phase", phase=name) == 0 for name in spent)
    exporter.close()
