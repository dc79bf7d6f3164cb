"""The command line as a whole: what it offers, and to whom."""

from __future__ import annotations

import re

import pytest

from rlexporter.commands import main


def test_the_help_lists_what_users_have(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of a first day."""
    with pytest.raises(SystemExit):
        main.main(["--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if re.match(r" {4}\S", line)]
    assert listed == ["demo", "run", "metrics", "check", "replay", "generate", "discovery"]
