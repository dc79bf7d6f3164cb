"""Weights that are sharded over ranks, by FSDP2 and ZeRO 1 to 3: each rank watches its own part, by no collective."""

from __future__ import annotations

import importlib.util
import json
import sys
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from tests.tools import ROOT, launched

pytest.importorskip("trl", minversion="1.16", reason="the sharding of older versions differs")

pytestmark = pytest.mark.soak

ZERO = [
    pytest.param(
        f"zero{stage}",
        marks=pytest.mark.skipif(not importlib.util.find_spec("deepspeed"), reason="needs deepspeed: make stack-tests"),
    )
    for stage in (1, 2, 3)
]
WEIGHTS = 3_568
"""Those of the model."""


def _ran(folder: Path, ranks: int, *options: str) -> list[dict[str, Any]]:
    """What each rank had."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    command += ["-m", "tests.stack.sharded", str(folder), *options]
    with launched(command, folder, PYTHONPATH=str(ROOT), DS_ACCELERATOR="cpu") as launcher:
        assert launcher.wait(900) == 0, (folder / "err").read_text()[-3000:]
    return [json.loads((folder / f"had-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.parametrize(("kind", "ranks"), [("GRPO", 2), ("GRPO", 4), ("RLOO", 2)])
@pytest.mark.parametrize("how", ["fsdp2", *ZERO])
def test_each_rank_watches_its_own_part_and_changes_nothing(tmp_path: Path, how: str, kind: str, ranks: int) -> None:
    """The weights are those of a training without an exporter, bit for bit. ZeRO 1 and 2 shard no weights."""
    watched = _ran(tmp_path / "watched", ranks, how, "--kind", kind)
    plain = _ran(tmp_path / "plain", ranks, how, "--kind", kind, "--plain")
    sharded = how in ("fsdp2", "zero3")

    assert len({each["weights"] for each in watched}) == (ranks if sharded else 1)
    assert all((each["size"] < WEIGHTS) == sharded for each in watched)
    for each in watched:
        assert each["served"] == pytest.approx(each["norm"], rel=1e-5)
        assert (each["failed"], each["errors"], each["nonfinite"]) == ("", 0, {})
        if kind == "GRPO":
            assert each["counts"]["rl_policy_ratio_dist"] == each["counts"]["rl_logprob_dist"] > 0
        else:  # 4 completions a step
            assert each["counts"]["rl_sequence_ratio_dist"] == 4 * 4
        assert each["counts"]["rl_loss_dist"] == 4
        assert ("grad_norm" in {signal for signal, *_ in each["lost"]}) == (how == "fsdp2")
    assert watched[0]["grad_norm"] > 0
    assert watched[0]["counts"]["rl_grad_norm_dist"] == 4
    assert [each["weights"] for each in watched] == [each["weights"] for each in plain]


@pytest.mark.parametrize("how", ["fsdp2", ZERO[-1]])
def test_a_nan_in_one_part_is_named_with_its_rank(tmp_path: Path, how: str) -> None:
    """Sampling then fails on all ranks, since each gathers all parts."""
    had = _ran(tmp_path, 8, how, "--nan-on", "5")

    assert all("probability tensor" in each["failed"] for each in had)
    assert [each["nonfinite"] for each in had] == [{"rl_weight_norm": 1.0} if rank == 5 else {} for rank in range(8)]
    assert [isnan(each["served"]) for each in had] == [rank == 5 for rank in range(8)]
    assert [each["rank"] for each in had] == [str(rank) for rank in range(8)]


@pytest.mark.parametrize("how", ["fsdp2", *ZERO[1:]])
def test_a_nan_in_one_part_stops_all_ranks_before_they_sample_with_it(tmp_path: Path, how: str) -> None:
    """In the step whose loss it spoils, the second of a rollout; every rank has its part in the suspect checkpoint."""
    had = _ran(tmp_path, 2, how, "--nan-on", "1", "--nan-at", "2", "--on-critical", "save,stop")

    assert [(each["step"], each["failed"], each["errors"]) for each in had] == [(2, "", 0)] * 2
    assert [(each["stops"], each["state"]) for each in had] == [(True, "stopped")] * 2
    checkpoint = tmp_path / "trained" / "suspect-checkpoint-2"
    assert [each.name for each in checkpoint.parent.glob("*checkpoint*")] == [checkpoint.name]
    assert "NaN" in (checkpoint / "SUSPECT.txt").read_text()
    assert {each.name for each in checkpoint.glob("rng_state_*")} == {"rng_state_0.pth", "rng_state_1.pth"}


@pytest.mark.parametrize("how", ZERO[1:])
def test_updates_that_the_scaler_of_deepspeed_skips_are_no_fault(tmp_path: Path, how: str) -> None:
    """It says inf of the norm of gradients that overflowed. As many are counted as it skipped itself.

    At first more than 16 in a row, after which the scaler of torch would be at its end: this one begins higher.
    """
    for each in _ran(tmp_path, 2, how, "--fp16"):
        assert each["counted_as_skipped"] == each["skipped"] > 16
        assert each["counts"]["rl_grad_norm_dist"] == each["counts"]["rl_loss_dist"] - each["skipped"] > 2
        assert each["served"] == pytest.approx(each["norm"], rel=1e-3)
        assert (each["failed"], each["errors"], each["nonfinite"]) == ("", 0, {})
