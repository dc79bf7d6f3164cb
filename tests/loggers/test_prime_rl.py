"""prime-rl's monitors: stand-ins for them, since prime-rl is on no package index and needs CUDA.

One has the shape of `src/prime_rl/utils/monitor` of v0.8.0, the other of `src/prime_rl/monitors` of 559b447: functions
and methods with their parameters as they stand there.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.loggers.watched import no_errors, package, run

OLD_STAND_IN = """
import json


class FileMonitor:
    def __init__(self, path):
        self.path = path

    def log(self, metrics, step):
        with open(self.path, "a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\\n")
        if "fail" in metrics:
            raise RuntimeError("a monitor is down")


class MultiMonitor:
    def __init__(self, monitors):
        self.monitors = monitors

    def log(self, metrics, step):
        for monitor in self.monitors:
            monitor.log(metrics, step=step)


def setup_monitor(
    wandb_config=None, output_dir=None, tokenizer=None, run_config=None, *, prime_config=None, file_config=None,
    keep_full_history=True, train_env_names=[], eval_env_names=[], config=None,
):
    return MultiMonitor([FileMonitor(output_dir + "/metrics.jsonl"), FileMonitor(output_dir + "/again.jsonl")])
"""
NEW_STAND_IN = """
import json

MONITORS = []


class FileMonitor:
    def __init__(self, path):
        self.path = path

    async def log(self, data, step, kind="train", subset="effective"):
        if isinstance(data, dict):
            with open(self.path, "a") as file:
                file.write(json.dumps({"step": step, **data}) + "\\n")


async def setup(
    wandb=None, prime=None, file=None, *, output_dir, run_config=None, train_env_names=None, eval_env_names=None,
    overview_flavor="rl",
):
    MONITORS.append(FileMonitor(output_dir + "/metrics.jsonl"))


async def log(data, step, kind="train", subset="effective"):
    for monitor in MONITORS:
        await monitor.log(data, step=step, kind=kind, subset=subset)
"""
CONFIGS = """
import sys
from types import SimpleNamespace as N
class TrainerConfig(N): pass
class OrchestratorConfig(N): pass
TRAINER = TrainerConfig(
    wandb=N(name="math-trainer"), max_steps=200,
    optim=N(lr=3e-6, weight_decay=0.01, max_norm=1.0), loss=N(type="default"),
    model=N(name="Qwen/Qwen3-0.6B"),
)
ORCHESTRATOR = OrchestratorConfig(
    monitors=N(wandb=N(name="math")), max_steps=200, batch_size=128, group_size=16, algo=N(type="grpo"),
    train=N(sampling=N(temperature=0.75, max_completion_tokens=512)), model=N(name="Qwen/Qwen3-0.6B"),
)
"""
UNTIL = r"""
import os, re, time, urllib.request
def until(sample):
    at = "http://127.0.0.1:" + os.environ["RLEXPORTER_LISTEN_PORT"] + "/metrics"
    for _ in range(6000):  # ten minutes: the parts of the last step wait for others, since nothing says that it was all
        if re.search(sample, urllib.request.urlopen(at, timeout=600).read().decode(), re.MULTILINE):
            return
        time.sleep(0.1)
"""
TRAINER = """
from prime_rl.utils.monitor import setup_monitor
monitor = setup_monitor(N(), sys.argv[1], run_config=TRAINER)
for step in (1, 2, 3):
    monitor.log({"perf/throughput_per_gpu": 100.0 * step, "step": step}, step=step)
    monitor.log({"optim/lr": 1e-6 * step, "optim/grad_norm": 0.25 * step, "step": step}, step=step)
    monitor.log({"entropy/all/mean": 0.5 / step, "mismatch_kl/all/mean": 0.001 * step, "step": step}, step=step)
    monitor.log({"time/step": 10.0 + step, "time/load_data": 0.5 * step, "step": step}, step=step)
try:
    monitor.log({"fail": 1.0}, step=3)
except RuntimeError as error:
    print(error)
until(r"^rl_step_time_seconds\\{.*\\} 13")
"""
ORCHESTRATOR = """
import asyncio
from prime_rl import monitors
async def main():
    await monitors.setup(output_dir=sys.argv[1], run_config=ORCHESTRATOR)
    for step in (0, 1, 2):
        await monitors.log([object()], step, "train", "effective")
        await monitors.log(
            {"train/agg/all/agent/reward/mean": 0.25 * step, "progress/tokens": 1000 * step, "step": step}, step=step
        )
asyncio.run(main())
until(r"^rl_step\\{.*\\} 2")
"""


def test_the_trainer(tmp_path: Path) -> None:
    """The parts of a step are one, whichever monitors there are; errors of one pass."""
    path = package(tmp_path / "package", "prime_rl.utils.monitor", OLD_STAND_IN)
    done = run(CONFIGS + UNTIL + TRAINER, tmp_path, PYTHONPATH=path)

    assert no_errors(done)
    assert done.printed == "a monitor is down\n"
    assert done.runs == {"math trainer"}
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    last = {key: value for line in lines for key, value in line.items()}
    assert (done["rl_step"], done["rl_steps_total"]) == (last["step"], 3) == (3, 3)
    assert done["rl_grad_norm"] == last["optim/grad_norm"] == 0.75
    assert done["rl_rollout_kl_per_token"] == last["mismatch_kl/all/mean"] == 0.003
    assert done["rl_entropy_per_token"] == last["entropy/all/mean"] == 0.5 / 3
    assert done["rl_step_time_seconds"] == 13
    assert done.served["rl_phase_time_seconds", "load_data"] == 1.5
    assert done.logged() == {"perf/throughput_per_gpu": 300}
    assert done["rl_steps_planned"] == 200
    assert done.settings() == {"learning_rate": 3e-6, "weight_decay": 0.01, "max_grad_norm": 1.0, "max_steps": 200}


@pytest.mark.slow
def test_the_orchestrator(tmp_path: Path) -> None:
    """Coroutines; steps from 0; episodes are no metrics; what its algorithm is. The user's own name is given to all."""
    path = package(tmp_path / "package", "prime_rl.monitors", NEW_STAND_IN)
    done = run(CONFIGS + UNTIL + ORCHESTRATOR, tmp_path, PYTHONPATH=path, RLEXPORTER_RUN="shared")

    assert no_errors(done)
    assert done.runs == {"shared orchestrator"}
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert (done["rl_step"], done["rl_reward_mean"]) == (2, 0.5)
    assert (last["step"], last["train/agg/all/agent/reward/mean"]) == (2, 0.5)
    assert done.logged() == {"progress/tokens": 2000}
    assert {"grpo", "prime-rl orchestrator", "Qwen3-0.6B"} <= set(done.info())
    assert done.settings() == {
        "num_generations": 16,
        "generation_batch_size": 128,
        "temperature": 0.75,
        "max_completion_length": 512,
        "max_steps": 200,
    }
