"""Finds in the text of a console what a training prints: Python dicts, or lines of pairs.

Dicts are as ``print`` writes them; a terminal may have broken their lines. Pairs are those of a loop of one's own, such
as ``Reward: 0.51, KL: 0.02 | Actor Loss: 0.1``: DeepSpeed-Chat prints two such lines a step, a notebook for legacy PPO
often one a number, so a log line goes on until a key comes again.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from typing import Any

from rlexporter.logs.dialect import is_known, is_number
from rlexporter.logs.source import Line
from rlexporter.logs.trainings import OF_RL, PARTS

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

_PAIR = re.compile(r"\s*([A-Za-z][\w /.()-]{0,60}?)\s*[:=]\s*(\S{1,40})\s*")
_BETWEEN = re.compile(r"[|;]|,(?=\s)")
_STEP_OF = re.compile(r"\((\d{1,12}/\d{1,12})\)\s*$")
"""Steps done and planned, behind the epoch: ``Epoch:[1/2](100/5000)``."""
_PLACES = {"step": "step", "global step": "step", "global_step": "step", "iteration": "step", "epoch": "epoch"}
_FEWEST = 3
"""How often the commonest key is printed at least."""
_SELDOM = 0.01
"""A key that is printed in a smaller share of the lines is something else: a setting, a summary."""


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


def lines_of_pairs(path: Path, text: str) -> list[Line]:
    """Return the log lines in ``text``; none if it does not print numbers of an RL training again and again."""
    found = list(_merged_pairs(text))
    counts = Counter(key for _, logs in found for key in logs)
    most = max(counts.values(), default=0)
    usual = {key for key, count in counts.items() if count >= max(2.0, _SELDOM * most)}
    if most < _FEWEST or not any(is_known(key) or not OF_RL.isdisjoint(PARTS.split(key.lower())) for key in usual):
        return []
    if "step" in usual:
        steps = [float(logs["step"].partition("/")[0]) for _, logs in found if "step" in logs]
        if not all(before <= after for before, after in pairwise(steps)):
            usual.discard("step")  # it is counted anew in each epoch
    kept = ((number, {key: value for key, value in logs.items() if key in usual}) for number, logs in found)
    return [Line(f"{path}:{number}", logs) for number, logs in kept if logs.keys() - _PLACES.values()]


def _merged_pairs(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of a line, and the pairs from there until a key comes again."""
    begun, logs = 0, dict[str, str]()
    for number, line in enumerate(text.splitlines(), 1):
        pairs = dict(_pairs(line))
        if not pairs.keys().isdisjoint(logs):
            yield begun, logs
            logs = {}
        if pairs:
            begun = begun if logs else number
            logs |= pairs
    if logs:
        yield begun, logs


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    for part in _BETWEEN.split(line[:2000]):
        match = _PAIR.fullmatch(part)
        if match is None:
            continue
        key = _PLACES.get(match[1].lower(), match[1])
        if key == "epoch" and (step := _STEP_OF.search(match[2])):
            yield "step", step[1]
        elif is_number(match[2]) or (key == "step" and is_number(match[2].partition("/")[0])):
            yield key, match[2]
