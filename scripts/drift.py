"""Which versions of TRL the log keys and the taps fit, read from their sources: `python -m scripts.drift`.

Wheels are downloaded once and read as zip files; nothing of them is installed or imported. Of each minor version the
last patch release counts. What a name means, and what a method returns, no syntax tree can tell: only that it is there.
"""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlexporter.adapters.ppo import _MICRO_BATCH, _STEP
from rlexporter.adapters.trainer_facts import algorithm_of
from rlexporter.catalog.algorithms import GRPO, PPO, RLOO
from rlexporter.catalog.metrics import CATALOG
from rlexporter.catalog.run_metrics import TENSOR_SIGNALS
from rlexporter.feed.keys import Resolver
from scripts import log_keys

WHEELS = Path(__file__).parent.parent / ".tools/wheels"
OLDEST = (0, 12)
NUMBERS = "numbers before averaging"  # what `_metrics` gives: no signal of its own

Sources = Mapping[str, str]  # what a wheel has, by path
_SCORES = "_get_per_token_logps_and_entropies"


class UnreachableError(Exception):
    """Wheels are missing, and no package index gave them."""


@dataclass(frozen=True)
class Trainer:
    """A trainer, and what each signal needs of it: methods, attributes, calls, variables; `a|b`: either will do."""

    name: str
    algorithm: str
    modules: tuple[str, ...]
    needs: Mapping[str, tuple[str, ...]]


_GROUP_NEEDS = {
    "reward": ("_calculate_rewards", "reward_weights", "reward_funcs", "reward_func_names", "num_generations"),
    "advantage": ("_generate_and_score_completions",),
    **dict.fromkeys(("ratio", "kl", "logprob"), (f"{_SCORES}|_get_per_token_logps", "_compute_loss")),
    "entropy": (_SCORES, "_compute_loss"),
    **dict.fromkeys(("completion_length", "prompt_length"), ("_generate|_generate_and_score_completions",)),
    **dict.fromkeys(("loss", "grad_norm"), ("training_step",)),
    **dict.fromkeys(("weights", "reference", "prompt", "copies"), ("_generate_and_score_completions",)),
    "loss_mask": (f"{_SCORES}|_get_per_token_logps",),
    NUMBERS: ("_metrics['train']|_metrics",),
}
_PPO_NEEDS = {
    "reward": ("self.log", "scores"),
    "advantage": ("self.log", "advantages", "padding_mask"),
    "ratio": ("accelerator.accumulate", "ratio", "new_logprobs", "mb_logprobs"),
    "kl": ("self.log", "kl", "ref_logprobs", "padding_mask"),
    "logprob": ("self.log", "logprobs", "padding_mask"),
    "entropy": ("accelerator.accumulate", "entropy", "new_logprobs"),
    "completion_length": ("self.log", "sequence_lengths"),
    "prompt_length": ("self.log", "queries"),
    "loss": ("accelerator.accumulate", "loss", "pg_loss", "vf_loss"),
    "grad_norm": ("accelerator.backward",),
    **dict.fromkeys(("weights", "reference"), ("self.log",)),
    "prompt": ("self.log", "queries"),
    "value": ("self.log", "values", "returns", "padding_mask_p1"),
}
TRAINERS = (
    Trainer("GRPOTrainer", GRPO, ("trl/trainer/grpo_trainer.py",), _GROUP_NEEDS),
    Trainer("RLOOTrainer", RLOO, ("trl/trainer/rloo_trainer.py",), _GROUP_NEEDS),
    # From 0.26 to 0.28 the old place has a class that only warns.
    Trainer("PPOTrainer", PPO, ("trl/experimental/ppo/ppo_trainer.py", "trl/trainer/ppo_trainer.py"), _PPO_NEEDS),
)
_TAPPED = {path for trainer in TRAINERS for path in trainer.modules}


@dataclass(frozen=True)
class Found:
    """What one version of TRL has of one trainer."""

    trainer: str
    version: str
    keys: frozenset[str]  # what its module logs; what is known only when it runs is in braces
    foreign: frozenset[str]  # of those: in the catalog for other algorithms only (the first meaning counts)
    unknown: frozenset[str]  # of those: not in the catalog
    absent: frozenset[str]  # what the taps need and is not there
    lost: tuple[str, ...]  # the signals that need it
    state: str  # of the distributions: complete, partly, none


def inspect(trainer: Trainer, version: str, sources: Sources) -> Found | None:
    """None where this version has no such trainer."""
    path = next((path for path in trainer.modules if path in sources), None)
    if path is None:
        return None
    classes, outside = _chain(sources, path, trainer.name)
    offered = _offered_by_train(classes) if trainer.algorithm == PPO else _offered(classes, outside)
    wanted = itertools.chain(*trainer.needs.values())
    absent = frozenset(name for name in wanted if offered.isdisjoint(name.split("|")))
    lost = tuple(signal for signal in (*TENSOR_SIGNALS, NUMBERS) if absent & set(trainer.needs.get(signal, ())))
    state = "complete" if not lost else "none" if len(lost) == len(trainer.needs) else "partly"
    keys = _keys(sources, path, classes)
    own = {key.name for metric in CATALOG for key in metric.keys if trainer.algorithm in key.algorithms}
    known = re.compile("|".join(re.sub(r"\\{.*?\\}", "[^/]+", re.escape(name)) for name in own))
    foreign = frozenset(key for key in keys if not known.fullmatch(_pattern(key)))
    strange = unknown(trainer.algorithm, foreign)
    return Found(trainer.name, version, keys, foreign - strange, strange, absent, lost, state)


def _pattern(key: str) -> str:
    """`rewards/{}/mean`, whatever stands in the braces."""
    return re.sub(r"\{.*?\}", "{}", key)


def _chain(sources: Sources, path: str, name: str) -> tuple[list[ast.ClassDef], set[str]]:
    """The class and its bases as far as they are in the wheel, and the names of those that are not."""
    nodes = list(ast.walk(ast.parse(sources.get(path, ""))))
    found = next((node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name), None)
    if found is None:
        return [], {name}
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    imported = {each.asname or each.name: (_target(path, node), each.name) for node in imports for each in node.names}
    classes, outside = [found], set[str]()
    for base in found.bases:
        further, beyond = _chain(sources, *imported.get(ast.unparse(base), (path, ast.unparse(base))))
        classes += further
        outside |= beyond
    return classes, outside


def _target(path: str, node: ast.ImportFrom) -> str:
    package = path.split("/")[: -node.level] if node.level else []
    return "/".join([*package, *(node.module or "__init__").split(".")]) + ".py"


def _offered(classes: Sequence[ast.ClassDef], outside: set[str]) -> set[str]:
    """Methods and attributes; the loop of transformers' Trainer only where `train` is not another one."""
    offered = {node.name for each in classes for node in each.body if isinstance(node, ast.FunctionDef)}
    for node in (node for each in classes for node in ast.walk(each)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            offered.add(node.attr)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self._metrics":
            keys = node.value.keys if isinstance(node.value, ast.Dict) else []
            offered |= {f"_metrics[{ast.unparse(key)}]" for key in keys if key}
    if "train" in offered:
        return offered - {"training_step"}
    return offered | ({"training_step"} if "Trainer" in outside else set())


def _offered_by_train(classes: Sequence[ast.ClassDef]) -> set[str]:
    """The calls of `train()`, and the variables that it has where the taps look: assigned before, and not deleted."""
    functions = (node for each in classes for node in each.body if isinstance(node, ast.FunctionDef))
    nodes = list(itertools.chain(*(ast.walk(node) for node in functions if node.name == "train")))
    calls = {ast.unparse(node.func): node.lineno for node in nodes if isinstance(node, ast.Call)}
    blocks = [node for node in nodes if isinstance(node, ast.With)]
    ends = [each.end_lineno or 0 for each in blocks if "accelerator.accumulate(" in ast.unparse(each.items[0])]
    names = [node for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]
    events = sorted((node.lineno, node.col_offset, node.id, isinstance(node.ctx, ast.Store)) for node in names)

    def there(wanted: Iterable[str], line: int) -> set[str]:
        last = {name: stored for at, _, name, stored in events if at <= line}
        return {name for name in wanted if last.get(name)}

    return {*calls, *there(_MICRO_BATCH, max(ends, default=0)), *there(_STEP, calls.get("self.log", 0))}


def others(sources: Sources) -> dict[str, tuple[str, frozenset[str]]]:
    """Every other trainer of a version, stable and experimental: its algorithm, and the keys that it logs."""
    found = {}
    for path, source in sources.items():
        if not re.fullmatch(r"trl/(trainer|experimental)/.*_trainer\.py", path) or path in _TAPPED:
            continue
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and re.fullmatch(r"[A-Z]\w*Trainer", node.name):
                classes, outside = _chain(sources, path, node.name)
                algorithm = algorithm_of([*(each.name for each in classes), *sorted(outside - {"Trainer"})])
                found[node.name] = (algorithm, _keys(sources, path, classes))
    return found


def unknown(algorithm: str, keys: Iterable[str]) -> frozenset[str]:
    """Those of the keys that the catalog does not know."""
    resolver = Resolver(CATALOG, algorithm)
    return frozenset(key for key in keys if not resolver.knows(_pattern(key)))


def _keys(sources: Sources, path: str, classes: Sequence[ast.ClassDef]) -> frozenset[str]:
    """What a trainer logs: in its module, in the folder of an experimental one, and in what it has of its bases."""
    folder = path.rpartition("/")[0]
    modules = [each for each in sources if each.rpartition("/")[0] == folder] if "experimental/" in path else [path]
    trees = (ast.parse(sources[each]) for each in modules)
    return frozenset(log_keys.logged([*trees, *log_keys.inherited(classes)]))


def check(versions: Sequence[str] | None = None) -> list[Found]:
    """Every trainer in every version, trainer by trainer, oldest version first. Downloads what is missing."""
    wheels = {version: read(version) for version in (released() if versions is None else versions)}
    found = (inspect(trainer, version, sources) for trainer in TRAINERS for version, sources in wheels.items())
    return [each for each in found if each]


def released() -> list[str]:
    """The last patch release of each minor version, oldest first."""
    listed = re.findall(r"\b\d+\.\d+\.\d+\b", _pip("index", "versions", "trl").partition("Available versions:")[2])
    numbers = sorted({tuple(map(int, each.split("."))) for each in listed})
    last = {number[:2]: number for number in numbers if number >= OLDEST}
    return [".".join(map(str, number)) for number in last.values()]


def read(version: str) -> Sources:
    """The sources of a version, downloaded once."""
    path = WHEELS / f"trl-{version}-py3-none-any.whl"
    if not path.exists():
        _pip("download", "--quiet", "--no-deps", "--only-binary=:all:", f"--dest={WHEELS}", f"trl=={version}")
    with zipfile.ZipFile(path) as file:
        names = [name for name in file.namelist() if name.startswith("trl/") and name.endswith(".py")]
        return {name: file.read(name).decode() for name in names}


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - our own
    if done.returncode:
        raise UnreachableError(f"no package index gave `pip {' '.join(arguments)}`:\n{done.stderr.strip()[-500:]}")
    return done.stdout


def rows(found: Sequence[Found]) -> list[tuple[str, str, str, str]]:
    """Trainer, versions, state of the distributions, signals that are not there; one row a range of equal results."""
    groups = itertools.groupby(found, lambda each: (each.trainer, each.state, ", ".join(each.lost) or "-"))
    return [(name, spell(list(group)), state, lost) for (name, state, lost), group in groups]


def spell(found: Sequence[Found]) -> str:
    """Their versions, from the first to the last."""
    return " to ".join(dict.fromkeys(each.version.rpartition(".")[0] for each in (found[0], found[-1])))


def main() -> int:
    """Print the table and the log keys of each trainer; 1 where the newest version of one lacks what the taps need."""
    try:
        found = check()
    except UnreachableError as error:
        sys.exit(f"drift: {error}")
    print(*(f"| {' | '.join(row)} |" for row in rows(found)), sep="\n")
    for name, group in itertools.groupby(found, lambda each: each.trainer):
        mine = list(group)
        print(f"\n{name}: log keys, and the versions that have them")
        for key in sorted({key for each in mine for key in each.keys}):
            having = [each for each in mine if key in each.keys]
            print(f"  {key:45} {spell(having):15}", "not in the catalog" if key in having[-1].unknown else "")
    return int(any(each.absent for each in {each.trainer: each for each in found}.values()))


if __name__ == "__main__":
    sys.exit(main())
