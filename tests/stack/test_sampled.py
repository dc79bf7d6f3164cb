"""GRPO whose completions vLLM samples in its process: what sampler and trainer disagree about.

vLLM is a stand-in (tests/stack/stand_ins), since the real one needs a GPU; trl's code around it is real.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trl

from tests.tools import ROOT, launched

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not trl.__version__.startswith("1.16"), reason="vLLM's protocol is that of trl 1.16"),
]

KEYS = {
    "rl_sampling_logp_difference_mean": "sampling/sampling_logp_difference/mean",
    "rl_sampling_logp_difference_max": "sampling/sampling_logp_difference/max",
    "rl_importance_sampling_ratio_min": "sampling/importance_sampling_ratio/min",
    "rl_importance_sampling_ratio_mean": "sampling/importance_sampling_ratio/mean",
    "rl_importance_sampling_ratio_max": "sampling/importance_sampling_ratio/max",
}


def _ran(folder: Path, **environ: str) -> Any:
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests/stack/stand_ins'}"
    with launched([sys.executable, "-m", "tests.stack.sampled", str(folder)], folder, PYTHONPATH=path, **environ) as it:
        assert it.wait(900) == 0, (folder / "err").read_text()[-3000:]
    return json.loads((folder / "had.json").read_text())


def _is_served(had: Any) -> None:
    """What was logged last is there, nothing is lost, and nothing of ours failed."""
    rollouts = [line for line in had["logged"] if KEYS["rl_sampling_logp_difference_mean"] in line]
    assert len(rollouts) == 12
    assert {series: had["series"][series] for series in KEYS} == {s: rollouts[-1][key] for s, key in KEYS.items()}
    assert (had["errors"], had["nonfinite"]) == (0, {})
    assert had["counts"]["rl_completion_length_dist"] == 48
    assert had["counts"]["rl_policy_ratio_dist"] == had["counts"]["rl_logprob_dist"] > 48


def test_a_sampler_that_agrees(tmp_path: Path) -> None:
    """To rounding, after each update too."""
    had = _ran(tmp_path)

    _is_served(had)
    assert 0 < had["series"]["rl_sampling_logp_difference_max"] < 1e-4
    assert not {"sampler_differs", "sampling_jump", "sampling_ratio_low"} & set(had["conditions"])


def test_a_sampler_at_another_temperature_is_named(tmp_path: Path) -> None:
    """Though every number is finite, and the reward is as before."""
    had = _ran(tmp_path, STAND_IN_TEMPERATURE="0.2")

    _is_served(had)
    assert had["series"]["rl_sampling_logp_difference_mean"] > 0.3
    assert {"sampler_differs", "sampling_ratio_low"} <= set(had["conditions"])
