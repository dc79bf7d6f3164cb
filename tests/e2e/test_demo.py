"""The demo, as a newcomer starts it, under a real Prometheus server."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlexporter.catalog.metrics import CATALOG
from rlexporter.commands import main
from rlexporter.demo.faults import KINDS, STALLED_SECONDS
from tests.conftest import fetch
from tests.e2e.forks import Fork, Run, forks
from tests.tools import Prometheus, eventually, launched, prometheus

COMMAND = (sys.executable, "-m", "rlexporter", "demo")
LATE = (50, 200)
"""Steps after which the demo evaluates, and in which it does not sample."""
LATER = {"reward_hacking": 150}
"""A fault that is told by the 130 steps before it."""


@dataclass(frozen=True)
class Demo:
    """One that runs."""

    process: subprocess.Popen[str]
    folder: Path

    def said(self) -> str:
        """What it has printed so far: where it serves, and then what it does."""
        return (self.folder / "err").read_text() + (self.folder / "out").read_text()

    def wait_said(self, words: str) -> None:
        """Wait until it has printed this."""
        eventually(lambda: words in self.said() or self.process.poll() is not None)
        assert words in self.said(), self.said()

    @property
    def port(self) -> int:
        """Where it says that it serves."""
        (found,) = re.findall(r" on http://127\.0\.0\.1:(\d+)/ \(", self.said())
        return int(found)

    def metrics(self, *names: str) -> str:
        """What it serves, or only these metrics."""
        asked = "?" + "&".join(f"name[]={name}" for name in names) if names else ""
        return fetch(f"http://127.0.0.1:{self.port}/metrics{asked}")[1]

    def interrupt(self) -> None:
        """Press Ctrl-C, which ends it well."""
        self.process.send_signal(2)
        assert self.process.wait(600) == 0, self.said()


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[Demo]:
    """A demo from when it serves, on a port that nobody chose."""
    with launched([*COMMAND, *options], folder) as process:
        found = Demo(process, folder)
        found.wait_said(" on http://127.0.0.1:")
        yield found


def _names(text: str) -> set[str]:
    """The series of a scrape, without those that only describe what has ended or begins later."""
    return {re.split("[{ ]", line)[0] for line in text.splitlines() if line and not line.startswith("#")}


@pytest.mark.slow
def test_two_demos_are_scraped(tmp_path: Path) -> None:
    """Nobody chooses a port, each says where it serves, and a query for every series returns data."""
    options = ("--steps", "20", "--linger", "600", "--algorithm")
    with demo(tmp_path / "grpo", *options, "grpo") as first, demo(tmp_path / "rloo", *options, "rloo") as second:
        assert first.port != second.port
        targets = [f"127.0.0.1:{each.port}" for each in (first, second)]
        with prometheus("3", tmp_path / "prometheus", targets) as server:
            for each, target in zip((first, second), targets, strict=True):
                _is_scraped(each, server, target)
        for each in (first, second):
            each.interrupt()
            assert re.search(r"reward +\S+ -> +\S+ +rl_reward_mean", each.said())
            assert "NaN or infinite: none;" in each.said()
            assert each.said().count("http://") == 1
            assert "Traceback" not in each.said()
            assert "until it has been scraped" not in each.said()


def _is_scraped(demo: Demo, server: Prometheus, target: str) -> None:
    """It has trained to its end, and the server has all that it serves."""
    (run,) = re.findall(r"run (demo-\w+-\d+) on", demo.said())
    demo.wait_said("finished after step 20")
    counts = {f"{metric.series}_count" for metric in CATALOG if metric.signed}  # only the older text format has them
    names, of = _names(demo.metrics()) - counts, f'run="{run}"'
    eventually(lambda: server.value(f'rl_run_state{{{of},state="finished"}}') == 1)

    assert len(names) > 80
    own = {name for name in names if name.startswith("process_")}  # these are of the process, whatever it trains
    assert len(own) >= 5
    assert [name for name in sorted(names - own) if not server.query(f"{name}{{{of}}}")] == []
    assert [name for name in sorted(own) if not server.query(f'{name}{{instance="{target}"}}')] == []
    scrapes = f'sum_over_time(up{{instance="{target}"}}[1h])'  # it may have trained faster than they began
    eventually(lambda: (server.value(scrapes) or 0) >= 5)
    assert server.value(f"rl_step{{{of}}}") == 20
    assert server.query(f"rl_nonfinite_values_total{{{of}}}") == []
    assert server.value(f"rl_grad_norm_dist_count{{{of}}}") == 20
    metadata = server.get("targets/metadata", match_target=f'{{instance="{target}"}}', metric="rl_reward_mean")
    assert metadata[0]["help"].startswith("Mean reward per completion.")
    assert metadata[0]["help"].endswith(
        "TRL: reward, self_distillation/reward_mean, env/reward_mean, rewards/mean, objective/scores"
    )


def test_a_mistake_is_answered_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what to do, before anything is loaded or taught."""
    kinds = "expected KIND@STEP, with a kind of nan, nan_reward, lr_spike, kl_runaway"
    for options, answer in (
        ("--algorithm ppo --fault reward_hacking@200", "ppo does not show it"),
        ("--fault reward_hackin@200", "did you mean reward_hacking@200?"),
        ("--fault nan@601", "--fault 'nan@601': the run ends after step 600: choose an earlier step, or --steps"),
        ("--fault nan@0", "did you mean nan@200?"),
        ("--fault nan", f"--fault 'nan': did you mean nan@200? {kinds}"),
        ("--fault kl@9", f"--fault 'kl@9': {kinds}"),
        ("--port 70000", "argument port=70000 is not usable: must be between 0 and 65535"),
        ("--steps 0", "'0' is not a number above 0"),
        ("--algorithm sac", "invalid choice: 'sac'"),
    ):
        assert _status(options.split()) == 2
        out, err = capsys.readouterr()
        assert answer in err
        assert "loading" not in out


def _status(options: Sequence[str]) -> int:
    """The exit status of a demo in this process."""
    try:
        return main.main(["demo", *options])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.slow
def test_a_fault_is_real(tmp_path: Path) -> None:
    """It begins its alert and ends the run, which is served to its end, in few series."""
    with demo(tmp_path, "--steps", "20", "--port", "0", "--fault", "nan@8", "--linger", "600") as failing:
        failing.wait_said("the final state stays")
        text = failing.metrics()
        failing.interrupt()

    before, _, after = failing.said().partition("fault in step 8:")
    alert = r"^step \d+  (?:warning|critical) +(?!RLStep)"  # on a busy machine steps are slow
    assert not re.search(alert, before, re.MULTILINE)
    assert re.search(r"^step \d+  critical  RLNotANumber:", after, re.MULTILINE)
    assert " failed after step" in after
    assert "the fault ended the run: RuntimeError" in failing.said()
    assert "NaN or infinite: 1 in rl_grad_norm, 1 in rl_weight_norm;" in failing.said()
    assert 'rl_condition{condition="nonfinite"' in text
    assert 400 < sum(not line.startswith("#") for line in text.splitlines()) <= 780


@pytest.mark.slow
@pytest.mark.parametrize("step", [LATE[0], pytest.param(LATE[1], marks=pytest.mark.soak)])
def test_a_stall_is_real(step: int, tmp_path: Path) -> None:
    """A reward function hangs in the training: the step stays as it is, the endpoint answers, Ctrl-C still ends it."""
    with demo(tmp_path, "--port", "0", "--fault", f"stall@{step}", "--linger", "0") as stalling:
        stalling.wait_said(f"fault in step {step + 1}")
        assert float(stalling.metrics("rl_stall_after_seconds").split()[-1]) <= STALLED_SECONDS * 3
        for _ in range(2):
            time.sleep(1.5)
            text = stalling.metrics("rl_step", "rl_run_state", "rl_phase")
            assert re.findall(r"rl_step{.*} (\d+)", text) == [str(step)]
            assert re.findall(r"rl_phase{.*phase=\"(\w+)\".*} 1.0", text) == ["reward"]
            assert 'state="running"} 1.0' in text
        stalling.interrupt()

    assert f"stopped after step {step}" in stalling.said()


FAULTS = {
    "nan": (0, "critical  RLNotANumber", "failed"),
    "nan_reward": (1, "critical  RLRewardLost", "finished"),
    "lr_spike": (0, "warning   RLUpdateTooLarge", "finished"),
    "dead_reward": (20, "warning   RLRewardFunctionDead", "finished"),
    "reward_hacking": (35, "critical  RLRewardHacking", "finished"),
    "length_collapse": (15, "warning   RLLength", "finished"),
    "kl_runaway": (40, "warning   RLKL", "finished"),
}
"""By fault, the steps within which its alert begins, the alert, and how the run ends. A stall is seen from outside."""


def test_every_fault_is_here() -> None:
    """Those of the demo."""
    assert {*FAULTS, "stall"} == set(KINDS)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs demos, of which each would import torch and TRL for longer than it trains."""
    with forks() as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "at"),
    [
        *((kind, LATER.get(kind, LATE[0])) for kind in FAULTS),
        *(pytest.param(kind, LATE[1], marks=pytest.mark.soak) for kind in FAULTS),
    ],
)
def test_a_fault_begins_its_alert(kind: str, at: int, run: Run) -> None:
    """Soon after the fault; before it there is none, but for slow steps on a busy machine.

    The demo samples in every second step, and evaluates in these: a reward function fails in the next step.
    """
    within, alert, end = FAULTS[kind]
    options = ("--steps", str(at + within + 5), "--port", "0", "--linger", "0", "--fault", f"{kind}@{at}")
    [done] = run(Fork("rlexporter", ("demo", *options)))
    before, _, after = done.stdout.partition("fault in step ")

    assert done.returncode == 0, done.stderr
    assert at <= int(after.partition(":")[0]) <= at + 1
    begun = re.findall(rf"^step (\d+)  {alert}:", after, re.MULTILINE)
    assert [step for step in begun if at <= int(step) <= at + within], done.stdout
    assert re.findall(r"^step \d+  (?:warning|critical) +(?!RLStep).*", before, re.MULTILINE) == []
    assert f" {end} after step" in after
    word = "(look|act)" if kind == "lr_spike" else "act"  # five steps later it may be a warning still
    assert re.search(rf"^{word}: \S", after, re.MULTILINE), after
    assert ("NaN or infinite: none;" in after) == (not kind.startswith("nan"))


@pytest.mark.slow
def test_a_fault_may_come_too_late(run: Run) -> None:
    """Nothing is sampled in the second step, which is the last, and no evaluation gets the fault; that is said."""
    options = ("--steps", "2", "--port", "0", "--linger", "0", "--fault", "nan_reward@2")
    [done] = run(Fork("rlexporter", ("demo", *options)))

    assert done.returncode == 0, done.stderr
    assert "NaN or infinite: none;" in done.stdout
    assert "\nfine: " in done.stdout
    assert "the run ended before the fault" in done.stdout


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_a_healthy_demo_stays_healthy(algorithm: str) -> None:
    """For 20,000 steps nothing begins at warning or above: who leaves it running sees no alert."""
    options = ["--algorithm", algorithm, "--steps", "20000", "--port", "0", "--linger", "0"]
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, check=False)

    assert "finished after step 20000" in done.stdout, done.stderr
    assert re.findall(r"^step \d+  (?:warning|critical) .*", done.stdout, re.MULTILINE) == []
