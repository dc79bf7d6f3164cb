"""Plain text, written for a service of `apprise` so that it is shown there as it is. Pure.

Names in a message are anybody's: of a run, of a reward function. They must be no markup, and call nobody by a mention.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

_EXACT = frozenset(
    [
        *("json", "jsons", "xml", "xmls", "form", "forms", "apprise", "apprises", "syslog"),  # read by programs
        *("mailto", "mailtos", "ntfy", "ntfys", "gotify", "gotifys", "pover", "pbul", "slack", "pagerduty", "opsgenie"),
    ]
)
"""The schemes of services that show plain text as it is, and call nobody because of it."""
_MARKDOWN = frozenset(
    [
        *("discord", "guilded", "mmost", "mmosts", "revolt", "ryver", "nctalk", "nctalks"),
        *("hassio", "hassios", "msteams", "workflow", "workflows"),
    ]
)
"""The schemes of services that take titles, and even plain text, for Markdown."""
_PAGERS = frozenset(
    [
        *("pagerduty", "opsgenie", "splunk", "victorops", "goalert", "goalerts", "ilert", "squadcast", "pagertree"),
        *("spike", "signl4", "xmatters"),
    ]
)
"""The schemes of services of which each message wakes somebody."""
_LEAST = 1000
"""The least limit of a service for which a longer message is split. Lower ones are of text messages to telephones."""
_COUNT = len(" [10/10]")
"""The room in a title that apprise takes to say which part of a message it is."""
_CALLS = re.compile(r"([@<])(?=\S)")
"""Where a mention may begin, of a person, a group or a channel."""
_APART = "\u200b"
"""A space without width: a sign before it begins nothing."""
_MARKS = re.compile(r"(https?://[\w.:/?=%-]+)|([\\*_~`|\[\]<>#&])")
"""An address, which is a link as it is; or a sign that Markdown may take for one of its own."""
_BLANKS = re.compile(r"^ | (?= )")


@dataclass(frozen=True, slots=True)
class PlainText:
    """How plain text is written for one service."""

    schemes: frozenset[str]
    """Those of its addresses: ``slack``."""
    form: str
    """What its plugin takes: ``text``, ``html`` or ``markdown``."""
    title_limit: int
    """The most signs of a title; 0 if the plugin makes it a part of the text."""
    limit: int
    """The most signs of a text."""

    @property
    def longer(self) -> str:
        """Return what is done with a text above the limit: ``split``, ``truncate``, or ``upstream`` for nothing."""
        if self.schemes & _PAGERS:
            return "truncate"
        return "split" if self.limit >= _LEAST else "upstream"

    def body(self, text: str) -> str:
        """Return ``text`` for the plugin: a line of it is a line there."""
        if self.form == "markdown" or self.schemes & _MARKDOWN:
            return _literal(self._harmless(text))
        return _html(self._harmless(text)) if self.form == "html" else self._harmless(text)

    def title(self, text: str) -> str:
        """Return a title for the plugin. What is too long for it is left out of its middle: at the end is the step."""
        if self.title_limit <= 0:
            return self.body(text)
        write = self.body if self.schemes & _MARKDOWN else self._harmless
        return _fitted(text, write, self.title_limit - _COUNT)

    def _harmless(self, text: str) -> str:
        return text if self.schemes & _EXACT else _CALLS.sub(rf"\1{_APART}", text)


def _fitted(text: str, write: Callable[[str], str], most: int) -> str:
    written, kept = write(text), len(text) // 2
    while len(written) > most and kept > 0:
        kept = max(kept - max((len(written) - most) // 16, 1), 0)
        written = write(f"{text[:kept]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - kept :]}")
    return written


def _literal(text: str) -> str:
    """Return Markdown that shows ``text``; addresses are links."""
    return _MARKS.sub(lambda found: found[1] or f"\\{found[2]}", text)


def _html(text: str) -> str:
    """Return HTML that shows ``text`` line by line; long lines are wrapped."""
    return "<br/>".join(_BLANKS.sub("&nbsp;", escape(line, quote=False)) for line in text.split("\n"))
