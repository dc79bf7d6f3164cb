"""What only many trainings, of many kinds, in one process show: as in a test suite, a sweep, or a notebook."""

from __future__ import annotations

import gc
import importlib
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import datasets
import pytest

import rlexporter
from rlexporter import Exporter
from rlexporter.catalog.run_metrics import TENSOR_SIGNALS
from rlexporter.demo import tiny as demo
from rlexporter.run.run import Run
from rlexporter.status import document
from rlexporter.status.history import History
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import lost, reasons
from tests.served import errors
from tests.tools import free_port

pytestmark = REAL_TRAINERS


def _trained(folder: Path, **options: Any) -> Exporter:
    trainer = tiny.grpo(folder, max_steps=2, **options)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    return exporter


def test_nothing_is_left_of_trainings_that_are_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread, open file or run, beyond those of the newest, which serves and records on."""
    monkeypatch.setenv("RLEXPORTER_LISTEN_PORT", str(free_port()))
    monkeypatch.setenv("RLEXPORTER_RECORD", str(tmp_path / "run.jsonl"))
    after, runs = [], list[weakref.ref[Run]]()
    for i in range(6):
        exporter = _trained(tmp_path / str(i))
        runs.append(weakref.ref(exporter._run))
        ours = sorted(each.name for each in threading.enumerate() if each.name.startswith("rlexporter"))
        after.append((ours, len(os.listdir("/proc/self/fd"))))
    gc.collect()

    assert after[5] == after[1]
    assert sum(name == "rlexporter-record" for name in after[5][0]) == 1
    assert [each() is not None for each in runs] == [False] * 5 + [True]
    exporter.close()


def test_a_training_that_goes_on_records_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After another one has taken its port: its exporter comes back, with the recording."""
    monkeypatch.setenv("RLEXPORTER_LISTEN_PORT", str(free_port()))
    monkeypatch.setenv("RLEXPORTER_RECORD", str(tmp_path / "run.jsonl"))
    trainer = tiny.grpo(tmp_path / "first", max_steps=2)
    first = rlexporter.attach(trainer)
    trainer.train()
    second = _trained(tmp_path / "second")
    assert first._run.feed.recorder is None
    trainer.args.max_steps = 4
    trainer.train()
    first.close()
    second.close()

    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    assert sum('"event": "meta"' in line for line in lines) == 3


def test_a_process_that_only_evaluates_is_not_stalled(tmp_path: Path, any_port: None) -> None:
    """It owes nobody a step, and the page says what it has done. A training that follows does."""
    trainer = tiny.grpo(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=100)
    exporter = rlexporter.attach(trainer)
    assert exporter.snapshot.value("rl_stall_after_seconds")
    trainer.evaluate()
    later = exporter.snapshot.value("rl_last_step_timestamp_seconds") + 1e6  # type: ignore[operator]
    verdict = document.status(exporter.snapshot, History(), later)["verdict"]

    assert exporter.snapshot.value("rl_stall_after_seconds") is None
    assert (verdict["word"], verdict["text"]) == ("fine", "Nothing has been trained yet, only evaluated.")
    trainer.train()
    assert exporter.snapshot.value("rl_stall_after_seconds")
    exporter.close()


def test_a_trainer_without_taps_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, any_port: None) -> None:
    """Of each signal but those of the optimizer: online DPO samples in a loop of its own."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    online_dpo = importlib.import_module("trl.experimental.online_dpo")
    trainer = online_dpo.OnlineDPOTrainer(
        model=tiny.model(tmp_path),
        reward_funcs=[lambda prompts, completions, **_: [float(len(each)) for each in completions]],
        args=online_dpo.OnlineDPOConfig(
            str(tmp_path),
            max_steps=1,
            report_to="none",
            max_new_tokens=4,
            max_length=40,
            use_cpu=True,
            per_device_train_batch_size=2,
            logging_steps=1,
            gradient_checkpointing=False,
            bf16=False,
        ),
        train_dataset=datasets.Dataset.from_dict({"prompt": demo.prompts(4)}),
        processing_class=demo.tokenizer(),
    )
    exporter = rlexporter.attach(trainer)
    trainer.train()

    assert lost(exporter) == set(TENSOR_SIGNALS) - {"loss", "grad_norm"}
    assert "no taps were made for the loop of this version's OnlineDPOTrainer" in reasons(exporter)["reward"]
    assert errors(exporter) == 0
    exporter.close()


def test_generation_kwargs_are_settings_of_the_sampler(tmp_path: Path) -> None:
    """TRL hands them over beside its own: where they cut tokens off, the sampler is not the policy."""
    trainer = tiny.grpo(tmp_path, max_steps=1, generation_kwargs={"top_k": 5, "num_beams": 1}, top_k=0)
    facts = rlexporter.adapters.trainer_facts.run_facts(trainer, trainer.args, trainer.state, trainer.model)

    assert (facts.hyperparameters["top_k"], facts.hyperparameters["num_beams"]) == (5.0, 1.0)
