"""W&B and MLflow upload the trainer's own checkpoints as artifacts, and hear of none of ours."""

from __future__ import annotations

from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("wandb", reason="wandb is not installed")
pytest.importorskip("mlflow", reason="mlflow is not installed")

import mlflow  # type: ignore[import-not-found,import-untyped,unused-ignore]
import wandb  # type: ignore[import-not-found,import-untyped,unused-ignore]
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import rlexporter
from tests.served import errors

BAD_STEP = 5
ROWS = [{"input_ids": [2, 3, 4, 5, 1], "labels": [2, 3, 4, 5, 1]}] * 16


class Spoiled(Trainer):  # type: ignore[misc] # transformers is not checked
    """Its loss is NaN in one step."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        return loss * nan if self.state.global_step == BAD_STEP - 1 else loss


@pytest.mark.parametrize("bad", [4, 5], ids=["a step in which the trainer saves", "another"])
@pytest.mark.parametrize("place", [1, 99], ids=["before theirs", "after theirs"])
def test_their_artifacts_are_those_of_the_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, bad: int
) -> None:
    """Whichever callback comes first: the training goes on to its end, with every checkpoint of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"{__name__}.BAD_STEP", bad)
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_LOG_MODEL": "checkpoint",
        "HF_MLFLOW_LOG_ARTIFACTS": "1",
        "MLFLOW_TRACKING_URI": f"file:{tmp_path}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }.items():
        monkeypatch.setenv(name, value)
    added: list[str] = []
    add_dir = wandb.Artifact.add_dir

    def adds(artifact: Any, folder: str, **how: Any) -> Any:
        added.append(Path(folder).name)
        return add_dir(artifact, folder, **how)

    monkeypatch.setattr(wandb.Artifact, "add_dir", adds)
    logged: list[str] = []

    def log_model(name: str, *, artifacts: dict[str, str], **_: Any) -> None:
        """Stands in for MLflow's, which wants pandas and more: it reads the folder."""
        assert "model.safetensors" in {path.name for path in Path(artifacts["model_path"]).iterdir()}
        logged.append(name)

    monkeypatch.setattr(mlflow, "pyfunc", SimpleNamespace(log_model=log_model, PythonModel=object))
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    )
    args = TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=8,
        save_steps=2,
        logging_steps=1,
        use_cpu=True,
        report_to=["wandb", "mlflow"],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Spoiled(model=model, args=args, train_dataset=ROWS)
    ours = rlexporter.RLExporterCallback(port=0, linger=0, on_critical="save", keep_good=True)
    trainer.callback_handler.callbacks.insert(place, ours)
    trainer.train()
    exporter = ours.exporter
    assert exporter is not None
    assert (trainer.state.global_step, exporter.state.value, errors(exporter)) == (8, "finished", 0)
    exporter.close()
    own = [f"checkpoint-{step}" for step in (2, 4, 6, 8) if step != bad]
    assert (added, logged) == (own, own)
    assert (tmp_path / "out" / f"suspect-checkpoint-{bad}" / "SUSPECT.txt").exists()
