"""Modern PPO on two ranks: each serves what it saw itself, and training is the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools import ROOT, launched
from tests.versions.trls import once_modern

pytestmark = [pytest.mark.slow, once_modern]


def _ran(folder: Path, *options: str) -> list[dict[str, Any]]:
    """What each rank had."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command += ["-m", "tests.versions.ppo_ranks", str(folder), *options]
    with launched(command, folder, PYTHONPATH=str(ROOT)) as launcher:
        assert launcher.wait(900) == 0, (folder / "err").read_text()[-3000:]
    return [json.loads((folder / f"had-{rank}.json").read_text()) for rank in range(2)]


def test_each_rank_serves_its_own_part_and_changes_nothing(tmp_path: Path) -> None:
    """Histograms equal an independent count on that rank; weights are those of a training without an exporter."""
    watched, plain = _ran(tmp_path / "watched"), _ran(tmp_path / "plain", "--plain")

    assert [each["ranks"] for each in watched] == [2, 2]
    for rank, had in enumerate(watched):
        assert (had["rank"], had["step"], had["errors"], had["nonfinite"]) == (str(rank), 4, 0, {})
        assert set(had["kept"]) - set(had["counted"]) == ({"rl_grad_norm_dist"} if rank else set())  # all have the same
        assert {name: had["served"][name] for name in had["counted"]} == had["counted"]
    assert watched[0]["counted"]["rl_logprob_dist"] != watched[1]["counted"]["rl_logprob_dist"]
    assert {each["weights"] for each in watched} == {each["weights"] for each in plain}
    assert len({each["weights"] for each in watched}) == 1
