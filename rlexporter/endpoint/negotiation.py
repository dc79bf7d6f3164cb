"""What a client asks for in its headers: the encoding and the language of an answer."""

from __future__ import annotations

from rlexporter.catalog.languages import CODES, code_of

_MOST_ENTRIES = 20
"""The most entries of a header that are looked at."""


def takes_gzip(accept_encoding: str) -> bool:
    """Return True if a client with this Accept-Encoding header understands gzip."""
    return any(name == "gzip" and weight > 0 for name, weight in _entries(accept_encoding))


def preferred(asked: str | None, accept_language: str) -> str:
    """Return the code of the language that is ``asked`` for, or else of the best in an Accept-Language header.

    It is English where there is no such language.
    """
    if asked is not None:
        return code_of(asked) or CODES[0]
    known = [(weight, code_of(name)) for name, weight in _entries(accept_language) if weight > 0]
    return max((each for each in known if each[1]), key=lambda each: each[0], default=(0.0, CODES[0]))[1]


def _entries(header: str) -> list[tuple[str, float]]:
    """Return the names in a header of RFC 9110 such as `gzip, br;q=0.5`, each with its weight.

    A weight that cannot be understood is 0.
    """
    found = []
    for entry in header.lower().split(",")[:_MOST_ENTRIES]:
        name, _, parameter = entry.replace(" ", "").partition(";")
        try:
            found.append((name, float(parameter.removeprefix("q=") or 1.0)))
        except ValueError:
            found.append((name, 0.0))
    return found
