"""Modern PPO on two ranks: each serves what it saw itself, and training is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import forks
from tests.e2e.forks import Run
from tests.versions.trls import once_modern

pytestmark = [pytest.mark.slow, once_modern]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs ranks without a launcher, of which each would import torch and TRL for longer than it trains."""
    with forks.forks() as found:
        yield found


def _ran(run: Run, folder: Path, *options: str, serve: str = "all") -> list[dict[str, Any]]:
    """What each rank had."""
    folder.mkdir(exist_ok=True)
    done = run(*forks.ranks(2, "tests.versions.ppo_ranks", (str(folder), *options), RLEXPORTER_RANKS=serve))
    (folder / "err").write_text("".join(each.stderr for each in done))
    assert [each.returncode for each in done] == [0, 0], (folder / "err").read_text()[-3000:]
    return [json.loads((folder / f"had-{rank}.json").read_text()) for rank in range(2)]


def test_each_rank_serves_its_own_part_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    """Histograms equal an independent count on that rank; weights are those of a training without an exporter."""
    watched, plain = _ran(run, tmp_path / "watched"), _ran(run, tmp_path / "plain", "--plain")

    assert [each["ranks"] for each in watched] == [2, 2]
    for rank, had in enumerate(watched):
        assert (had["rank"], had["step"], had["errors"], had["nonfinite"]) == (str(rank), 4, 0, {})
        assert set(had["kept"]) - set(had["counted"]) == ({"rl_grad_norm_dist"} if rank else set())  # all have the same
        assert {name: had["served"][name] for name in had["counted"]} == had["counted"]
    assert watched[0]["counted"]["rl_logprob_dist"] != watched[1]["counted"]["rl_logprob_dist"]
    assert {each["weights"] for each in watched} == {each["weights"] for each in plain}
    assert len({each["weights"] for each in watched}) == 1


@pytest.mark.parametrize(("words", "serve", "bad"), [("stop", "main", 0), ("save,stop", "all", 1)])
def test_what_one_rank_sees_stops_both(run: Run, tmp_path: Path, words: str, serve: str, bad: int) -> None:
    """In the same step, with a whole checkpoint set apart, though TRL itself cannot save it on several ranks."""
    had = _ran(run, tmp_path, "--on-critical", words, "--nan-on", str(bad), serve=serve)

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
def test_a_callback_that_cannot_stop_it_says_so(run: Run, tmp_path: Path) -> None:
    """Its loop was entered before the callback knew of it: it trains to its end, and nothing else is claimed."""
    had = _ran(run, tmp_path, "--on-critical", "stop", "--nan-on", "1", "--callback")

    assert [(each["steps"], each["stops"], each["errors"]) for each in had] == [(4, False, 0)] * 2
    said = (tmp_path / "err").read_text()
    assert "on_critical cannot stop this trainer from callbacks=[...]" in said
    assert "on_critical stops" not in said
