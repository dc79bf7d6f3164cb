"""A notebook: a real kernel, Ctrl-C in a cell, cells that are run again, and the card of a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from tests.conftest import fetch
from tests.tools import ROOT, eventually, free_port, prometheus

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_SETUP = """
import logging, time, warnings
from pathlib import Path
warnings.filterwarnings("ignore")
import rlexporter
from tests import tiny
def paced(completions, **_):
    time.sleep(0.25)  # twenty times in 40 steps, so that no machine is too fast for a card that moves once a second
    return tiny.letters(completions)
"""
_CELL = """
trainer = tiny.grpo(Path({folder!r}), rewards=[paced], max_steps={steps})
exporter = rlexporter.attach(trainer, port={port})
"""


@dataclass
class Notebook:
    """One of a running kernel, with the cards that its cells have shown: how, under which name, and what they say."""

    manager: Any
    client: Any
    cards: list[tuple[str, str, str]] = field(default_factory=list)

    def run(self, code: str) -> str:
        """Execute a cell; what it printed, or how it failed."""
        texts: list[str] = []

        def output(message: Any) -> None:
            content = message["content"]
            texts.append(content.get("text") or " ".join(content.get("traceback", [])))
            if "text/html" in content.get("data", {}):
                name = content["transient"]["display_id"]
                self.cards.append((message["msg_type"], name, content["data"]["text/html"]))

        self.client.execute_interactive(code, timeout=600, output_hook=output)
        return "".join(texts)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """An empty one."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(extra_arguments=["--HistoryManager.enabled=False"], env={**os.environ, "OMP_NUM_THREADS": "1"})
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=600)
    yield Notebook(manager, client)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_a_notebook(tmp_path: Path, notebook: Notebook) -> None:
    """Interrupted, trained again, and the cell run anew: the server has it each time, and the card keeps up."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    assert "Error" not in notebook.run(_SETUP + _CELL.format(folder=str(tmp_path), port=port, steps=10_000))
    name = notebook.run("print(exporter.name)").strip()
    with prometheus("3", tmp_path / "prometheus", [f"127.0.0.1:{port}"]) as server:
        notebook.client.execute("trainer.train()")
        eventually(lambda: re.search(r"rl_step{.*} ([5-9]|\d\d)\.0", fetch(url)[1]))
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
    ((kind, _, html),) = notebook.cards  # that of the cell, which ends with an exporter
    assert (kind, "starting" in html, f'href="http://127.0.0.1:{port}/"' in html) == ("display_data", True, True)
    assert "Error" not in notebook.run("trainer.train()")
    text = fetch(url)[1]
    assert f'run="{name}"' not in text
    assert re.search(r"rl_step{.*} 40\.0", text)
    left = "import threading\nprint([each.name for each in threading.enumerate() if 'rlexporter' in each.name])"
    assert notebook.run(f"exporter.close()\n{left}").strip() == "[]"
    shown = notebook.cards[1:]
    steps = [int(found) for _, _, html in shown for found in re.findall(r"step (\d+) of 40", html)]
    assert {kind for kind, _, _ in shown} == {"update_display_data"}
    assert len({name for _, name, _ in notebook.cards}) == 1
    assert len(steps) == len(shown) >= 3
    assert steps == sorted(steps)
    assert steps[-1] == 40
    assert "finished" in shown[-1][2]


def test_a_terminal_gets_a_line() -> None:
    """IPython without a notebook, and no IPython at all: nothing there could be changed later."""
    code = "import rlexporter; exporter = rlexporter.Exporter(run='mine', port=0); "
    for command in (["-m", "IPython", "--no-banner", "-c", f"{code}exporter"], ["-c", f"{code}print(repr(exporter))"]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=600, check=True)
        assert done.stdout.splitlines()[-1].endswith("<Exporter of run mine, starting>")
