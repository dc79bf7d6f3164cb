"""Completions to read, from real trainers: in the process that trains, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rlexporter
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.conftest import fetch
from tests.served import errors

pytestmark = REAL_TRAINERS
SECRET = "the secret of this prompt"


def _shown(exporter: rlexporter.Exporter) -> dict[str, Any]:
    status, body = fetch(f"{exporter.url}/api/completions")[:2]
    assert status == 200
    return dict(json.loads(body))


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_the_last_rollout_can_be_read(kind: str, tmp_path: Path, any_port: None) -> None:
    """What the reward functions were called with last, the best first, each with what they returned and its sum."""
    seen: list[tuple[str, str, float]] = []

    def counted(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        scores = [float(len(set(text))) for text in completions]
        seen[:] = zip(prompts, completions, scores, strict=True)
        return scores

    trainer = tiny.grpo(tmp_path, kind=kind, rewards=[counted, tiny.shortness], reward_weights=[2.0, 0.5], max_steps=3)
    exporter = rlexporter.attach(trainer, completions=2)
    trainer.train()
    found = _shown(exporter)
    exporter.close()

    assert found["step"] == 3
    scores = {(prompt, text): score for prompt, text, score in seen}
    for kind_of in ("best", "worst", "last"):
        assert len(found[kind_of]) == 2
        for each in found[kind_of]:
            assert each["rewards"]["counted"] == scores[each["prompt"], each["completion"]]
            assert each["reward"] == pytest.approx(
                2.0 * each["rewards"]["counted"] + 0.5 * each["rewards"]["shortness"]
            )
    assert [each["completion"] for each in found["last"]] == [text for _, text, _ in seen[:-3:-1]]
    assert found["best"][0]["reward"] >= found["best"][1]["reward"] >= found["worst"][0]["reward"]
    assert errors(exporter) == 0


def test_no_text_leaves_the_process(tmp_path: Path, any_port: None) -> None:
    """Neither by a scrape, nor in a recording, a state file or the page that is kept."""
    import datasets

    record, state = tmp_path / "r.jsonl", tmp_path / "state.json"
    trainer = tiny.grpo(tmp_path, max_steps=2)
    trainer.train_dataset = datasets.Dataset.from_dict({"prompt": [SECRET] * 64})
    exporter = rlexporter.attach(trainer, completions=5, record=record, state_file=state)
    trainer.train()
    assert _shown(exporter)["last"][0]["prompt"] == SECRET
    scraped = [fetch(f"{exporter.url}{path}")[1] for path in ("/metrics", "/api/status", "/api/history", "/")]
    exporter.close()

    page = Path(trainer.args.output_dir) / "rlexporter.html"
    for held in (*scraped, page.read_text(), record.read_text(), state.read_text()):
        assert SECRET not in str(held)


def test_they_are_off_by_default(tmp_path: Path, any_port: None) -> None:
    """Nothing is kept, and the trainer's own table is not even looked at."""
    trainer = tiny.grpo(tmp_path, max_steps=1)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    found = _shown(exporter)
    exporter.close()
    assert found == {"version": 1, "most": 0, "step": None, "best": [], "worst": [], "last": []}
