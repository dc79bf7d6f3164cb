"""The folder with the rules, runbooks and dashboards that come with the package: in the wheel, or in a checkout."""

from __future__ import annotations

import re
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
PACK = _PACKAGE / "pack" if (_PACKAGE / "pack").is_dir() else _PACKAGE.parent


def runbook(name: str) -> str | None:
    """Return the page about an alert, as Markdown; None for a name that no alert has. Raises OSError."""
    file = PACK / "alerts" / "runbooks" / f"{name}.md"
    return file.read_text(encoding="utf-8") if re.fullmatch(r"[A-Za-z]+", name) and file.is_file() else None
