"""A notebook: a real kernel, Ctrl-C in a cell, cells that are run again, and the card of a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from tests.conftest import fetch
from tests.tools import GENERATIONS, ROOT, eventually, free_port, prometheus

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
    time.sleep(0.1)
    return tiny.letters(completions)
"""
_CELL = """
trainer = tiny.grpo(Path({folder!r}), rewards=[paced], max_steps={steps})
exporter = rlexporter.attach(trainer, port={port})
"""


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A running kernel: `run(code)` executes a cell and gives its output, `start(code)` does not wait."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(extra_arguments=["--HistoryManager.enabled=False"], env={**os.environ, "OMP_NUM_THREADS": "1"})
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=600)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def _run(client: Any, code: str) -> str:
    """Execute a cell; what it printed, or how it failed."""
    texts: list[str] = []

    def output(message: Any) -> None:
        content = message["content"]
        texts.append(content.get("text") or " ".join(content.get("traceback", [])))

    client.execute_interactive(code, timeout=600, output_hook=output)
    return "".join(texts)


@pytest.mark.slow
def test_a_notebook(tmp_path: Path, kernel: Any) -> None:
    """Interrupted, trained again, and the cell run anew: state and values reach both servers each time."""
    manager, client = kernel
    port = free_port()
    cell = _CELL.format(folder=str(tmp_path), port=port, steps=10_000)
    assert "Error" not in _run(client, _SETUP + cell + "print(exporter.name)")
    url = f"http://127.0.0.1:{port}/metrics"
    with (
        prometheus(GENERATIONS[0], tmp_path / "p2", [f"127.0.0.1:{port}"]) as first,
        prometheus(GENERATIONS[1], tmp_path / "p3", [f"127.0.0.1:{port}"], "2s") as second,
    ):
        client.execute("trainer.train()")
        eventually(lambda: re.search(r"rl_step{.*} ([5-9]|\d\d)\.0", fetch(url)[1]))
        manager.interrupt_kernel()
        name = eventually(lambda: re.findall(r"(trainer_output-\w+)", _run(client, "print(exporter.name)")))[-1]
        step = float(re.findall(r"[\d.]+", _run(client, 'print(exporter.snapshot.value("rl_last_log_step"))'))[-1])
        for server in (first, second):
            eventually(partial(server.query, f'rl_run_state{{run="{name}",state="stopped"}} == 1'))
            assert server.value(f'rl_last_log_step{{run="{name}"}}') == step
            assert server.query(f'rl_run_exception_info{{run="{name}",exception="KeyboardInterrupt"}}')

        assert "Error" not in _run(client, "trainer.args.max_steps = 5\ntrainer.train()")
        eventually(lambda: 'state="finished"} 1.0' in fetch(url)[1])
        assert f'run="{name}"' in fetch(url)[1]

        again = _CELL.format(folder=str(tmp_path), port=port, steps=3)
        assert "Error" not in _run(client, again + "trainer.train()\nprint(exporter.name)")
        text = fetch(url)[1]
        assert f'run="{name}"' not in text
        assert re.search(r"rl_step{.*} 3\.0", text)


def test_the_card_of_a_run_is_live(tmp_path: Path, kernel: Any) -> None:
    """The cell that shows an exporter keeps up with the run to its end, and the thread for it is gone then."""
    _, client = kernel
    port = free_port()
    cards: list[tuple[str, str, str]] = []

    def output(message: Any) -> None:
        content = message["content"]
        if "text/html" in content.get("data", {}):
            shown = (message["msg_type"], content["transient"]["display_id"], content["data"]["text/html"])
            cards.append(shown)

    cell = _CELL.format(folder=str(tmp_path), port=port, steps=40)
    client.execute_interactive(_SETUP + cell + "exporter", timeout=600, output_hook=output)
    assert [kind for kind, _, _ in cards] == ["display_data"]
    assert "starting" in cards[0][2]
    assert f'href="http://127.0.0.1:{port}/"' in cards[0][2]

    client.execute_interactive("trainer.train()\nexporter.close()", timeout=600, output_hook=output)
    steps = [re.findall(r"step (\d+) of 40", html) for _, _, html in cards]
    assert {kind for kind, _, _ in cards[1:]} == {"update_display_data"}
    assert len({name for _, name, _ in cards}) == 1
    assert len(cards) > 3
    assert steps == sorted(steps, key=lambda found: int(found[0]))
    assert "finished" in cards[-1][2]
    assert steps[-1] == ["40"]
    left = "import threading\nprint([each.name for each in threading.enumerate() if 'rlexporter' in each.name])"
    assert _run(client, left).strip() == "[]"


def test_a_terminal_gets_a_line() -> None:
    """IPython without a notebook, and no IPython at all: nothing there could be changed later."""
    code = "import rlexporter; exporter = rlexporter.Exporter(run='mine', port=0); "
    for command in (["-m", "IPython", "--no-banner", "-c", f"{code}exporter"], ["-c", f"{code}print(repr(exporter))"]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=600, check=True)
        assert done.stdout.splitlines()[-1].endswith("<Exporter of run mine, starting>")
