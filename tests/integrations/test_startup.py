"""The start-up file under Pythons that rlexporter is not made for: children of `rlexporter run` may be any."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rlexporter.commands.run import STARTUP

FILE = Path(STARTUP) / "sitecustomize.py"
CODE = """
import sys, sitecustomize
print("%s %s %s" % (sys.here, sitecustomize.__file__, [type(finder).__name__ for finder in sys.meta_path]))
"""


def _pythons() -> list[str]:
    """All that this machine has: on the path, or where pyenv keeps them."""
    names = ("python2.7", *(f"python3.{minor}" for minor in range(6, 15)))
    kept = Path("~/.pyenv/versions").expanduser().glob("*/bin/python")
    found = [path for name in names if (path := shutil.which(name)) and "shims" not in path]
    return sorted({*found, *map(str, kept)})


@pytest.mark.parametrize("version", [(3, 6), (3, 8), (3, 9), (3, 10)])
def test_it_can_be_read_by_any_python(version: tuple[int, int]) -> None:
    """By its grammar; and nothing in it is a type, which an older Python would look up."""
    tree = ast.parse(FILE.read_text(), feature_version=version)
    for node in ast.walk(tree):
        assert not isinstance(node, (ast.AnnAssign, ast.JoinedStr, ast.NamedExpr))
        if isinstance(node, (ast.FunctionDef, ast.arg)):
            assert getattr(node, "returns", None) is None
            assert getattr(node, "annotation", None) is None


@pytest.mark.parametrize("python", _pythons())
@pytest.mark.parametrize("options", [[], ["-O"], ["-W", "error"]], ids=str)
def test_a_python_keeps_its_own_sitecustomize(tmp_path: Path, python: str, options: list[str]) -> None:
    """Without a word of ours; from 3.10 on it waits for trainers, before it does not."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.here = True\n")
    environ = {**os.environ, "PYTHONPATH": f"{STARTUP}{os.pathsep}{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
    version = "import sys; print('%d %d' % sys.version_info[:2])"
    major, minor = subprocess.run([python, "-c", version], capture_output=True, check=True).stdout.split()

    done = subprocess.run([python, *options, "-c", CODE], env=environ, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "True" in done.stdout
    assert f"{tmp_path}/sitecustomize.py" in done.stdout
    assert ("_Waiting" in done.stdout) is ((int(major), int(minor)) >= (3, 10))


@pytest.mark.parametrize("python", _pythons())
def test_a_python_without_one_says_nothing(python: str) -> None:
    """Nor does our folder stay on its path; what a broken one raises is shown as ever."""
    environ = {**os.environ, "PYTHONPATH": STARTUP, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [python, "-c", "import sys; print('startup' in str(sys.path))"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
