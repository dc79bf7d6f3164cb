"""Every block of Python in README and docs, run as it stands: what is the reader's is put before it or for `...`.

The one for legacy PPO is run in tests/versions/test_ppo_scripts.py, where TRL has it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rlexporter
from rlexporter import Exporter
from tests import tiny
from tests.conftest import fetch
from tests.docs.code_blocks import Block, blocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("any_port", "no_callbacks"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
FILLED = {
    "model=...": "model=model, processing_class=tokenizer",
    "reward_funcs=...": "reward_funcs=letters",
    "GRPOConfig(...)": "config",
    "train_dataset=...": "train_dataset=data",
}
MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])
RATIO = torch.tensor([[1.0, 1.1, 9.0], [0.9, 9.0, 9.0]])


@pytest.fixture
def names(tmp_path: Path) -> dict[str, Any]:
    """What a reader has: a trainer, what it is made of, and the numbers of a loop."""
    trainer = tiny.grpo(tmp_path, max_steps=2)
    return {
        "rlexporter": rlexporter,
        "torch": torch,
        "trainer": trainer,
        "model": trainer.model,
        "tokenizer": trainer.processing_class,
        "config": trainer.args,
        "data": trainer.train_dataset,
        "letters": tiny.letters,
        "steps": 2,
        "step": 2,
        "batches": [object(), object()],
        "stats": {"objective/kl": 0.5},
        "ratio": RATIO,
        "mask": MASK,
        "rewards": torch.tensor([0.25, 0.75]),
        "logprobs": torch.log(RATIO),
        "old_logprobs": torch.zeros(2, 3),
        "kl": 0.01,
        "entropy": 1.5,
        "norm": 0.5,
    }


def run(block: Block, names: dict[str, Any]) -> list[Exporter]:
    """Execute a block; the exporters that it started."""
    text = block.text
    for dots, filled in FILLED.items():
        text = text.replace(dots, filled)
    started: list[Exporter] = []
    start = Exporter.start

    def noted(self: Exporter, *, fallback: bool = False) -> Exporter:
        started.append(self)
        return start(self, fallback=fallback)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exporter, "start", noted)
        exec(compile(text, str(block), "exec"), names)
    return list(dict.fromkeys(started))


def counted(exporter: Exporter, series: str) -> int:
    """How many values a histogram without labels has."""
    (found,) = (each for of, each in exporter.snapshot.buckets.items() if of.metric.series == series)
    return found.count


def _trained(exporters: list[Exporter], names: dict[str, Any]) -> None:
    """The trainer of the block has trained, and both of its steps are served."""
    (exporter,) = exporters
    assert exporter.snapshot.value("rl_step") == 2
    assert "rl_reward_dist_bucket" in fetch(f"{exporter.url}/metrics")[1]
    exporter.close()


def _attached(exporters: list[Exporter], names: dict[str, Any]) -> None:
    """Limits are in force once it trains: that of KL, and none on the entropy."""
    names["trainer"].train()
    (exporter,) = exporters
    limits = {s.labels: v for s, v in exporter.snapshot.samples.items() if s.metric.series == "rl_threshold"}
    assert limits[("kl_high", "warning")] == 0.5
    assert not [labels for labels in limits if labels[0] == "entropy_low"]
    exporter.close()


def _looped(ratios: int) -> Callable[[list[Exporter], dict[str, Any]], None]:
    def check(exporters: list[Exporter], names: dict[str, Any]) -> None:
        """The loop has ended, and what the mask leaves out was not counted."""
        (exporter,) = exporters
        assert exporter.state.value == "finished"
        assert counted(exporter, "rl_policy_ratio_dist") == ratios
        exporter.close()

    return check


def _api(exporters: list[Exporter], names: dict[str, Any]) -> None:
    """Three advantages of each of three steps."""
    (exporter,) = exporters
    assert counted(exporter, "rl_advantage_dist") == 9
    assert exporter.snapshot.value("rl_step") == 3
    exporter.close()


def _rewarded(exporters: list[Exporter], names: dict[str, Any]) -> None:
    """The function of the block is given to a real trainer, whose log has its metric."""
    trainer = tiny.grpo(Path(names["trainer"].args.output_dir), max_steps=2, rewards=[names["calls_a_tool"]])
    exporter = rlexporter.attach(trainer)
    trainer.train()
    text = fetch(f"{exporter.url}/metrics")[1]
    assert 'rl_logged_value{key="tool_calls"' in text
    assert 'rl_reward_function_dist_bucket{le="0.0",rank="0",reward_function="calls_a_tool"' in text
    exporter.close()


def _logged(exporters: list[Exporter], names: dict[str, Any]) -> None:
    """By the exporter of the reader's own loop."""
    assert 'rl_logged_value{key="tool_calls"' in fetch(f"{names['exporter'].url}/metrics")[1]


def _braked(exporters: list[Exporter], names: dict[str, Any]) -> None:
    """What the block asks for is asked of its trainer, whose end is its own."""
    (exporter,) = exporters
    if exporter.state.value == "starting":
        names["trainer"].train()
    assert exporter._run.settings.on_critical in (("stop",), names.get("act"))
    assert (exporter.state.value, exporter.should_stop) == ("finished", False)
    exporter.close()


def _grouped(exporters: list[Exporter], names: dict[str, Any]) -> None:
    """Each member is a setting of the one exporter, which is not left running."""
    (exporter,) = exporters
    found = exporter._run.settings
    assert (found.on_critical, found.on_critical_for, found.on_critical_patience) == (("stop",), ("kl_high",), 3)
    assert (found.state_file, found.state_interval) == ("on", 60)
    exporter.close()


CHECKS: dict[tuple[str, str], Callable[[list[Exporter], dict[str, Any]], None]] = {
    ("README.md", "GRPOTrainer("): _trained,
    ("docs/index.md", "rlexporter.attach(trainer)"): _trained,
    ("docs/start.md", "GRPOTrainer(model=..."): _trained,
    ("docs/howto/grpo.md", "rlexporter.attach(trainer)"): _trained,
    ("docs/howto/ppo.md", "rlexporter.attach(trainer)"): _trained,
    ("docs/alerts.md", "thresholds={"): _attached,
    ("docs/howto/own-alert.md", "thresholds={"): _attached,
    ("docs/howto/own-loop.md", "with rlexporter.Exporter("): _looped(6),
    ("docs/frameworks.md", "with Exporter("): _looped(6),
    ("docs/python.md", "with rlexporter.Exporter("): _api,
    ("docs/settings.md", "OnCritical("): _grouped,
    ("docs/howto/on-critical.md", 'on_critical="stop"'): _braked,
    ("docs/howto/on-critical.md", "def act("): _braked,
    ("docs/howto/own-metric.md", "def calls_a_tool("): _rewarded,
    ("docs/howto/own-metric.md", "exporter.log({"): _logged,
}
"""What is true after a block, by its page and something that is in it."""
ELSEWHERE = {("docs/howto/ppo.md", "attach(ppo_trainer)")}


def _check(block: Block) -> Callable[[list[Exporter], dict[str, Any]], None]:
    found = [check for (page, words), check in CHECKS.items() if page == block.page and words in block.text]
    assert len(found) == 1, f"{block}: say in CHECKS what is true after it"
    return found[0]


def here() -> list[Block]:
    """The blocks but those that need another version of TRL; each once, since some pages have that of another."""
    texts = {block.text: block for block in reversed(blocks("python"))}.values()
    return [each for each in texts if not any(each.page == page and words in each.text for page, words in ELSEWHERE)]


@pytest.mark.parametrize("block", here(), ids=str)
def test_a_block(block: Block, names: dict[str, Any], exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs to its end, and has done what its page says."""
    monkeypatch.setenv("RLEXPORTER_LINGER_SECONDS", "0")
    names["exporter"] = exporter
    _check(block)(run(block, names), names)


def test_every_check_has_its_block() -> None:
    """A page that lost a block has lost its check as well."""
    pages = [(block.page, block.text) for block in blocks("python")]
    for wanted, words in [*CHECKS, *ELSEWHERE]:
        assert any(page == wanted and words in text for page, text in pages), (wanted, words)
