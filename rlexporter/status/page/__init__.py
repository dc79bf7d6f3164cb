"""The page `/`, put together at import into one text that loads nothing: no build step, no other host.

That of a run that is over is kept beside its checkpoints: written when it ends, and read when another begins there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from rlexporter.atomic_file import UnfitFileError, read_regular, write_whole
from rlexporter.catalog.languages import CODES, ENGLISH, Language, language
from rlexporter.model.errors import SetupError
from rlexporter.model.snapshot import Snapshot
from rlexporter.status import document, earlier
from rlexporter.status.earlier import EarlierRun
from rlexporter.status.history import History
from rlexporter.status.samples import UNITS, singular

PAGE_FILE = "rlexporter.html"
"""Name of the file. It has no leading underscore: an upload of the folder to the hub takes it along."""

_MOST_BYTES = 2_000_000
"""A larger page has fewer points a curve."""
_MOST_READ = 20_000_000

_PARTS = (
    "strings dom numbers plot curve distribution header verdict timeline cards alerts lists completions table live"
).split()
"""The parts of the one script, in their order: they share a scope, and the last one starts."""


def _part(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """Return ``text`` as a source of a Content-Security-Policy: nothing but exactly this may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


STRINGS: Mapping[str, str] = json.loads(_part("strings.json"))
"""Every text of the page's own, by id, in English; an id ends in ``.one`` where a number has a form for one."""


def _strings(of: Language) -> dict[str, str]:
    """Return the texts in a language. Only English has a form for one."""
    own = {name: of(text) for name, text in STRINGS.items() if of is ENGLISH or not name.endswith(".one")}
    if of is ENGLISH:  # the id of a unit is its English text
        return own | {f"{unit}.one": singular(unit) for unit in UNITS if singular(unit) != unit}
    return own | {unit: of(unit) for unit in UNITS}


def _literal(value: object) -> str:
    """Return ``value`` as JSON that cannot end the script that it stands in."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")


_PAGE = Template(_part("page.html"))
_STYLE = _part("page.css")
_TEXTS = f"const STRINGS = {_literal({code: _strings(language(code)) for code in CODES})};\n"
_SCRIPT = '"use strict";\n(() => {\n' + "\n".join([_TEXTS, *(_part(f"{name}.js") for name in _PARTS)]) + "})();\n"
_IN_PAGE = (
    f"default-src 'none'; script-src {_source(_SCRIPT)}; style-src {_source(_STYLE)}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)

POLICY = f"{_IN_PAGE}; frame-ancestors 'none'"
"""The Content-Security-Policy of every answer; inside a page `frame-ancestors` would have no effect."""


_HELD = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def held(text: str) -> Mapping[str, Any]:
    """Return the data that `page` put into ``text``. Raises ValueError for any other text."""
    found = _HELD.search(text)
    data = json.loads(found[1]) if found else None
    if not isinstance(data, dict):
        raise ValueError("it holds no run")
    return data


def page(data: Mapping[str, Any] | None = None) -> str:
    """Return the page as one HTML text, the same for every run: it asks for its data.

    With ``data``, ``{"status": ..., "history": ...}`` as the addresses below `/api` give them, it shows these instead
    and asks for nothing: a file to send to somebody, in the language of the document.
    """
    held, spoken = "", ENGLISH
    if data is not None:
        held = f'<script type="application/json" id="data">{_literal(data)}</script>\n'
        spoken = language(data["status"].get("language", spoken.code))
    return _PAGE.substitute(policy=_IN_PAGE, language=spoken.code, style=_STYLE, data=held, script=_SCRIPT)


def keep(folder: str, snapshot: Snapshot, history: History, now: float) -> str:
    """Write the page into ``folder``; return what to tell a person.

    Raises: OSError if it cannot be written, SetupError if something that is no regular file is in its place.
    """
    for points in (document.MOST_POINTS, document.POINTS, document.POINTS // 4):
        data = document.kept(snapshot, history, now, points=points)
        text = page(data)
        if len(text.encode()) < _MOST_BYTES:
            break
    file = Path(folder) / PAGE_FILE
    try:
        write_whole(file, text)
    except UnfitFileError as error:
        raise SetupError(f"the page of the run is not kept in {file}: {error.strerror}") from None
    verdict, name = data["status"]["verdict"], snapshot.labels["run"]
    return f"run {name} is over: {verdict['word']}. {verdict['text']} Its page: {file}"


def read(file: Path) -> EarlierRun:
    """Return the run whose page is ``file``, to compare another with. Raises SetupError if it is no page of a run."""
    try:
        return earlier.of_page(held(read_regular(file, _MOST_READ).decode()))
    except OSError as error:
        raise SetupError(f"cannot read {file}: {error.strerror or error}") from None
    except Exception:  # noqa: BLE001 - a foreign file can be wrong in any way
        raise SetupError(
            f"{file} is no page of a run; `rlexporter report LOG -o PAGE.html` makes one of a log or a recording"
        ) from None
