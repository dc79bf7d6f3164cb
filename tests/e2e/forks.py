"""Runs modules in forks of a process that has imported torch and TRL: that takes longer than a short training.

    with forks() as run:
        done = run(Fork("rlexporter", ("demo", "--steps", "5")))

What a fork runs is a `__main__` with arguments, variables and output of its own, and it ends as any process does. What
a test says of the import or of a launcher needs a process of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.tools import ROOT, free_port

LOADED = ("rlexporter.demo.training", "tests.tiny")
"""What is imported once: with it come torch, transformers and the trainers of TRL."""


@dataclass(frozen=True)
class Fork:
    """A module to run, as `python -m` does."""

    module: str
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


def ranks(number: int, module: str, arguments: Sequence[str], **environ: str) -> list[Fork]:
    """So many ranks of one training, told of each other as a launcher tells them."""
    told = {"WORLD_SIZE": str(number), "LOCAL_WORLD_SIZE": str(number), **environ}
    told |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    each = [told | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(number)]
    return [Fork(module, tuple(arguments), variables) for variables in each]


@dataclass(frozen=True)
class Done:
    """How one has ended, and what it has printed."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., list[Done]]


@contextmanager
def forks() -> Iterator[Run]:
    """Start the process; what it returns runs forks beside each other, until all of them have ended."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "tests.e2e.forks"]
    with (
        TemporaryDirectory() as folder,
        subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin
        assert process.stdout

        def run(*asked: Fork) -> list[Done]:
            assert process.stdin
            assert process.stdout
            print(json.dumps([folder, *map(asdict, asked)]), file=process.stdin, flush=True)
            statuses = json.loads(process.stdout.readline())
            return [
                Done(status, *((Path(folder) / f"{number}.{each}").read_text() for each in ("out", "err")))
                for number, status in enumerate(statuses)
            ]

        try:
            yield run
        finally:
            process.stdin.close()


def main() -> None:
    """Run what is asked for, a line of standard input each time, until there is no more."""
    answers = os.fdopen(os.dup(1), "w")
    for name in LOADED:
        importlib.import_module(name)
    for line in iter(sys.stdin.readline, ""):
        folder, *asked = json.loads(line)
        started = []
        for number, each in enumerate(asked):
            child = os.fork()
            if not child:
                _become(Path(folder) / str(number), **each)
                return
            started.append(child)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in started]
        print(json.dumps(statuses), file=answers, flush=True)


def _become(output: Path, module: str, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    for number, descriptor in (("out", 1), ("err", 2)):
        file = os.open(output.with_suffix(f".{number}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(environ)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
