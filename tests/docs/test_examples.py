"""The examples, as somebody runs them who has copied them: real processes on the CPU, with tiny models of this machine.

Nobody here has Slurm: `srun` is a stand-in that runs what it is given. PPO is in tests/versions/test_ppo_scripts.py,
since the newest TRL has none.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlexporter.catalog.metrics import NAMED
from rlexporter.demo import tiny
from tests.e2e.notebook import QUIET, opened
from tests.tools import ROOT

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
SCRIPTS = Path(sys.executable).parent
SRUN = '#!/bin/sh\nexec "$@"\n'


def run(folder: Path, *command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, which gets the recording `run.jsonl`."""
    of_tests = {
        "PATH": f"{folder}:{SCRIPTS}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "RLEXPORTER_LISTEN_PORT": "0",
        "RLEXPORTER_RECORD": "run.jsonl",
    }
    environ = os.environ | of_tests | environ
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=1200, check=False)


def checked(folder: Path) -> tuple[str, set[str]]:
    """What `rlexporter check` calls the recording, and the alerts that are more than information."""
    said = run(folder, "rlexporter", "check", "run.jsonl").stdout.splitlines()
    (title,) = (line.strip() for line in said if line.startswith("  run.jsonl: "))
    return title, {line.split()[-1] for line in said if line.split()[:1] in (["warning"], ["critical"])}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A taught model of 50,000 weights with its tokenizer, as a user has one in a folder."""
    folder = tmp_path_factory.mktemp("model")
    tiny.model(folder, 0, lambda *_: None, steps=60)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def logged(folder: Path, key: str, name: str = "run.jsonl") -> list[float]:
    """The values of a key in the lines of the recording."""
    lines = map(json.loads, (folder / name).read_text().splitlines())
    return [line["logs"][key] for line in lines if key in line.get("logs", ())]


@pytest.mark.parametrize(("entropy", "broken"), [("0", True), ("0.3", False)])
def test_a_loop_of_ones_own(tmp_path: Path, entropy: str, broken: bool) -> None:
    """It learns; that its policy collapses is said, and with the entropy bonus there is nothing to say."""
    ran = run(tmp_path, sys.executable, EXAMPLES / "own_loop.py", "--entropy", entropy, "--steps", "200")
    assert ran.returncode == 0, ran.stderr
    rewards = logged(tmp_path, "reward")
    assert rewards[0] < 0.1 < 0.3 < rewards[-1]
    head, alerts = checked(tmp_path)
    assert head == "run.jsonl: ppo run own-loop, 200 steps"
    assert ("RLEntropy" in alerts) is broken
    assert bool(alerts) is broken, alerts
    text = (EXAMPLES / "own_loop.py").read_text()
    for name in ("policy_ratio", "advantage", "kl_per_token", "reward"):  # so that conditions and dashboards apply
        assert f'observe("{name}"' in text
        assert f"rl_{name}_dist" in NAMED


def test_grpo(tmp_path: Path, model: Path) -> None:
    """With a model that is in a folder: three steps are served under TRL's own keys, and nothing is wrong in them."""
    script = EXAMPLES / "grpo.py"
    ran = run(tmp_path, sys.executable, script, "--model", model, "--steps", "3", "--batch", "4", RLEXPORTER_RUN="sums")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "rlexporter: serving run sums on http://" in ran.stderr
    assert len(logged(tmp_path, "rewards/correct/mean")) == 2  # one batch for two steps
    assert len(logged(tmp_path, "kl")) == 3
    assert checked(tmp_path)[0] == "run.jsonl: grpo run sums, 3 steps"


def test_its_rewards_are_right() -> None:
    """The right number, as the first in the text; and few characters."""
    script = runpy.run_path(str(EXAMPLES / "grpo.py"))
    assert script["correct"](["12", " It is 12.", "13 or 12", "none"], answer=[12] * 4) == [1.0, 1.0, 0.0, 0.0]
    assert script["brief"](["12", "It is twelve."]) == [0.2, 0.0]
    first = script["sums"](1)[0]
    assert str(first["prompt"]).startswith("What is ")
    assert eval(first["prompt"].split("is ")[1].split("?")[0]) == first["answer"]


def test_a_slurm_job(tmp_path: Path, model: Path) -> None:
    """The script under a stand-in for `srun`: two real ranks of torchrun, found by files, recorded and ended."""
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    own = {"SLURM_JOB_ID": "4711", "SLURM_JOB_USER": "ada", "GPUS": "2", "TARGETS": str(tmp_path / "targets")}
    options = ("--model", model, "--steps", "2", "--batch", "4")
    ran = run(tmp_path, "bash", EXAMPLES / "slurm/grpo.sbatch", *options, **own, SCRIPT=str(EXAMPLES / "grpo.py"))
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stderr.count("rlexporter: serving run grpo-sums-4711") == 2
    assert len(logged(tmp_path, "kl", "grpo-sums-4711.jsonl")) == 2
    assert list((tmp_path / "targets").iterdir()) == []


def test_a_kubernetes_job() -> None:
    """What it mounts and runs fits its script; tests/deploy/test_kubernetes.py has what holds for every Job."""
    text = (EXAMPLES / "kubernetes/grpo.yaml").read_text()
    pod = yaml.safe_load(text)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert [word for word in container["command"] if word.startswith("--")] == ["--out"]
    assert '"--out"' in (EXAMPLES / "grpo.py").read_text()
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted["script"] == str(Path(container["command"][1]).parent)
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert set(mounted) == set(volumes)
    assert f"create configmap {volumes['script']['configMap']['name']} --from-file=../grpo.py" in text


@QUIET
def test_the_notebook(tmp_path: Path) -> None:
    """Every cell but the one that installs, in a real kernel: the card of the end, and the verdict."""
    cells = json.loads((EXAMPLES / "grpo.ipynb").read_text())["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert [code for code in codes if code.startswith("%")] == [
        "%pip install --quiet git+https://github.com/rlexporter/rlexporter trl"
    ]
    assert all(not cell.get("outputs") for cell in cells)
    with opened(tmp_path) as notebook:
        said = [notebook.run(code) for code in codes if not code.startswith("%")]
    assert not [each for each in said if "Traceback" in each], said
    last = notebook.cards[-1]
    assert "finished" in last
    assert "60 of 60" in last
    (verdict,) = (each for each in said if " - " in each)
    assert verdict.split()[0] in ("fine", "look")
