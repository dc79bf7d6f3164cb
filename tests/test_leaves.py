"""A leaf can be deleted, with its lines in a list: what is left imports, logs, observes and is scraped."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.loaded import PLAIN, loaded
from scripts.rooms import LEAVES, NAMED, PACKAGE, Leaf, gone_with, imports, leaf_named, leaf_of
from tests.programs import printed

ROOT = Path(__file__).parent.parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

DRIVER = """
import importlib, json, os, pkgutil, sys, traceback
import datasets, fastapi, opentelemetry.sdk.metrics.export, prometheus_client, rich, torch, transformers, uvicorn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer
from trl import GRPOTrainer

def tried():
    import rlexporter
    missing = []
    for module in pkgutil.walk_packages(rlexporter.__path__, "rlexporter.", onerror=missing.append):
        if module.name == "rlexporter.__main__" or ".startup" in module.name:
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            if str(error.name).partition(".")[0] == "rlexporter":  # not a library that this machine lacks
                missing.append(f"{module.name}: {error!r}")
    from urllib.request import urlopen
    exporter = rlexporter.Exporter(run="left", port=0, algorithm="grpo").start()
    for step in range(3):
        exporter.observe("policy_ratio", torch.ones(8))
        exporter.log({"reward": 0.5, "kl": 0.01}, step=step)
    bodies = [urlopen(exporter.url + path).read().decode() for path in ("/metrics", "/api/status", "/?lang=zh")]
    from rlexporter.commands import COMMANDS
    from rlexporter.commands.main import parser
    parser(COMMANDS)
    from rlexporter.frameworks import FRAMEWORKS, WATCHED
    from rlexporter.frameworks.known import written_by
    written_by(["x"])
    return {
        "file": rlexporter.__file__,
        "missing": missing,
        "served": 'rl_policy_ratio_dist_count{rank="0",run="left"} 24.0' in bodies[0],
        "word": json.loads(bodies[1])["verdict"]["word"],
        "commands": list(COMMANDS),
        "frameworks": [*FRAMEWORKS, *WATCHED],
    }

for folder in sys.argv[1:]:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        sys.path.insert(0, folder)
        try:
            answer = tried()
        except BaseException:
            answer = {"missing": [traceback.format_exc()]}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        print(file.read())
    os.waitpid(child, 0)
"""
"""Tries the copy of the package in each folder, each in a process of its own, which has the libraries already."""


def _without(text: str, leaf: Leaf) -> str:
    """The text of a file without the entries of its lists that name ``leaf``, which are whole lines."""
    lines = text.splitlines(keepends=True)
    for first, last in _entries(ast.parse(text)):
        if any(isinstance(each, ast.Constant) and _names(leaf, each.value) for each in ast.walk(last)):
            for line in range(first.lineno - 1, last.end_lineno or 0):
                lines[line] = ""
    return "".join(lines)


def _entries(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The entries of dictionaries and tuples in a file: where each begins, and what stands last in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from ((key, value) for key, value in zip(node.keys, node.values, strict=True) if key is not None)
        elif isinstance(node, ast.Tuple):
            yield from ((each, each) for each in node.elts)


def _names(leaf: Leaf, text: object) -> bool:
    """True for the name of a module of ``leaf``, or of what it is called itself in a list of data."""
    return text == leaf.name or (str(text).startswith("rlexporter.") and leaf_named(str(text)) == leaf.name)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What is seen of each copy, by the leaf that it lacks; "" lacks none."""
    folders = {}
    for leaf in (None, *LEAVES):
        name = leaf.name if leaf else ""
        folders[name] = folder = tmp_path_factory.mktemp(f"without_{name}")
        shutil.copytree(PACKAGE, folder / "rlexporter")  # with what is compiled
        for gone in gone_with(leaf) if leaf else ():
            for file in gone.files:
                path = folder / "rlexporter" / file
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            for file in gone.lists:
                path = folder / "rlexporter" / file
                path.write_text(_without(path.read_text(), gone))
    out = printed(
        sys.executable, "-W", "ignore", "-c", DRIVER, *folders.values(), PYTHONPATH="", TRL_EXPERIMENTAL_SILENCE="1"
    )
    return {name: json.loads(line) for name, line in zip(folders, out.splitlines(), strict=True)}


@pytest.mark.parametrize("name", ["", *NAMED])
def test_what_is_left_works(name: str, left: dict[str, dict[str, Any]]) -> None:
    """Every module imports, a run is logged, observed and scraped, and the other commands and frameworks are there."""
    found, whole = left[name], left[""]
    assert found["missing"] == []
    assert f"without_{name}" in found["file"]
    assert (found["served"], found["word"]) == (True, "fine")
    if name:
        gone = tuple(gone_with(NAMED[name]))
        lists = {file for leaf in gone for file in leaf.lists}
        assert ("commands/__init__.py" in lists) == (found["commands"] != whole["commands"])
        assert ("frameworks/__init__.py" in lists) == (found["frameworks"] != whole["frameworks"])


def test_the_core_imports_no_leaf() -> None:
    """Neither at the top of a file nor later; and a leaf imports those that it says it needs."""
    wrong = [
        (file, name)
        for file in FILES
        for name in imports(PACKAGE / file)
        if (other := leaf_named(name)) not in ("", own := leaf_of(file)) and not (own and other in NAMED[own].needs)
    ]
    assert len(FILES) > 150
    assert wrong == []


def test_leaves_are_where_the_list_says() -> None:
    """Their files and tests exist, and the lists name them."""
    for leaf in LEAVES:
        assert all((PACKAGE / file).exists() for file in leaf.files), leaf.name
        assert all((ROOT / "tests" / test).exists() for test in leaf.tests), leaf.name
        for file in leaf.lists:
            text = (PACKAGE / file).read_text()
            assert _without(text, leaf) != text, (leaf.name, file)


def test_a_plain_exporter_loads_the_core_alone() -> None:
    """Only the lists of leaves, and no leaf."""
    files = [f"{name.removeprefix('rlexporter.').replace('.', '/')}.py" for name in loaded(PLAIN)]
    assert len(files) > 30
    assert [file for file in files if leaf_of(file)] == []
