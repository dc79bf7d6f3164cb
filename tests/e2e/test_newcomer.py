"""The path of somebody who has just cloned this: README, demo, page, a script of their own, and its recording."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import fetch
from tests.e2e import strangers
from tests.e2e.strangers import said
from tests.tools import eventually, free_port

_MINE = """\
import sys, tempfile
from datasets import Dataset
from rlexporter.demo import tiny

folder = tempfile.mkdtemp()
model = tiny.model(folder, 0, lambda *_: None, steps=1)
config = dict(output_dir=folder, max_steps=6, use_cpu=True, bf16=False, save_strategy="no", report_to=[],
              per_device_train_batch_size=4, num_generations=2, max_completion_length=8, logging_steps=1)
data = Dataset.from_dict({"prompt": tiny.prompts(16)})
"""
"""What stands for the reader's own model, data and configuration."""
_FILLED = {
    "model=...": "model=model, processing_class=tiny.tokenizer()",
    "reward_funcs=...": "reward_funcs=tiny.letter_reward",
    "GRPOConfig(...)": "GRPOConfig(**config)",
    "train_dataset=...": "train_dataset=data",
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the files of this checkout, as a clone has them: no environment, no tools, no caches."""
    folder = tmp_path_factory.mktemp("newcomer") / "rlexporter"
    strangers.copy(folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # a gigabyte


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_from_a_clone_to_a_run_of_ones_own(clone: Path) -> None:
    """Every command and name is one that the README has; paths, ports and what stands for `...` are the reader's."""
    environ = strangers.environment()
    said('make demo ARGS="--fault nan@200"')
    with (clone / "demo.txt").open("w") as out:
        demo = subprocess.Popen(
            ["make", "demo", "ARGS=--fault nan@20 --linger 600"],  # lingers as on a terminal, which a test has not
            cwd=clone,
            env=environ,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = _address(demo, clone / "demo.txt")
        assert "<title>" in fetch(f"{url}/")[1]
        eventually(lambda: "the final state stays" in (clone / "demo.txt").read_text())
        command = said("rlexporter status http://127.0.0.1:9750").split()[:2]
        told = _run(clone, environ, *command, url)
        assert told.returncode == 2, told.stderr
        assert told.stdout.startswith("act ")
        assert "gradient" in told.stdout
        os.killpg(demo.pid, signal.SIGINT)
        demo.wait(600)
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
            demo.wait()

    block = strangers.first_example(_FILLED)
    (clone / "mine.py").write_text(_MINE + block)
    mine = {said("RLEXPORTER_RUN"): "mine", said("RLEXPORTER_LISTEN_PORT"): str(free_port())}
    mine |= {said("RLEXPORTER_RECORD"): "mine.jsonl", "HF_HUB_OFFLINE": "1"}
    ran = _run(clone, {**environ, **mine}, "python", "mine.py")
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "rlexporter: serving run mine on http://127.0.0.1:" in ran.stderr

    said("rlexporter check ")
    checked = _run(clone, environ, "rlexporter", "check", "mine.jsonl")
    assert "grpo run mine, 6 steps" in checked.stdout, checked.stderr
    said("rlexporter report run.jsonl -o run.html")
    reported = _run(clone, environ, "rlexporter", "report", "mine.jsonl", "-o", "mine.html")
    assert reported.stdout.startswith("wrote mine.html: "), reported.stderr
    assert "mine" in (clone / "mine.html").read_text()


def _address(demo: subprocess.Popen[bytes], printed: Path) -> str:
    """The address that the demo prints, after `make` has set up all that it needs."""
    eventually(lambda: " on http://" in printed.read_text() or demo.poll() is not None, 3000)
    assert demo.poll() is None, printed.read_text()[-2000:]
    (found,) = re.findall(r" on (http://127\.0\.0\.1:\d+)/", printed.read_text())
    return str(found)


def _run(clone: Path, environ: dict[str, str], program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the clone's own environment."""
    return strangers.run(clone, environ, str(clone / ".venv/bin" / program), *options)
