"""The shape of the package: who imports whom, what an import costs, and how large the pieces are."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "rlexporter"
SOURCES = sorted(PACKAGE.rglob("*.py"))

LAYERS = (
    ("version", "atomic_file", "model"),
    ("catalog", "tensors"),
    ("conditions", "adapters"),
    ("config", "store", "generate"),
    ("recording", "outputs", "status"),
    ("run", "endpoint"),
    ("exporter", "integrations"),
    ("demo", "commands", "__main__"),
)
"""Who may import whom: what stands before it, in its own layer or in one below."""

ORDER = [unit for layer in LAYERS for unit in layer]
NEVER = (
    *(("endpoint", "adapters"), ("outputs", "adapters"), ("run", "adapters"), ("integrations", "outputs")),
    *(("conditions", "tensors"), ("store", "catalog"), ("outputs", "store"), ("endpoint", "store")),
    *(("adapters", "tensors"), ("generate", "adapters"), ("run", "outputs")),
)
"""Pairs that the order would allow: the second is no business of the first."""

HOMES = {
    "prometheus_client": {"outputs/prometheus.py"},
    "fastapi": {"endpoint/"},
    "starlette": {"endpoint/"},
    "h11": {"endpoint/server.py"},
    "uvicorn": {"endpoint/server.py"},
    "transformers": {"adapters/transformers.py", "demo/"},
    "accelerate": {"integrations/tracker.py"},
    "trl": {"demo/"},
    "datasets": {"demo/"},
    "tokenizers": {"demo/"},
    "torch": {"tensors/", "adapters/", "demo/"},
    "numpy": {"tensors/"},
    "opentelemetry": {"outputs/otlp.py", "outputs/otlp_data.py"},
    "rich": {"commands/top.py"},
    "tensorboard": {"recording/formats/event_files.py"},
}
HEAVY = (
    "torch",
    "fastapi",
    "uvicorn",
    "opentelemetry",
    "transformers",
    "trl",
    "numpy",
    "prometheus_client",
    "tensorboard",
)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


PUBLIC_OF_UVICORN = {"Config", "Server", "serve", "started", "should_exit"}


def _private_uses_of_uvicorn(text: str) -> Iterator[str]:
    """Imports, base classes and attributes of uvicorn, or of what is named after it, that are not in the list above."""
    tree = ast.parse(text)
    made = {"uvicorn"}  # names of what is made by uvicorn
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("uvicorn."))
            yield from (alias.name for alias in node.names if alias.name == "uvicorn" and alias.asname)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "uvicorn":
            yield f"from {node.module}"
        elif isinstance(node, ast.ClassDef):
            yield from (ast.unparse(base) for base in node.bases if "uvicorn" in ast.unparse(base))
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("uvicorn."):
            made |= {ast.unparse(target) for target in node.targets}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in PUBLIC_OF_UVICORN:
            value = ast.unparse(node.value)
            if value in made or value.startswith("uvicorn."):
                yield ast.unparse(node)


def _unit(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imported_units(path: Path) -> set[str]:
    names = (name.split(".") for name in _imports(path))
    return {parts[1] for parts in names if parts[0] == "rlexporter" and len(parts) > 1 and parts[1] in ORDER}


def test_the_package_has_few_rooms() -> None:
    """Each has a place in the order; what stands in the root itself can be counted."""
    assert len(LAYERS) <= 8
    units = {
        path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.name not in ("__init__.py", "py.typed")
    }
    assert units - {"__pycache__"} == set(ORDER)
    assert len([path for path in PACKAGE.iterdir() if path.is_file()]) <= 10


@pytest.mark.parametrize("path", [p for p in SOURCES if p != PACKAGE / "__init__.py"], ids=str)
def test_imports_run_one_way(path: Path) -> None:
    """A file imports from its own package, or from one that stands before it."""
    own = _unit(path)
    for other in _imported_units(path) - {own}:
        assert ORDER.index(other) < ORDER.index(own), f"{path} imports {other}"
        assert (own, other) not in NEVER, f"{path} imports {other}"


def test_the_nouns_need_the_standard_library_alone() -> None:
    """So that everything can be built on them."""
    for path in (PACKAGE / "model").glob("*.py"):
        roots = {name.split(".")[0] for name in _imports(path)}
        assert roots - {"rlexporter"} <= set(sys.stdlib_module_names), path
        assert _imported_units(path) <= {"model"}, path


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_in_one_place(library: str) -> None:
    """A third-party library can be replaced by editing one file."""
    using = {
        str(path.relative_to(PACKAGE))
        for path in SOURCES
        if any(name.split(".")[0] == library for name in _imports(path))
    }
    assert {path for path in using if not path.startswith(tuple(HOMES[library]))} == set()


def test_only_the_public_parts_of_uvicorn_are_used() -> None:
    """Not its protocols, nothing with an underscore, and of its servers and settings what its documentation names."""
    found = {f"{path.name}: {use}" for path in SOURCES for use in _private_uses_of_uvicorn(path.read_text())}
    assert found == set()
    source = (PACKAGE / "endpoint/server.py").read_text()
    for wrong in (
        "from uvicorn.protocols.http.h11_impl import H11Protocol",
        "import uvicorn.protocols",
        "from uvicorn import _types",
        "config = uvicorn.Config(app)\nconfig.loaded_app = app",
        "uvicorn.server.ServerState()",
        "uvicorn.Server(None)._serve()",
        "class Server(uvicorn.Server):\n    pass",
        "class C:\n    def f(self):\n        self._uvicorn.server_state.connections",
    ):
        assert list(_private_uses_of_uvicorn(f"{source}\n{wrong}\n")), wrong


def test_import_is_light() -> None:
    """`import rlexporter` loads nothing that is heavy, and the command line nothing before it has to."""
    for statement in ("import rlexporter", "import rlexporter.commands.main, rlexporter.exporter"):
        code = f"import sys; {statement}; print([m for m in {HEAVY!r} if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]", statement


@pytest.mark.parametrize("path", [p for p in SOURCES if p.parent.name != "catalog"], ids=str)
def test_files_and_functions_are_small(path: Path) -> None:
    """At most 40 lines a function; a file of more than 300 says in its docstring why ("300 lines")."""
    text = path.read_text()
    assert text.count("\n") <= 300 or "300 lines" in (ast.get_docstring(ast.parse(text)) or "")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 40, node.name


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_public_names_are_documented(path: Path) -> None:
    """Every module, and every public class and function of one, has a docstring."""
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name
