"""An hour of attacks: random inputs, requests, signals and ends. Nothing raises, nothing is lost, memory stays flat.

Half of it are trainings with brake, kept checkpoints and messages, whose rewards break, in whose folder others put and
remove things, and whose receivers hang or answer for ever. Each life of a process has a seed, which is printed and
repeats it: `ATTACK_SEED=7 make soak ARGS="-k attacks"`. `ATTACK_SECONDS` says for how long lives begin, an hour if it
is not set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random, SystemRandom
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file
from transformers.trainer_utils import get_last_checkpoint

from rlexporter.adapters.folders import MARK
from rlexporter.logs import reader
from rlexporter.model.snapshot import RunState
from tests.endpoint.test_fuzz import exchanged, random_request
from tests.outputs.evil import EVIL, listening
from tests.outputs.receivers import receiver
from tests.tools import ROOT, eventually, free_port, served

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3 * 3600)]

SECONDS = float(os.environ.get("ATTACK_SECONDS", "3600"))
ENDS = {
    "with": (0, RunState.FINISHED),
    "raise": (1, RunState.FAILED),
    "exit": (3, RunState.STOPPED),
    "signal": (-signal.SIGTERM, RunState.PREEMPTED),
    "none": (0, RunState.FINISHED),
}
"""How a process ends: its status, and the state of its run."""


TRAINING_ENDS = {"stop": (0, "has finished"), "raise": (1, "has failed"), "signal": (0, "was told to stop")}
"""The same of a training, and what its last message says of it."""


def _attack(process: subprocess.Popen[bytes], port: int, rng: Random, seconds: float, signals: bool = True) -> int:
    """Send requests and signals for some time; return how many requests. ``signals``: also the one that it handles."""
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        sent = random_request(rng)
        found = exchanged(SimpleNamespace(port=port), sent)
        assert not re.search(rb"HTTP/1.1 5\d\d", found), (sent, found)
        count += 1
        if signals and rng.random() < 0.05:
            process.send_signal(signal.SIGUSR1)
        if rng.random() < 0.002:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.5)
            process.send_signal(signal.SIGCONT)
    return count


@contextmanager
def _attacked(process: subprocess.Popen[bytes], port: int, end: Path) -> Iterator[list[str]]:
    """Scrape once a second, until the block is left and the process has ended by the file ``end``; yield the texts."""
    texts = [eventually(lambda: served(port, "Prometheus/3"))]

    def scrape() -> None:
        while process.poll() is None:
            texts.append(served(port, "Prometheus/3"))
            time.sleep(1.0)

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        yield texts
    finally:
        end.touch()
        scraper.join(600)
        process.kill()


def _loop(seed: int, folder: Path) -> Counter[str]:
    """One life of a loop of one's own, with what is expected of it; return how many lines and requests it has had."""
    rng = Random(seed)
    how, port = rng.choice([*ENDS]), free_port()
    command = [sys.executable, "-m", "tests.e2e.attacked", str(port), str(seed), how, str(folder)]
    with (
        subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process,
        _attacked(process, port, folder / "end") as texts,
    ):
        requests = _attack(process, port, rng, rng.uniform(5, 30))
    told = json.loads((folder / "told.json").read_text())
    status, state = ENDS[how]
    last = next(text for text in reversed(texts) if text)

    assert told["raised"] == []
    assert process.returncode == status
    assert f'state="{state.value}"}} 1.0' in last, how
    assert re.search(rf"^rl_step{{.*}} {float(told['step'])}$", last, re.MULTILINE), how
    assert re.search(r"^rl_reward_mean{.*} 42.0$", last, re.MULTILINE), how
    assert told["grown"] < 30 << 20, told
    recorded = reader.read(folder / "run.jsonl")
    assert recorded.events[-1].state is state
    assert recorded.notes == ()
    return Counter(lines=told["lines"], requests=requests)


def _training(seed: int, folder: Path) -> Counter[str]:
    """One life of a training that acts, with what is expected of it; return what it has had."""
    rng = Random(seed)
    how, port = rng.choice([*TRAINING_ENDS]), free_port()
    with ExitStack() as stack:
        good, asked = stack.enter_context(receiver())
        evil = [stack.enter_context(listening(EVIL[name])) for name in rng.sample(sorted(EVIL), 2)]
        addresses = ",".join(f"json://127.0.0.1:{each}/" for each in [*evil, good])
        command = [sys.executable, "-m", "tests.e2e.attacked_training", str(port), str(seed), how, str(folder)]
        log = stack.enter_context((folder / "log").open("wb"))
        process = stack.enter_context(subprocess.Popen([*command, addresses], cwd=ROOT, stdout=log, stderr=log))
        stack.enter_context(_attacked(process, port, folder / "end"))
        requests = _attack(process, port, rng, rng.uniform(10, 60), signals=False)
    told = json.loads((folder / "told.json").read_text())
    status, word = TRAINING_ENDS[how]
    output = folder / "trainer_output"
    kept = [path.parent for path in output.glob(f"good-checkpoint-*/{MARK}")]

    assert told["raised"] == ""
    assert process.returncode == status
    assert told["lost"] == 0
    assert told["grown"] < 100 << 20, told
    assert set(told["errors"]) <= {"notify", "keep_good", "on_critical"}, told
    assert asked, "no message"
    assert word in asked[-1][1]["message"], [each["title"] + " " + each["message"] for _, each in asked]
    for each in kept:
        assert load_file(each / "model.safetensors")
        assert json.loads((each / "trainer_state.json").read_text())["global_step"] == int(each.name.split("-")[2])
    assert "suspect" not in str(get_last_checkpoint(str(output)))
    suspects = [*output.glob(f"suspect-checkpoint-*/{MARK}")]
    return Counter(steps=told["step"], requests=requests, kept=len(kept), suspects=len(suspects))


def _lives(live: Callable[[int, Path], Counter[str]], seconds: float, tmp_path: Path) -> None:
    first = int(os.environ.get("ATTACK_SEED") or SystemRandom().randrange(1 << 32))
    until, had = time.monotonic() + seconds, Counter[str]()
    while not had or (time.monotonic() < until and not os.environ.get("ATTACK_SEED")):
        seed = first + had["lives"]
        print(f"life {had['lives']}: seed {seed}", flush=True)
        (tmp_path / str(seed)).mkdir()
        had += live(seed, tmp_path / str(seed)) + Counter(lives=1)
        shutil.rmtree(tmp_path / str(seed))
    print(", ".join(f"{count} {name}" for name, count in had.items()), "- 0 raised, 0 lost")


def test_nothing_raises_and_nothing_is_lost(tmp_path: Path) -> None:
    """In life after life."""
    _lives(_loop, SECONDS / 2, tmp_path)


def test_what_acts_harms_nothing(tmp_path: Path) -> None:
    """The training goes on, ends as it was to end, and keeps what is others'."""
    _lives(_training, SECONDS / 2, tmp_path)
