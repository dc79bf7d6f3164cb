"""Finds Python dicts in the text of a console, as ``print`` writes them; a terminal may have broken their lines."""

from __future__ import annotations

import ast
import re
import warnings
from math import inf, nan
from typing import Any

_LONGEST = 20_000
_START = re.compile(r"""\{\s*(['"])[^{}'"]{1,200}\1\s*:""")
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[{}'"]""", re.DOTALL)
_HALF = re.compile(r"""\{\s*(?:(['"])[^{}'"]{0,200}(?:\1\s*)?)?\Z""")
"""The first part of what `_START` finds, at the end of a text."""
_NAMES = {"nan": nan, "NaN": nan, "inf": inf, "Infinity": inf, "null": None, "true": True, "false": False}


def following(text: str, at: int = 0, *, whole: bool = True) -> tuple[int, int, dict[str, Any] | None]:
    """Return where the next dict with texts as keys begins and ends, from ``at`` on, and the dict.

    Dicts inside it belong to it. If there is none, the place up to which there is none is returned twice, and None.
    ``whole``: False if more text may follow, which may end a dict that is open.
    """
    while begun := _START.search(text, at):
        start = begun.start()
        end = _end(text, start, whole=whole)
        if end is None:
            return start, start, None
        found = literal(text[start:end].replace("\n", "")) if end else None
        if end and isinstance(found, dict):
            return start, end, found
        at = start + 1 if end else _next_line(text, start)
    half = None if whole else _HALF.search(text, at)
    stop = half.start() if half else len(text)
    return stop, stop, None


def _next_line(text: str, at: int) -> int:
    return text.find("\n", at) + 1 or len(text)


def literal(text: str) -> Any:
    """Return the value that ``text`` is the repr of; of arrays and numpy scalars what they hold, else a text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python, on what it finds odd in a text
            return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return text


def _end(text: str, start: int, *, whole: bool) -> int | None:
    """Return the place after the brace that closes the one at ``start``; 0 if none does before the next one begins.

    None: more text can tell.
    """
    depth = 0
    for token in _TOKEN.finditer(text, start, start + _LONGEST):
        if depth and token[0] == "{" and text[token.start() - 1] == "\n":
            return 0
        if token[0] in ("'", '"') and not whole and len(text) - start < _LONGEST:
            return None  # a text that is open
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return 0 if whole or len(text) - start >= _LONGEST else None


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
        return [_value(each) for each in node.elts]
    name = ast.unparse(node).split(".")[-1]  # nan, np.nan
    if name not in _NAMES:
        raise ValueError(name)
    return _NAMES[name]
