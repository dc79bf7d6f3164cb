"""What reading a logger's line costs beside the logger's own call: `python -m benchmarks.loggers`, in .venv-loggers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.measure import side_by_side

PYTHON = Path(__file__).parent.parent / ".venv-loggers/bin/python"
_KEYS = 60
_LINE = {
    key: 0.5 + i
    for i, key in enumerate(
        ["loss", "reward", "reward_std", "kl", "entropy", "grad_norm", "learning_rate", "completions/mean_length"]
    )
}
_LINE |= {f"mine/{i}": 0.5 + i for i in range(_KEYS - len(_LINE))}


def rows() -> Iterator[str]:
    """The lines of a Markdown table, from the environment that has the loggers."""
    if not PYTHON.exists():
        yield "Not measured: `make loggers` sets up the environment that has them."
        return
    # S603: our own module
    done = subprocess.run([PYTHON, "-m", "benchmarks.loggers"], capture_output=True, text=True, check=False)  # noqa: S603
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    yield from lines or [f"Not measured: {done.stderr[-300:]}"]


def _wandb(folder: str) -> tuple[str, Any, Callable[[int], tuple[Any, ...]], int]:
    import wandb  # type: ignore[import-not-found] # not in the environment of mypy

    run = wandb.init(project="p", dir=folder, mode="offline")
    return "`wandb.log`, offline", (type(run), "log"), lambda step: (run, _LINE, step), 1


def _mlflow(folder: str) -> tuple[str, Any, Callable[[int], tuple[Any, ...]], int]:
    import mlflow  # type: ignore[import-not-found]
    from mlflow.entities import Metric  # type: ignore[import-not-found]

    mlflow.set_tracking_uri((Path(folder) / "mlruns").as_uri())
    run, client = mlflow.start_run(), mlflow.MlflowClient()

    def arguments(step: int) -> tuple[Any, ...]:
        return client, run.info.run_id, [Metric(key, value, 0, step) for key, value in _LINE.items()]

    return "`mlflow.log_metrics`, a folder", (mlflow.MlflowClient, "log_batch"), arguments, 1


def _trackio(folder: str) -> tuple[str, Any, Callable[[int], tuple[Any, ...]], int]:
    os.environ["TRACKIO_DIR"] = folder
    import trackio  # type: ignore[import-not-found]

    run = trackio.init(project="p", name="r")
    return "`trackio.log`, local", (type(run), "log"), lambda step: (run, _LINE, step), 1


def _tensorboard(folder: str) -> tuple[str, Any, Callable[[int], tuple[Any, ...]], int]:
    from torch.utils.tensorboard import SummaryWriter

    writer, keys = SummaryWriter(folder), list(_LINE)
    called = count()

    def arguments(step: int) -> tuple[Any, ...]:
        at = next(called)
        return writer, keys[at % _KEYS], 0.5, at // _KEYS

    return f"`add_scalar`, {_KEYS} times", (SummaryWriter, "add_scalar"), arguments, _KEYS


def _accelerate(folder: str) -> tuple[str, Any, Callable[[int], tuple[Any, ...]], int]:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    accelerator = Accelerator(log_with="tensorboard", project_dir=folder, cpu=True)
    accelerator.init_trackers("p")
    return "`Accelerator.log`, TensorBoard", (Accelerator, "log"), lambda step: (accelerator, _LINE, step), 1


def _verl(folder: str) -> tuple[str, Any, Callable[[int], tuple[Any, ...]], int]:
    os.environ["VERL_FILE_LOGGER_PATH"] = f"{folder}/log.jsonl"
    from verl.utils.tracking import Tracking  # type: ignore[import-not-found]

    with contextlib.redirect_stdout(sys.stderr):
        tracking = Tracking("p", "r", "file", {})
    return "`Tracking.log`, a file", (Tracking, "log"), lambda step: (tracking, _LINE, step), 1


def _measured(name: str, make: Callable[[str], Any], folder: str) -> str:
    """One row. ``make`` returns what is measured, the method, the arguments of a step's call, and calls a line."""
    text, (owner, method), arguments, calls = make(folder)
    ours, (own_steps, our_steps) = vars(owner)[method]._rlexporter, (count(1), count(1))
    own = vars(owner)[method].__wrapped__

    def package() -> None:
        for _ in range(calls):
            own(*arguments(next(own_steps)))

    def exporter() -> None:
        for _ in range(calls):
            ours(*arguments(next(our_steps)))

    for _ in range(300):  # until every condition is judged
        exporter()
    found = side_by_side({"own": package, "ours": exporter}, wall=True)
    share = found["ours"].median / found["own"].median
    installed = version("torch" if name == "tensorboard" else "mlflow-skinny" if name == "mlflow" else name)
    return f"| {text} ({installed}) | {found['own']} | {found['ours']} | {share:.2f}x |"


def main() -> None:
    """Measure each logger, with the exporter that its first line opens."""
    os.environ |= {"RLEXPORTER_LISTEN_PORT": "0", "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
    makers = {"wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio, "tensorboard": _tensorboard}
    makers |= {"accelerate": _accelerate, "verl": _verl}
    print("| a line of 60 keys | the logger's own: us | reading it: us | of its own |\n|---|---|---|---|")
    for name, make in makers.items():
        os.environ["RLEXPORTER_FROM"] = name
        registry: Any = import_module("rlexporter.integrations.registry")
        registry.read_loggers()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            print(_measured(name, make, folder), flush=True)
        registry._sources.leave()
        registry._sources = None
    sys.stdout.flush()
    os._exit(0)  # the loggers' own threads would upload, and talk


if __name__ == "__main__":
    main()
