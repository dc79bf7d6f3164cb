"""MLflow with a local folder: what is served is what MLflow's client reads back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.loggers.watched import no_errors, run

mlflow: Any = pytest.importorskip("mlflow")

SCRIPT = """
import mlflow
with mlflow.start_run(run_name="mine"):
    mlflow.log_params({"learning_rate": 0.125, "beta": 0.04, "model": "text"})
    for step in range(1, 4):
        mlflow.log_metric("loss", 0.5 + step, step=step)
        mlflow.log_metrics({"reward": 0.25 * step, "mine": 2.0 * step}, step=step)
        mlflow.log_metric("system/cpu", 99.0, step=1000)
"""
CLIENT = """
import mlflow
client = mlflow.MlflowClient()
run = client.create_run(client.create_experiment("e"))
try:
    client.log_metric(run.info.run_id, "loss", "no number")
except mlflow.exceptions.MlflowException as error:
    print(error.error_code)
for value in (3.0, 2.0, 1.5):
    client.log_metric(run.info.run_id, "loss", value)
    client.log_metric(run.info.run_id, "reward", -value)
client.set_terminated(run.info.run_id, "FAILED")
"""


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    """The variables of a store in a folder, which MLflow 3.17 keeps but no longer likes."""
    return {
        "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def _history(store: dict[str, str], key: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    client = mlflow.MlflowClient(store["MLFLOW_TRACKING_URI"])
    experiments = [each.experiment_id for each in client.search_experiments()]
    (found,) = client.search_runs(experiments)
    return [(each.step, each.value) for each in client.get_metric_history(found.info.run_id, key)]


def test_the_way_of_most_scripts(tmp_path: Path, store: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`log_metric` and `log_metrics` of one step are one line; the machine's own metrics are none."""
    done = run(SCRIPT, tmp_path, "--from", "mlflow", **store)

    assert no_errors(done)
    assert done.runs == {"mine"}
    losses = _history(store, "loss", monkeypatch)
    assert losses == [(1, 1.5), (2, 2.5), (3, 3.5)]
    assert (done["rl_step"], done["rl_loss"]) == losses[-1]
    assert done["rl_reward_mean"] == 0.75
    assert _history(store, "reward", monkeypatch)[-1] == (3, 0.75)
    assert done["rl_steps_total"] == 3
    assert done.counts("rl_loss_dist", "+Inf") == [3]
    assert done.logged() == {"mine": 6}
    assert done.settings()["beta"] == 0.04
    assert done.served["rl_run_state", "finished"] == 1


def test_a_client_without_steps(tmp_path: Path, store: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow calls them all 0; each time that a key comes again is a step. What it refuses, it refuses as ever."""
    done = run(CLIENT, tmp_path, "--from", "mlflow", **store)

    assert no_errors(done)
    assert done.printed.startswith("INVALID_PARAMETER_VALUE\n")
    assert _history(store, "loss", monkeypatch) == [(0, 3.0), (0, 2.0), (0, 1.5)]
    assert (done["rl_step"], done["rl_steps_total"]) == (2, 3)
    assert (done["rl_loss"], done["rl_reward_mean"]) == (1.5, -1.5)
    assert done.counts("rl_loss_dist", "+Inf") == [3]
    assert done.served["rl_run_state", "failed"] == 1
