"""The command line as a whole: what it offers, and to whom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlexporter.commands import main

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("words", [["--help"], [], ["nosuch"], ["generated"]], ids=" ".join)
def test_maintainers_alone_know_of_generate(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the help nor an error offers it."""
    with pytest.raises(SystemExit):
        main.main(words)
    said = "".join(capsys.readouterr())
    assert "usage: rlexporter [-h] [--version] COMMAND ..." in said
    assert "generate" not in said.replace("'generated'", "")


def test_generate_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for by its name: `make generate` and `make check` do."""
    assert main.main(["generate", "--check", "--root", str(ROOT)]) == 0
    assert main.main(["generate", "--check", "--root", str(tmp_path)]) == 1
    assert main.main(["generate", "--root", str(tmp_path)]) == 0
    assert "wrote docs/metrics.md" in capsys.readouterr().out
    assert main.main(["generate", "--check", "--root", str(tmp_path)]) == 0


def test_the_help_lists_what_users_have(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of a first day."""
    with pytest.raises(SystemExit):
        main.main(["--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if re.match(r" {4}\S", line)]
    assert listed == ["demo", "run", "metrics", "check", "replay", "discovery"]
