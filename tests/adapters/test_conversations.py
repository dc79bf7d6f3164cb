"""GRPO with tools, environments and rollouts of several turns: what the policy did not sample is never counted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trl

from tests.adapters.twice import assert_counted_and_same

if tuple(map(int, trl.__version__.split(".")[:2])) < (1, 16):
    pytest.skip("tools and environments are those of trl 1.16", allow_module_level=True)

from tests.adapters import conversations

pytestmark = [pytest.mark.usefixtures("any_port"), pytest.mark.filterwarnings("ignore")]

_OFF_POLICY = {"num_iterations": 2, "learning_rate": 1e-2}
CASES: dict[str, Mapping[str, Any]] = {
    "tools": {"tools": [conversations.look]},
    "tools, truncated ones masked": {
        "tools": [conversations.look],
        "mask_truncated_completions": True,
        "max_completion_length": 20,
    },
    "tools, a ratio per sequence": {"tools": [conversations.look], "importance_sampling_level": "sequence"},
    "an environment": {"environment_factory": conversations.Room, "rewards": ()},
    "a rollout of two turns": {"rollout_func": conversations.rollout},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_histogram_equals_an_independent_count_and_training_is_the_same(tmp_path: Path, name: str) -> None:
    """Counted are the tokens that the policy sampled; and there are others."""
    options = {"max_steps": 6, **_OFF_POLICY, **CASES[name]}
    trainer, exporter = assert_counted_and_same(
        lambda lines: conversations.grpo(tmp_path, callbacks=[lines], **options), conversations.KeepingGRPO
    )
    logged = [line for line in trainer.state.log_history if "completions/clipped_ratio" in line]

    assert trainer.outside > 0
    assert any(0 < line["completions/clipped_ratio"] < 1 for line in logged) == ("truncated" in name)
    if trainer.tools:
        value = exporter.snapshot.value
        assert value("rl_logged_value", key="tools/call_frequency") == logged[-1]["tools/call_frequency"] > 0
        assert value("rl_tool_failure_frequency") == logged[-1]["tools/failure_frequency"] > 0
