"""The command line as a whole: what it offers, and to whom."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlexporter.commands import main
from tests.tools import ROOT


def test_the_help_lists_what_users_have(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of a first day."""
    with pytest.raises(SystemExit):
        main.main(["--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if re.match(r" {4}\S", line)]
    assert listed == "demo run status top metrics check report replay tail generate discovery".split()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("demo", ["--stepz", "5"]),
        ("run", ["--prot", "1", "train.py"]),
        ("discovery prune", ["x", "--older", "1d", "y"]),
    ],
)
def test_a_typing_error_gets_the_usage_of_its_command(
    command: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not that of the whole program, which has none of its options; also of a command within a command."""
    with pytest.raises(SystemExit, match="2"):
        main.main([*command.split(), *words])
    usage, *_, said = capsys.readouterr().err.splitlines()
    assert usage.startswith(f"usage: rlexporter {command} [-h]")
    assert said.startswith(f"rlexporter {command}: error: unrecognized arguments: ")


def test_a_pipe_that_is_closed_is_no_error(tmp_path: Path) -> None:
    """As with `| head`: no traceback, and the status that a shell gives a command which ended so."""
    command = f"{sys.executable} -m rlexporter metrics; echo $? > {tmp_path / 'status'}"
    with subprocess.Popen(["sh", "-c", command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert (tmp_path / "status").read_text() == "141\n"
