"""The rooms of the package in their order, and its leaves: what can be deleted, with its tests and its lines in a list.

All that is no leaf is the core, which imports none. Where it needs one it has a list with the module by name, and loads
it when it is asked for. tests/test_leaves.py deletes each leaf in a copy; docs/images/rooms.svg shows them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "rlexporter"

LAYERS = (
    ("version", "atomic_file", "terminal", "model"),
    ("catalog", "frameworks", "tensors"),
    ("conditions", "adapters", "recording"),
    ("config", "feed"),
    ("status",),
    ("run", "outputs", "endpoint"),
    ("exporter", "integrations", "display"),
    ("demo", "logs", "commands", "__main__"),
)
"""Who may import whom: what stands before it, in its own layer or in one below."""


@dataclass(frozen=True)
class Leaf:
    """A part of the package that nothing in the core imports."""

    name: str
    what: str
    """What it is, for docs/architecture.md."""
    files: tuple[str, ...]
    """Its files and folders, below `rlexporter`."""
    tests: tuple[str, ...]
    """Those that are about it alone, below `tests`."""
    lists: tuple[str, ...] = ()
    """The files with a list that names it; empty where only leaves import it."""
    needs: tuple[str, ...] = ()
    """The leaves that it imports."""

    def owns(self, path: str) -> bool:
        """Return True for the path of a file of this leaf, below `rlexporter`."""
        return any(path == own or path.startswith(f"{own}/") for own in self.files)


_COMMANDS, _OUTPUTS = "commands/__init__.py", "outputs/__init__.py"
_FRAMEWORKS, _ADAPTERS = "frameworks/__init__.py", "adapters/selection.py"
_LANGUAGES = "catalog/languages/__init__.py"


def _framework(name: str, what: str, *tests: str) -> Leaf:
    return Leaf(name, what, (f"frameworks/{name}.py",), tests, (_FRAMEWORKS,))


LEAVES = (
    Leaf(
        "logs",
        "Reads what others wrote, and has the commands over it.",
        ("logs",),
        ("logs",),
        (_COMMANDS, _FRAMEWORKS),
        ("display",),
    ),
    Leaf(
        "demo",
        "A training of a tiny model, with faults on request.",
        ("demo",),
        ("demo", "e2e/test_demo.py"),
        (_COMMANDS,),
        ("display",),
    ),
    Leaf(
        "display", "What a terminal shows of a run: a live line and a summary.", ("display.py",), ("test_display.py",)
    ),
    Leaf("top", "Several runs in a terminal.", ("commands/top.py",), ("commands/test_top.py",), (_COMMANDS,)),
    Leaf(
        "notify",
        "Messages to a person.",
        (*(f"outputs/{file}.py" for file in ("notify", "courier", "services", "plain_text")), "commands/notify.py"),
        ("outputs/test_notify.py", "outputs/test_courier.py", "outputs/test_services.py"),
        (_OUTPUTS, _COMMANDS),
    ),
    Leaf(
        "notebook",
        "The card of a run, and messages in a cell.",
        ("outputs/notebook.py",),
        ("e2e/test_notebook.py",),
        (_OUTPUTS,),
        ("notify",),
    ),
    Leaf(
        "otlp",
        "Push by OpenTelemetry.",
        ("outputs/otlp.py", "outputs/otlp_data.py"),
        ("outputs/test_otlp.py", "outputs/test_otlp_data.py"),
        (_OUTPUTS,),
    ),
    Leaf(
        "discovery",
        "Target files for Prometheus.",
        ("outputs/discovery.py", "commands/discovery.py"),
        ("outputs/test_discovery.py",),
        (_OUTPUTS, _COMMANDS),
    ),
    Leaf(
        "state_file",
        "The last state of a run, for `replay`.",
        ("outputs/state_file.py",),
        ("outputs/test_state_file.py",),
        (_OUTPUTS,),
    ),
    _framework("verl", "verl.", "loggers/test_verl.py"),
    _framework("openrlhf", "OpenRLHF.", "loggers/test_openrlhf.py"),
    _framework("nemo_rl", "NeMo-RL.", "loggers/test_nemo_rl.py"),
    _framework("prime_rl", "prime-rl.", "loggers/test_prime_rl.py"),
    _framework("slime", "slime and miles.", "integrations/test_slime_hook.py"),
    _framework("trl_based", "ms-swift and Unsloth: their keys.", "versions/test_swift.py", "versions/test_unsloth.py"),
    _framework(
        "loggers",
        "W&B, MLflow, Trackio, TensorBoard, Accelerate.",
        *(f"loggers/test_{name}.py" for name in ("wandb", "mlflow", "trackio", "tensorboard", "accelerate")),
    ),
    Leaf(
        "grpo",
        "Taps on GRPO and RLOO.",
        ("adapters/grpo.py", "adapters/rewards.py"),
        ("adapters/test_grpo.py", "adapters/test_grpo_faults.py"),
        (_ADAPTERS,),
    ),
    Leaf("swift", "Taps on ms-swift.", ("adapters/swift.py",), ("versions/test_swift.py",), (_ADAPTERS,), ("grpo",)),
    Leaf("ppo", "Taps on modern PPO.", ("adapters/ppo.py",), ("versions/test_ppo.py",), (_ADAPTERS,)),
    Leaf(
        "ppo_legacy",
        "Taps on PPO up to trl 0.11.",
        ("adapters/ppo_legacy.py",),
        tuple(f"adapters/test_ppo_legacy_{what}.py" for what in ("counts", "faults", "runs")),
        (_ADAPTERS,),
    ),
    Leaf("vi", "Vietnamese.", ("catalog/languages/vi.json",), (), (_LANGUAGES,)),
    Leaf("zh", "Chinese.", ("catalog/languages/zh.json",), (), (_LANGUAGES,)),
)
NAMED = {leaf.name: leaf for leaf in LEAVES}


def imports(file: Path) -> Iterator[str]:
    """Yield the modules of ours that a file imports, wherever that stands, and the names that it takes from them."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if name.startswith("rlexporter."))


def leaf_named(module: str) -> str:
    """Return the name of the leaf that a module is in; empty for the core, and for a name that is no module."""
    path = module.removeprefix("rlexporter.").replace(".", "/")
    return leaf_of(path) or leaf_of(f"{path}.py")


def gone_with(leaf: Leaf) -> Iterator[Leaf]:
    """Yield ``leaf``, and every leaf that needs it."""
    yield leaf
    for other in LEAVES:
        if leaf.name in other.needs:
            yield from gone_with(other)


def leaf_of(path: str) -> str:
    """Return the name of the leaf that a file below `rlexporter` belongs to; empty for the core."""
    return next((leaf.name for leaf in LEAVES if leaf.owns(path)), "")
