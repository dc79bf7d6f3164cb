"""An hour of attacks: random inputs, requests, signals and ends. Nothing raises, nothing is lost, memory stays flat.

Each life of a process has a seed, which is printed and repeats it: `ATTACK_SEED=7 make soak ARGS="-k attacks"`.
`ATTACK_SECONDS` says for how long lives begin, an hour if it is not set.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random, SystemRandom
from types import SimpleNamespace

import pytest

from rlexporter import recording
from rlexporter.model.snapshot import RunState
from tests.endpoint.test_fuzz import exchanged, random_request
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


def _attack(process: subprocess.Popen[bytes], port: int, rng: Random, seconds: float) -> int:
    """Send requests and signals for some time; return how many requests."""
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        sent = random_request(rng)
        found = exchanged(SimpleNamespace(port=port), sent)
        assert not re.search(rb"HTTP/1.1 5\d\d", found), (sent, found)
        count += 1
        if rng.random() < 0.05:
            process.send_signal(signal.SIGUSR1)
        if rng.random() < 0.002:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.5)
            process.send_signal(signal.SIGCONT)
    return count


def _live(seed: int, folder: Path) -> tuple[int, int]:
    """One life, with what is expected of it; return how many lines and requests it has had."""
    rng = Random(seed)
    how, port, texts = rng.choice([*ENDS]), free_port(), [""]
    folder.mkdir()
    command = [sys.executable, "-m", "tests.e2e.attacked", str(port), str(seed), how, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        eventually(lambda: served(port, "Prometheus/3"))

        def scrape() -> None:
            while process.poll() is None:
                texts.append(served(port, "Prometheus/3"))
                time.sleep(1.0)

        scraper = threading.Thread(target=scrape)
        scraper.start()
        try:
            requests = _attack(process, port, rng, rng.uniform(5, 30))
        finally:
            (folder / "end").touch()
            scraper.join(120)
            process.kill()
    told = json.loads((folder / "told.json").read_text())
    status, state = ENDS[how]
    last = next(text for text in reversed(texts) if text)

    assert told["raised"] == []
    assert process.returncode == status
    assert f'state="{state.value}"}} 1.0' in last, how
    assert re.search(rf"^rl_step{{.*}} {float(told['step'])}$", last, re.MULTILINE), how
    assert re.search(r"^rl_reward_mean{.*} 42.0$", last, re.MULTILINE), how
    assert told["grown"] < 30 << 20, told
    recorded = recording.read(folder / "run.jsonl")
    assert recorded.events[-1].state is state
    assert recorded.notes == ()
    return told["lines"], requests


def test_nothing_raises_and_nothing_is_lost(tmp_path: Path) -> None:
    """In life after life."""
    first = int(os.environ.get("ATTACK_SEED") or SystemRandom().randrange(1 << 32))
    until, lives, lines, requests = time.monotonic() + SECONDS, 0, 0, 0
    while not lives or (time.monotonic() < until and not os.environ.get("ATTACK_SEED")):
        seed = first + lives
        print(f"life {lives}: seed {seed}", flush=True)
        lived = _live(seed, tmp_path / str(seed))
        lives, lines, requests = lives + 1, lines + lived[0], requests + lived[1]
    print(f"{lives} lives, {lines} random lines, {requests} random requests: 0 raised, 0 lost")
