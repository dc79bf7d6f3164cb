"""How the suite takes failures: what fails by chance is told apart from what is broken, by real runs of pytest."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from scripts import suite
from scripts.suite import Job, Outcome
from tests.tools import ROOT

_HELPERS = """
from pathlib import Path
import pytest

def once(name):
    path = Path(__file__).with_name(name)
    if not path.exists():
        path.touch()
        raise RuntimeError(f"only the first time: {name}")
"""


def _ran(folder: Path, monkeypatch: pytest.MonkeyPatch, tests: str, *, workers: int = 0) -> Outcome:
    """What a suite of one job comes to. ``tests``: the body of a test file."""
    (folder / "test_it.py").write_text(_HELPERS + tests)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    monkeypatch.setattr(suite, "FOLDER", folder / "suite")
    monkeypatch.setattr(suite, "ROOT", folder)
    (folder / "suite").mkdir()
    job = Job("own", options=("test_it.py",), python=sys.executable, workers=workers)
    suite._run(job)
    return suite.outcome([job], suite.again([job]))


@pytest.mark.slow
def test_a_failure_is_flaky_if_it_passes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first failure is in the last lines; what fails twice fails the suite, and what passed is not run again."""
    found = _ran(
        tmp_path,
        monkeypatch,
        "def test_good(): Path(__file__).with_name('good').touch(exist_ok=False)\n"
        "@pytest.mark.parametrize('x', ['a::b[c]'])\ndef test_chance(x): once('x')\n"
        "class TestIt:\n    def test_broken(self): assert 1 == 2\n"
        "def test_skipped(): pytest.skip('never here')\n",
        workers=2,
    )
    suite.report(found, 61.5)
    said = capsys.readouterr().out

    assert list(found.flaky) == ["test_it.py::test_chance[a::b[c]]"]
    assert "only the first time: x" in found.flaky["test_it.py::test_chance[a::b[c]]"]
    assert list(found.broken) == ["test_it.py::TestIt::test_broken"]
    assert found.counts == {"passed": 2, "failed": 1, "skipped": 1}
    assert not found.passed
    assert "assert 1 == 2" in said
    assert re.search(r"flaky: test_it.py::test_chance.*new: add it to tests/flaky.txt[\s\S]*first time: x", said)
    assert said.endswith("suite: FAILED, after 1:01; flaky: 1\n2 passed, 1 failed, 1 skipped\n")


@pytest.mark.slow
@pytest.mark.parametrize(("flaky", "passes"), [(suite.MOST_FLAKY, True), (suite.MOST_FLAKY + 1, False)])
def test_a_few_flaky_tests_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flaky: int, passes: bool) -> None:
    """One more is too many."""
    found = _ran(tmp_path, monkeypatch, "".join(f"def test_{i}(): once('{i}')\n" for i in range(flaky)))

    assert (len(found.flaky), found.broken, found.passed) == (flaky, {}, passes)


@pytest.mark.slow
def test_what_is_no_failure_of_a_test_fails_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be imported, and a command that fails before the tests."""
    found = _ran(tmp_path, monkeypatch, "import nothing_of_that_name\n")
    assert not found.passed
    assert "nothing_of_that_name" in "".join([*found.broken.values(), *found.failures])

    job = Job("setup", ((sys.executable, "-c", "raise SystemExit('no index')"),), ("test_it.py",), sys.executable)
    suite._run(job)
    found = suite.outcome([job], suite.again([job]))
    assert not found.passed
    assert "no index" in found.failures[0]

    job = Job("empty", options=("test_it.py", "-k", "nobody"), python=sys.executable)
    for ended in (False, True):  # a lane that broke off, and one that found no test
        if ended:
            (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
            suite._run(job)
        found = suite.outcome([job], {})
        assert (found.passed, bool(found.failures)) == (False, True)


def test_no_test_was_flaky_twice() -> None:
    """One that is listed when it happens again has to be mended or deleted; each that is listed is there."""
    lines = [line for line in suite.KNOWN.read_text().splitlines() if not line.startswith("#")]
    listed = [re.fullmatch(r"\d{4}-\d\d-\d\d (tests/\S+\.py)::(\w+)(\S*)", line) for line in lines]

    assert all(listed), lines
    tests = [found.group(1, 2, 3) for found in listed if found]
    assert len(tests) == len(set(tests))
    gone = [test for test in tests if f"def {test[1]}(" not in (ROOT / test[0]).read_text()]
    assert gone == []
