"""PPO as somebody runs it who has copied it: examples/ppo.py, and the loop of docs/howto/ppo.md; `make versions`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForSequenceClassification

import rlexporter
from rlexporter.demo import tiny
from tests.programs import printed
from tests.tools import ROOT
from tests.versions.trls import once_legacy, once_modern

pytestmark = pytest.mark.slow


@once_modern
def test_ppo(tmp_path: Path) -> None:
    """With a model and a reward model in folders: two updates, recorded with ratio and value loss."""
    model = tiny.model(tmp_path / "model", 0, lambda *_: None, steps=20)
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    model.config.num_labels = 1
    LlamaForSequenceClassification(model.config).save_pretrained(tmp_path / "rewards")
    environ = {
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "RLEXPORTER_LISTEN_PORT": "0",
        "RLEXPORTER_RECORD": "run.jsonl",
    }
    options = "--model model --reward-model rewards --updates 2 --batch 4 --length 8"
    printed(sys.executable, ROOT / "examples/ppo.py", *options.split(), cwd=tmp_path, **environ)
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    logs = [line["logs"] for line in lines if line["event"] == "log"]
    assert len([each for each in logs if "val/ratio" in each and "loss/value_avg" in each]) == 2
    assert any("rl_policy_ratio_dist" in series for line in lines for series in line.get("seen", ()))


@once_legacy
@pytest.mark.usefixtures("any_port")
def test_the_loop_of_legacy_ppo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block of the page, with a real trainer and what a batch gives: two steps, and a run that has ended well."""
    from rlexporter.demo.ppo_loops import LegacyRun
    from tests.docs.code_blocks import blocks

    monkeypatch.setenv("RLEXPORTER_LINGER_SECONDS", "0")
    tiny.model(tmp_path / "tiny-llama", 0, lambda *_: None, steps=1)
    trainer = LegacyRun(2, tmp_path, [tiny.length_reward]).trainer
    count = trainer.config.batch_size
    names: dict[str, Any] = {
        "rlexporter": rlexporter,
        "ppo_trainer": trainer,
        "loader": [object(), object()],
        "queries": [torch.tensor([4, 3])] * count,
        "responses": [torch.tensor([5 + i % 20, 8, 9, 1]) for i in range(count)],
        "rewards": [torch.tensor(float(i % 2)) for i in range(count)],
    }
    (block,) = (each for each in blocks("python") if "attach(ppo_trainer)" in each.text)
    exec(compile(block.text, str(block), "exec"), names)
    exporter = names["exporter"]
    assert exporter.state.value == "finished"
    assert exporter.snapshot.value("rl_step") == 2
    exporter.close()
