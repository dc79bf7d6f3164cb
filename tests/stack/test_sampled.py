"""GRPO whose completions vLLM samples, in its process or from its server: what sampler and trainer disagree about.

vLLM is a stand-in (tests/stack/stand_ins), since the real one needs a GPU; trl's code around it is real.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trl

from rlexporter.demo import tiny as demo
from tests import tiny
from tests.tools import ROOT, eventually, free_port, launched

pytestmark = pytest.mark.skipif(not trl.__version__.startswith("1.16"), reason="vLLM's protocol is that of trl 1.16")

KEYS = {
    "rl_sampling_logp_difference_mean": "sampling/sampling_logp_difference/mean",
    "rl_sampling_logp_difference_max": "sampling/sampling_logp_difference/max",
    "rl_importance_sampling_ratio_min": "sampling/importance_sampling_ratio/min",
    "rl_importance_sampling_ratio_mean": "sampling/importance_sampling_ratio/mean",
    "rl_importance_sampling_ratio_max": "sampling/importance_sampling_ratio/max",
}


def _environ(folder: Path, **more: str) -> dict[str, str]:
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests/stack/stand_ins'}"
    return {"PYTHONPATH": path, "STAND_IN_WEIGHTS": str(folder / "weights.pt"), **more}


def _ran(folder: Path, mode: str, *url: str, **environ: str) -> Any:
    command = [sys.executable, "-m", "tests.stack.sampled", str(folder), mode, *url]
    with launched(command, folder, **_environ(folder, **environ)) as started:
        assert started.wait(900) == 0, (folder / "err").read_text()[-3000:]
    return json.loads((folder / "had.json").read_text())


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    tiny.model(folder)
    demo.tokenizer().save_pretrained(folder / "tiny-llama")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "vllm.server", str(folder / "tiny-llama"), str(port)]

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=60) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    with launched(command, folder / "server", **_environ(folder)):
        eventually(answers)
        yield url


def _is_served(had: Any) -> None:
    """What was logged last is there, nothing is lost, and nothing of ours failed."""
    rollouts = [line for line in had["logged"] if KEYS["rl_sampling_logp_difference_mean"] in line]
    assert len(rollouts) == 12
    assert {series: had["series"][series] for series in KEYS} == {s: rollouts[-1][key] for s, key in KEYS.items()}
    assert (had["errors"], had["nonfinite"]) == (0, {})
    assert had["counts"]["rl_completion_length_dist"] == 48
    assert had["counts"]["rl_policy_ratio_dist"] == had["counts"]["rl_logprob_dist"] > 48


def _agrees(had: Any) -> None:
    """Sampler and trainer do, to rounding, after each update too."""
    assert 0 < had["series"]["rl_sampling_logp_difference_max"] < 1e-4
    assert not {"sampler_differs", "sampling_mismatch", "sampling_jump", "sampling_ratio_low"} & set(had["conditions"])


@pytest.mark.slow
def test_in_the_process(tmp_path: Path) -> None:
    """Sampler and trainer are one process."""
    had = _ran(tmp_path, "colocate")

    _is_served(had)
    _agrees(had)


@pytest.mark.slow
def test_from_a_server(tmp_path: Path) -> None:
    """By its protocol; the weights are there in time."""
    with _server(tmp_path) as url:
        had = _ran(tmp_path, "server", url)

    _is_served(had)
    _agrees(had)


@pytest.mark.slow
def test_a_sampler_at_another_temperature_is_named(tmp_path: Path) -> None:
    """Though every number is finite, and the reward is as before."""
    had = _ran(tmp_path, "colocate", STAND_IN_TEMPERATURE="0.2")

    _is_served(had)
    assert had["series"]["rl_sampling_logp_difference_mean"] > 0.3
    assert {"sampler_differs", "sampling_mismatch", "sampling_ratio_low"} <= set(had["conditions"])
