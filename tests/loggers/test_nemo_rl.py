"""NeMo-RL's `Logger`: a stand-in for it, since the package on PyPI is empty and the real one needs CUDA.

The stand-in has the methods of `nemo_rl/utils/logger.py` of v0.7.0, with their parameters as they stand there, `finish`
of 7ea279a after it, and one backend, TensorBoard's own writer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.loggers.watched import last_scalar, no_errors, package, run

pytest.importorskip("tensorboard")

STAND_IN = """
class Logger:
    def __init__(self, cfg):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(cfg["log_dir"])

    def log_metrics(self, metrics, step, prefix="", step_metric=None, step_finished=False):
        for name, value in metrics.items():
            if isinstance(value, (int, float)):
                self.writer.add_scalar(f"{prefix}/{name}" if prefix else name, value, step)
        if "fail" in metrics:
            raise RuntimeError("a backend is down")

    def log_hyperparams(self, params):
        pass

    def finish(self):
        self.writer.close()
"""
SCRIPT = """
import sys
from nemo_rl.utils.logger import Logger
logger = Logger({"log_dir": sys.argv[1] + "/tb"})
logger.log_hyperparams({
    "grpo": {"num_prompts_per_step": 32, "num_generations_per_prompt": 16, "max_num_steps": 100,
             "adv_estimator": {"name": "reinforce_plus_plus"}},
    "loss_fn": {"reference_policy_kl_penalty": 0.01, "ratio_clip_min": 0.2, "ratio_clip_max": 0.28,
                "use_kl_in_reward": False, "sequence_level_importance_ratios": False},
    "policy": {"model_name": "Qwen/Qwen3-8B", "max_grad_norm": 1.0, "generation": {"temperature": 1.0, "top_k": None},
               "optimizer": {"name": "AdamW", "kwargs": {"lr": 5e-6, "weight_decay": 0.01}}},
    "logger": {"wandb": {"project": "p", "name": "nemo"}},
})
logger.log_metrics({"policy_init_time_s": 60.0}, step=0, prefix="timing/setup")
logger.log_metrics({"accuracy": 0.125}, 0, prefix="validation")
for step in (1, 2, 3):
    logger.log_metrics({"node.0.gpu.0.util": 50.0, "ray/ray_step": 700 + step}, 700 + step, "ray", "ray/ray_step")
    logger.log_metrics(
        {"reward": 0.25 * step, "gen_kl_error": 0.001 * step, "kl_penalty": 0.0, "generation_logger_metrics": {"a": 1}},
        step, prefix="train",
    )
    logger.log_metrics({"tokens_per_sec_per_gpu": 1000.0 * step}, step, prefix="performance")
    logger.log_metrics({"total_step_time": 8.0 + step}, step, prefix="timing/train", step_finished=True)
try:
    logger.log_metrics({"fail": 1.0}, 4, prefix="train")
except RuntimeError as error:
    print(error)
logger.finish()
"""


@pytest.mark.slow
def test_a_script(tmp_path: Path) -> None:
    """The parts of a step are one; setup and the watch over GPUs are none; errors of a backend pass."""
    path = package(tmp_path / "package", "nemo_rl.utils.logger", STAND_IN)
    done = run(SCRIPT, tmp_path, PYTHONPATH=path)

    assert no_errors(done)
    assert done.printed == "a backend is down\n"
    assert done.runs == {"nemo"}
    assert (done["rl_step"], done["rl_steps_total"]) == (3, 3)
    assert (done["rl_step"], done["rl_reward_mean"]) == last_scalar(tmp_path / "tb", "train/reward") == (3, 0.75)
    assert done["rl_rollout_kl_per_token"] == 0.003
    assert done["rl_step_time_seconds"] == 11
    assert done["rl_validation_reward_mean"] == 0.125
    assert done.logged() == {"performance/tokens_per_sec_per_gpu": 3000}
    assert ("rl_kl_per_token", "") not in done.served, "0 says that there is no penalty"
    assert done.served["rl_run_state", "finished"] == 1
    assert done["rl_steps_planned"] == 100
    assert {"reinforce++", "nemo-rl", "Qwen3-8B"} <= set(done.info())
    assert done.settings() == {
        "num_generations": 16,
        "generation_batch_size": 512,
        "max_steps": 100,
        "beta": 0.01,
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "max_grad_norm": 1.0,
        "temperature": 1.0,
        "learning_rate": 5e-6,
        "weight_decay": 0.01,
    }


def test_nothing_is_imported_where_it_is_not_there(tmp_path: Path) -> None:
    """A script that has no framework loads nothing of ours."""
    done = run("import sys\nprint([name for name in sys.modules if name.startswith('rlexporter')])", tmp_path)

    assert done.status == 0, done.errors
    assert done.printed == "[]\n"
    assert sys.modules.get("nemo_rl") is None
