"""What lies on a GPU, on its way into a run: counted there, sent with a step, served when it has come.

No GPU is needed: tensors of the host are taken for such of a device, by the one function that tells them apart. What
differs on a real one (that copies take time, that reads wait) is tested in tests/tensors/test_device.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rlexporter import Exporter, intake
from rlexporter.catalog import NAMED
from rlexporter.feed import NotSeenError, RunFacts, StepUpdate
from rlexporter.model import Series
from rlexporter.tensors import host, tally

RATIO = Series(NAMED["rl_policy_ratio_dist"])


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor is taken for one on a GPU."""
    for module in (intake, tally):
        monkeypatch.setattr(module, "on_gpu", torch.is_tensor)


def _count(exporter: Exporter, name: str) -> int:
    found = exporter.snapshot.buckets.get(Series(NAMED[name]))
    return found.count if found else 0


@pytest.mark.usefixtures("on_gpu")
def test_observed_values_come_with_the_next_log_line(exporter: Exporter) -> None:
    """Sent by it, and there for the next scrape."""
    exporter.observe("policy_ratio", torch.tensor([0.9, 1.1, 300.0]), torch.tensor([True, True, False]))
    assert _count(exporter, "rl_policy_ratio_dist") == 0

    exporter.log({"loss": 0.5}, step=1)
    exporter.current()
    assert _count(exporter, "rl_policy_ratio_dist") == 2

    exporter.observe("policy_ratio", torch.tensor([math.nan]))
    exporter.log({"loss": 0.5}, step=2)
    exporter.log({"loss": 0.5}, step=3)
    assert exporter.snapshot.value("rl_nonfinite_values_total", metric="rl_policy_ratio_dist", kind="nan") == 1


@pytest.mark.usefixtures("on_gpu")
def test_a_line_with_values_on_a_gpu_does_not_read_them(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, a NaN, several values, an unknown key, a running total, an evaluation: each where its key belongs."""
    exporter.begin(RunFacts(algorithm="grpo", step=0))

    def wait(*_: Any) -> None:
        raise AssertionError("this waits for the device")

    with monkeypatch.context() as patch:
        for name in ("item", "numpy", "__float__", "__array__"):
            patch.setattr(torch.Tensor, name, wait)
        exporter.log({"kl": torch.tensor(0.25), "entropy": torch.tensor([1.0, 2.0]), "reward": 2.0}, step=1)
        exporter.log({"mine": torch.tensor(7), "grad_norm": torch.tensor(math.nan)}, step=2)
        exporter.log({"num_tokens": torch.tensor(100.0)}, step=3)
        exporter.log({"eval_loss": torch.tensor(0.5), "eval_runtime": 1.0}, step=3)
        assert exporter.snapshot.value("rl_reward_mean") == 2.0
    exporter.log({"num_tokens": torch.tensor(150.0), "kl": torch.tensor(0.5)}, step=4)
    value = exporter.current().value

    assert value("rlexporter_errors_total", where="log") == 0
    assert value("rl_kl_per_token") == 0.5
    assert value("rl_entropy_per_token") == 1.5
    assert value("rl_logged_value", key="mine") == 7.0
    assert math.isnan(value("rl_grad_norm") or 0)
    assert value("rl_nonfinite_values_total", metric="rl_grad_norm", kind="nan") == 1
    assert value("rl_tokens_total") == 150.0
    assert value("rl_eval_loss", dataset="default") == 0.5


@pytest.mark.usefixtures("on_gpu")
def test_a_step_is_served_whole_once_it_has_come(exporter: Exporter) -> None:
    """What a device counted, and what the host did, of the same series and of others."""
    exporter.see("rl_policy_ratio_dist", torch.full((5,), 1.0))
    exporter.see("rl_completion_length_dist", [3, 4])
    exporter.advance(StepUpdate(step=1))
    assert _count(exporter, "rl_completion_length_dist") == 2

    exporter.current()
    assert _count(exporter, "rl_policy_ratio_dist") == 5


@pytest.mark.usefixtures("on_gpu")
def test_what_was_flushed_before_a_failure_is_served_after_it(exporter: Exporter) -> None:
    """Even where nothing can be sent any more."""
    exporter.begin(RunFacts(algorithm="grpo", step=0))
    exporter.see("rl_weight_norm", torch.tensor([math.nan]))
    exporter.flush()
    found = exporter._gather.tally._devices["cpu"]
    found.flush = found.add = None  # type: ignore[method-assign,assignment]
    exporter.end(RuntimeError("device-side assert"))
    snapshot = exporter.current()

    assert snapshot.value("rl_run_state", state="failed") == 1
    assert snapshot.value("rl_nonfinite_values_total", metric="rl_weight_norm", kind="nan") == 1
    assert snapshot.value("rlexporter_errors_total", where="tap") == 1


def test_seeing_keeps_errors_away_and_says_what_is_lost(exporter: Exporter) -> None:
    """A reason is no error; after a success the signal is there again."""

    def fail(error: Exception) -> None:
        raise error

    with exporter.seeing("kl"):
        fail(NotSeenError("beta is 0"))
    assert (
        exporter.snapshot.value("rl_signal_unavailable_info", signal="kl", cause="configuration", reason="beta is 0")
        == 1
    )
    assert exporter.snapshot.value("rlexporter_errors_total", where="tap") == 0

    with exporter.seeing("kl"):
        fail(ZeroDivisionError("planted"))
    reason = "ZeroDivisionError: see the log of the training"
    assert exporter.snapshot.value("rl_signal_unavailable_info", signal="kl", cause="error", reason=reason) == 1
    assert exporter.snapshot.value("rlexporter_errors_total", where="tap") == 1

    with exporter.seeing("kl"):
        pass
    assert exporter.snapshot.value("rl_signal_available", signal="kl") == 1
    assert exporter.snapshot.value("rl_signal_unavailable_info", signal="kl", cause="error", reason=reason) is None


def test_the_time_of_looking_is_counted_once(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one another it is that of the outer one; with the next update it is served."""
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    with exporter.seeing("logprob"):
        now += 1.0
        with exporter.seeing("ratio"):
            now += 2.0
    now += 100.0
    exporter.advance(StepUpdate(step=1))

    assert exporter.snapshot.value("rlexporter_observe_seconds_total") == 3.0


def test_observe_is_an_exact_count(exporter: Exporter) -> None:
    """As everywhere else, with numpy and a mask that broadcasts."""
    values = np.random.default_rng(0).normal(1.0, 0.3, (20, 30)).astype(np.float32)
    mask = np.arange(20).reshape(20, 1) % 2
    exporter.observe("policy_ratio", values, mask)

    assert exporter.snapshot.buckets[RATIO] == host.count(values, RATIO.metric.bounds, mask)
