"""What it costs to count the values of a tensor in a histogram's buckets, beside what else can count them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from prometheus_client import CollectorRegistry, Histogram
from torch.utils.tensorboard import SummaryWriter

from benchmarks.measure import Figure, side_by_side
from benchmarks.ratios import RATIO, bucketize, chosen_of, mask_of, ratios_of
from rlexporter.catalog.metrics import NAMED
from rlexporter.tensors import host

SIZES = (8192, 65_536, 1_048_576, 8_388_608)
_LOOP = 4096
"""Values that the clients with one call a value are given; their time is scaled up to the size."""

Call = Callable[[], object]


def _prometheus(values: list[float]) -> Call:
    metric = Histogram("rl_ratio", "Ratio.", registry=CollectorRegistry(), buckets=RATIO)

    def call() -> None:
        for value in values:
            metric.observe(value)

    return call


def _opentelemetry(values: list[float]) -> Call:
    view = View(instrument_name="*", aggregation=ExplicitBucketHistogramAggregation(RATIO))
    provider = MeterProvider(metric_readers=[InMemoryMetricReader()], views=[view], shutdown_on_exit=False)
    metric = provider.get_meter("bench").create_histogram("rl.ratio")

    def call() -> None:
        for value in values:
            metric.record(value)

    return call


def _numpy(values: torch.Tensor, mask: torch.Tensor | None) -> object:
    plain = chosen_of(values, mask).float().numpy()
    return np.bincount(np.searchsorted(np.array(RATIO, dtype=np.float32), plain), minlength=len(RATIO) + 1)


def _alternatives(values: torch.Tensor, mask: torch.Tensor | None, board: SummaryWriter) -> dict[str, Call]:
    edges = torch.tensor(RATIO, dtype=values.dtype)
    return {
        "rlexporter": lambda: host.count(values, RATIO, mask),
        "bucketize + bincount": lambda: bucketize(values, mask, edges),
        "numpy searchsorted + bincount": lambda: _numpy(values, mask),
        "TensorBoard `add_histogram`": lambda: board.add_histogram("ratio", chosen_of(values, mask).float()),
        "clone (the floor)": values.clone,
    }


def _measured(size: int, dtype: torch.dtype, mask: torch.Tensor | None) -> dict[str, Figure]:
    """All in one run; the clients that take one value a call on a part, scaled."""
    values = ratios_of(size, dtype)
    chosen = chosen_of(values, mask)
    part = chosen[:_LOOP].tolist()
    scale = len(chosen) / len(part)
    loops = {"prometheus_client loop": _prometheus(part), "OpenTelemetry loop": _opentelemetry(part)}
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as board:
        calls = {**_alternatives(values, mask, board), **loops}
        found = side_by_side(calls, rounds=15 if size < 1 << 20 else 5, wall=True)
    return {name: figure.times(scale) if name.endswith("loop") else figure for name, figure in found.items()}


def rows() -> Iterator[str]:
    """The lines of a Markdown table."""
    cases = [(size, dtype, True) for dtype in (torch.float32, torch.bfloat16) for size in SIZES]
    for i, (size, dtype, masked) in enumerate([*cases, (1_048_576, torch.float32, False)]):
        found = _measured(size, dtype, mask_of(size) if masked else None)
        if not i:
            yield f"| elements | {' | '.join(found)} |"
            yield "|---" * (len(found) + 1) + "|"
        ours = found["rlexporter"]
        cells = [
            f"{figure}" if figure is ours else f"{figure.median:.0f}: {_factor(figure.median / ours.median)}"
            for figure in found.values()
        ]
        kind = str(dtype).removeprefix("torch.") + ("" if masked else ", no mask")
        yield f"| {size:,} {kind} | {' | '.join(cells)} |"


def _factor(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x" if ratio >= 0.1 else f"{ratio:.2f}x"


def kind_rows() -> Iterator[str]:
    """How the cost depends on how many bounds the values lie between."""
    yield "| 1,048,576 float32 | bounds | rlexporter: us | `bucketize` + `bincount`: us | factor |"
    yield "|---|---|---|---|---|"
    for name, spread in (("rl_policy_ratio_dist", 0.1), ("rl_policy_ratio_dist", 3.0), ("rl_kl_per_token_dist", 0.1)):
        bounds = NAMED[name].bounds
        values, mask = _kind(name, spread)
        edges = torch.tensor(bounds, dtype=values.dtype)
        calls: dict[str, Any] = {
            "ours": lambda values=values, mask=mask, bounds=bounds: host.count(values, bounds, mask),
            "theirs": lambda values=values, mask=mask, edges=edges: bucketize(values, mask, edges),
        }
        found = side_by_side(calls, rounds=7, wall=True)
        between = sum(float(values[mask].min()) < bound < float(values[mask].max()) for bound in bounds)
        factor = found["theirs"].median / found["ours"].median
        title = f"`{name}`, spread {spread}"
        yield f"| {title} | {between} of {len(bounds)} | {found['ours']} | {found['theirs']} | {factor:.1f} |"


def _kind(name: str, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    log_ratio = torch.randn(1 << 20, generator=random) * spread
    mask = torch.rand(1 << 20, generator=random) < 0.8
    return (log_ratio.exp() if "ratio" in name else log_ratio.exp() - log_ratio - 1), mask
