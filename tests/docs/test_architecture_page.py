"""docs/architecture.md: its tables say what the code does. Its diffs: tests/docs/test_architecture_diffs.py."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.test_architecture import HOMES, LAYERS, NEVER, ORDER, PACKAGE, ROOT, SOURCES, _imported_units, _unit

PAGE = (ROOT / "docs/architecture.md").read_text()
WAYS = ("A log line", "A tensor", "A condition")
NOT_CALLED = ("the trainer", "a scraper")


def _rows(heading: str) -> list[list[str]]:
    """The cells of the first table behind a text, without its head."""
    lines = PAGE.partition(heading)[2].split("|---", 1)[1].splitlines()[1:]
    table = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def _code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def _tree(file: str) -> ast.Module:
    path = PACKAGE / file
    return ast.parse((path if path.is_file() else ROOT / file).read_text())


def _definitions(file: str, name: str) -> list[ast.AST]:
    """What is called so in a file: functions, methods and classes, and names of the module itself."""
    plain = name.removesuffix("()")
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found: list[ast.AST] = [
        node for node in ast.walk(_tree(file)) if isinstance(node, definitions) and node.name == plain
    ]
    if not name.endswith("()"):
        named = [node for node in _tree(file).body if isinstance(node, (ast.Assign, ast.AnnAssign))]
        found += [node for node in named if re.match(rf"{plain}\b", ast.unparse(node))]
    return found


def _uses(node: ast.AST, name: str) -> bool:
    plain = name.removesuffix("()")
    return any(
        (isinstance(each, ast.Attribute) and each.attr == plain) or (isinstance(each, ast.Name) and each.id == plain)
        for each in ast.walk(node)
    )


def test_the_rooms_are_those_of_the_code() -> None:
    """Order and layers as the order of imports says, and for each package all that it imports, and what is at home."""
    rows = _rows("## The rooms")
    assert [(int(layer), *_code(name)) for layer, name, *_ in rows] == [
        (number, unit) for number, layer in enumerate(LAYERS, 1) for unit in layer
    ]
    for _, name, about, imports, home in rows:
        (unit,) = _code(name)
        files = [path for path in SOURCES if path != PACKAGE / "__init__.py" and _unit(path) == unit]
        real = set().union(*(_imported_units(path) for path in files)) - {unit}
        assert _code(imports) == sorted(real, key=ORDER.index), unit
        libraries = {library for library, homes in HOMES.items() if any(at.startswith(f"{unit}/") for at in homes)}
        assert set(_code(home)) == libraries, unit
        assert about.endswith("."), unit


def test_the_forbidden_imports_are_all_there() -> None:
    """Each pair that the test of the architecture forbids, and no other."""
    found = re.findall(r"`(\w+)` → `(\w+)`", PAGE)
    assert sorted(found) == sorted(NEVER)


def test_the_threads_are_all_there() -> None:
    """Each file that makes a thread, with the beginning of its name."""
    rows = [(*_code(file), *_code(name)) for name, file, _ in _rows("**Threads.**")]
    assert sorted(file for file, _ in rows) == sorted(
        str(path.relative_to(PACKAGE)) for path in SOURCES if re.search(r"\bThread\(", path.read_text())
    )
    for file, name in rows:
        assert re.search(rf'name=f?"{name}', (PACKAGE / file).read_text()), file


def test_what_threads_may_call_exists() -> None:
    """Every `Class.method()` of the page."""
    every = [node for path in SOURCES for node in ast.parse(path.read_text()).body]
    classes = {node.name: node for node in every if isinstance(node, ast.ClassDef)}
    named = re.findall(r"`([A-Z]\w+)\.(\w+)(?:\(\))?`", PAGE)
    assert len(named) >= 10
    for owner, name in named:
        defined = {getattr(node, "name", "") for node in classes[owner].body}
        assert name in defined or _uses(classes[owner], name), f"{owner}.{name}"


def test_each_hop_is_in_the_code() -> None:
    """The name is defined in the file, and used where the page says. Each way has eight of them."""
    wrong = []
    for way in WAYS:
        rows = _rows(f"### {way}")
        assert len(rows) == 8, f"{way}: more cannot be held in mind"
        for file_cell, name_cell, _, used_by in rows:
            (file,), (name,) = _code(file_cell), _code(name_cell)
            if not _definitions(file, name):
                wrong.append(f"{file} has no {name}")
            if used_by in NOT_CALLED:
                continue
            user, function = _code(used_by)
            if not any(_uses(node, name) for node in _definitions(user, function)):
                wrong.append(f"{user} {function} does not use {name}")
    assert wrong == []


def test_every_file_and_name_of_the_page_exists() -> None:
    """Outside of the diffs: no path leads nowhere."""
    paths = re.findall(r"`([\w/]+\.py)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
    assert [path for path in paths if not (PACKAGE / path).is_file() and not (ROOT / path).is_file()] == []
    assert "docs/architecture.md" in (ROOT / "README.md").read_text()
