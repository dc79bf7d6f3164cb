"""A run of many log lines, scraped all the while: memory stays where it is, and every line is counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import ROOT

RUN = """
import json, math, os, sys, threading, urllib.request
from rlexporter import Exporter
from tests.conditions.planted import LINES

lines, folder = int(sys.argv[1]), sys.argv[2]
exporter = Exporter(
    run="soak", algorithm="grpo", port=0, linger=0, state_file=f"{folder}/state.json", discovery=folder,
    otlp="http://127.0.0.1:9",
).start()
over, scraped, scrapes = threading.Event(), threading.Event(), []

def scrape():
    while not over.wait(0.2):
        with urllib.request.urlopen(exporter.url + "/metrics") as answer:
            scrapes.append(len(answer.read()))
            scraped.set()

def memory():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6

scraper = threading.Thread(target=scrape)
scraper.start()
begun = 0
for step in range(1, lines + 1):
    line = {**LINES["grpo"](step), f"key/{step}": 1.0, f"rewards/{step % 1000}/mean": 0.5}
    line["loss"] = math.nan if step % 100 == 0 else line.get("loss", 0.1)
    exporter.log(line, step=step)
    exporter.observe("policy_ratio", [0.9, 1.1])
    if step % (lines // 8) == 0:
        scraped.clear()
        assert scraped.wait(60)  # on a fast machine all lines are there before the second scrape
    if step == lines // 4:
        begun = memory()
grown = memory() - begun
over.set()
scraper.join()
value = exporter.snapshot.value
counted = next(b.count for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_policy_ratio_dist")
print(json.dumps({
    "grown": grown, "begun": begun, "scrapes": len(scrapes), "largest": max(scrapes), "counted": counted,
    "steps": value("rl_steps_total"), "nan": value("rl_nonfinite_values_total", metric="rl_loss", kind="nan"),
    "errors": {s.labels[0]: v for s, v in exporter.snapshot.samples.items()
               if s.metric.series == "rlexporter_errors_total" and v},
    "series": len(exporter.snapshot.samples),
}))
exporter.close()
"""


@pytest.mark.parametrize(
    ("lines", "most"),
    [
        pytest.param(4_000, 8, marks=pytest.mark.slow),
        pytest.param(200_000, 4, marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
)
def test_memory_is_flat(tmp_path: Path, lines: int, most: int) -> None:
    """With keys and names that never come again, a NaN now and then, a state file, and a collector that is away.

    A short run has not filled its curves, and on a slow machine it is scraped more often: 1.4 MB with 20 scrapes, 3.0
    with 45, 4.2 with 93.
    """
    command = [sys.executable, "-c", RUN, str(lines), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=1700, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)

    assert found["grown"] < most, "megabytes, over three quarters of the run"
    assert (found["steps"], found["counted"], found["nan"]) == (lines, 2 * lines, lines // 100)
    assert found["scrapes"] >= 8
    assert found["largest"] < 250_000
    assert set(found["errors"]) <= {"otlp"}
    assert found["series"] < 1500
