"""The values that benchmarks count, and how torch alone counts them."""

from __future__ import annotations

import torch

from rlexporter.catalog.metrics import NAMED

RATIO = NAMED["rl_policy_ratio_dist"].bounds


def ratios_of(size: int, dtype: torch.dtype) -> torch.Tensor:
    """Importance ratios as a healthy update has them."""
    return (torch.randn(size, generator=torch.Generator().manual_seed(0)) * 0.1).exp().to(dtype)


def mask_of(size: int) -> torch.Tensor:
    """Leaves four of five tokens."""
    return torch.rand(size, generator=torch.Generator().manual_seed(1)) < 0.8


def bucketize(values: torch.Tensor, mask: torch.Tensor | None, edges: torch.Tensor) -> torch.Tensor:
    """The usual way with torch: a search for each element's bucket, then a count of each bucket."""
    return torch.bincount(torch.bucketize(chosen_of(values, mask), edges), minlength=len(edges) + 1)


def chosen_of(values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The values for which the mask is true."""
    return values if mask is None else values[mask]
