"""GRPO with tools, environments and rollouts of several turns: what the policy did not sample is never counted."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trl

import rlexporter
from tests.adapters.kept import SavedState, buckets
from tests.adapters.lines import Lines
from tests.conftest import fetch
from tests.served import errors, nonfinite

if tuple(map(int, trl.__version__.split(".")[:2])) < (1, 16):
    pytest.skip("tools and environments are those of trl 1.16", allow_module_level=True)

from tests.adapters import conversations

pytestmark = [pytest.mark.usefixtures("any_port"), pytest.mark.filterwarnings("ignore")]

_OFF_POLICY = {"num_iterations": 2, "learning_rate": 1e-2}
CASES: dict[str, Mapping[str, Any]] = {
    "tools": {"tools": [conversations.look]},
    "tools, twice at most": {"tools": [conversations.look], "max_tool_calling_iterations": 2},
    "tools, truncated ones masked": {
        "tools": [conversations.look],
        "mask_truncated_completions": True,
        "max_completion_length": 20,
    },
    "tools, a ratio per sequence": {"tools": [conversations.look], "importance_sampling_level": "sequence"},
    "an environment": {"environment_factory": conversations.Room, "rewards": ()},
    "a rollout of two turns": {"rollout_func": conversations.rollout},
}


@pytest.mark.parametrize("name", CASES)
def test_every_histogram_equals_an_independent_count(tmp_path: Path, name: str) -> None:
    """Bucket for bucket, of the tokens that the policy sampled; and there are others."""
    trainer = conversations.grpo(
        tmp_path, kind=conversations.KeepingGRPO, max_steps=6, **{**_OFF_POLICY, **CASES[name]}
    )
    trainer.kept, trainer.losses = SavedState(), []
    exporter = rlexporter.attach(trainer)
    trainer.train()
    served = {series: (bounds, counts) for series, bounds, counts in buckets(fetch(f"{exporter.url}/metrics")[1])}
    trainer.kept.add("rl_loss_dist", trainer.losses)
    logged = [line for line in trainer.state.log_history if "completions/clipped_ratio" in line]

    assert trainer.outside > 0
    assert any(0 < line["completions/clipped_ratio"] < 1 for line in logged) == ("truncated" in name)
    assert set(served) - {"rl_grad_norm_dist", "rl_step_duration_seconds"} == set(trainer.kept.values)
    for series in trainer.kept.values:
        bounds, counts = served[series]
        assert counts == trainer.kept.histogram(series, bounds), series
        assert counts[-1] > 0, series
    for which in ("call", "failure") if trainer.tools else ():
        assert exporter.snapshot.value(f"rl_tool_{which}_frequency") == logged[-1][f"tools/{which}_frequency"] > 0
    assert nonfinite(exporter) == {}
    assert errors(exporter) == 0
    exporter.close()


def _trained(folder: Path, name: str, attached: bool) -> tuple[list[dict[str, Any]], dict[str, Any], Any]:
    random.seed(0)
    np.random.seed(0)
    lines = Lines()
    trainer = conversations.grpo(folder, callbacks=[lines], **{**_OFF_POLICY, **CASES[name]})
    exporter = rlexporter.attach(trainer) if attached else None
    trainer.train()
    if exporter is not None:
        exporter.close()
    states = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]
    return lines.untimed(), trainer.model.state_dict(), states


@pytest.mark.parametrize("name", ["tools", "an environment", "a rollout of two turns"])
def test_training_is_the_same_with_and_without(tmp_path: Path, name: str) -> None:
    """Bit for bit: log lines, weights, random states."""
    one, other = (_trained(tmp_path / str(attached), name, attached) for attached in (False, True))

    assert one[0] == other[0]
    assert all(torch.equal(weight, other[1][key]) for key, weight in one[1].items())
    assert one[2] == other[2]
