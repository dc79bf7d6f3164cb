"""The page `/`, put together at import into one text that loads nothing: no build step, no other host."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

_PARTS = (
    *("strings.js", "dom.js", "numbers.js", "plot.js", "curve.js", "histogram.js"),
    *("header.js", "cards.js", "alerts.js", "lists.js", "table.js", "live.js"),
)
"""The parts of the one script, in their order: they share a scope, and the last one starts."""


def _read(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """Return ``text`` as a source of a Content-Security-Policy: nothing but exactly this may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_PAGE = Template(_read("page.html"))
_STYLE = _read("page.css")
_SCRIPT = '"use strict";\n(() => {\n' + "\n".join(map(_read, _PARTS)) + "})();\n"
_IN_PAGE = (
    f"default-src 'none'; script-src {_source(_SCRIPT)}; style-src {_source(_STYLE)}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)

POLICY = f"{_IN_PAGE}; frame-ancestors 'none'"
"""The Content-Security-Policy of every answer; inside a page `frame-ancestors` would have no effect."""


def page(data: Mapping[str, Any] | None = None) -> str:
    """Return the page as one HTML text, the same for every run: it asks for its data.

    With ``data``, ``{"status": ..., "history": ...}`` as the addresses below `/api` give them, it shows these instead
    and asks for nothing: a file to send to somebody.
    """
    held = ""
    if data is not None:
        text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
        held = f'<script type="application/json" id="data">{text}</script>\n'
    return _PAGE.substitute(policy=_IN_PAGE, style=_STYLE, data=held, script=_SCRIPT)
