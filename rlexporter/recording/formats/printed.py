"""Finds Python dicts in the text of a console, as ``print`` writes them; a terminal may have broken their lines."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from math import inf, nan
from typing import Any

_LONGEST = 20_000
"""How many characters a dict may have."""
_MOST_FRUITLESS, _LONGEST_AFTER = 8, 200
"""After so many dicts that were begun and do not end, those that begin in their text may only have so many."""
_ENDLESS, _CUT_OFF = 0, -1
"""A dict that does not end, and one that is cut off where the next one begins."""
_START = re.compile(r"""\{\s*(['"])[^{}'"]{1,200}\1\s*:""")
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[{}'"]""", re.DOTALL)
_HALF = re.compile(r"""\{\s*(?:(['"])[^{}'"]{0,200}(?:\1\s*)?)?\Z""")
"""The first part of what `_START` finds, at the end of a text."""
_NAMES = {"nan": nan, "NaN": nan, "inf": inf, "Infinity": inf, "null": None, "true": True, "false": False}


def dicts(text: str, *, whole: bool = True) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Yield start, end and value of each outermost dict with texts as keys.

    The last item is the position up to which there is no further dict, twice, and None. ``whole``: False if more text
    may follow and end an open dict. Takes time linear in the length of the text, whatever that holds.
    """
    at = crowded = fruitless = 0
    while begun := _START.search(text, at):
        start = begun.start()
        if start >= crowded:
            fruitless = 0
        longest = _LONGEST if fruitless < _MOST_FRUITLESS else _LONGEST_AFTER
        end = _end(text, start, longest, whole=whole)
        if end is None:
            yield start, start, None
            return
        value = literal(text[start:end].replace("\n", "")) if end > 0 else None
        if isinstance(value, dict):
            yield start, end, value
        if end == _ENDLESS:
            fruitless, crowded = fruitless + 1, start + _LONGEST
        at = end if end > 0 else text.find("\n", start) + 1 or len(text)
    half = None if whole else _HALF.search(text, at)
    stop = half.start() if half else len(text)
    yield stop, stop, None


def literal(text: str) -> Any:
    """Return the value that ``text`` is the repr of, for arrays and numpy scalars what they hold; else ``text``."""
    if len(text) > _LONGEST:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of odd syntax
            return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return text


def _end(text: str, start: int, longest: int, *, whole: bool) -> int | None:
    """Return the position after the brace that closes the one at ``start``, `_ENDLESS` or `_CUT_OFF`.

    None if more text has to tell. ``longest``: how many characters to look at.
    """
    depth = 0
    for token in _TOKEN.finditer(text, start, start + longest):
        if depth and token[0] == "{" and text[token.start() - 1] == "\n":
            return _CUT_OFF
        if token[0] in ("'", '"') and not whole and len(text) - start < longest:
            return None  # a text that is open
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return _ENDLESS if whole or len(text) - start >= longest else None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.Call) and node.args:  # np.float64(0.5), tensor(0.5, device='cuda:0'), float('nan')
        return _value(node.args[0])
    if isinstance(node, ast.Dict):
        return {str(_value(key)): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key}
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(element) for element in node.elts]
    name = ast.unparse(node).split(".")[-1]  # nan, np.nan
    if name not in _NAMES:
        raise ValueError(name)
    return _NAMES[name]
