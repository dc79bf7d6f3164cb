"""Makes the models and data that TRL's tests take from the Hugging Face hub, by TRL's own scripts, without network.

Run in a checkout of TRL as `python hub.py FOLDER`: it writes FOLDER/hub, which is a cache of the hub, and FOLDER/data.
What its scripts download is replaced: tokenizers are trained here (byte-level BPE, with TRL's chat template of the
model; small, so that tests which write out ids of the real ones fail), and a configuration is that of the
class. Nothing of this project is imported here, as TRL has a `scripts` too.
"""

from __future__ import annotations

import importlib
import re
import runpy
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TRL = Path.cwd()
TEMPLATES = TRL / "trl/chat_templates"
SCRIPTS = "generate_tiny_models"
FOLDERS = ("for_causal_lm", "for_sequence_classification")
"""Kinds of models; those with images need processors that cannot be made here."""
DATA = ("zen", "toolcall")

ENDS = ("<|im_end|>", "<|eot_id|>", "<|return|>", "<end_of_turn>", "<|END_OF_TURN_TOKEN|>", "<|end|>", "<|endoftext|>")
"""What ends an answer: the first of these that a chat template writes."""
VOCABULARY = 8000
"""Enough that sentences of the data are as short, in tokens, as tests expect."""
FAMILIES = (
    ("qwen3.*2507", "qwen3_instruct_2507"),
    ("qwen3", "qwen3"),
    ("qwen", "qwen2_5"),
    ("llama-3.2", "llama3_2"),
    ("llama-3.1", "llama3_1"),
    ("llama", "llama3"),
    ("gpt-oss", "gptoss"),
    ("glm", "glm4moe"),
    ("gemma", "gemma"),
    ("deepseek", "deepseekv3"),
    ("nemotron.*nano", "nemotron_3_nano"),
    ("nemotron.*super", "nemotron_3_super"),
    ("nemotron", "nemotron_3_ultra"),
    ("phi", "phi3"),
    ("command-r7b|c4ai.*12|cohere2", "cohere2"),
    ("c4ai|cohere", "cohere"),
    ("lfm2.5", "lfm2_2_5"),
    ("lfm2", "lfm2"),
)
"""A pattern of a model's name, and the template that its tokenizer has; the first that fits."""


def tokenizer(name: str, *_: Any, **__: Any) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer for the model of that name, trained on TRL's documentation."""
    family = next((template for pattern, template in FAMILIES if re.search(pattern, name.lower())), "")
    text = (TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8") if family else ""
    special = sorted(set(re.findall(r"<\|[\w ]+\|>|<(?:start|end)_of_turn>", text)) | {"<|endoftext|>"})
    end = next(each for each in ENDS if each in special)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=_learned(special),
        eos_token=end,
        pad_token="<|endoftext|>",  # noqa: S106 - a token of text
        additional_special_tokens=[each for each in special if each != end],
    )
    fast.chat_template = text or None
    return fast


def _learned(special: list[str]) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    pages = [str(each) for each in sorted([*(TRL / "docs").rglob("*.md"), *(TRL / "scripts").glob("*.py")])]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train(pages, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet))
    return made


def _generation_config(name: str, *_: Any, **__: Any) -> transformers.GenerationConfig:
    made = tokenizer(name)
    return transformers.GenerationConfig(eos_token_id=made.eos_token_id, pad_token_id=made.pad_token_id)


def _config(name: str, *_: Any, **given: Any) -> transformers.PretrainedConfig:
    kinds = {
        "qwen3": "qwen3_moe" if "A3B" in name else "qwen3",
        "qwen": "qwen2",
        "llama": "llama",
        "pythia": "gpt_neox",
    }
    kind = next(kind for part, kind in kinds.items() if part in name.lower())
    return transformers.CONFIG_MAPPING[kind](vocab_size=len(tokenizer(name).vocab), **given)


def _publishing(folder: Path) -> Callable[..., None]:
    def publish(model: Any, made: Any, generation: Any, prefix: str = "", suffix: str = "", **_: Any) -> None:
        name = "-".join(each for each in (prefix, type(model).__name__, suffix) if each)
        repository = folder / f"hub/models--trl-internal-testing--{name}"
        for each in (model, made, generation):
            if each is not None:
                each.save_pretrained(repository / "snapshots/0")
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs/main").write_text("0")

    return publish


def make_models(folder: Path) -> None:
    """Run the scripts that make models, each with what it needs from the hub replaced; say which could not be made."""
    common = importlib.import_module(f"{SCRIPTS}._common")
    for name in ("check_transformers_version", "check_dtype_pattern", "print_config_diff", "smoke_test"):
        setattr(common, name, lambda *_, **__: None)
    setattr(common, "push_to_hub", _publishing(folder))  # noqa: B010 - it is no module of ours
    transformers.AutoTokenizer.from_pretrained = tokenizer
    transformers.GenerationConfig.from_pretrained = _generation_config
    transformers.AutoConfig.from_pretrained = _config
    for kind in FOLDERS:
        for script in sorted((TRL / "scripts" / SCRIPTS / kind).glob("[!_]*.py")):
            torch.manual_seed(0)
            try:
                runpy.run_module(f"{SCRIPTS}.{kind}.{script.stem}")
            except Exception:  # noqa: BLE001 - whatever a script needs that is not here
                reason = traceback.format_exc().strip().rpartition("\n")[2]
                print(f"trl-suite: {script.stem} cannot be made here: {reason[:100]}")


def make_data(folder: Path) -> None:
    """Run the scripts that make data sets, and keep each under its name."""

    def keep(made: datasets.DatasetDict, repository: str, config_name: str = "default") -> None:
        made.save_to_disk(folder / "data" / repository / config_name)

    datasets.DatasetDict.push_to_hub = keep
    for name in DATA:
        main = runpy.run_path(str(TRL / f"scripts/generate_{name}_dataset.py"))["main"]
        main(0.1, True, f"trl-internal-testing/{name}")


if __name__ == "__main__":
    sys.path.insert(0, str(TRL / "scripts"))
    made_in = Path(sys.argv[1])
    shutil.rmtree(made_in, ignore_errors=True)
    datasets.disable_progress_bars()
    make_data(made_in)
    make_models(made_in)
