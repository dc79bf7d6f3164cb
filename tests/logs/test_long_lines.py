"""Long lines of something else in a console: whoever prints pictures or tokens can still check and follow the run."""

from __future__ import annotations

import base64
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import ROOT

SIZE = 1_000_000
SECONDS = 20
"""Of CPU, which the system enforces. It takes 0.5 seconds to start and less than one to read; it took hours."""
RANDOM = random.Random(0)
NOISE = {
    "base64": base64.b64encode(RANDOM.randbytes(SIZE * 3 // 4)).decode(),
    "spaces": " " * SIZE,
    "names and spaces": ("Train:" + " " * 1000) * (SIZE // 1006),
    "token ids": " ".join(str(RANDOM.randrange(150_000)) for _ in range(SIZE // 6)),
    "digits": "1" * SIZE,
    "a step of digits": "step:" + "1" * SIZE + " - reward:1",
    "dicts in dicts": "{'a': " * (SIZE // 6),
    "dicts that do not end": "{'a': 1, " * (SIZE // 9),
    "texts that do not end": "{'a': '" * (SIZE // 7),
    "a list in verl's line": "step:3 - a:[" + "1," * (SIZE // 2) + "] - b:2",
    "bars": "50%|" + "#" * SIZE,
    "brackets": "[" * SIZE,
}
READ = f"""
import resource, sys
from pathlib import Path
from rlexporter.logs import reader
from rlexporter.logs.growing import Stream

resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
path = Path(sys.argv[1])
whole = [event.step for event in reader.read(path, "grpo").events if event.logs]
stream, content = Stream(path, "grpo", print), path.read_bytes()
pieces = [content[at : at + 65536] for at in range(0, len(content), 65536)]
grown = [event for piece in pieces for event in stream.feed(piece)]
grown += stream.close()
print(len(whole), sum(event.logs is not None for event in grown))
"""


def _in_lines(text: str, length: int) -> str:
    return "\n".join(text[at : at + length] for at in range(0, len(text), length))


@pytest.mark.slow
@pytest.mark.parametrize("length", [SIZE * 2, 100])
@pytest.mark.parametrize("what", NOISE)
def test_it_costs_a_second(tmp_path: Path, what: str, length: int) -> None:
    """A megabyte in one line, and in lines of a terminal's width: the log lines around it are found."""
    logged = "{'loss': 0.5, 'reward': 1.0, 'epoch': 0.1}\n"
    (tmp_path / "log.txt").write_text(logged * 3 + _in_lines(NOISE[what], length) + "\n" + logged * 2)
    command = [sys.executable, "-c", READ, str(tmp_path / "log.txt")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)

    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    found = done.stdout.split()[-2:]
    assert found == (["1", "1"] if "verl" in what else ["5", "5"])
