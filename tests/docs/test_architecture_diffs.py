"""docs/architecture.md: what its diffs add works as it says, in a copy of the package."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.test_architecture_page import PAGE
from tests.programs import printed
from tests.test_architecture import PACKAGE, ROOT

pytestmark = pytest.mark.slow
DIFFS = dict(re.findall(r"^\*\*([^*]+)\*\*[^*]*?```diff\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
METRIC, CONDITION, SIGNAL = "A metric", "A condition on a signal that exists", "A condition on a new signal"
ADAPTER, FRAMEWORK, OUTPUT = "An adapter", "A framework", "An output"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package in a folder of its own, with what writes files, and the page of which that writes a part."""
    for each in (PACKAGE, ROOT / "scripts"):
        shutil.copytree(each, tmp_path / each.name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs/frameworks.md", tmp_path / "docs")
    return tmp_path


def _apply(kind: str, root: Path) -> set[str]:
    """Apply a diff of the page; returns the files that it touches."""
    printed("git", "apply", "--verbose", "-", cwd=root, given=DIFFS[kind], GIT_CEILING_DIRECTORIES=str(root.parent))
    return set(re.findall(r"^\+\+\+ b/rlexporter/(\S+)$", DIFFS[kind], re.MULTILINE))


def _python(root: Path, *arguments: str) -> str:
    """What a Python prints that has the copy and nothing of the checkout."""
    return printed(sys.executable, *arguments, cwd=root, PYTHONPATH=str(root), OMP_NUM_THREADS="1")


def _run(root: Path, code: str) -> list[object]:
    """What a script says, one JSON document a line, when it has made sure whose package it uses."""
    head = "import json, rlexporter\n"
    tail = "\nprint(json.dumps(rlexporter.__file__))\n"
    *said, file = map(json.loads, _python(root, "-c", head + code + tail).splitlines())
    assert file == str(root / "rlexporter/__init__.py")
    return said


def _generated(root: Path) -> dict[str, str]:
    pytest.importorskip("transformers")  # docs/python.md describes the callback as well
    made: dict[str, str] = json.loads(
        _python(root, "-c", "import json; from scripts.generate import files; print(json.dumps(files()))")
    )
    return made


def test_the_page_has_a_diff_of_each_kind() -> None:
    """Six ways to add something."""
    assert list(DIFFS) == [METRIC, CONDITION, SIGNAL, ADAPTER, FRAMEWORK, OUTPUT]


def test_a_metric_is_one_entry(copy: Path) -> None:
    """Its key is served under its name in two steps, and `metrics --json` and docs have it.

    Dashboards draw whatever a run serves (tests/dashboards/test_lint.py).
    """
    assert _apply(METRIC, copy) == {"catalog/learning_metrics.py"}
    said = _run(
        copy,
        """
from rlexporter.outputs import prometheus
exporter = rlexporter.Exporter(run="r", algorithm="grpo")
for step, value in (1, 0.25), (2, 0.75):
    exporter.log({"router_z_loss": value}, step=step)
    body = prometheus.encode(exporter.snapshot, "")[0].decode()
    print(json.dumps([line for line in body.splitlines() if line.startswith("rl_router_z_loss{")]))
""",
    )
    labels = '{rank="0",run="r"}'
    assert said == [[f"rl_router_z_loss{labels} 0.25"], [f"rl_router_z_loss{labels} 0.75"]]

    listed = json.loads(_python(copy, "-m", "rlexporter", "metrics", "--json"))
    assert [each["keys"] for each in listed if each["series"] == "rl_router_z_loss"] == [["router_z_loss"]]
    made = _generated(copy)
    assert "| `rl_router_z_loss` |" in made["docs/metrics.md"]


JUDGED = """
exporter = rlexporter.Exporter(run="r", algorithm="grpo")
for step, length in enumerate({lengths}, 1):
    exporter.log({{"completions/mean_length": float(length)}}, step=step)
    asked = dict(condition="{name}", severity="warning")
    known = [exporter.snapshot.value(each, **asked) for each in ("rl_condition", "rl_condition_last_event_value")]
    print(json.dumps([step, *known]))
"""


def test_a_condition_is_one_entry(copy: Path) -> None:
    """It begins in the third step that is too short, with the value of that step, and has a rule and a runbook."""
    assert _apply(CONDITION, copy) == {"catalog/conditions.py"}

    said = _run(copy, JUDGED.format(lengths=[40, 3, 2, 3.5, 40, 40, 40], name="length_tiny"))

    assert said == [
        *([1, None, None], [2, None, None], [3, None, None], [4, 1.0, 3.5]),
        *([5, 1.0, 3.5], [6, 1.0, 3.5], [7, 0.0, 3.5]),
    ]
    made = _generated(copy)
    assert "- alert: RLLengthTiny\n" in made["alerts/rlexporter.rules.yml"]
    assert 'rl:alert{condition="length_tiny"}' in made["alerts/rlexporter.rules.yml"]
    assert "Completions are almost empty." in made["alerts/runbooks/RLLengthTiny.md"]


def test_a_new_signal_is_one_function_and_one_entry(copy: Path) -> None:
    """The diff adds one `def` and one `condition(...)`, in two files, and takes nothing away; that is all it needs."""
    lines = DIFFS[SIGNAL].splitlines()
    assert _apply(SIGNAL, copy) == {"conditions/signals.py", "catalog/conditions.py"}
    assert sum(line.startswith("+def ") for line in lines) == 1
    assert sum(line.startswith("+    condition(") for line in lines) == 1
    assert not [line for line in lines if line.startswith("-") and not line.startswith("---")]

    said = _run(copy, JUDGED.format(lengths=[10, 20, 10, 30, 33], name="length_swing"))

    assert said == [
        *([1, None, None], [2, None, None], [3, None, None]),  # 1.0 and 0.5 times the length before
        *([4, 1.0, 2.0], [5, 0.0, 2.0]),  # 2.0: two of the last three; then 0.1
    ]
    made = _generated(copy)
    assert "- alert: RLLengthSwing\n" in made["alerts/rlexporter.rules.yml"]
    assert "alerts/runbooks/RLLengthSwing.md" in made


def test_an_adapter_is_a_set_of_taps_and_a_line(copy: Path) -> None:
    """Two tensors of a made-up trainer are counted in two steps; without the method the signal says so."""
    assert _apply(ADAPTER, copy) == {"adapters/best_of_n.py", "adapters/selection.py"}
    said = _run(
        copy,
        """
import torch
from rlexporter.adapters.selection import taps_for
from rlexporter.model.metric import Series
from rlexporter.catalog.metrics import NAMED
from rlexporter.model.step import StepUpdate

class Accelerator:
    def clip_grad_norm_(self): pass

class Trainer:
    def __init__(self): self.accelerator = Accelerator()
    def training_step(self): pass
    def evaluate(self): pass
    def _save_checkpoint(self): pass

class BestOfNTrainer(Trainer):
    def score(self, rewards): return torch.tensor(rewards)

for trainer in BestOfNTrainer(), type("BestOfNTrainer", (Trainer,), {})():
    run = rlexporter.Exporter(run="r").run
    taps_for(trainer, run.sink)
    for step, rewards in (1, [0.5, 2.0]), (2, [4.0, 8.0, float("nan")]):
        if hasattr(trainer, "score"):
            assert trainer.score(rewards).shape == (len(rewards),)
        run.sink.advance(StepUpdate(step=step))
        seen = run.store.snapshot.buckets.get(Series(NAMED["rl_reward_dist"]))
        bad = run.store.snapshot.value("rl_nonfinite_values_total", metric="rl_reward_dist", kind="nan")
        counted = [seen.count, seen.positive_sum] if seen else None
        print(json.dumps([counted, bad, run.store.snapshot.value("rl_signal_available", signal="reward")]))
    run.close()
    print(json.dumps("score" in vars(trainer)))
""",
    )
    assert said == [[[2, 2.5], None, 1.0], [[4, 14.5], 1.0, 1.0], False, [None, None, 0.0], [None, None, 0.0], False]


def test_a_framework_is_one_file_and_a_line(copy: Path) -> None:
    """`rlexporter run` serves what a script logs by it in two steps, with its settings; the pages have it."""
    assert _apply(FRAMEWORK, copy) == {"frameworks/__init__.py", "frameworks/acme_rl.py"}
    added = [line for line in DIFFS[FRAMEWORK].partition("/dev/null")[0].splitlines() if re.match(r"[+-] ", line)]
    assert len(added) == 1
    (copy / "acme_rl").mkdir()
    (copy / "acme_rl/logger.py").write_text("class Logger:\n    def log(self, line, step): return line\n")
    (copy / "train.py").write_text("""
import json, os
os.environ |= {"RLEXPORTER_LISTEN_PORT": "0", "RLEXPORTER_LINGER_SECONDS": "0"}
from acme_rl.logger import Logger
logger = Logger()
logger.config = {"name": "mine", "model": "org/small", "rollout": {"n": 8}, "optim": {}}
for step, reward in (1, 0.25), (2, 0.75):
    assert logger.log({"acme/reward/mean": reward, "acme/kl": 0.5 * step}, step)
    from rlexporter.exporter import serving
    [exporter] = serving()
    shown, facts = exporter.snapshot, exporter.run._facts
    print(json.dumps([shown.value("rl_step"), shown.value("rl_reward_mean"), shown.value("rl_kl_per_token")]))
print(json.dumps([exporter.name, facts.framework, facts.info["model"], dict(facts.hyperparameters)]))
""")
    said = [json.loads(line) for line in _python(copy, "-m", "rlexporter", "run", "train.py").splitlines()]
    assert said == [[1.0, 0.25, 0.5], [2.0, 0.75, 1.0], ["mine", "acme-rl", "small", {"num_generations": 8.0}]]
    made = _generated(copy)
    assert "`acme_rl`" in made["docs/settings.md"]
    assert "### Acme RL\n" in made["docs/metrics.md"]


def test_an_output_is_a_ticker_and_a_setting(copy: Path) -> None:
    """The file holds what the last snapshot holds, in two lives of an exporter; without the setting there is none."""
    assert "outputs/textfile.py" in _apply(OUTPUT, copy)
    said = _run(
        copy,
        """
from pathlib import Path
from prometheus_client.parser import text_string_to_metric_families as parse
for path in Path("one.prom"), None:
    exporter = rlexporter.Exporter(run="r", algorithm="grpo", port=0, **({"textfile": path} if path else {}))
    for step, value in (1, 0.25), (2, 0.75):
        exporter.start()
        exporter.log({"reward": value}, step=step)
        exporter.close()
        found = parse(Path("one.prom").read_text()) if path else ()
        samples = {sample.name: sample.value for family in found for sample in family.samples}
        print(json.dumps([samples.get("rl_step"), samples.get("rl_reward_mean")]))
    print(json.dumps(exporter.snapshot.value("rlexporter_errors_total", where="textfile")))
    Path("one.prom").unlink(missing_ok=True)
print(json.dumps(Path("one.prom").exists()))
""",
    )
    assert said == [[1.0, 0.25], [2.0, 0.75], None, [None, None], [None, None], None, False]


@pytest.mark.parametrize("kind", DIFFS)
def test_what_is_added_passes_the_linter(copy: Path, kind: str) -> None:
    """As it would have to in the repository."""
    touched = sorted(str(copy / "rlexporter" / file) for file in _apply(kind, copy))
    settings = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    for command in (["check"], ["format", "--check"]):
        printed(sys.executable, "-m", "ruff", *command, *settings, *touched, cwd=copy)
