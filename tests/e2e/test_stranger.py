"""The path of somebody without a clone: the wheel, an environment of their own, the README's example, the first NaN.

The reward function returns NaN now and then, which TRL leaves out of its sum over reward functions: nothing of it is in
the log, and the run goes on. Every name of ours that is typed here is one that the first pages have.
"""

from __future__ import annotations

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
from tests.e2e import strangers
from tests.e2e.strangers import said
from tests.page.browser import chromium
from tests.tools import eventually, free_port, prometheus, wait_scraped

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
_ALERT = "RLRewardNonFinite"


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs of an environment with the wheel and TRL, which `scripts/setup` makes as it does for `make dist`."""
    folder = tmp_path_factory.mktemp("stranger")
    strangers.copy(folder / "rlexporter")
    wheels.build(folder / "rlexporter/dist")
    environ, env = strangers.environment(), folder / "env"
    for command in (f"scripts/setup wheel {env}", f"{env}/bin/python -m pip install --quiet trl"):
        done = strangers.run(folder / "rlexporter", environ, *command.split(), seconds=3000)
        assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(folder / "rlexporter")  # nothing of it is needed any more
    yield env / "bin"
    shutil.rmtree(folder, ignore_errors=True)  # a gigabyte


@pytest.mark.slow
@pytest.mark.timeout(6000)
def test_from_the_wheel_to_the_first_alert(bin_folder: Path, tmp_path: Path) -> None:
    """The run is seen in a browser; the NaN that its log hides fires in Prometheus, and is in the recording."""
    environ, port = strangers.environment(), free_port()
    pack = said("rlexporter generate --out pack").split()
    made = strangers.run(tmp_path, environ, str(bin_folder / pack[0]), *pack[1:])
    assert made.returncode == 0, made.stderr
    rules = tmp_path / "pack" / said("alerts/rlexporter.rules.yml")

    (tmp_path / "train.py").write_text(_OWN + strangers.first_example(_FILLED))
    own = {said("RLEXPORTER_RUN"): "mine", said("RLEXPORTER_LISTEN_PORT"): str(port), "HF_HUB_OFFLINE": "1"}
    own[said("RLEXPORTER_RECORD")] = "mine.jsonl"
    with (tmp_path / "printed").open("w") as printed:
        command = [str(bin_folder / "python"), "train.py"]
        training = subprocess.Popen(
            command, cwd=tmp_path, env=environ | own, stdout=printed, stderr=subprocess.STDOUT, text=True
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
        status = strangers.run(tmp_path, environ, str(bin_folder / "rlexporter"), said("status"), url)
        assert status.returncode == 2, status.stdout + status.stderr
        log = told.read_text().lower()  # of TRL: who reads it sees rewards, and nothing of this
        assert "rewards/vowels/mean" in log
        assert not re.search(r"\bnan\b", log)
        training.send_signal(signal.SIGINT)
        training.wait(600)
    finally:
        training.kill()
        training.wait()
    checked = strangers.run(tmp_path, environ, str(bin_folder / "rlexporter"), said("check"), "mine.jsonl")
    assert (checked.returncode, checked.stderr) == (2, "")
    assert _ALERT in checked.stdout
