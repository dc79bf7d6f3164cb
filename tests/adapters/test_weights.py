"""Whether weights change, by a sample of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from rlexporter import Exporter
from rlexporter.adapters.optimizer import ZeroGradients, trained
from rlexporter.adapters.weights import StepWeights, WeightSample
from rlexporter.model.step import StepUpdate
from tests.served import nonfinite


def _model(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.nn.ParameterList:
    torch.manual_seed(0)
    return torch.nn.ParameterList([(0.02 * torch.randn(shape)).to(dtype) for shape in shapes])


def _add(model: torch.nn.ParameterList, change: float) -> None:
    with torch.no_grad():
        for parameter in model:
            parameter.add_(change)


def _share(sample: WeightSample, model: torch.nn.ParameterList) -> float:
    change = sample.change(trained(model))
    assert change is not None
    return float(change.share)


def test_the_share_that_has_changed() -> None:
    """None at first, then 0 or more; what is not trained does not count, and a NaN is a change."""
    model, sample = _model((40, 10), (400,), (7,)), WeightSample()
    model[2].requires_grad_(False)
    assert sample.change(trained(model)) is None
    assert _share(sample, model) == 0.0

    with torch.no_grad():
        model[0].add_(1e-6)
        model[2].add_(1.0)
    assert _share(sample, model) == 0.5
    assert _share(sample, model) == 0.0

    with torch.no_grad():
        model[1].fill_(torch.nan)
    assert _share(sample, model) == 0.5


@pytest.mark.parametrize(("dtype", "least", "most"), [(torch.float32, 0.99, 1.0), (torch.bfloat16, 0.001, 0.05)])
def test_an_update_of_a_millionth_is_seen(dtype: torch.dtype, least: float, most: float) -> None:
    """Also in bf16, where it is lost in all weights but the smallest; the norm does not show it there."""
    model, sample = _model((512, 1024), (1024, 256), dtype=dtype), WeightSample()
    before = [parameter.norm() for parameter in model]
    sample.change(trained(model))
    _add(model, 1e-6)
    share = _share(sample, model)

    assert least <= share <= most
    assert dtype is torch.float32 or before == [parameter.norm() for parameter in model]


def test_it_is_small_and_spread_over_the_model() -> None:
    """Whatever the size of the model: at most 32 tensors, not only one half of each pair, and 1024 weights of each."""
    model, sample = _model(*[(8, 64), (64, 8)] * 90, (3000, 100)), WeightSample()
    sample.change(trained(model))
    kept = sample._before
    assert kept.numel() <= 32 * 1024

    for half in (0, 1):
        with torch.no_grad():
            for parameter in list(model)[half:180:2]:
                parameter.add_(1.0)
        assert 0.3 < _share(sample, model) < 0.7


def test_another_shape_is_a_new_beginning() -> None:
    """As after another sharding."""
    sample = WeightSample()
    sample.change(trained(_model((10, 10))))

    assert sample.change(trained(_model((5, 10)))) is None


def test_a_weight_that_becomes_nan_after_the_first_look_is_seen() -> None:
    """In PPO a callback that unwraps the model, to save or copy it, causes a look before that of the rollout.

    The trainer itself unwraps it several times: a NaN counts once.
    """
    exporter, model = Exporter(), _model((10, 10))
    weights = StepWeights(SimpleNamespace(model=model), exporter.run.sink)
    weights.see_before(again=True)
    with torch.no_grad():
        model[0][0, 0] = torch.nan
    weights.see_before(again=True)
    weights.see_before(again=True)
    exporter.run.sink.advance(StepUpdate(step=1))

    assert nonfinite(exporter) == {"rl_weight_norm": 1}
    assert not [series for series in exporter.snapshot.samples if series.metric.series == "rl_weight_changed_fraction"]


class _Seen:
    """A sink that keeps what is observed."""

    def __init__(self) -> None:
        self.shares: list[float] = []

    def observe(self, series: str, share: torch.Tensor, given: torch.Tensor) -> None:
        assert series == "rl_gradient_zero_fraction"
        self.shares += [float(share)] if given else []


def test_the_share_of_tensors_without_a_gradient() -> None:
    """Exactly 0 or missing; nothing where all are, and every other update is looked at."""
    model, zeros, seen = _model((40, 10), (400,), (64,), (90, 3)), ZeroGradients(), _Seen()
    model.append(torch.nn.Parameter(torch.ones(100), requires_grad=False))
    model.append(torch.nn.Parameter(torch.ones(8)))  # too small to tell
    for gradients in ((1e-30, 1.0, -1.0, 2.0), (1.0, 0.0, None, 0.0), (0.0, 0.0, 0.0, None), (None,) * 4):
        for parameter, value in zip(model, gradients, strict=False):
            parameter.grad = None if value is None else torch.full_like(parameter, value)
        zeros.see(seen, model)  # type: ignore[arg-type]
        zeros.see(seen, model)  # type: ignore[arg-type]
    assert seen.shares == [0.0, 0.75]


def test_a_gradient_is_looked_at_all_over() -> None:
    """One row in ten is enough; a NaN is none that is 0; of a large model some tensors stand for all."""
    model, seen = _model(*[(100, 50)] * 200), _Seen()
    for number, parameter in enumerate(model):
        parameter.grad = torch.zeros_like(parameter)
        if number % 2:
            parameter.grad[::10] = torch.nan if number % 3 else 1.0
    ZeroGradients().see(seen, model)  # type: ignore[arg-type]
    (share,) = seen.shares
    assert share == pytest.approx(0.5, abs=0.05)
