"""The languages of what says how a run is, and what to do. One file a language maps English texts to translations.

They cover the page's own words, the sentences of verdicts, summaries of conditions, and why a signal is missing;
runbooks have their steps in each. All else is English only, above all the help and reading of a series: a new metric
needs no translation. English stays in the tables and the page; a text without a translation is shown in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

CODES = (
    "en",
    "vi",
    "zh",
)
"""The languages, the default first; `zh` is simplified Chinese."""


@dataclass(frozen=True, eq=False)
class Language:
    """A language: called with an English text, it returns that text, with its {fields} filled in where it has some."""

    code: str
    texts: Mapping[str, str]

    def __call__(self, text: str, **fields: str) -> str:
        """Return ``text`` in this language. Braces of a text that is called without ``fields`` are text."""
        translation = self.texts.get(text, text)
        return translation.format_map(fields) if fields else translation

    @property
    def name(self) -> str:
        """Return what the language calls itself."""
        return self("English")

    def together(self, sentences: list[str]) -> str:
        """Return the sentences as one text: Chinese puts no space between them."""
        return ("" if self.code == "zh" else " ").join(filter(None, sentences))


ENGLISH = Language(CODES[0], {})


@cache
def _read(code: str) -> Language:
    return Language(code, json.loads((files(__name__) / f"{code}.json").read_text(encoding="utf-8")))


def language(code: str) -> Language:
    """Return the language ``code``, read once; English for an unknown one."""
    return _read(code) if code in CODES[1:] else ENGLISH


def code_of(tag: str) -> str:
    """Return the code of a language tag such as `zh-Hans-CN`; empty for an unknown language."""
    code = tag.strip().lower().split("-")[0]
    return code if code in CODES else ""
