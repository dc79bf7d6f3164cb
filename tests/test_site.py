"""The site of the documentation: it is built without a warning, and a link that leads nowhere is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import ROOT


def built(folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """What MkDocs says when it builds the site of a checkout."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600, check=False)


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """With the pages of docs/ and those from outside; links to a page lead to it, others to the file on GitHub."""
    done = built(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*.html")}
    assert pages > {"index.html", "cli.html", "runbooks/RLKLHigh.html", "project/changelog.html"}
    metrics = (tmp_path / "metrics.html").read_text()
    assert 'href="runbooks/RLKLHigh.html"' in metrics
    assert (
        "https://github.com/rlexporter/rlexporter/tree/main/grafana/dashboards"
        in (tmp_path / "dashboards.html").read_text()
    )


def test_nothing_is_loaded_from_anybody_else(tmp_path: Path) -> None:
    """No font, script or style of another host: who reads the site is nobody else's business."""
    assert built(ROOT, tmp_path).returncode == 0
    page = (tmp_path / "index.html").read_text()
    loaded = [part for part in page.split("<") if part.startswith(("script", "link", "img"))]
    assert loaded
    assert [part for part in loaded if "//" in part and 'rel="canonical"' not in part] == []


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("[x](alerts.md#nowhere)", "does not contain an anchor '#nowhere'"),
        ("[x](nowhere.md)", "nowhere.md"),
        ("[x](../deploy/nowhere.yaml)", "has a link to ../deploy/nowhere.yaml, which is not there"),
    ],
)
def test_a_dead_link_is_found(link: str, said: str, tmp_path: Path) -> None:
    """On a page, to a page, and to a file of the repository."""
    copy = tmp_path / "copy"
    made = shutil.ignore_patterns(".venv*", ".tools", ".git", ".work", "*_cache", "__pycache__", "data", "dist")
    shutil.copytree(ROOT, copy, ignore=made)
    page = copy / "docs/beside.md"
    page.write_text(f"{page.read_text()}\n{link}\n")
    done = built(copy, tmp_path / "site")
    assert done.returncode == 1
    assert said in done.stderr
