"""The runbooks, as they are written in alerts/runbooks: what an alert means, what causes it, and what to do.

Each is parsed when it is first asked for; no training reads one. alerts/runbooks/README.md says how they are written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rlexporter.catalog.alerts import PACK
from rlexporter.catalog.algorithms import GRPO, PPO, PPO_LEGACY, RLOO

FOLDER = PACK / "alerts" / "runbooks"
LABELS = {GRPO: "GRPO", RLOO: "RLOO", PPO: "PPO", PPO_LEGACY: "Legacy PPO"}
"""What a step calls the algorithms that it is for."""
TRANSLATED = {"vi": "Tiếng Việt", "zh": "简体中文"}
"""The headings of the parts in other languages."""

_BULLET = re.compile(r"\* |\d\. ")
_ITEM = re.compile(
    r"(?:\* |\d\. )(?:\*(?P<names>[^*]+):\* )?(?P<text>.+)"
    r" <!-- (?P<id>[a-z0-9]+(?:-[a-z0-9]+)*)(?:: (?P<words>[\w -]+))? -->"
)
_MEANING = re.compile(r"`(\w+)`: (.+)")


class RunbookError(ValueError):
    """A runbook cannot be read: the message says in which file, in which line, and why."""


@dataclass(frozen=True, slots=True)
class Item:
    """A cause or a step. ``algorithms``, ``conditions``: those that it is for; empty for all."""

    id: str
    text: str
    algorithms: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()

    def about(self, condition: str) -> bool:
        """Return True if it is for this condition of the alert."""
        return not self.conditions or condition in self.conditions

    def named(self, text: str) -> str:
        """Return ``text``, this one in any language, behind the names of the algorithms that it is for."""
        names = ", ".join(LABELS[each] for each in self.algorithms)
        return f"{names}: {text}" if names else text


@dataclass(frozen=True)
class Runbook:
    """What is written about one alert."""

    summary: str = ""
    meaning: Mapping[str, str] = field(default_factory=dict)
    """By condition."""
    causes: tuple[Item, ...] = ()
    """The likeliest first."""
    steps: tuple[Item, ...] = ()
    """What to do, the first thing first."""
    first: int = 0
    """How many of the steps stand at the beginning of the page."""
    translations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The steps in other languages, by language and id."""

    def causes_of(self, condition: str) -> list[str]:
        """Return the causes of a condition, the likeliest first."""
        return [each.text for each in self.causes if each.about(condition)]

    def steps_of(self, condition: str) -> list[Item]:
        """Return what to do about a condition, the first thing first."""
        return [each for each in self.steps if each.about(condition)]

    def told(self, step: Item, code: str) -> str:
        """Return the text of a step in the language ``code``; in English where it has no translation."""
        return self.translations.get(code, {}).get(step.id, step.text)


@cache
def runbook(alert: str) -> Runbook:
    """Return the runbook of an alert; an empty one where the files are gone or cannot be read."""
    text = _text(alert)
    if text is None:
        return Runbook()
    try:
        return parse(text, f"{alert}.md")
    except RunbookError:
        return Runbook()


def page(alert: str) -> str | None:
    """Return the page about an alert, as Markdown without marks; None for a name that no alert has."""
    text = _text(alert)
    return None if text is None else re.sub(r" ?<!-- .*? -->", "", text)


def _text(alert: str) -> str | None:
    file = _files().get(alert)  # whoever asks may send any name: it is compared, and never becomes part of a path
    try:
        return None if file is None else file.read_text(encoding="utf-8")
    except OSError:
        return None


@cache
def _files() -> Mapping[str, Path]:
    return {file.stem: file for file in FOLDER.glob("*.md")}


def parse(text: str, name: str) -> Runbook:
    """Return the runbook that ``text`` is.

    Raises:
        RunbookError: a mark is broken, or an id stands twice; ``name`` is how the message calls the file.
    """
    sections = _sections(text)
    head = [line for _, line in sections[""] if line]
    told = [_MEANING.fullmatch(line) for _, line in sections.get("Meaning", ())]
    meaning = {found[1]: found[2] for found in told if found}

    def items(*headings: str, translated: bool = False) -> tuple[Item, ...]:
        lines = [line for heading in headings for line in sections.get(heading, ())]
        return tuple(_items(lines, name, meaning, translated))

    steps = items("", "More to try")
    translations = {
        code: {each.id: each.text for each in items(heading, translated=True)} for code, heading in TRANSLATED.items()
    }
    return Runbook(head[1] if len(head) > 1 else "", meaning, items("Causes"), steps, len(items("")), translations)


def _sections(text: str) -> dict[str, list[tuple[int, str]]]:
    """Return the numbered lines below each heading; below no heading are those of the beginning."""
    heading, sections = "", {"": list[tuple[int, str]]()}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            heading = line.removeprefix("## ")
            sections[heading] = []
        else:
            sections[heading].append((number, line))
    return sections


def _items(
    lines: Iterable[tuple[int, str]], name: str, conditions: Collection[str], translated: bool
) -> Iterator[Item]:
    ids = set[str]()
    for number, line in lines:
        if not _BULLET.match(line):
            continue
        try:
            item = _item(line, conditions, translated)
        except ValueError as error:
            raise RunbookError(f"{name}, line {number}: {error}: {line}") from None
        if item.id in ids:
            raise RunbookError(f"{name}, line {number}: {item.id} stands twice")
        ids.add(item.id)
        yield item


def _item(line: str, conditions: Collection[str], translated: bool) -> Item:
    found = _ITEM.fullmatch(line)
    if found is None:
        raise ValueError("an item is one line that ends in its mark, <!-- its-id: algorithms and conditions -->")
    words = (found["words"] or "").split()
    algorithms = tuple(word for word in words if word in LABELS)
    for word in words:
        if word not in LABELS and word not in conditions:
            raise ValueError(f"{word} is neither one of {', '.join(LABELS)} nor a condition of the section Meaning")
    item = Item(found["id"], found["text"], algorithms, tuple(word for word in words if word in conditions))
    names = ", ".join([*(LABELS[each] for each in algorithms), *(f"`{each}`" for each in item.conditions)])
    if not translated and names != (found["names"] or ""):
        raise ValueError(f"the mark is for {names or 'all'}, the text for {found['names'] or 'all'}")
    return item
