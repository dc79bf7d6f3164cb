"""The fenced blocks of the pages that people read, and the commands in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from tests.tools import ROOT

PAGES = tuple(
    str(path.relative_to(ROOT))
    for path in sorted([*ROOT.glob("*.md"), ROOT / "examples/README.md", *(ROOT / "docs").rglob("*.md")])
)
_FENCED = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: the page, the line of its fence, its language (empty where there is none) and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands of a shell, without comments; a backslash at the end of a line continues it."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return tuple(filter(None, (_uncommented(line) for line in lines)))


def blocks(*languages: str) -> list[Block]:
    """All blocks of all pages, or those of some languages."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        for match in _FENCED.finditer(text):
            indent, language, code = match.groups()
            lines = "".join(line.removeprefix(indent) for line in code.splitlines(keepends=True))
            found.append(Block(page, text[: match.start()].count("\n") + 1, language, lines))
    return [each for each in found if not languages or each.language in languages]


def words(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables that stand before a command, and its words."""
    parts = shlex.split(command)
    variables = {}
    while parts and re.fullmatch(r"[A-Z_]+=.*", parts[0], re.DOTALL):
        name, _, value = parts.pop(0).partition("=")
        variables[name] = value
    return variables, parts


def _uncommented(line: str) -> str:
    """The line without a comment: a # behind a blank that is not within quotes."""
    kept = re.match(r"""(?:[^\s#'"]|'[^']*'|"[^"]*"|\s(?!#)|(?<=\S)#)*""", line)
    return (kept[0] if kept else line).strip()
