"""Real trainers that learn from a data set or a teacher: every key that they log is a series, with its value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import trl
from transformers import LlamaForSequenceClassification

from rlexporter import Exporter, RLExporterCallback
from rlexporter.catalog.metrics import CATALOG
from rlexporter.demo import tiny as demo
from rlexporter.feed.keys import Resolver
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS

pytestmark = REAL_TRAINERS

PROMPTS = demo.prompts(16)
PAIRS = {"prompt": PROMPTS, "chosen": ["e e e"] * 16, "rejected": ["a b"] * 16}
DATA = {
    "SFT": {"text": [f"{prompt} e e" for prompt in PROMPTS]},
    "DPO": PAIRS,
    "Reward": {"chosen": [f"{each} e e e" for each in PROMPTS], "rejected": [f"{each} a b" for each in PROMPTS]},
    "KTO": {"prompt": PROMPTS, "completion": ["e e", "a b c"] * 8, "label": [True, False] * 8},
}
NO_KEYS = {"step", "epoch"}  # `step` is added to the history by transformers; `epoch` is compared apart


def _trainer(folder: Path, kind: str, callback: RLExporterCallback) -> Any:
    options: dict[str, Any] = {"max_length": 32, "eval_strategy": "no", "max_steps": 2, "learning_rate": 1e-2}
    model = tiny.model(folder)
    if kind == "Reward":
        config = model.config
        config.num_labels, config.pad_token_id = 1, demo.tokenizer().pad_token_id
        model = LlamaForSequenceClassification(config)
    return getattr(trl, f"{kind}Trainer")(
        model=model,
        processing_class=demo.tokenizer(),
        args=tiny.settings(folder, kind, **options),
        train_dataset=datasets.Dataset.from_dict(DATA[kind]),
        callbacks=[callback],
    )


def _served(exporter: Exporter) -> dict[str, float]:
    return {
        series.metric.series + "".join(f"/{label}" for label in series.labels): value
        for series, value in exporter.snapshot.samples.items()
        if isinstance(value, float)
    }


@pytest.mark.parametrize(
    ("kind", "algorithm", "expected"),
    [
        (
            "SFT",
            "sft",
            {"mean_token_accuracy": "rl_logged_value/mean_token_accuracy", "entropy": "rl_data_entropy_per_token"},
        ),
        (
            "DPO",
            "dpo",
            {
                "entropy": "rl_data_entropy_per_token",
                "logits/chosen": "rl_logged_value/logits/chosen",
                "logits/rejected": "rl_logged_value/logits/rejected",
                "rewards/chosen": "rl_logged_value/rewards/chosen",
                "rewards/rejected": "rl_logged_value/rewards/rejected",
                "rewards/margins": "rl_logged_value/rewards/margins",
                "rewards/accuracies": "rl_logged_value/rewards/accuracies",
                "logps/chosen": "rl_logged_value/logps/chosen",
                "mean_token_accuracy": "rl_logged_value/mean_token_accuracy",
            },
        ),
        (
            "Reward",
            "reward",
            {
                "mean_reward": "rl_logged_value/mean_reward",
                "min_reward": "rl_logged_value/min_reward",
                "max_reward": "rl_logged_value/max_reward",
                "accuracy": "rl_logged_value/accuracy",
                "margin": "rl_logged_value/margin",
            },
        ),
        (
            "KTO",
            "kto",
            {
                "kl": "rl_mismatched_kl_per_sequence",
                "logits/rejected": "rl_logged_value/logits/rejected",
                "loss": "rl_loss",
            },
        ),
    ],
)
def test_every_key_is_a_series(tmp_path: Path, kind: str, algorithm: str, expected: dict[str, str]) -> None:
    """The last log line of two steps, as it is in the history; nothing is served as a key that nobody knows."""
    callback = RLExporterCallback(linger=0)
    trainer = _trainer(tmp_path, kind, callback)
    trainer.train()
    exporter = callback.exporter
    assert isinstance(exporter, Exporter)
    served = _served(exporter)
    first, last, summary = trainer.state.log_history

    assert served["rlexporter_unmapped_keys"] == 0
    assert f"rl_run_info/{algorithm}/" in "".join(served)
    assert {key: served[name] for key, name in expected.items()} == {key: last[key] for key in expected}
    assert first["loss"] != last["loss"] == served["rl_loss"]
    assert exporter.snapshot.value("rl_step") == 2
    assert served["rl_tokens_seen"] == last["num_tokens"] == served["rl_tokens_total"]
    assert served["rl_logged_value/train_loss"] == summary["train_loss"]
    resolver = Resolver(CATALOG, algorithm)
    assert [key for key in {*last, *summary} - NO_KEYS if not resolver.knows(key)] == []
    of_a_policy = {"rl_entropy_per_token", "rl_kl_per_token", "rl_reward_mean", "rl_reward_function_mean"}
    assert not of_a_policy & {name.partition("/")[0] for name in served}
    assert [name for name in served if name.startswith("rl_condition/")] == []


def test_a_common_word_is_known_to_its_own_algorithms_only() -> None:
    """A reward function of GRPO may log an accuracy of its own."""
    for key in ("accuracy", "margin", "advantage", "rollout/mine_s", "tools/mine_total"):
        assert not Resolver(CATALOG, "grpo").knows(key)
        assert not Resolver(CATALOG, "").knows(key)
    assert Resolver(CATALOG, "reward").knows("accuracy")
