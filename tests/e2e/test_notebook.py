"""A notebook: a real kernel, Ctrl-C in a cell, cells that are run again, and the card of a run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import fetch
from tests.e2e.notebook import QUIET, Notebook, opened
from tests.tools import eventually, free_port, prometheus

pytestmark = QUIET

_SETUP = """
import logging, time, warnings
from pathlib import Path
warnings.filterwarnings("ignore")
import rlexporter
from tests import tiny
"""
_CELL = """
trainer = tiny.grpo(Path({folder!r}), rewards=[tiny.letters], max_steps={steps})
exporter = rlexporter.attach(trainer, port={port})
"""


@pytest.mark.slow
def test_a_notebook(tmp_path: Path) -> None:
    """Interrupted, trained again, and the cell run anew: the server has it each time, and a card says how it is."""
    with opened(tmp_path) as notebook:
        _used(notebook, tmp_path)


def _used(notebook: Notebook, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    assert "Error" not in notebook.run(_SETUP + _CELL.format(folder=str(tmp_path), port=port, steps=10_000))
    name = notebook.run("print(exporter.name)").strip()
    with prometheus("3", tmp_path / "prometheus", [f"127.0.0.1:{port}"]) as server:
        notebook.client.execute("trainer.train()")
        eventually(lambda: re.search(r"rl_step{.*} ([5-9]|\d\d+)\.0", fetch(url)[1]))
        notebook.manager.interrupt_kernel()
        last = "print(exporter.snapshot.value('rl_last_log_step'))"
        step = float(eventually(lambda: re.findall(r"[\d.]+", notebook.run(last)))[-1])
        eventually(lambda: server.query(f'rl_run_state{{run="{name}",state="stopped"}} == 1'))
        assert server.value(f'rl_last_log_step{{run="{name}"}}') == step
        assert server.query(f'rl_run_exception_info{{run="{name}",exception="KeyboardInterrupt"}}')

    assert "Error" not in notebook.run("trainer.args.max_steps = 5\ntrainer.train()")
    text = fetch(url)[1]
    assert re.search(rf'rl_run_state{{.*run="{name}",state="finished"}} 1\.0', text)

    again = _CELL.format(folder=str(tmp_path), port=port, steps=40)
    assert "Error" not in notebook.run(again + "exporter")
    (html,) = notebook.cards  # that of the cell, which ends with an exporter
    assert ("starting" in html, f'href="http://127.0.0.1:{port}/"' in html) == (True, True)
    assert "Error" not in notebook.run("trainer.train()\nexporter")
    text = fetch(url)[1]
    assert f'run="{name}"' not in text
    assert re.search(r"rl_step{.*} 40\.0", text)
    left = "import threading\nprint([each.name for each in threading.enumerate() if 'rlexporter' in each.name])"
    assert notebook.run(f"exporter.close()\n{left}").strip() == "[]"
    (_, html) = notebook.cards
    assert "finished" in html
    assert "step 40 of 40" in html


_BROKEN = """
calls = 0
def broken(completions, **_):
    global calls
    calls += 1
    time.sleep(0.5)
    return [float("nan") if calls == 4 else float(len(text)) for text in completions]
trainer = tiny.grpo(Path({folder!r}), rewards=[broken], max_steps=12)
exporter = rlexporter.attach(trainer, port=0, linger=0)
trainer.train()
exporter.close()
"""


@pytest.mark.slow
def test_what_goes_wrong_is_shown_below_the_cell(tmp_path: Path) -> None:
    """Once, while it trains, and without any setting; a second look and the end of the run add nothing."""
    with opened(tmp_path) as notebook:
        assert "Error" not in notebook.run(_SETUP + _BROKEN.format(folder=str(tmp_path)))
        (html,) = notebook.cards
    assert re.search(
        r"<b [^>]+>act: trainer_output-\w+, step ([4-9]|1\d)</b><br>broken returned NaN or infinity\.", html
    )
    assert "<br>1. " in html


def test_a_terminal_gets_a_line() -> None:
    """IPython without a notebook, and no IPython at all: both print text."""
    code = "import rlexporter; exporter = rlexporter.Exporter(run='mine', port=0); "
    for command in (["-m", "IPython", "--no-banner", "-c", f"{code}exporter"], ["-c", f"{code}print(repr(exporter))"]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=600, check=True)
        assert done.stdout.splitlines()[-1].endswith("<Exporter of run mine, starting>")
