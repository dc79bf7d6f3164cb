"""The paths of newcomers: of somebody who has just cloned this, and of somebody without a clone.

The first has the README's demo and its page. The second has the wheel, an environment of their own, the README's
example, and the first NaN: the reward function returns it now and then, and TRL leaves it out of its sum over reward
functions, so that nothing of it is in the log, and the run goes on. Every name of ours that is typed here is one that
the first pages have; paths, ports and what stands for `...` are the reader's.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import wheels
from tests.conftest import fetch
from tests.docs.code_blocks import blocks
from tests.page.browser import chromium
from tests.tools import ROOT, eventually, free_port, prometheus, wait_scraped

_FIRST_PAGES = ("README.md", "docs/start.md")
_TEXT = "\n".join((ROOT / page).read_text() for page in _FIRST_PAGES)


def said(words: str) -> str:
    """``words``, which the README or the page that it begins with must have."""
    assert words in _TEXT, words
    return words


def first_example(filled: dict[str, str]) -> str:
    """The first block of Python of the README that trains; ``filled``: what a reader writes for each of its `...`."""
    text = next(each.text for each in blocks("python") if each.page == "README.md" and "Trainer" in each.text)
    for dots, own in filled.items():
        assert dots in text, dots
        text = text.replace(dots, own)
    assert "..." not in text
    return text


def environment(**more: str) -> dict[str, str]:
    """The variables of a shell in which nobody has set one of ours, or of Python's; and ``more``."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("RLEXPORTER_", "PYTHON"))}
    return own | more


def run(folder: Path, *command: str | Path, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    """What a command in ``folder`` says, as text; ``seconds``: after which it is given up."""
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=seconds, check=False
    )


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """What a clone of this checkout is: no environment, no tools, no caches."""
    made = shutil.ignore_patterns(".venv*", ".tools", ".git", ".work", "dist", "*_cache", "__pycache__", ".hypothesis")
    folder = tmp_path / "rlexporter"
    shutil.copytree(ROOT, folder, ignore=made)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # a gigabyte


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_from_a_clone_to_the_first_page(clone: Path) -> None:
    """`make` sets up all that the demo needs, whose page is seen, and whose fault is told."""
    said('make demo ARGS="--fault nan@200"')
    printed = clone / "demo.txt"
    with printed.open("w") as out:
        demo = subprocess.Popen(
            ["make", "demo", "ARGS=--fault nan@20 --linger 600"],  # lingers as on a terminal, which a test has not
            cwd=clone,
            env=environment(),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        eventually(lambda: " on http://" in printed.read_text() or demo.poll() is not None, 3000)
        assert demo.poll() is None, printed.read_text()[-2000:]
        (url,) = re.findall(r" on (http://127\.0\.0\.1:\d+)/", printed.read_text())
        assert "<title>" in fetch(f"{url}/")[1]
        eventually(lambda: "the final state stays" in printed.read_text())
        command = said("rlexporter status http://127.0.0.1:9750").split()
        told = run(clone, clone / ".venv/bin" / command[0], command[1], url)
        assert told.returncode == 2, told.stderr
        assert told.stdout.startswith("act ")
        assert "rl_grad_norm is NaN" in told.stdout
        os.killpg(demo.pid, signal.SIGINT)
        demo.wait(600)
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
            demo.wait()


_OWN = """\
from datasets import Dataset
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

letters = ["<pad>", "<eos>", *"abcdefghijklmnopqrstuvwxyz "]
words = Tokenizer(models.WordLevel({each: i for i, each in enumerate(letters)}, unk_token="<pad>"))
words.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
tokenizer.save_pretrained("my-model")
sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
config = LlamaConfig(vocab_size=len(letters), pad_token_id=0, eos_token_id=1, **sizes)
LlamaForCausalLM(config).save_pretrained("my-model")

calls = 0


def vowels(completions, **_):
    global calls
    calls += 1
    return [float("nan") if calls % 4 == 0 else sum(map(text.count, "aeiou")) for text in completions]


def short(completions, **_):
    return [-len(text) / 10 for text in completions]


prompts = Dataset.from_dict({"prompt": ["say a word", "and one more"] * 8})
settings = dict(output_dir="output", max_steps=1_000_000, use_cpu=True, bf16=False, save_strategy="no", report_to=[],
                per_device_train_batch_size=4, num_generations=2, max_completion_length=8, logging_steps=1)
"""
"""What is the reader's own: a model on disk with its tokenizer, rewards, data, and settings of TRL."""
_FILLED = {
    "model=...": 'model="my-model"',
    "reward_funcs=...": "reward_funcs=[vowels, short]",
    "GRPOConfig(...)": "GRPOConfig(**settings)",
    "train_dataset=...": "train_dataset=prompts",
}
_ALERT = "RLRewardLost"


@pytest.fixture
def bin_folder(tmp_path: Path, clone: Path) -> Iterator[Path]:
    """The programs of an environment with wheel, torch and TRL, set up by `scripts/setup` as it is for `make dist`."""
    wheels.build(clone / "dist")
    env = tmp_path / "env"
    for command in (f"scripts/setup wheel-torch {env}", f"{{uv}} pip install --quiet --python {env}/bin/python trl"):
        uv = shutil.which("uv") or clone / ".work/uv/bin/uv"
        done = run(clone, *command.format(uv=uv).split(), seconds=3000)
        assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(clone)  # nothing of it is needed any more
    yield env / "bin"
    shutil.rmtree(env, ignore_errors=True)  # a gigabyte


@pytest.mark.soak
@pytest.mark.timeout(6000)
def test_from_the_wheel_to_the_first_alert(bin_folder: Path, tmp_path: Path) -> None:
    """The run is seen in a browser; the NaN that its log hides fires in Prometheus, and is in the recording."""
    port, program = free_port(), bin_folder / "rlexporter"
    pack = said("rlexporter generate --out pack").split()
    made = run(tmp_path, bin_folder / pack[0], *pack[1:])
    assert made.returncode == 0, made.stderr
    rules = tmp_path / "pack" / said("alerts/rlexporter.rules.yml")

    (tmp_path / "train.py").write_text(_OWN + first_example(_FILLED))
    own = {said("RLEXPORTER_RUN"): "mine", said("RLEXPORTER_LISTEN_PORT"): str(port), "HF_HUB_OFFLINE": "1"}
    own |= {said("RLEXPORTER_RECORD"): "mine.jsonl", "PYTHONUNBUFFERED": "1"}
    with (tmp_path / "printed").open("w") as printed:
        command = [str(bin_folder / "python"), "train.py"]
        training = subprocess.Popen(
            command, cwd=tmp_path, env=environment(**own), stdout=printed, stderr=subprocess.STDOUT, text=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        told = tmp_path / "printed"
        eventually(lambda: f"serving run mine on {url}/" in told.read_text() or training.poll() is not None)
        eventually(lambda: 'rl_nonfinite_values_total{kind="nan"' in fetch(f"{url}/metrics")[1])
        assert training.poll() is None, told.read_text()[-2000:]
        with prometheus("3", tmp_path / "prometheus", [f"127.0.0.1:{port}"], rules=rules) as server:
            wait_scraped(server, 1, time.time())
            firing = f'ALERTS{{alertname="{_ALERT}",alertstate="firing",run="mine"}}'
            eventually(lambda: server.query(firing))
        with chromium() as browser:
            page = browser.new_page()
            page.goto(f"{url}/", timeout=600_000)
            page.get_by_text("NaN").first.wait_for(timeout=600_000)
            assert "mine" in page.title()
        status = run(tmp_path, program, said("status"), url)
        assert status.returncode == 2, status.stdout + status.stderr
        log = told.read_text()  # of TRL: who reads it sees rewards, and nothing of this
        assert "rewards/vowels/mean" in log
        assert not re.search(r"\bnan\b", log, re.IGNORECASE)
        training.send_signal(signal.SIGINT)
        training.wait(600)
    finally:
        training.kill()
        training.wait()
    checked = run(tmp_path, program, said("check"), "mine.jsonl")
    assert (checked.returncode, checked.stderr) == (2, "")
    assert _ALERT in checked.stdout
    said("rlexporter report run.jsonl -o run.html")
    reported = run(tmp_path, program, "report", "mine.jsonl", "-o", "mine.html")
    assert reported.stdout.startswith("wrote mine.html: "), reported.stderr
    assert "mine" in (tmp_path / "mine.html").read_text()
