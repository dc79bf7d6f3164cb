"""What a real run of each trainer that this TRL has logs and shows: the source of docs/compatibility.md.

Writes what it saw into .work/versions; `python -m scripts.compatibility` makes the page of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trl

import rlexporter
from rlexporter.demo import tiny
from rlexporter.demo.trainers import LegacyRun
from rlexporter.feed.feed import Feed
from tests import tiny as trainers
from tests.adapters.marks import REAL_TRAINERS
from tests.served import errors
from tests.tools import ROOT
from tests.versions.trls import VERSION

pytestmark = REAL_TRAINERS

NO_CRITIC = {"value": "there is no value function: the advantage is relative to a group"}
NO_ENTROPY = {"entropy": "this version of TRL computes no entropies"}
OF_PPO = {"copies": "each prompt has one completion", "loss_mask": "the loop makes its mask of the padding"}
ONLY_A_MEAN = {"entropy": "the trainer computes only its mean over the tokens of a mini-batch"}

# What cannot be seen, by trainer and the versions from which on that is so.
EXPECTED: dict[str, list[tuple[tuple[int, int], dict[str, str]]]] = {
    "GRPOTrainer": [((0, 20), NO_CRITIC), ((0, 19), {**NO_CRITIC, **NO_ENTROPY})],
    "RLOOTrainer": [((0, 22), NO_CRITIC)],
    "PPOTrainer": [((0, 12), OF_PPO)],
    "PPOTrainer, step()": [((0, 7), {**OF_PPO, **ONLY_A_MEAN})],
}


def _group(kind: str) -> Callable[[Path], tuple[Any, Callable[[], object]]]:
    def made(folder: Path) -> tuple[Any, Callable[[], object]]:
        trainer = trainers.grpo(folder, kind=kind, max_steps=3, num_iterations=2)
        return trainer, trainer.train

    return made


def _ppo(folder: Path) -> tuple[Any, Callable[[], object]]:
    from tests.versions.ppo import ppo

    trainer = ppo(folder, steps=3)
    return trainer, trainer.train


def _legacy(folder: Path) -> tuple[Any, Callable[[], object]]:
    tiny.model(folder / "tiny-llama", 0, lambda done, steps: None, steps=1)
    run = LegacyRun(3, folder, [tiny.letter_reward, tiny.length_reward])
    return run.trainer, lambda: run.train(None, lambda: None)


RUNS = {
    "GRPOTrainer": (_group("GRPO"), (0, 19), None),
    "RLOOTrainer": (_group("RLOO"), (0, 22), None),
    "PPOTrainer": (_ppo, (0, 12), (1, 12)),
    "PPOTrainer, step()": (_legacy, (0, 7), (0, 11)),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_this_version(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key that it logs is known, every distribution but the expected ones is there, and nothing failed."""
    make, first, last = RUNS[name]
    if first > VERSION or (last and last < VERSION):
        pytest.skip(f"trl {trl.__version__} has no such {name}")
    keys: set[str] = set()
    log = Feed.log

    def kept(self: Feed, stats: Any, **options: Any) -> None:
        keys.update(stats)
        log(self, stats, **options)

    monkeypatch.setattr(Feed, "log", kept)
    trainer, train = make(tmp_path)
    exporter = rlexporter.attach(trainer)
    train()
    missing = {**exporter.snapshot.reasons}
    shown = sorted({s.metric.series for s, found in exporter.snapshot.buckets.items() if found.count})
    steps = exporter.snapshot.value("rl_steps_total")

    assert exporter.snapshot.value("rlexporter_unmapped_keys") == 0
    assert errors(exporter) == 0
    assert steps == 3
    expected = next(missing for since, missing in EXPECTED[name] if since <= VERSION)
    assert {signal: reason[: len(expected.get(signal, ""))] for signal, reason in missing.items()} == expected
    assert {"rl_advantage_dist", "rl_policy_ratio_dist", "rl_reward_dist"} <= set(shown) | {
        "rl_policy_ratio_dist" if name == "RLOOTrainer" else ""
    }
    _keep(name, {"keys": sorted(keys), "distributions": shown, "missing": missing})


def _keep(trainer: str, found: dict[str, Any]) -> None:
    path = ROOT / ".work/versions" / f"{trl.__version__}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    have = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**have, trainer: found}, indent=1))
