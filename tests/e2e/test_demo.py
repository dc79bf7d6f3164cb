"""The demo, as a newcomer starts it, under two real Prometheus servers."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from rlexporter.commands import main
from rlexporter.demo.faults import STALLED_SECONDS
from tests.conftest import fetch
from tests.tools import GENERATIONS, Prometheus, eventually, free_port, prometheus


def _names(text: str) -> set[str]:
    """The series of a scrape, without those that only describe what has ended or begins later."""
    return {line.split("{")[0] for line in text.splitlines() if line and not line.startswith("#")}


def _up(server: Prometheus) -> list[float]:
    """Every sample of `up` so far."""
    (found,) = server.query("up[1h]")
    return [float(value) for _, value in found["values"]]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_the_demo_is_scraped(tmp_path: Path, algorithm: str) -> None:
    """It trains and serves, and a query for every series returns data on both servers."""
    port = free_port()
    command = [sys.executable, "-m", "rlexporter", "demo", "--algorithm", algorithm]
    command += ["--steps", "60", "--port", str(port), "--linger", "600"]
    with (tmp_path / "output").open("w") as out, ExitStack() as stack:
        demo = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        stack.callback(demo.wait)
        stack.callback(demo.kill)
        eventually(lambda: f" on http://127.0.0.1:{port}/ (" in (tmp_path / "output").read_text())
        servers = [
            stack.enter_context(prometheus(generation, tmp_path / generation, [f"127.0.0.1:{port}"]))
            for generation in GENERATIONS
        ]
        eventually(lambda: "finished after step 60" in (tmp_path / "output").read_text())
        for server in servers:
            eventually(lambda server=server: server.value('rl_run_state{state="finished"}') == 1)
        _, text, _ = fetch(f"http://127.0.0.1:{port}/metrics")
        names = _names(text)

        assert len(names) > 80
        for server in servers:
            missing = [name for name in sorted(names) if not server.query(f'{name}{{run=~"demo-.*"}}')]
            assert missing == []
            eventually(lambda server=server: _up(server).count(1.0) >= 5)  # it may have trained faster than they began
            assert server.value("rl_step") == 60
            assert server.query("rl_nonfinite_values_total") == []
            assert server.value("rl_grad_norm_dist_count") == 60
            metadata = server.get("targets/metadata", match_target='{job="rlexporter"}', metric="rl_reward_mean")
            assert metadata[0]["help"].startswith("Mean reward per completion.")
            assert metadata[0]["help"].endswith(
                "TRL: reward, self_distillation/reward_mean, env/reward_mean, objective/scores"
            )
        demo.send_signal(2)
        demo.wait(600)
    output = (tmp_path / "output").read_text()

    assert demo.returncode == 0, output
    assert re.search(r"reward +\S+ -> +\S+ +rl_reward_mean", output)
    assert "NaN or infinite: none;" in output
    assert "Traceback" not in output
    assert output.count("http://") == 1
    assert "until it has been scraped" not in output


@pytest.mark.parametrize(
    ("algorithm", "fault", "says"),
    [
        ("ppo", "reward_hacking@200", "ppo does not show it"),
        ("grpo", "reward_hackin@200", "did you mean reward_hacking@200?"),
        ("grpo", "nan@0", "did you mean nan@200?"),
    ],
)
def test_a_fault_that_is_not_there(algorithm: str, fault: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what to do, before anything is loaded."""
    assert main.main(["demo", "--algorithm", algorithm, "--fault", fault]) == 2

    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "state"), [("nan@8", "failed"), pytest.param("lr_spike@8", "finished", marks=pytest.mark.slow)]
)
def test_a_fault_is_real(fault: str, state: str, tmp_path: Path) -> None:
    """It happens in the run, and the run is served to its end, in few series."""
    port = free_port()
    command = [sys.executable, "-m", "rlexporter", "demo", "--steps", "20", "--port", str(port), "--fault", fault]
    with (tmp_path / "output").open("w") as out:
        demo = subprocess.Popen([*command, "--linger", "600"], stdout=out, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: "the final state stays" in (tmp_path / "output").read_text())
        _, text, _ = fetch(f"http://127.0.0.1:{port}/metrics")
        demo.send_signal(2)
        demo.wait(600)
    finally:
        demo.kill()
        demo.wait()
    output = (tmp_path / "output").read_text()

    assert demo.returncode == 0, output
    assert "fault in step 8:" in output
    assert re.search(rf": {state} after step", output)
    assert ("the fault ended the run: RuntimeError" in output) is (state == "failed")
    bad = "1 in rl_grad_norm, 1 in rl_weight_norm" if state == "failed" else "none"
    assert f"NaN or infinite: {bad};" in output
    assert ('rl_condition{condition="nonfinite_grad"' in text) is (state == "failed")
    assert 400 < sum(not line.startswith("#") for line in text.splitlines()) <= 700
    kl = re.search(r"kl +\S+ -> +(\S+)", output)
    assert kl
    assert (float(kl[1]) > 1) is (state == "finished")


@pytest.mark.slow
def test_a_stall_is_real(tmp_path: Path) -> None:
    """The step stays where it is, the endpoint answers, and Ctrl-C still ends it."""
    port = free_port()
    command = [sys.executable, "-m", "rlexporter", "demo", "--port", str(port), "--fault", "stall@5", "--linger", "0"]
    with (tmp_path / "output").open("w") as out:
        demo = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: "fault in step 5" in (tmp_path / "output").read_text())
        _, text, _ = fetch(f"http://127.0.0.1:{port}/metrics?name[]=rl_stall_after_seconds")
        assert float(text.split()[-1]) <= STALLED_SECONDS * 3
        steps = []
        for _ in range(2):
            time.sleep(1.5)
            _, text, _ = fetch(f"http://127.0.0.1:{port}/metrics?name[]=rl_step&name[]=rl_run_state")
            steps.append(re.findall(r"rl_step{.*} (\d+)", text))
            assert 'state="running"} 1.0' in text
        demo.send_signal(2)
        demo.wait(600)
    finally:
        demo.kill()
        demo.wait()

    assert steps == [["4"], ["4"]]
    assert "stopped after step 4" in (tmp_path / "output").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "steps", "alert"),
    [
        ("nan_reward@5", 10, "critical  RLRewardNonFinite"),
        ("dead_reward@10", 50, "warning   RLRewardFunctionDead"),
        ("length_collapse@20", 60, "warning   RLLengthCollapse"),
        ("kl_runaway@80", 120, "warning   RLKLJump"),
        ("reward_hacking@145", 200, "critical  RLRewardHacking"),
    ],
)
def test_a_fault_begins_its_alert(fault: str, steps: int, alert: str) -> None:
    """After the fault; before it there is none, but for slow steps on a busy machine."""
    command = [sys.executable, "-m", "rlexporter", "demo", "--steps", str(steps), "--port", "0", "--linger", "0"]
    done = subprocess.run([*command, "--fault", fault], capture_output=True, text=True, timeout=600, check=False)
    before, _, after = done.stdout.partition("fault in step ")

    assert done.returncode == 0, done.stderr
    assert re.search(rf"^step \d+  {alert}:", after, re.MULTILINE), done.stdout
    assert re.findall(r"^step \d+  (?:warning|critical) +(?!RLStep).*", before, re.MULTILINE) == []


@pytest.mark.slow
def test_two_demos_at_once(tmp_path: Path) -> None:
    """Nobody chooses a port, and each says where it serves."""
    command = [sys.executable, "-m", "rlexporter", "demo", "--steps", "5000", "--linger", "0"]
    with ExitStack() as stack:
        ports = []
        for name in ("first", "second"):
            out = stack.enter_context((tmp_path / name).open("w"))
            demo = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
            stack.callback(demo.wait)
            stack.callback(demo.kill)
            eventually(lambda name=name: " on http://127.0.0.1:" in (tmp_path / name).read_text())
            ports += re.findall(r" on http://127\.0\.0\.1:(\d+)/ ", (tmp_path / name).read_text())
            run = re.findall(r"run (demo-grpo-\d+) on", (tmp_path / name).read_text())
            assert f'run="{run[0]}"' in fetch(f"http://127.0.0.1:{ports[-1]}/metrics")[1]

    assert len(set(ports)) == 2


def test_a_mistake_is_answered_at_once() -> None:
    """Before anything is loaded or taught."""
    for options, answer in (
        (
            ["--fault", "nan"],
            "--fault 'nan': did you mean nan@200? expected KIND@STEP, with a kind of nan, nan_reward, ",
        ),
        (
            ["--fault", "kl@9"],
            "--fault 'kl@9': expected KIND@STEP, with a kind of nan, nan_reward, lr_spike, kl_runaway",
        ),
        (["--port", "70000"], "argument port=70000 is not usable: must be between 0 and 65535"),
        (["--steps", "0"], "'0' is not a number above 0"),
        (["--algorithm", "sac"], "invalid choice: 'sac'"),
    ):
        command = [sys.executable, "-m", "rlexporter", "demo", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

        assert done.returncode == 2
        assert answer in done.stderr
        assert "loading" not in done.stdout


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_a_healthy_demo_stays_healthy(algorithm: str) -> None:
    """For 20,000 steps nothing begins at warning or above: who leaves it running sees no alert."""
    command = [sys.executable, "-m", "rlexporter", "demo", "--algorithm", algorithm, "--steps", "20000"]
    done = subprocess.run([*command, "--port", "0", "--linger", "0"], capture_output=True, text=True, check=False)

    assert "finished after step 20000" in done.stdout, done.stderr
    assert re.findall(r"^step \d+  (?:warning|critical) .*", done.stdout, re.MULTILINE) == []
