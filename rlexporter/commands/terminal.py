"""Text from elsewhere, for a terminal."""

from __future__ import annotations


def shown(text: object) -> str:
    """Return ``text`` for a terminal: what is not printed there, or turns it around, is written as its number."""
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in str(text))
