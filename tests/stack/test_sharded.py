"""Weights that are sharded over ranks by FSDP2: each rank watches its own part, and calls no collective for it."""

from __future__ import annotations

import json
import sys
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from tests.tools import ROOT, launched

pytest.importorskip("trl", minversion="1.16", reason="the sharding of older versions differs")

pytestmark = pytest.mark.slow


def _ran(folder: Path, ranks: int, *options: str) -> list[dict[str, Any]]:
    """What each rank had."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    command += ["-m", "tests.stack.sharded", str(folder), "2", *options]
    with launched(command, folder, PYTHONPATH=str(ROOT)) as launcher:
        assert launcher.wait(900) == 0, (folder / "err").read_text()[-3000:]
    return [json.loads((folder / f"had-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_rank_watches_its_own_part_and_changes_nothing(tmp_path: Path, ranks: int) -> None:
    """The weights are those of a training without an exporter, bit for bit."""
    watched, plain = _ran(tmp_path / "watched", ranks), _ran(tmp_path / "plain", ranks, "--plain")

    assert {each["sharded"] for each in watched} == {"DTensor"}
    assert len({each["weights"] for each in watched}) == ranks
    for each in watched:
        assert each["served"] == pytest.approx(each["norm"], rel=1e-5)
        assert (each["failed"], each["errors"], each["nonfinite"]) == ("", 0, {})
    assert watched[0]["grad_norm"] > 0
    assert [each["weights"] for each in watched] == [each["weights"] for each in plain]


def test_a_nan_in_one_part_is_named_with_its_rank(tmp_path: Path) -> None:
    """Sampling then fails on all ranks, since each gathers all parts."""
    had = _ran(tmp_path, 8, "--nan-on", "5")

    assert all("probability tensor" in each["failed"] for each in had)
    assert [each["nonfinite"] for each in had] == [{"rl_weight_norm": 1.0} if rank == 5 else {} for rank in range(8)]
    assert [isnan(each["served"]) for each in had] == [rank == 5 for rank in range(8)]
    assert [each["rank"] for each in had] == [str(rank) for rank in range(8)]
