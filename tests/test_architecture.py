"""The shape of the package: who imports whom, what an import costs, and how large the pieces are."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from benchmarks.loaded import PLAIN, loaded
from scripts.rooms import LAYERS
from tests.programs import printed

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "rlexporter"
SOURCES = sorted(PACKAGE.rglob("*.py"))

ORDER = [unit for layer in LAYERS for unit in layer]
NEVER = (
    *(("endpoint", "adapters"), ("outputs", "adapters"), ("run", "adapters"), ("integrations", "outputs")),
    *(("conditions", "tensors"), ("feed", "catalog"), ("outputs", "feed"), ("endpoint", "feed")),
    *(("adapters", "tensors"), ("feed", "frameworks")),
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
    "triton": {"tensors/fused.py"},
    "opentelemetry": {"outputs/otlp.py", "outputs/otlp_data.py"},
    "rich": {"commands/top.py"},
    "tensorboard": {"logs/formats/event_files.py"},
}
PUBLIC_OF_UVICORN = {"Config", "Server", "serve", "started", "should_exit"}


@cache
def _imports(path: Path) -> set[str]:
    """The modules that a file names in its imports, and the names that it takes from them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _private_uses_of_uvicorn(text: str) -> Iterator[str]:
    """What of uvicorn, or of what is named after it, is not in the list; and subclasses, other imports, other names."""
    for node in ast.walk(ast.parse(text)):
        wrong = False
        if isinstance(node, ast.Attribute):
            wrong = "uvicorn" in ast.unparse(node.value) and node.attr not in PUBLIC_OF_UVICORN
        elif isinstance(node, ast.Assign):
            wrong = ast.unparse(node.value).startswith("uvicorn.") and "uvicorn" not in ast.unparse(node.targets[0])
        elif isinstance(node, ast.ClassDef):
            wrong = any("uvicorn" in ast.unparse(base) for base in node.bases)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            wrong = "uvicorn" in ast.unparse(node) and ast.unparse(node) != "import uvicorn"
        if wrong:
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


def test_imports_run_one_way() -> None:
    """A file imports from its own package, or from one that stands before it."""
    pairs = [
        (str(path), _unit(path), other)
        for path in SOURCES
        if path != PACKAGE / "__init__.py"
        for other in _imported_units(path) - {_unit(path)}
    ]
    assert len(pairs) > 100
    assert [
        (path, other) for path, own, other in pairs if ORDER.index(other) > ORDER.index(own) or (own, other) in NEVER
    ] == []


def test_the_nouns_need_the_standard_library_alone() -> None:
    """So that everything can be built on them."""
    for path in (PACKAGE / "model").glob("*.py"):
        roots = {name.split(".")[0] for name in _imports(path)}
        assert roots - {"rlexporter"} <= set(sys.stdlib_module_names), path
        assert _imported_units(path) <= {"model"}, path


def test_a_library_is_imported_in_one_place() -> None:
    """A third-party library can be replaced by editing one file."""
    files = {str(path.relative_to(PACKAGE)): {name.split(".")[0] for name in _imports(path)} for path in SOURCES}
    assert [
        (file, library)
        for file, imported in files.items()
        for library in imported & set(HOMES)
        if not file.startswith(tuple(HOMES[library]))
    ] == []


def test_only_the_public_parts_of_uvicorn_are_used() -> None:
    """Not its protocols, nothing with an underscore, and of its servers and settings what its documentation names."""
    source = (PACKAGE / "endpoint/server.py").read_text()
    assert list(_private_uses_of_uvicorn(source)) == []
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
    statement = "import sys, rlexporter, rlexporter.commands.main, rlexporter.exporter"
    code = f"{statement}; print([m for m in {tuple(HOMES)!r} if m in sys.modules])"
    assert printed(sys.executable, "-c", code).strip() == "[]"


def test_import_touches_only_what_the_readme_says() -> None:
    """`import rlexporter` loads the standard library and itself, and waits for one module of transformers."""
    code = (
        "import os, sys; os.environ.pop('RLEXPORTER_FROM', None); loaded, path = {*sys.modules}, [*sys.meta_path]; "
        "import rlexporter; new = {name.partition('.')[0] for name in {*sys.modules} - loaded}; "
        "print(*new - sys.stdlib_module_names, "
        "*(finder.waits_for[0] for finder in sys.meta_path if finder not in path))"
    )
    assert printed(sys.executable, "-c", code).split() == [
        "rlexporter",
        "transformers.integrations.integration_utils",
    ]


def test_a_plain_exporter_loads_little() -> None:
    """One that logs and is not served. The goal: 70 modules, 12,000 lines. `python -m benchmarks.loaded` lists them."""
    lines = loaded(PLAIN)
    assert {"rlexporter.feed.feed", "rlexporter.conditions.judge"} <= set(lines)
    assert len(lines) <= 70
    assert sum(lines.values()) <= 12_000
