"""OpenRLHF's own loggers with TensorBoard and W&B.

`openrlhf/utils/logging_utils.py` is that of the package. The `__init__` of its folder imports DeepSpeed and flash-attn,
which need a GPU: an empty one stands in its place.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rlexporter.logs import reader
from tests.loggers.watched import last_scalar, no_errors, package, run

pytest.importorskip("tensorboard")
_PACKAGE = find_spec("openrlhf")
if _PACKAGE is None or _PACKAGE.origin is None:
    pytest.skip("openrlhf is not installed: pip install --no-deps openrlhf", allow_module_level=True)
OWN = Path(_PACKAGE.origin).parent / "utils/logging_utils.py"

ARGS = """
import sys
from types import SimpleNamespace as N
ARGS = N(
    logger=N(
        wandb=N(key="x", org=None, project="p", group=None, run_name="exp"), tensorboard_dir=sys.argv[1] + "/tb",
        logging_steps=1,
    ),
    actor=N(adam=N(lr=5e-7, weight_decay=0.0), max_norm=1.0, eps_clip=0.2, eps_clip_low_high=[0.2, 0.28],
            entropy_coef=None, model_name_or_path="Qwen/Qwen3-4B/", policy_loss_type="ppo", loss_agg_mode="token-mean"),
    algo=N(kl=N(init_coef=0.001, use_loss=True), advantage=N(estimator="group_norm", gamma=1.0, lambd=0.95)),
    rollout=N(n_samples_per_prompt=8, batch_size=128, temperature=0.9, top_p=1.0, max_new_tokens=None),
    train=N(max_epochs=1, num_episodes=2),
    critic=N(value_clip=0.5),
)
def line(step):
    return {
        "reward": 0.25 * step, "kl": 0.001 * step, "logprobs_diff": 0.002 * step, "actor_lr": 1e-6, "policy_loss": None,
        "my_own": 3.0 * step, "timing/generation": 2.0 * step, "generated_samples": ["a text", 0.5],
    }
"""
TENSORBOARD = """
from openrlhf.utils.logging_utils import TensorboardLogger
logger = TensorboardLogger(ARGS)
for step in (1, 2, 3):
    logger.log_train(step, line(step))
logger.log_eval(3, {"eval_math_pass1": 0.5, "eval_math_pass8": 0.75})
try:
    logger.log_train(4, {"reward": "not a number"})
except Exception as error:
    print("refused")
logger.close()
"""
BOTH = """
from openrlhf.utils.logging_utils import TensorboardLogger, WandbLogger
wandb, tensorboard = WandbLogger(ARGS), TensorboardLogger(ARGS)
for step in (51, 52):  # of a training that goes on
    wandb.log_train(step, line(step))
    tensorboard.log_train(global_step=step, logs_dict=line(step))
wandb.close()
tensorboard.close()
"""


def _path(folder: Path) -> str:
    """The PYTHONPATH with which `openrlhf.utils.logging_utils` can be imported without a GPU."""
    return package(folder / "package", "openrlhf.utils.logging_utils", OWN.read_text())


def _logs(record: Path) -> list[tuple[int, dict[str, Any]]]:
    """The log lines of a recorded run, each with its step."""
    return [(event.step, dict(event.logs)) for event in reader.read(record).events if event.logs is not None]


def test_a_script(tmp_path: Path) -> None:
    """Without --from; and though TensorBoard is asked for too, whose writer gets the same values."""
    done = run(ARGS + TENSORBOARD, tmp_path, "--from", "tensorboard", PYTHONPATH=_path(tmp_path))

    assert no_errors(done)
    assert done.printed == "refused\n"
    assert done.runs == {"exp"}
    assert (done["rl_step"], done["rl_steps_total"]) == (3, 3)
    assert (done["rl_step"], done["rl_reward_mean"]) == last_scalar(tmp_path / "tb/exp", "train/reward") == (3, 0.75)
    assert done["rl_kl_estimate_per_token"] == 0.003
    assert done["rl_kl_k1_per_token"] == 0.006
    assert done["rl_learning_rate"] == 1e-6
    assert done.served["rl_phase_time_seconds", "generation"] == 6.0
    assert done.logged() == {"train/my_own": 9.0, "eval/eval_math_pass1": 0.5, "eval/eval_math_pass8": 0.75}
    assert done.served["rl_run_state", "finished"] == 1
    assert {"grpo", "openrlhf", "Qwen3-4B", "token-mean"} <= set(done.info())
    assert done.settings() == {
        "num_generations": 8,
        "generation_batch_size": 1024,
        "temperature": 0.9,
        "top_p": 1.0,
        "learning_rate": 5e-7,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "ppo_epochs": 1,
        "num_train_epochs": 2,
        "gamma": 1.0,
        "lam": 0.95,
        "cliprange_value": 0.5,
        "beta": 0.001,
        "logging_steps": 1,
    }


def test_two_loggers_of_one_trainer_are_one(tmp_path: Path) -> None:
    """Each line is counted once; and a run that goes on began where it was."""
    pytest.importorskip("wandb")
    offline = {"WANDB_MODE": "offline", "WANDB_API_KEY": "0" * 40, "WANDB_SILENT": "true"}
    record = tmp_path / "record.jsonl"
    done = run(ARGS + BOTH, tmp_path, PYTHONPATH=_path(tmp_path), **offline, RLEXPORTER_RECORD=str(record))

    assert no_errors(done)
    assert (done["rl_step"], done["rl_steps_total"], done["rl_reward_mean"]) == (52, 2, 13.0)
    assert last_scalar(tmp_path / "tb/exp", "train/reward") == (52, 13.0)
    assert [step for step, line in _logs(record) if "train/reward" in line] == [51, 52]
