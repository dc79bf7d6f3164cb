"""The demo of PPO: where TRL has it, and where not."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import trl

from tests.versions.trls import MODERN, VERSION, once

pytestmark = pytest.mark.slow


def _demo(algorithm: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlexporter", "demo", "--algorithm", algorithm, "--port", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@once
def test_the_demo_of_this_version() -> None:
    """It trains, shows what is served, and a fault is real."""
    done = _demo("ppo" if MODERN else "ppo-legacy", "--steps", "6", "--fault", "nan@3")

    assert done.returncode == 0, done.stderr
    assert re.search(r": failed after step 3$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"reward +\S+ -> +\S+ +rl_reward_mean", done.stdout)
    assert "NaN or infinite: none" not in done.stdout


@pytest.mark.skipif(VERSION < (1, 16), reason="the newest version has neither")
@pytest.mark.parametrize("algorithm", ["ppo", "ppo-legacy"])
def test_without_that_trainer_it_says_what_to_install(algorithm: str) -> None:
    """One line, and no traceback."""
    done = _demo(algorithm)

    assert done.returncode == 2
    assert f"trl {trl.__version__} has no such trainer: pip install 'trl==" in done.stderr
    assert len(done.stderr.splitlines()) == 1
