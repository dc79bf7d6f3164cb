"""The languages: each text that they have to know has its translation, and no translation is left without its text."""

from __future__ import annotations

import ast
import json
import re
from importlib.resources import files
from pathlib import Path
from string import Formatter
from types import ModuleType

import pytest

from rlexporter import adapters, status
from rlexporter.catalog.languages import CODES, language
from rlexporter.catalog.questions import QUESTIONS
from rlexporter.conditions.table import CONDITIONS
from rlexporter.endpoint.app import preferred
from rlexporter.status.page import STRINGS
from rlexporter.status.samples import UNITS

FOREIGN = [code for code in CODES if code != "en"]


def _spoken(package: ModuleType, functions: tuple[str, ...], argument: int) -> set[str]:
    """The texts in the calls of ``functions`` in a package, as they stand there or in a constant that is named."""
    texts = set()
    for path in Path(package.__path__[0]).glob("*.py"):
        tree = ast.parse(path.read_text())
        named = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and call.args and ast.unparse(call.func).endswith(functions):
                texts |= _texts_of(call.args[argument], named)
    return texts


def _texts_of(node: ast.expr | None, named: dict[str, ast.expr]) -> set[str]:
    """The texts that an expression may be: itself, either side of a choice, any value of a table."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.Name(id=name):
            return _texts_of(named.get(name), {})
        case ast.IfExp(body=one, orelse=other):
            return _texts_of(one, named) | _texts_of(other, named)
        case ast.Subscript(value=table):
            return _texts_of(table, named)
        case ast.Dict(values=values):
            return {text for value in values for text in _texts_of(value, named)}
    return set()


REASONS = _spoken(adapters, ("NotSeenError", "sink.signal"), -1)
"""Why a trainer lacks a signal. What an error says instead stays as it is."""
SENTENCES = _spoken(status, ("language",), 0)
ABOUT = {condition.about for condition in CONDITIONS if condition.about}
TEMPLATES = {*(text for name, text in STRINGS.items() if not name.endswith(".one")), *SENTENCES, *ABOUT}
TEXTS = {
    *REASONS,
    *TEMPLATES,
    *(text for question in QUESTIONS for text in (question.title, *(shown.name for shown in question.main))),
    *(condition.summary for condition in CONDITIONS),
    *UNITS,
}
"""All else is English only: what the catalog says of a series. Runbooks have their steps in each language."""
TERMS = {
    "Advantage",
    "Loss",
    "Runbook",
    "Runbook: {alert}",
    "Value loss",
    "entropy",
    "rank {rank}",
    "value loss",
    "advantage",
    "TFLOP/s",
}
"""Texts that are the same in Vietnamese, or in both."""


def _texts(code: str) -> dict[str, str]:
    """The file of a language, in which no text may stand twice."""

    def once(pairs: list[tuple[str, str]]) -> dict[str, str]:
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]
        return dict(pairs)

    read = (files("rlexporter.catalog.languages") / f"{code}.json").read_text(encoding="utf-8")
    found: dict[str, str] = json.loads(read, object_pairs_hook=once)
    return found


def _fields(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def _terms(text: str) -> list[str]:
    """What is the same in each language: code, and marks of sources."""
    return sorted(re.findall(r"`[^`]+`|\[[a-z0-9]+\]", text))


@pytest.mark.parametrize("code", FOREIGN)
def test_every_text_is_translated_and_no_other(code: str) -> None:
    """A text that is changed in English has no translation any more, until somebody looks at it."""
    found = _texts(code)

    assert TEXTS - set(found) == set()
    assert set(found) - TEXTS == set()
    assert len(found) > 200


NAMES = re.compile(r"\b(?:rl_\w+|rlexporter_\w+|RL[A-Z]\w+|RLEXPORTER_\w+)", re.ASCII)


@pytest.mark.parametrize("code", FOREIGN)
def test_a_translation_keeps_what_is_no_word(code: str) -> None:
    """Fields that are filled in, code that is typed, sources of limits, and names of series and alerts."""
    assert [
        (text, translated)
        for text, translated in _texts(code).items()
        if not translated
        or translated.strip() != translated
        or _terms(text) != _terms(translated)
        or set(NAMES.findall(text)) != set(NAMES.findall(translated))
        or (text in TEMPLATES and _fields(text) != _fields(translated))
    ] == []


def test_the_languages_are_what_they_say() -> None:
    """Chinese has Chinese signs in it, and Vietnamese its own; a text that stayed English is a slip."""
    chinese, vietnamese = _texts("zh"), _texts("vi")
    sentences = [text for text in TEXTS if len(text.split()) > 4]
    assert [text for text in sentences if not re.search("[\u4e00-\u9fff]", chinese[text])] == []
    assert [text for text in sentences if not re.search("[\u00c0-\u024f\u1e00-\u1eff]", vietnamese[text])] == []
    for found in (chinese, vietnamese):
        same = {text for text, translated in found.items() if text == translated}
        assert {text for text in same if re.search("[a-z]{3}", re.sub(r"{\w+}", "", text))} <= TERMS


def test_a_text_without_a_translation_stays_english() -> None:
    """So that a new text breaks nothing, and a template is filled in all the same."""
    for code in CODES:
        assert language(code)("no such text, step {step}", step="3") == "no such text, step 3"
    assert language("vi") is language("vi")
    assert language("fr").code == language("").code == "en"


@pytest.mark.parametrize(
    ("asked", "accept", "code"),
    [
        (None, "", "en"),
        ("vi", "zh", "vi"),
        ("zh-Hans-CN", "", "zh"),
        ("fr", "vi", "en"),
        ("", "vi", "en"),
        ("../../etc/passwd", "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr, vi;q=0.5", "vi"),
        (None, "en;q=0.1, VI ; q=0.7 , zh;q=0.3", "vi"),
        (None, "vi;q=0, zh;q=0.2", "zh"),
        (None, "vi;q=nan, zh;q=much, *", "en"),
        (None, "x," * 5000 + "vi", "en"),
        (None, ";;;,,,;q=,q", "en"),
    ],
)
def test_a_language_is_chosen(asked: str | None, accept: str, code: str) -> None:
    """By the address, or else by the header; by nothing that is none of the three."""
    assert preferred(asked, accept) == code
