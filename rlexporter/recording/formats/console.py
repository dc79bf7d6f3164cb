"""Console output: log lines between whatever else a training printed, and the exception that it ended with.

transformers prints each log line as a dict, verl as ``step:1 - key:value - key:value``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from rlexporter.recording.formats import printed, traceback
from rlexporter.recording.source import UNDERSTOOD, Found, Line, UnreadableError, shortened
from rlexporter.recording.writers import STEPS, is_number
from rlexporter.store.keys import evaluation_prefix

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
_PREFIX = re.compile(r"^(?:\(\w+(?: pid=\d+)?(?:, ip=[\w.:]+)?\)|\[(?:rank|default)?\d+\]:) ?", re.MULTILINE)
"""What Ray and torchrun put before each line of a worker."""
_VERL = re.compile(r"(?<!\S)step:(\d+) - (\S.*)$", re.MULTILINE)
_REPEATED = re.compile(r"\s*\[repeated .*\]$")
_BAR = re.compile(r"\|\s*(\d+)/(\d+) \[")
"""What tqdm draws: the steps done, and all of them."""

_LOGGED = frozenset(("epoch", "loss", "reward", "grad_norm", "kl", "train_runtime", "eval_runtime"))
_LOGGED_BELOW = ("rewards/", "completions/", "objective/", "ppo/", "train/", "actor/", "critic/")


class _Printed(NamedTuple):
    """A log line, and where it stands in the text."""

    start: int
    end: int
    logs: dict[str, Any]


def read(path: Path, text: str) -> Found:
    """Return the log lines in ``text``, and how the run ended if it says so. Raises UnreadableError without any."""
    text = _plain(text)
    found = list(_verl(text)) or [_Printed(*each) for each in printed.dicts(text) if _is_log_line(each[2])]
    end = traceback.ending(text[found[-1].end :] if found else text)
    if not found and end is None:
        raise UnreadableError(f"{path}: has no log line in {_described(text)}: {UNDERSTOOD}")
    if found and not any(step in line.logs for line in found for step in STEPS):
        found, notes = _with_steps(found, text)
    else:
        notes = ()
    lines = list(_placed(path, text, found))
    if end is not None and not (found and "train_runtime" in found[-1].logs):
        lines.append((str(path), end))
    return Found(path, lines, notes)


def _placed(path: Path, text: str, found: Sequence[_Printed]) -> Iterator[Line]:
    """Yield the log lines with their places, in lines as a terminal shows them."""
    number, at = 1, 0
    for each in found:
        number, at = number + text.count("\n", at, each.start), each.start
        yield f"{path}:{number}", each.logs


def _described(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    return f"{len(lines)} lines of text, the first of them {shortened(lines[0], 40)!r}"


def _plain(text: str) -> str:
    """Return ``text`` without colours and prefixes; each state of a progress bar becomes a line."""
    text = _ESCAPE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _PREFIX.sub("", text)


def _verl(text: str) -> Iterator[_Printed]:
    for match in _VERL.finditer(text):
        parts = (each.rpartition(":") for each in _REPEATED.sub("", match[2]).split(" - "))
        logs = {key.strip(): value if is_number(value) else printed.literal(value) for key, _, value in parts if key}
        yield _Printed(match.start(), match.end(), {"step": match[1], **logs})


def _is_log_line(found: dict[str, Any]) -> bool:
    """Return True unless the dict is some other one, such as a configuration."""
    numbers = any(isinstance(each, (int, float)) or is_number(each) for each in found.values())
    return numbers and any(key in _LOGGED or key.startswith(_LOGGED_BELOW) for key in found)


def _with_steps(found: Sequence[_Printed], text: str) -> tuple[list[_Printed], tuple[str, ...]]:
    """Number the lines by the progress bar, else by counting; evaluations and the summary belong to the line before."""
    training = [each for each in found if not evaluation_prefix(tuple(each.logs)) and "train_runtime" not in each.logs]
    steps = _from_bar(training, text)
    notes = () if steps else ("the log has no steps: its lines are counted",)
    numbered = dict(zip((each.start for each in training), steps or range(1, len(training) + 1), strict=True))
    made, step = [], 0
    for each in found:
        step = numbered.get(each.start, step)
        made.append(each._replace(logs={"step": step, **each.logs}))
    return made, notes


def _from_bar(training: Sequence[_Printed], text: str) -> list[int]:
    """Return the steps on the progress bar that tqdm draws anew after each line; none if it does not tell them all."""
    bars = [(match.start(), int(match[1]), int(match[2])) for match in _BAR.finditer(text)]
    steps: list[int] = []
    totals = set()
    at = 0
    ends = [*(each.start for each in training[1:]), len(text)] if training else []
    for each, end in zip(training, ends, strict=True):
        while at < len(bars) and bars[at][0] < each.end:
            at += 1
        if at == len(bars) or bars[at][0] >= end:
            return []
        steps.append(bars[at][1])
        totals.add(bars[at][2])
    rising = all(a < b for a, b in pairwise(steps))
    return steps if len(totals) == 1 and rising and steps and steps[0] > 0 else []
