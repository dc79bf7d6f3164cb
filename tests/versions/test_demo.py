"""The demo of PPO, where TRL has it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import trl

pytestmark = pytest.mark.slow
VERSION = tuple(int(part) for part in trl.__version__.split(".")[:2])
ALGORITHM = "ppo-legacy" if VERSION < (0, 12) else "ppo" if VERSION <= (1, 12) else "grpo"


def _demo(algorithm: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlexporter", "demo", "--algorithm", algorithm, "--port", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.skipif(VERSION not in ((1, 12), (0, 11)), reason="the demo is run once for each algorithm")
@pytest.mark.parametrize(("fault", "state"), [((), "finished"), (("--fault", "nan@3"), "failed")])
def test_the_demo_of_this_version(fault: tuple[str, ...], state: str) -> None:
    """It trains, shows what is served, and a fault is real."""
    done = _demo(ALGORITHM, "--steps", "6", *fault)

    assert done.returncode == 0, done.stderr
    assert re.search(rf": {state} after step {6 if not fault else 3}$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"reward +\S+ -> +\S+ +rl_reward_mean", done.stdout)
    assert ("NaN or infinite: none" in done.stdout) is (state == "finished")


@pytest.mark.parametrize("algorithm", sorted({"ppo", "ppo-legacy"} - {ALGORITHM}))
def test_without_that_trainer_it_says_what_to_install(algorithm: str) -> None:
    """One line, and no traceback."""
    done = _demo(algorithm)

    assert done.returncode == 2
    assert f"trl {trl.__version__} has no such trainer: pip install 'trl==" in done.stderr
    assert len(done.stderr.splitlines()) == 1
