"""PPO as somebody runs it: an example, the loop of docs/howto/ppo.md, scripts that are watched unasked, the demo."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import LlamaForSequenceClassification

import rlexporter
from rlexporter.commands.main import main
from rlexporter.demo import tiny
from tests.loggers.watched import no_errors, run
from tests.programs import printed
from tests.tools import ROOT
from tests.versions.trls import VERSION, once_legacy, once_modern

pytestmark = pytest.mark.slow

MODERN = """
import sys
from pathlib import Path
from transformers import TrainerCallback
from tests.versions.ppo import ppo

class Fail(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            raise ValueError("the verifier is down")

trainer = ppo(Path(sys.argv[1]))
trainer.add_callback(Fail())
try:
    trainer.train()
except ValueError as error:
    print(error)
"""
LEGACY = """
import os, torch, trl
from transformers import LlamaForCausalLM
from rlexporter.demo import tiny

Policy = trl.AutoModelForCausalLMWithValueHead.from_pretrained
made = [Policy(LlamaForCausalLM(tiny.config(hidden_size=16, layers=1))) for _ in range(2)]
trainer = trl.PPOTrainer(trl.PPOConfig(batch_size=4, mini_batch_size=2), *made, tiny.tokenizer())
queries = [torch.tensor(tiny.tokenizer()(text)["input_ids"]) for text in tiny.prompts(4)]
for _ in range(2):
    responses = trainer.generate(queries, return_prompt=False, max_new_tokens=4, do_sample=True, pad_token_id=0)
    trainer.step(queries, responses, [torch.tensor(float(i)) for i in range(4)])
import rlexporter
assert rlexporter.attach(trainer).port == int(os.environ["RLEXPORTER_LISTEN_PORT"])
"""


@once_modern
def test_the_example(tmp_path: Path) -> None:
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
    from rlexporter.demo.trainers import LegacyRun
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


@once_modern
def test_a_watched_script_that_raises(tmp_path: Path) -> None:
    """Seen at once and not at the end of the process, although this trainer says nothing while it is built."""
    done = run(MODERN, tmp_path)

    assert no_errors(done)
    assert done.printed.endswith("the verifier is down\n")
    assert "ppo" in done.info()
    assert done.served["rl_run_state", "failed"] == 1
    assert any(name == "rl_run_exception_info" and "ValueError" in labels for name, labels in done.served)
    assert done["rl_steps_total"] == 2
    assert done.counts("rl_policy_ratio_dist", "+Inf")[0] > 0


@once_legacy
def test_a_watched_script_of_legacy_ppo(tmp_path: Path) -> None:
    """From its first step, by its tensors; a script that attaches as well has the same exporter."""
    done = run(LEGACY, tmp_path)

    assert no_errors(done)
    assert "ppo-legacy" in done.info()
    assert done["rl_steps_total"] == 2
    assert done.counts("rl_reward_dist", "+Inf") == [8]


@pytest.mark.skipif(VERSION < (1, 16), reason="the newest version has neither")
@pytest.mark.parametrize("algorithm", ["ppo", "ppo-legacy"])
def test_the_demo_without_that_trainer_says_what_to_install(algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and no traceback."""
    assert main(["demo", "--algorithm", algorithm]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"trl {trl.__version__} has no such trainer: pip install 'trl==" in line
