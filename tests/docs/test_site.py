"""The site of the documentation: it is built without a warning, and a link that leads nowhere is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.page.browser import chromium
from tests.tools import ROOT

pytestmark = pytest.mark.slow


def built(folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """What MkDocs says when it builds the site of a checkout."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    done = built(ROOT, folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_the_pages_are_all_there(site: Path) -> None:
    """The pages of docs/ and those from outside; links to a page lead to it, others to the file on GitHub."""
    pages = {str(each.relative_to(site)) for each in site.rglob("*.html")}
    assert pages > {"index.html", "cli.html", "runbooks/RLKL.html", "project/changelog.html"}
    assert 'href="runbooks/RLKL.html"' in (site / "metrics.html").read_text()
    assert "github.com/rlexporter/rlexporter/tree/main/grafana/dashboards" in (site / "dashboards.html").read_text()


def test_nothing_is_loaded_from_anybody_else(site: Path) -> None:
    """No font, script or count of stars of another host, in a real browser: who reads the site is nobody's business."""
    handler = partial(Quiet, directory=str(site))
    asked: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            with chromium() as browser:
                page = browser.new_page(viewport={"width": 1280, "height": 800})
                page.set_default_timeout(600_000)
                page.on("request", lambda request: asked.append(request.url))
                for name in ("index", "metrics", "howto/slurm"):
                    page.goto(f"http://127.0.0.1:{server.server_port}/{name}.html", wait_until="networkidle")
                button = page.get_by_text("Start here")
                page.goto(f"http://127.0.0.1:{server.server_port}/")
                box = button.bounding_box()
        finally:
            server.shutdown()
            thread.join()
    assert len(asked) > 5
    assert {url.split("/")[2] for url in asked if url.startswith("http")} == {f"127.0.0.1:{server.server_port}"}
    assert box
    assert box["y"] + box["height"] < 800  # what, why and how are above it, in one screen


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, and says nothing."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_dead_links_are_found(tmp_path: Path) -> None:
    """On a page, to a page, and to a file of the repository."""
    links = {
        "[x](alerts.md#nowhere)": "does not contain an anchor '#nowhere'",
        "[x](nowhere.md)": "nowhere.md",
        "[x](../deploy/nowhere.yaml)": "has a link to ../deploy/nowhere.yaml, which is not there",
    }
    copy = tmp_path / "copy"
    made = shutil.ignore_patterns(".venv*", ".tools", ".git", ".work", "*_cache", "__pycache__", "data", "dist")
    shutil.copytree(ROOT, copy, ignore=made)
    page = copy / "docs/beside.md"
    page.write_text("\n\n".join([page.read_text(), *links]))
    done = built(copy, tmp_path / "site")
    assert done.returncode == 1
    assert [link for link, said in links.items() if said not in done.stderr] == []
