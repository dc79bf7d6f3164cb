"""The live line of the demo and of a replay, on terminals of all widths and on none."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from rlexporter import display
from rlexporter.display import Display, _sparkline
from rlexporter.exporter import Exporter, serving
from tests.adapters.broken import Clock
from tests.conftest import fetch

_LINE = {
    "reward": 1.2734,
    "kl": 0.3541,
    "entropy": 0.8871,
    "clip_ratio/region_mean": 0.00292,
    "completions/mean_length": 10.73,
    "grad_norm": 1.71,
}
_DRAWN = re.compile(r"\r\x1b\[2K([^\r\n]*)")


class Terminal:
    """A real pseudo-terminal."""

    def __init__(self, columns: int) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns)
        self.out = os.fdopen(self.slave, "w", encoding="utf-8")

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def text(self) -> str:
        """All that was written since the last call."""
        print("END", file=self.out, flush=True)
        text = ""
        while "END" not in text:
            text += os.read(self.master, 1 << 16).decode()
        return text.replace("END\r\n", "")

    def drawn(self) -> str:
        """The last live line that was written."""
        return str(_DRAWN.findall(self.text())[-1])

    def close(self) -> None:
        self.out.close()
        os.close(self.master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A wide one, of somebody who looks, with every line drawn."""
    monkeypatch.setattr(display, "_EVERY_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    made = Terminal(200)
    yield made
    made.close()


def _run(exporter: Exporter, shown: Display, steps: int = 20, reward: float = 0.0) -> None:
    shown._began = time.monotonic() - 10.0
    first = int(exporter.snapshot.value("rl_step") or 0)
    for step in range(first + 1, first + steps + 1):
        exporter.log({**_LINE, "reward": reward or _LINE["reward"] + step / 100}, step=step)
        shown.step()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """One that serves nothing."""
    made = Exporter(run="test", algorithm="grpo")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        (120, ["step", "bars", "reward", "kl", "entropy", "clipped", "length", "grad", "steps/s"]),
        (110, ["step", "bars", "reward", "kl", "entropy", "clipped", "length", "steps/s"]),
        (80, ["step", "bars", "reward", "kl", "entropy", "steps/s"]),
        (0, ["step", "bars", "reward", "kl", "entropy", "steps/s"]),
        (40, ["step", "reward", "steps/s"]),
        (20, ["step"]),
        (5, ["step"]),
    ],
)
def test_the_line_fits_its_terminal(terminal: Terminal, exporter: Exporter, columns: int, parts: list[str]) -> None:
    """The least important numbers go first, and it never wraps; a terminal may be resized meanwhile.

    One without a size, as over a serial line, has 80 columns.
    """
    shown = Display(terminal.out)
    shown.watch(exporter)
    _run(exporter, shown)
    assert len(terminal.drawn()) > 100
    terminal.resize(columns)
    _run(exporter, shown)
    line = terminal.drawn()

    assert len(line) < (columns or 80)
    names = re.findall(r"steps/s|step|reward|kl|entropy|clipped|length|grad|bars", re.sub("[▁▂▃▄▅▆▇█]+", "bars", line))
    assert names == parts


@pytest.mark.parametrize("where", ["file", "CI", "dumb"])
def test_without_a_person_there_are_whole_lines(
    terminal: Terminal, exporter: Exporter, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file, in a log of CI that pretends to be a terminal, and where nothing can be overwritten."""
    monkeypatch.setenv(*{"file": ("CI", ""), "CI": ("CI", "true"), "dumb": ("TERM", "dumb")}[where])
    monkeypatch.setattr(display, "_EVERY_SECONDS_IN_A_FILE", 0.0)
    terminal.resize(40)
    out = io.StringIO() if where == "file" else terminal.out
    shown = Display(out)
    shown.watch(exporter)
    _run(exporter, shown, steps=3)
    text = out.getvalue() if isinstance(out, io.StringIO) else terminal.text()

    assert "\x1b" not in text
    assert len(re.findall(r"^step \d  .*reward .*kl .*grad .* steps/s\r?$", text, re.MULTILINE)) == 3


def test_no_bar_is_made_up(exporter: Exporter) -> None:
    """One value is no course; a reward that is absent or NaN has no bar, and an encoding without the signs has none."""
    assert _sparkline([]) == _sparkline([1.0]) == ""
    assert _sparkline([1.0, 2.0]) == "▁█"
    shown = Display(io.StringIO())
    shown.watch(exporter)
    exporter.log({"kl": 1.0}, step=1)
    shown.step()
    _run(exporter, shown, steps=1)
    assert shown._bars() == ""
    _run(exporter, shown, steps=2, reward=float("nan"))
    assert shown._bars() == ""
    _run(exporter, shown, steps=1)
    assert shown._bars() == "▁█"
    shown = Display(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    shown.watch(exporter)
    _run(exporter, shown)
    assert shown._bars() == ""


def test_it_never_sleeps_for_long(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C between the line and the sleep does not wake a sleeper: it is heard when the sleep is over."""
    clock = Clock()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.wait(seconds)

    shown = Display(io.StringIO())
    shown.watch(exporter)
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=clock, sleep=sleep))
    shown.stay(600)

    assert max(slept) <= 1.0
    assert sum(slept) == pytest.approx(600, abs=0.1)


def test_ctrl_c_ends_it_after_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the line says, although a scraper has not seen the final state: the end of the process waits for none."""
    exporter = Exporter(run="test", port=0).start()
    url, patience = exporter.url, exporter._ending.patience
    exporter.log({"reward": 1.0}, step=1)
    fetch(f"{url}/metrics", **{"User-Agent": "Prometheus/3.5.3"})
    exporter.log({"reward": 2.0}, step=2)
    exporter.end()
    assert 140 < patience() <= 150
    out = io.StringIO()
    shown = Display(out)
    shown.watch(exporter)

    def pressed(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pressed)
    shown.stay(600)

    assert f"the final state stays on port {(url or '').rpartition(':')[2]} for 600 s; Ctrl-C ends it" in out.getvalue()
    assert patience() == 0
    assert exporter not in serving()
