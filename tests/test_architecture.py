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

LAYERS = [
    {"version", "buckets", "model", "condition", "files", "ticker", "after_import"},
    {"catalog", "resolve", "feed", "values", "tensors", "identity", "process", "phases"},
    {"draft", "gather", "record"},
    {"conditions"},
    {"config", "parsers", "lines", "ranks"},
    {"store", "recording"},
    {"check"},
    {"adapters", "outputs", "generate"},
    {"intake"},
    {"run"},
    {"outlets"},
    {"exporter"},
    {"callback"},
    {"attaching", "report_to", "default_callback"},
    {"autoattach"},
    {"startup"},
    {"demo", "replay", "launch"},
    {"cli"},
    {"__main__"},
]
HOMES = {
    "prometheus_client": {"outputs/prometheus.py"},
    "fastapi": {"outputs/application.py"},
    "uvicorn": {"outputs/server.py"},
    "h11": {"outputs/server.py"},
    "starlette": {"outputs/server.py", "outputs/door.py"},
    "transformers": {"adapters/transformers.py", "demo/"},
    "trl": {"demo/"},
    "datasets": {"demo/"},
    "tokenizers": {"demo/"},
    "torch": {"tensors/", "adapters/", "demo/"},
    "numpy": {"tensors/"},
    "opentelemetry": {"outputs/otlp.py", "outputs/otlp_data.py"},
}
HEAVY = ("torch", "fastapi", "uvicorn", "opentelemetry", "transformers", "trl", "numpy", "prometheus_client")


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


def _layer(unit: str) -> int:
    return next(i for i, units in enumerate(LAYERS) if unit in units)


def _unit(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", [p for p in SOURCES if p != PACKAGE / "__init__.py"], ids=str)
def test_imports_run_one_way(path: Path) -> None:
    """A file imports from layers below its own, or from its own folder; adapters and outputs never meet."""
    own = _unit(path)
    for name in _imports(path):
        parts = name.split(".")
        if parts[0] != "rlexporter" or len(parts) < 2 or not _is_unit(parts[1]):
            continue
        other = parts[1]
        assert other == own or _layer(other) <= _layer(own), f"{path} imports {name}"
        assert {own, other} not in ({"adapters", "outputs"}, {"adapters", "generate"}, {"outputs", "generate"})


def test_the_store_is_handed_its_catalogue() -> None:
    """Core files do not import the table that they work on."""
    for name in ("store.py", "draft.py", "lines.py", "resolve.py", "feed.py", "tensors/host.py", "values.py"):
        assert "rlexporter.catalog" not in set(_imports(PACKAGE / name)), name


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
    source = (PACKAGE / "outputs/server.py").read_text()
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
        assert _private_uses_of_uvicorn(f"{source}\n{wrong}\n"), wrong


def test_import_is_light() -> None:
    """`import rlexporter` loads nothing that is heavy, and the command line nothing before it has to."""
    for statement in ("import rlexporter", "import rlexporter.cli, rlexporter.exporter"):
        code = f"import sys; {statement}; print([m for m in {HEAVY!r} if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]", statement


@pytest.mark.parametrize("path", [p for p in SOURCES if p.parent.name != "catalog"], ids=str)
def test_files_and_functions_are_small(path: Path) -> None:
    """At most 250 lines a file and 40 a function."""
    text = path.read_text()
    assert text.count("\n") <= 250
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


def _is_unit(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()
