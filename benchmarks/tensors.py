"""What it costs to count the values of a tensor in a histogram's buckets, beside what else can count them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from prometheus_client import CollectorRegistry, Histogram
from torch.utils.tensorboard.summary import histogram as tensorboard_histogram

from benchmarks.measure import Figure, side_by_side
from rlexporter.catalog import NAMED
from rlexporter.tensors import host

RATIO = NAMED["rl_policy_ratio_dist"].bounds
SIZES = (8192, 65_536, 1_048_576, 8_388_608)
_LOOP = 4096
"""Values that the clients with one call a value are given; their time is scaled up to the size."""

Call = Callable[[], object]


def ratios_of(size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Importance ratios as a healthy update has them, and a mask that leaves four of five tokens."""
    random = torch.Generator().manual_seed(0)
    values = (torch.randn(size, generator=random) * 0.1).exp().to(dtype)
    return values, torch.rand(size, generator=random) < 0.8


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


def bucketize(values: torch.Tensor, mask: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """The usual way with torch: a search for each element's bucket, then a count of each bucket."""
    return torch.bincount(torch.bucketize(values[mask], edges), minlength=len(edges) + 1)


def _numpy(values: torch.Tensor, mask: torch.Tensor) -> object:
    plain = values.float().numpy()[mask.numpy()]
    return np.bincount(np.searchsorted(np.array(RATIO, dtype=np.float32), plain), minlength=len(RATIO) + 1)


def _alternatives(values: torch.Tensor, mask: torch.Tensor) -> dict[str, Call]:
    edges = torch.tensor(RATIO, dtype=values.dtype)
    return {
        "rlexporter": lambda: host.count(values, RATIO, mask),
        "bucketize + bincount": lambda: bucketize(values, mask, edges),
        "numpy searchsorted + bincount": lambda: _numpy(values, mask),
        "TensorBoard histogram": lambda: tensorboard_histogram("r", values[mask].float(), bins="tensorflow"),
        "clone (the floor)": values.clone,
    }


def _measured(size: int, dtype: torch.dtype) -> dict[str, Figure]:
    """All in one run; the clients that take one value a call on a part, scaled."""
    values, mask = ratios_of(size, dtype)
    part = values[mask][:_LOOP].tolist()
    scale = int(mask.sum()) / len(part)
    calls = {**_alternatives(values, mask), "prometheus_client loop": _prometheus(part)}
    calls["OpenTelemetry loop"] = _opentelemetry(part)
    found = side_by_side(calls, rounds=15 if size < 1 << 20 else 7, wall=True)
    return {name: figure.times(scale) if name.endswith("loop") else figure for name, figure in found.items()}


def rows() -> Iterator[str]:
    """The lines of a Markdown table."""
    header = False
    for dtype in (torch.float32, torch.bfloat16):
        for size in SIZES:
            found = _measured(size, dtype)
            if not header:
                yield f"| elements | {' | '.join(found)} |"
                yield "|---" * (len(found) + 1) + "|"
                header = True
            ours = found["rlexporter"]
            cells = [
                f"{figure}" if figure is ours else f"{figure.median:.0f} ({figure.median / ours.median:.1f}x)"
                for figure in found.values()
            ]
            yield f"| {size:,} {str(dtype).removeprefix('torch.')} | {' | '.join(cells)} |"


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
