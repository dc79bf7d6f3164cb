"""The Slurm job, with stand-ins for Slurm: what Prometheus finds while it runs, and afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tools import ROOT, eventually

SBATCH = ROOT / "deploy/slurm/train.sbatch"
SRUN = """\
#!/bin/bash
echo "$RLEXPORTER_LISTEN_HOST:$RLEXPORTER_LISTEN_PORT $*" >"$SEEN"
trap 'sleep 0.5; ls "$TARGETS" >>"$SEEN"; exit 7' TERM
for _ in {1..300}; do sleep 0.1; done
"""


@contextmanager
def job(folder: Path, srun: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    """The running script, the file that it writes for Prometheus, and what its `srun` saw."""
    for name, text in (("srun", srun), ("scontrol", "#!/bin/sh\nprintf 'gpu7\\ngpu8\\n'\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "TARGETS": str(folder / "shared/targets"),
        "SEEN": str(folder / "seen"),
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NODELIST": "gpu[7-8]",
    }
    process = subprocess.Popen(["bash", str(SBATCH), "python", "train.py"], env=environment)
    try:
        yield process, folder / "shared/targets/rlexporter-4711.json", folder / "seen"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_it_is_a_script(shell: str) -> None:
    """Shells can read it; what Slurm reads comes before the first command."""
    subprocess.run([shell, "-n", str(SBATCH)], check=True)
    lines = SBATCH.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line and line[0] != "#")
    assert max(i for i, line in enumerate(lines) if line.startswith("#SBATCH")) < first


def test_prometheus_finds_the_run_while_it_lasts(tmp_path: Path) -> None:
    """The file names the first node, where rank 0 is, and the port that the trainer is given; no labels."""
    with job(tmp_path, SRUN) as (process, target, seen):
        eventually(lambda: seen.exists() and seen.read_text())
        assert seen.read_text() == "0.0.0.0:10461 python train.py\n"
        assert json.loads(target.read_text()) == [{"targets": ["gpu7:10461"]}]
        assert list(target.parent.iterdir()) == [target]

        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 7
        assert seen.read_text().splitlines()[1:] == [target.name], "it was gone before the final state was scraped"
        assert not target.exists()


@pytest.mark.parametrize("status", [0, 3])
def test_the_file_goes_with_the_run(tmp_path: Path, status: int) -> None:
    """However it ends, and its status is that of the job."""
    with job(tmp_path, f'#!/bin/sh\nls "$TARGETS" >"$SEEN"\nexit {status}\n') as (process, target, seen):
        assert process.wait(10) == status
        assert seen.read_text() == f"{target.name}\n"
        assert list(target.parent.iterdir()) == []
