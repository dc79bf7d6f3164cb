"""verl's own `Tracking` with its console, file and TensorBoard backends, in a script and in an actor of Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.loggers.watched import last_scalar, no_errors, run
from tests.tools import ROOT, free_port, served

pytest.importorskip("verl")

CONFIG = """
CONFIG = {
    "trainer": {"total_training_steps": 4, "total_epochs": 2},
    "algorithm": {"adv_estimator": "reinforce_plus_plus_baseline", "gamma": 1.0, "use_kl_in_reward": False},
    "data": {"train_batch_size": 8, "max_response_length": 512},
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen3-0.6B"},
        "rollout": {"n": 4, "temperature": 0.5},
        "actor": {"use_kl_loss": True, "kl_loss_coef": 0.001, "clip_ratio_high": 0.28, "policy_loss": {},
                  "loss_agg_mode": "token-mean"},
    },
}
def line(step):
    return {
        "actor/pg_loss": 0.25 * step, "critic/score/mean": 1.0 + step, "training/global_step": step,
        "actor/entropy": 0.5 / step, "actor/kl_loss": 0.25,
    }
"""
SCRIPT = """
from verl.utils.tracking import Tracking
tracking = Tracking("proj", "exp", ["console", "file", "tensorboard"], CONFIG)
tracking.log({"val-core/gsm8k/acc": 0.125}, step=0)
for step in range(1, 5):
    tracking.log(data=line(step), step=step)
try:
    Tracking("proj", "exp", "no such")
except AssertionError as error:
    print(error)
try:
    try:
        raise ValueError("the verifier is down")
    finally:
        tracking.finish(exit_code=1)
except ValueError as error:
    print(error)
"""
SUMS = """
CONFIG["actor_rollout_ref"]["actor"]["loss_agg_mode"] = "seq-mean-token-sum-norm"
from verl.utils.tracking import Tracking
tracking = Tracking("proj", "exp", ["console"], CONFIG)
for step in (1, 2):
    tracking.log(line(step), step=step)
"""
RAY = """
import ray, sys
ray.init(num_cpus=1, include_dashboard=False)

@ray.remote
class TaskRunner:
    def run(self, scraped):
        from verl.utils.tracking import Tracking
        tracking = Tracking("proj", "exp", "console", CONFIG)
        for step in (1, 2):
            tracking.log(line(step), step=step)
        import pathlib, time
        while not pathlib.Path(scraped).exists():
            time.sleep(0.1)
        tracking.finish()

ray.get(TaskRunner.remote().run.remote(sys.argv[1]))
"""


def test_a_script(tmp_path: Path) -> None:
    """Without --from; and though TensorBoard is asked for too, whose writer gets the same lines."""
    environ = {"VERL_FILE_LOGGER_PATH": str(tmp_path / "log.jsonl"), "TENSORBOARD_DIR": str(tmp_path / "tb")}
    done = run(CONFIG + SCRIPT, tmp_path, "--from", "tensorboard", **environ)

    assert no_errors(done)
    assert done.printed.endswith("no such is not supported\nthe verifier is down\n")
    assert done.runs == {"exp"}
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert (done["rl_step"], done["rl_steps_total"]) == (last["step"], 4) == (4, 4)
    served = done.served.values()
    assert last["data"]["actor/pg_loss"] in served
    assert last["data"]["critic/score/mean"] == 5.0
    assert 5.0 in served
    assert last_scalar(tmp_path / "tb", "actor/pg_loss") == (4, 1.0)
    assert done["rl_entropy_per_token"] == 0.5 / 4
    assert done["rl_kl_per_token"] == 0.25
    assert done.info()[0] == "reinforce-plus-plus-baseline"
    assert done.settings() == {
        "num_generations": 4,
        "temperature": 0.5,
        "epsilon_high": 0.28,
        "max_completion_length": 512,
        "gamma": 1,
        "max_steps": 4,
        "num_train_epochs": 2,
        "beta": 0.001,
        "generation_batch_size": 32,
    }
    assert done["rl_steps_planned"] == 4
    assert done.served["rl_run_state", "failed"] == 1
    assert done.served["rl_run_exception_info", "ValueError"] == 1


def test_a_sum_over_a_completion_is_no_mean_over_tokens(tmp_path: Path) -> None:
    """What is aggregated as the loss is; the configuration alone says how."""
    done = run(CONFIG + SUMS, tmp_path)

    assert no_errors(done)
    assert not {"rl_entropy_per_token", "rl_kl_per_token"} & {name for name, _ in done.served}
    assert set(done.logged()) == {f"actor/{key} (seq-mean-token-sum-norm)" for key in ("entropy", "kl_loss")}
    assert done["rl_policy_loss"] == 0.5


def test_an_actor_of_ray(tmp_path: Path) -> None:
    """The environment reaches it, and its last state waits for the scraper: Ray kills the process with its driver."""
    (tmp_path / "train.py").write_text(CONFIG + RAY)
    port = free_port()
    own = {"PYTHONPATH": str(ROOT), "RLEXPORTER_LISTEN_PORT": str(port), "OMP_NUM_THREADS": "1"}
    environ = os.environ | own | {"RAY_worker_niceness": "0"}  # Ray's 15 is for ever beside other tests
    command = [sys.executable, "-m", "rlexporter", "run", str(tmp_path / "train.py"), str(tmp_path / "scraped")]
    seen: list[str] = []
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(5.0 if seen else 0.5):  # the exporter waits longer for a scraper that comes seldom
            if text := served(port, "Prometheus/3.0"):
                seen.append(text)
                (tmp_path / "scraped").touch()

    with (tmp_path / "out").open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environ) as started:
        scraper = threading.Thread(target=scrape)
        scraper.start()
        try:
            status = started.wait(600)
        finally:
            over.set()
            started.kill()
            scraper.join()
    assert (status, bool(seen)) == (0, True), (tmp_path / "out").read_text()
    assert 'rl_run_state{rank="0",run="exp",state="finished"} 1.0' in seen[-1]
    assert 'rl_steps_total{rank="0",run="exp"} 2.0' in seen[-1]
