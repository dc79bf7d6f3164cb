"""`rlexporter top`: several real exporters in a terminal, over real sockets."""

from __future__ import annotations

import io
import math
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from rlexporter import Exporter
from rlexporter.commands import top
from rlexporter.commands.main import main
from rlexporter.status.cards import FEW
from tests.commands.test_status import REFUSED
from tests.test_display import Terminal
from tests.tools import eventually, free_port

pytest.importorskip("rich", reason="the extra `top` is not installed")


@pytest.fixture(scope="module")
def fleet() -> Iterator[SimpleNamespace]:
    """Three runs, one of them with a NaN, one with markup for a name; and an address where nobody answers."""
    with ExitStack() as stack:
        runs = {}
        for name, loss in (("well", 0.25), ("sick", math.nan), ("[red]\u202egnp\x1b[2J", 0.5)):
            exporter = stack.enter_context(Exporter(run=name, algorithm="grpo", port=0, linger=0))
            exporter.log({"reward": 0.75, "kl": 0.125, "loss": 0.1}, step=1)
            exporter.log({"reward": 0.5, "kl": 0.0625, "loss": loss}, step=2)
            runs[name] = exporter
        yield SimpleNamespace(runs=runs, gone=f"127.0.0.1:{free_port()}", urls=[each.url for each in runs.values()])


def test_the_worst_comes_first(
    fleet: SimpleNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order of the addresses; each with its numbers, and all of why where it is no terminal that reads."""
    monkeypatch.setenv("COLUMNS", "40")
    capsys.readouterr()
    assert main(["top", "--once", *fleet.urls, fleet.gone]) == 3
    head, gone, sick, odd, well = capsys.readouterr().out.splitlines()

    assert head.split() == "run state step steps/s left reward KL entropy gradient norm why".split()
    assert gone.split()[:2] == [f"http://{fleet.gone}", "gone"]
    assert gone.endswith(f"  does not answer: {REFUSED}".rstrip())
    assert re.match(r"sick +act +running +2 +(\S+ +)?0\.5 +0\.0625 ", sick), "the pace, where two steps took some time"
    assert "rl_loss is NaN or infinite. It began in step 2." in sick
    assert re.match(r"well +fine +running +2 +(\S+ +)?0\.5 +0\.0625 ", well)
    assert odd.split()[:2] == [r"[red]\u202egnp\u001b[2J", "fine"], "a name is text"


@pytest.mark.parametrize(("names", "status"), [(["well"], 0), (["well", "sick"], 2), (["sick", ""], 3)])
def test_the_worst_is_the_exit_status(names: list[str], status: int, fleet: SimpleNamespace) -> None:
    """As that of `rlexporter status`, of each. An address that is named twice is one run."""
    urls = [fleet.runs[name].url if name else fleet.gone for name in names]
    assert main(["top", "--once", *urls, f"{urls[0]}/metrics"]) == status


def test_a_warning_is_an_exit_status_too(exporter: Exporter) -> None:
    """That of `look`."""
    for step in range(1, 16):
        exporter.log({"reward": 0.5 + 0.1 * (step % 3), "kl": 0.01 if step < 6 else 3.5}, step=step)
    eventually(lambda: main(["top", "--once", str(exporter.port)]) == 1)


LONG = "qwen2.5-7b-grpo-gsm8k-seed-1234"
NUMBERS = (("0.41", "0.0123", "1.22", "0.871"), ("0.5", "0.0123", "1.2", "0.8"))
ROWS = [
    dict(zip(top._COLUMNS, cells, strict=True))
    for cells in (
        (LONG, "act", "running", "412/1000", "0.0171", "9.6 h", *NUMBERS[0], "It fails. " * 7),
        ("b", "fine", "running", "5/1000", "0.02", "19.6 h", *NUMBERS[1], "All 30 checks pass."),
    )
]


def _drawn(width: int) -> list[str]:
    from rich.console import Console

    console = Console(width=width, file=io.StringIO())
    console.print(top.table(ROWS, width))
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in lines)
    return lines


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (200, "run state step steps/s left reward KL entropy gradient norm why"),
        (125, "run state step steps/s left reward KL why"),
        (110, "run state step steps/s left why"),
        (80, "run state why"),
        (60, "run why"),
        (48, "run why"),
        (40, "run"),
    ],
)
def test_names_are_whole_in_a_narrow_terminal(width: int, columns: str) -> None:
    """Numbers are dropped first, then the pace and where the run is; why is cut before a name is."""
    head, act, fine = _drawn(width)
    assert head.split() == columns.split()
    assert act.split()[:2] == [LONG, "act"]
    assert fine.split()[:2] == ["b", "fine"]
    assert ("…" in act) == ("why" in columns and width < 200)


def test_a_name_wider_than_the_terminal() -> None:
    """It goes on in the next line."""
    _, *lines = _drawn(24)
    assert "".join(line.split()[0] for line in lines[:-1]) == LONG


def test_a_number_that_is_none() -> None:
    """It is shown as what it is, and what is not known as nothing."""
    unknown = dict.fromkeys(("steps_planned", "step", "steps_per_second", "seconds_left"))
    run = {**unknown, "name": "a", "state": "starting"}
    cards = [{"main": [{"name": "reward", "value": "NaN"}, {"name": "KL", "value": None}]}]
    found = top.answered({"run": run, "cards": cards, "verdict": {"word": "act", "text": "why"}})

    assert (found["step"], found["steps/s"], found["left"]) == ("", "", "")
    assert [found[name] for name in FEW] == ["NaN", "", "", ""]
    later = {**run, "step": 7, "steps_planned": 9, "steps_per_second": 0.5, "seconds_left": 8000.0}
    found = top.answered({"run": later, "cards": [], "verdict": {"word": "fine", "text": ""}})
    assert (found["step"], found["steps/s"], found["left"]) == ("7/9", "0.5", "2.2 h")


def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """It is said before the screen is taken."""
    assert main(["top", "ftp://x"]) == 2
    assert "is no address of an exporter" in capsys.readouterr().err


def test_it_lives_in_a_terminal_until_ctrl_c(exporter: Exporter) -> None:
    """New steps come without a key, the terminal is as it was afterwards, and the last table stays."""
    exporter.log({"reward": 0.5, "kl": 0.25, "loss": 0.1}, step=1)
    terminal = Terminal(160)
    command = [sys.executable, "-m", "rlexporter", "top", "--interval", "0.2", exporter.url or ""]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "24"}
    theirs = terminal.slave
    process = subprocess.Popen(
        command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    text = ""

    def read(wanted: str) -> bool:
        nonlocal text
        if select.select([terminal.master], [], [], 1.0)[0]:
            text += os.read(terminal.master, 65536).decode(errors="replace")
        return wanted in text

    try:
        eventually(lambda: read("running"))
        exporter.log({"reward": 0.625, "kl": 0.25, "loss": 0.1}, step=33)
        eventually(lambda: read("0.625"))
        process.send_signal(signal.SIGINT)
        eventually(lambda: read("\x1b[?1049l"))
        assert process.wait(600) == 0
    finally:
        process.kill()
        terminal.close()
    assert "\x1b[?1049h" in text
