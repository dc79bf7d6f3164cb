"""Finds dropout that is on in a model which should be deterministic."""

from __future__ import annotations

from typing import Any


def active_dropout(model: Any) -> float:
    """Return the highest probability of dropout that is on in ``model``; 0 if there is none. Looks at no tensor."""
    return max((_probability(module) for module in model.modules() if module.training), default=0.0)


def _probability(module: Any) -> float:
    """Return the probability of a dropout module, or the one that an attention module hands to its kernel."""
    from torch.nn.modules.dropout import _DropoutNd

    found = module.p if isinstance(module, _DropoutNd) else vars(module).get("attention_dropout", 0.0)
    return float(found) if isinstance(found, (int, float)) else 0.0
