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


def _ran(folder: Path, *options: str, serve: str = "all") -> list[dict[str, Any]]:
    """What each rank had."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command += ["-m", "tests.versions.ppo_ranks", str(folder), *options]
    with launched(command, folder, PYTHONPATH=str(ROOT), RLEXPORTER_RANKS=serve) as launcher:
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


@pytest.mark.parametrize(("words", "serve", "bad"), [("stop", "main", 0), ("save,stop", "all", 1)])
def test_what_one_rank_sees_stops_both(tmp_path: Path, words: str, serve: str, bad: int) -> None:
    """In the same step, with a whole checkpoint set apart, though TRL itself cannot save it on several ranks."""
    had = _ran(tmp_path, "--on-critical", words, "--nan-on", str(bad), serve=serve)

    assert [(each["steps"], each["stops"], each["errors"]) for each in had] == [(2, True, 0)] * 2
    assert [each["nonfinite"] for each in had] == [{"rl_weight_norm": 1} if rank == bad else {} for rank in range(2)]
    assert had[0]["weights"] == had[1]["weights"]
    said = (tmp_path / "err").read_text()
    assert "stops the training in step 2: rl_weight_norm is NaN" in said
    checkpoints = {path.name: {each.name for each in path.iterdir()} for path in tmp_path.glob("trained/*checkpoint*")}
    assert checkpoints.keys() == ({"suspect-checkpoint-2"} if "save" in words else set())
    for files in checkpoints.values():
        assert {"model.safetensors", "optimizer.pt", "rng_state_0.pth", "rng_state_1.pth", "SUSPECT.txt"} <= files


@pytest.mark.soak
def test_a_callback_that_cannot_stop_it_says_so(tmp_path: Path) -> None:
    """Its loop was entered before the callback knew of it: it trains to its end, and nothing else is claimed."""
    had = _ran(tmp_path, "--on-critical", "stop", "--nan-on", "1", "--callback")

    assert [(each["steps"], each["stops"], each["errors"]) for each in had] == [(4, False, 0)] * 2
    said = (tmp_path / "err").read_text()
    assert "on_critical cannot stop this trainer from callbacks=[...]" in said
    assert "on_critical stops" not in said
