"""The Slurm job, with a stand-in for `srun` that runs a real exporter: what Prometheus finds while it runs."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import pytest

from rlexporter.logs import saved_state
from tests.conftest import fetch
from tests.tools import ROOT, eventually

SBATCH = ROOT / "deploy/slurm/train.sbatch"
EXAMPLE = ROOT / "examples/slurm/grpo.sbatch"
SRUN = """\
import signal, sys, time
from rlexporter import Exporter
print(*sys.argv[1:], flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
with Exporter(run="slurm", linger=0) as exporter:
    exporter.log({"loss": 0.5}, step=1)
    for _ in range(ROUNDS):
        time.sleep(0.1)
"""


@contextmanager
def job(
    folder: Path, rounds: int = 3000, variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The running script, and the folder of targets."""
    (folder / "srun.py").write_text(SRUN.replace("ROUNDS", str(rounds)))
    python = shlex.quote(sys.executable)  # whose folder may have a blank in its name: no line with #! can have it
    (folder / "srun").write_text(f'#!/bin/sh\nexec {python} {shlex.quote(str(folder / "srun.py"))} "$@"\n')
    (folder / "srun").chmod(0o755)
    environment = {
        "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TARGETS": str(folder / "targets"),
        "SLURM_JOB_ID": "4711",
        **variables,
    }
    command = ["bash", str(SBATCH), "python", "train.py"]
    process = subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process, folder / "targets"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("path", [SBATCH, EXAMPLE], ids=lambda path: path.stem)
def test_it_is_a_script(path: Path) -> None:
    """Shells can read it; what Slurm reads comes before the first command."""
    for shell in ("bash", "sh"):
        subprocess.run([shell, "-n", str(path)], check=True)
    lines = path.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line and line[0] != "#")
    assert max(i for i, line in enumerate(lines) if line.startswith("#SBATCH")) < first


def test_prometheus_finds_the_run_while_it_lasts(tmp_path: Path) -> None:
    """By a file with an address that answers, and the port of this job; what a killed job has left is cleared away."""
    old = tmp_path / "targets/rlexporter-killed-1-0.json"
    old.parent.mkdir()
    old.touch()
    os.utime(old, (1, 1))
    with job(tmp_path) as (process, targets):
        (target,) = eventually(lambda: [each for each in targets.glob("*.json") if each != old])
        address = json.loads(target.read_text())[0]["targets"][0]
        assert address.endswith(":10461")
        assert 'run="slurm"' in fetch(f"http://{address}/metrics")[1]
        assert not old.exists()

        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 7
        assert list(targets.iterdir()) == []
        assert process.stdout
        assert "python train.py" in process.stdout.read()
    kept = saved_state.read_saved_state(tmp_path / "_rlexporter_state.json")
    assert kept
    assert kept.state.over


def test_a_share_that_is_missing_stops_no_training(tmp_path: Path) -> None:
    """The job says what it cannot do, and trains."""
    (tmp_path / "file").touch()
    with job(tmp_path, 3, {"TARGETS": str(tmp_path / "file/targets"), "PORT": "0"}) as (process, _):
        assert process.wait(600) == 0
        assert process.stdout
        assert "python train.py" in process.stdout.read()


def _scraped(targets: Path) -> str:
    (target,) = eventually(lambda: list(targets.glob("*.json")))
    return fetch(f"http://{json.loads(target.read_text())[0]['targets'][0]}/metrics")[1]


def test_a_requeued_job_is_the_same_run(tmp_path: Path) -> None:
    """With the same labels and the same target file, and as another attempt, also where the first one was killed."""
    account = {"SLURM_JOB_USER": "ada", "SLURM_JOB_ACCOUNT": "llm"}
    with job(tmp_path, variables=account) as (process, targets):
        first = _scraped(targets)
        eventually((tmp_path / "_rlexporter_state.json").exists)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        (file,) = targets.iterdir()
        killed = file.read_text()
    with job(tmp_path, variables=account | {"SLURM_RESTART_COUNT": "1", "PORT": "0"}) as (_, targets):
        eventually(lambda: file.read_text() != killed)
        second = _scraped(targets)
        assert list(targets.iterdir()) == [file]
        eventually((tmp_path / "_rlexporter_state.previous.json").exists)

    for text, attempt in ((first, "1"), (second, "2")):
        (info,) = (line for line in text.splitlines() if line.startswith("rl_run_info{"))
        assert f'attempt="{attempt}"' in info
        assert 'rl_run_state{rank="0",run="slurm",state="starting",team="llm",user="ada"}' in text


def test_labels_of_ones_own(tmp_path: Path) -> None:
    """Take the place of those of Slurm; without an account there is no team."""
    own = {"PORT": "0", "SLURM_JOB_USER": "ada", "RLEXPORTER_LABELS": "user=eve"}
    with job(tmp_path, variables=own) as (_, targets):
        assert 'rl_run_state{rank="0",run="slurm",state="starting",user="eve"}' in _scraped(targets)


def test_its_status_is_that_of_the_training(tmp_path: Path) -> None:
    """Of one that ends by itself."""
    with job(tmp_path, rounds=1) as (process, targets):
        assert process.wait(600) == 0
        assert list(targets.iterdir()) == []
