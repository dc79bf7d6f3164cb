"""What MkDocs does beyond its own: pages from outside of docs/, and links that work on GitHub and on the site.

A link in a page is relative to the file that it is in, as on GitHub. Here each becomes a link to the page of the site
that the file is, or to the file on GitHub. One that leads nowhere is a warning, which `make docs` does not pass.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = {
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    **{f"alerts/runbooks/{each.name}": f"runbooks/{each.name}" for each in (ROOT / "alerts/runbooks").glob("*.md")},
}
"""Pages by where they are in the repository, and where on the site."""
UNLISTED = ("runbooks/RL*.md",)
"""Pages that the navigation need not have: others lead to them."""

logger = logging.getLogger("mkdocs.plugins.site")
_PLACES = {there: here for here, there in OUTSIDE.items()}
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let pages that others lead to be missing in the navigation."""
    config.not_in_nav = type(config).not_in_nav.run_validation("\n".join(UNLISTED))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of docs/."""
    for here, there in OUTSIDE.items():
        files.append(File.generated(config, there, abs_src_path=str(ROOT / here)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links, but not in code."""
    parts = _FENCED.split(markdown)
    parts[::2] = [_LINK.sub(lambda found: _link(found[0], page.file.src_uri, config), part) for part in parts[::2]]
    return "".join(parts)


def _link(target: str, page: str, config: MkDocsConfig) -> str:
    path, mark, anchor = target.partition("#")
    if not path or ":" in path:
        return target
    here = _PLACES.get(page, f"docs/{page}")
    found = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
    there = OUTSIDE.get(found) or (found[len("docs/") :] if found.startswith("docs/") else None)
    if there:
        return posixpath.relpath(there, posixpath.dirname(page)) + mark + anchor
    if not (ROOT / found).exists():
        logger.warning("%s has a link to %s, which is not there", here, target)
    kind = "tree" if (ROOT / found).is_dir() else "blob"
    return f"{config.extra['repository']}/{kind}/main/{found}{mark}{anchor}"
