"""Text for a terminal: wrapped to its width, and without control characters of others."""

from __future__ import annotations

import textwrap


def shown(text: object) -> str:
    """Return ``text`` for a terminal: signs that it does not print, or that turn text around, become their numbers."""
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in str(text))


def wrapped(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    """Return ``text`` in lines of at most ``width`` characters, with these indents; no word is broken."""
    return textwrap.wrap(
        text.rstrip(),
        width,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
