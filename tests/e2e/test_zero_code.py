"""Scripts that know nothing of rlexporter, trained by real launchers under `rlexporter run`, in whichever order."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

import pytest

from tests.tools import eventually, free_port, launched, served

SCRIPT = '''
import sys
import time
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

letters = ["<pad>", "<eos>", *"abcdefgh"]
raw = Tokenizer(WordLevel({letter: i for i, letter in enumerate(letters)}, unk_token="<pad>"))
raw.pre_tokenizer = Split("", "isolated")
shape = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)


def reward(completions, **_):
    """After two steps it waits to be told to go on."""
    while trainer.state.global_step >= 2 and not Path("enough").exists():
        time.sleep(0.05)
    return [text.count("a") + len(text) / 10 for text in completions]


trainer = GRPOTrainer(
    model=LlamaForCausalLM(LlamaConfig(vocab_size=len(letters), pad_token_id=0, eos_token_id=1, **shape)),
    processing_class=PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    ),
    reward_funcs=reward,
    args=GRPOConfig(
        output_dir="trained", max_steps=3, logging_steps=1, use_cpu=True, bf16=False, save_strategy="no",
        per_device_train_batch_size=2, num_generations=2, max_completion_length=4, disable_tqdm=True,
        dataloader_pin_memory=False,
    ),
    train_dataset=Dataset.from_dict({"prompt": ["ab", "cd"] * 8}),
)
trainer.remove_callback(PrinterCallback)
trainer.train()
sys.stdout.write(f"{sys.argv[1:]} {trainer.state.global_step}\\n")
sys.exit(int(sys.argv[1]))
'''
WORDS = ["--flag", "-x", "--port", "3"]
SAID = "['{status}', '--flag', '-x', '--port', '3'] 3\n"
TORCHRUN = ["torchrun", "--nproc-per-node", "2", "--master-port", "PORT"]
ACCELERATE = ["accelerate", "launch", "--num_processes", "2", "--main_process_port", "PORT"]
ACCELERATE += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
OURS = ["rlexporter", "run"]
OF_TRL = """
--model_name_or_path model --dataset_name data --reward_funcs paced.reward --output_dir trained --max_steps 3
--logging_steps 1 --use_cpu true --bf16 false --save_strategy no --per_device_train_batch_size 2 --num_generations 2
--max_completion_length 4 --report_to none
"""


def _started(command: list[str], folder: Path, port: int, **environ: str) -> AbstractContextManager[Popen[str]]:
    """A process in ``folder``, which has the script; what it writes is in `out` and `err`."""
    (folder / "train.py").write_text(SCRIPT)
    ours = {"RLEXPORTER_LISTEN_PORT": str(port), "RLEXPORTER_LINGER_SECONDS": "0", "PYTHONWARNINGS": "ignore"}
    return launched(command, folder, **{"PYTHONPATH": "", **ours, **environ})


def _served(port: int, folder: Path, *expected: str) -> str:
    """The metrics, as soon as they have these samples."""

    def fetch() -> str:
        found = served(port)
        return found if all(re.search(each, found, re.MULTILINE) for each in expected) else ""

    try:
        found: str = eventually(fetch)
    except AssertionError:
        pytest.fail((folder / "err").read_text()[-3000:])
    return found


def _ends_well(process: Popen[str], folder: Path) -> None:
    """Tell the script to go on, to its end."""
    (folder / "enough").touch()
    assert process.wait(600) == 0, (folder / "err").read_text()[-3000:]


@pytest.mark.slow
def test_a_script_is_watched_while_it_trains(tmp_path: Path) -> None:
    """Its words, its output and its end are those that it would have without us."""
    port = free_port()
    with _started([*OURS, "train.py", "7", *WORDS], tmp_path, port) as process:
        found = _served(port, tmp_path, "^rl_steps_total{.* 2.0$", r'^rl_run_state{.*"running"} 1.0$')
        assert re.search(r'^rl_run_info{algorithm="grpo",.*trainer="GRPOTrainer"', found, re.MULTILINE)
        assert re.search("^rl_reward_dist_bucket{.* 4.0$", found, re.MULTILINE)
        (tmp_path / "enough").touch()
        assert process.wait(600) == 7
    assert (tmp_path / "out").read_text() == SAID.format(status=7)


def _command(launcher: list[str]) -> list[str]:
    return [str(free_port()) if word == "PORT" else word for word in launcher] + ["train.py", "0", *WORDS]


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param([*OURS, *TORCHRUN], marks=pytest.mark.slow),
        *(
            pytest.param(each, marks=pytest.mark.soak)
            for each in (
                [*TORCHRUN, "-m", *OURS],
                [*TORCHRUN, "--no-python", *OURS],
                [*OURS, *ACCELERATE, "--multi_gpu"],
                [*ACCELERATE, "--multi_gpu", "--module", *OURS],
            )
        ),
    ],
    ids=" ".join,
)
def test_two_ranks(tmp_path: Path, launcher: list[str]) -> None:
    """Each is watched, on a port of its own where that was asked for, as one run."""
    port = free_port()
    with _started(_command(launcher), tmp_path, port, RLEXPORTER_RANKS="all", ACCELERATE_USE_CPU="true") as process:
        runs = set()
        for rank in (0, 1):
            found = _served(port + rank, tmp_path, rf'^rl_step{{rank="{rank}",.* 2.0$')
            runs |= set(re.findall(r'^rl_run_state.*run="(.*?)"', found, re.MULTILINE))
        assert len(runs) == 1
        _ends_well(process, tmp_path)
    assert (tmp_path / "out").read_text() == 2 * SAID.format(status=0)


@pytest.mark.soak
def test_the_command_line_of_trl(tmp_path: Path) -> None:
    """It starts `accelerate launch`, and that the script: both are Python, and only the last one trains."""
    from transformers import LlamaForCausalLM

    from rlexporter.demo import tiny

    LlamaForCausalLM(tiny.config(hidden_size=16, layers=1)).save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "data").mkdir()
    lines = [json.dumps({"prompt": prompt}) for prompt in tiny.prompts(16)]
    (tmp_path / "data" / "train.jsonl").write_text("\n".join(lines))
    (tmp_path / "paced.py").write_text(
        "import time\n"
        "from pathlib import Path\n"
        "def reward(completions, trainer_state, **_):\n"
        "    while trainer_state.global_step >= 2 and not Path('enough').exists():\n"
        "        time.sleep(0.05)\n"
        "    return [len(text) / 10 for text in completions]\n"
    )
    port = free_port()
    with _started([*OURS, "trl", "grpo", *OF_TRL.split()], tmp_path, port, HF_HOME=str(tmp_path / "home")) as process:
        found = _served(port, tmp_path, "^rl_steps_total{.* 2.0$")
        assert re.search(r'^rl_run_info{algorithm="grpo",.*model="model"', found, re.MULTILINE)
        _ends_well(process, tmp_path)
