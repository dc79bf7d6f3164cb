"""Console output: log lines among whatever a training prints, and the exception, or Slurm, that ended it.

transformers prints each log line as a dict, verl as ``step:1 - key:value - key:value``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlexporter.logs.dialect import STEPS, is_number, is_training
from rlexporter.logs.formats import printed
from rlexporter.logs.source import Line, shortened

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[@-_]")
_PREFIX = re.compile(r"^(?:\(\w+(?: pid=\d+)?(?:, ip=[\w.:]+)?\)|\[(?:rank|default)?\d+\]:) ?", re.MULTILINE)
"""What Ray and torchrun put before each line of a worker."""
_VERL = re.compile(r"(?<!\S)step:(\d{1,18}) - (\S.*)$", re.MULTILINE)
_LAST_OF_VERL = re.compile(r"""^\(?['"]?Final validation metrics: """, re.MULTILINE)
"""What each version of verl prints after its last step, as the repr of a text, and with None if it does not validate;
up to 0.2 a line with the same numbers follows."""
_FINISHED = {"event": "state", "state": "finished"}
_REPEATED = " [repeated "
"""What Ray puts behind a line that several workers have printed."""
_BAR = re.compile(
    r"(?:(?<!\w)(\w[\w ()/.-]{0,60}):[^\S\n]{0,9})?\b\d{1,3}%\|[^|\n]{0,400}\|[^\S\n]{0,9}(\d{1,12})/(\d{1,12}) \["
)
"""What tqdm draws: what is being done if it says so, the steps done, and all of them.

Every part is bounded, or a long line without a bar would be searched from each of its characters.
"""
_OF_TRLX = re.compile(
    r"\[(losses/\w{1,60}: [^|\]\n]{1,30}(?: \| losses/\w{1,60}: [^|\]\n]{1,30}){0,20})\]:"
    r"[^\S\n]{0,9}\d{1,3}%\|[^|\n]{0,400}\|[^\S\n]{0,9}(\d{1,12})/(\d{1,12}) \["
)
"""The bar of trlX, which has no other log line on the console: losses, the steps done, and all of them."""
_OF_TRAINING = ("", "Train", "Training Progress")
"""How transformers, ms-swift and verl call the bar of a training."""

_LOGGED = frozenset(("epoch", "loss", "reward", "grad_norm", "kl", "train_runtime", "eval_runtime"))
_LOGGED_BELOW = ("rewards/", "completions/", "objective/", "ppo/", "train/", "actor/", "critic/")
_LONGEST = 1024 * 1024
"""A longer line is read before it ends."""
_MOST_WAITING = 100
_NEAR = 10_000
"""How many characters after a log line its bar may be."""

_BEGIN = re.compile(r"Traceback \(most recent call last\):\s*")
"""Behind anything else it is what a logger prints of an exception that was handled."""
_OF_WORKER = re.compile(r"^\(\w+(?: pid=\d+)?(?:, ip=[\w.:]+)?\) ?.*Traceback \(most recent call last\):", re.MULTILINE)
"""What a worker of Ray prints ends nothing: its driver prints what it did not catch, without a prefix."""
_EXCEPTION = re.compile(r"^(?:(?:\w+\.)+|(?=[A-Z]))(\w+)(?:\((\w+)\))?(?::|\s*$)")
"""The line after a traceback; Ray names the cause in parentheses: ``ray.exceptions.RayTaskError(ValueError): ...``."""
_HARMLESS = ("Exception ignored in", "Exception in thread", "--- Logging error ---")
_RECORD = re.compile(r"(?!.*failed \(exitcode)(?:.*\W)?(?:ERROR|WARNING|CRITICAL)\b")
"""A record of a logger; the exception below it was handled, unless torchrun tells that a process has failed."""
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_LAST_WORDS = 200
"""How many lines may follow the exception that ended a run, such as the frames of C++."""
_OF_WANDB = "wandb:"
"""How W&B begins each line of its summary, which it prints at exit."""
_STOPPED = ("KeyboardInterrupt", "SystemExit")
_SLURM = re.compile(r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT ")
_KILLED = re.compile(r"slurmstepd: error: Detected \d+ oom[_-]kill event")
_LOOKED_AT = 2000
"""How many characters of a line are looked at."""


class Console:
    """Reads the log lines in a console's text that comes in pieces.

    A dict may span several lines: while it is open, the text from its start waits, up to a bounded length. A log line
    without a step waits, until the next one, for the progress bar that is drawn after it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw = ""
        """The beginning of an unfinished line, as it came."""
        self._text = ""
        """Whole lines that were not read yet, without colors and prefixes."""
        self._number = 1
        """The number of the line in which that text begins, as a terminal shows it."""
        self._verl = self._over = False
        self._progress: tuple[int, int] | None = None
        self._of_trlx: tuple[int, int] | None = None
        """The last bar of trlX, which is drawn more than once."""
        self._waiting: deque[Line] = deque()
        self._waited = 0
        """The characters since the last log line."""
        self.count = 0
        """The number of log lines so far, including those that wait."""
        self._ending = TextEnding()

    @property
    def ending(self) -> dict[str, Any] | None:
        """Return the event by which the run ended, if nothing more comes; None if nothing says that it ended."""
        return _FINISHED if self._over else self._ending.event

    def feed(self, text: str) -> Iterator[Line]:
        """Yield the log lines that are whole with the next piece of ``text``."""
        self._raw += text
        end = max(self._raw.rfind("\n"), self._raw.rfind("\r", 0, -1)) + 1  # the last one may be half of "\r\n"
        if len(self._raw) - end > _LONGEST:
            end = len(self._raw)
        whole, self._raw = self._raw[:end], self._raw[end:]
        yield from self._lines(_plain(whole), last=False)
        if self._waiting and not self._text:  # tqdm does not end the line of its bar
            yield from self._drawn(_ESCAPE.sub("", self._raw))

    def settle(self) -> Iterator[Line]:
        """Yield what waits for a progress bar: none was drawn."""
        while self._waiting:
            yield self._waiting.popleft()

    def close(self) -> Iterator[Line]:
        """Yield what is left at the end of the text."""
        raw, self._raw = self._raw, ""
        yield from self._lines(_plain(raw), last=True)
        yield from self.settle()
        self._ending.feed("\n")  # what came last is a line too

    def _lines(self, text: str, *, last: bool) -> Iterator[Line]:
        """Yield the log lines in plain text. Dicts in the output of verl are no log lines."""
        matches = list(_VERL.finditer(text))
        if matches or self._verl:
            if not self._verl:
                yield from self.settle()
                self._number += self._text.count("\n")
                self._verl, self._text = True, ""
            yield from self._of_verl(text, matches)
        else:
            self._text += text
            yield from self._of_dicts(last=last)

    def _of_verl(self, text: str, matches: list[re.Match[str]]) -> Iterator[Line]:
        at = 0
        self._progress = next(reversed(list(_bars(text))), self._progress)
        for match in matches:
            self._over |= _LAST_OF_VERL.search(text, at, match.start()) is not None
            self._number += text.count("\n", at, match.start())
            parts = (part.rpartition(":") for part in match[2].partition(_REPEATED)[0].split(" - "))
            logs = {key.strip(): v if is_number(v) else printed.literal(v) for key, _, v in parts if key}
            yield Line(f"{self._path}:{self._number}", {"step": match[1], **logs}, self._progress)
            self._number += text.count("\n", match.start(), match.end())
            at = match.end()
            self.count += 1
            self._over &= all(key.startswith("val") for key in logs)
            self._ending = TextEnding()
        self._over |= _LAST_OF_VERL.search(text, at) is not None
        self._number += text.count("\n", at)
        self._ending.feed(text[at:])

    def _of_dicts(self, *, last: bool) -> Iterator[Line]:
        text, end, done = self._text, 0, 0
        for start, end, logs in printed.dicts(text, whole=last):
            if logs is not None and not _is_log_line(logs):
                continue
            yield from self._between(text[done:start])
            if logs is None:
                break
            yield from self._put(Line(f"{self._path}:{self._number}", logs))
            self._number += text.count("\n", start, end)
            done = end
        self._text = text[end:]

    def _between(self, text: str) -> Iterator[Line]:
        """Take the text between two log lines; a bar in it tells the step of the line before."""
        yield from self._drawn(text)
        self._waited += len(text)
        if self._waited > _NEAR:
            yield from self.settle()
        at = 0
        for match in _OF_TRLX.finditer(text):
            self._number += text.count("\n", at, match.start())
            self._ending.feed(text[at : match.start()])
            at = match.start()
            done, planned = bar = int(match[2]), int(match[3])
            if done and bar != self._of_trlx:
                self._of_trlx = bar
                parts = (part.partition(": ") for part in match[1].split(" | "))
                logs = {"step": str(done), **{key: value for key, _, value in parts}}
                yield from self._put(Line(f"{self._path}:{self._number}", logs, (done, planned)))
        self._number += text.count("\n", at)
        self._ending.feed(text[at:])

    def _drawn(self, text: str) -> Iterator[Line]:
        if self._waiting and (bar := next(_bars(text), None)):
            self._waiting[0] = self._waiting[0]._replace(bar=bar)
            yield from self.settle()

    def _put(self, line: Line) -> Iterator[Line]:
        self._ending = TextEnding()
        self._waited = 0
        self.count += 1
        training = is_training(line.logs)
        if training or len(self._waiting) >= _MOST_WAITING:
            yield from self.settle()
        if self._waiting or (training and not any(key in line.logs for key in STEPS)):
            self._waiting.append(line)
        else:
            yield line


def described(text: str) -> str:
    """Describe a ``text`` without a log line, for a message."""
    lines = _plain(text).strip().splitlines() or [""]
    return f"{len(lines)} lines of text, the first of them {shortened(lines[0], 40)!r}"


def _bars(text: str) -> Iterator[tuple[int, int]]:
    """Yield the steps done and planned on each bar of a training."""
    for match in _BAR.finditer(text):
        if (match[1] or "") in _OF_TRAINING:
            yield int(match[2]), int(match[3])


def _plain(text: str) -> str:
    """Return ``text`` without colors and prefixes; each state of a progress bar becomes a line."""
    text = _ESCAPE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _PREFIX.sub("", _OF_WORKER.sub("", text))


def _is_log_line(printed: Mapping[str, Any]) -> bool:
    """Return True for a dict that is a log line; False for any other, such as a configuration."""
    numbers = any(isinstance(value, (int, float)) or is_number(value) for value in printed.values())
    return numbers and any(key in _LOGGED or key.startswith(_LOGGED_BELOW) for key in printed)


class TextEnding:
    """Finds how a run ended in text that comes in pieces. What precedes a log line ended nothing: begin anew.

    Nor does an exception that was handled: a logger has printed it, a progress bar goes on, or much text follows.
    """

    def __init__(self) -> None:
        self.event: dict[str, Any] | None = None
        """The event of the end, as far as the text tells it; None if nothing has ended the run."""
        self._rest = ""
        self._before = ""
        self._inside = self._handled = False
        self._slurm = False
        self._after = 0
        """The lines since the exception that may have ended the run."""
        self._bar: tuple[int, int] | None = None
        """The first bar since then: tqdm draws it again when its process ends."""

    def feed(self, text: str) -> None:
        """Take the next piece of ``text``."""
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = self._rest + lines[0]
            self._rest = ""
        for line in lines:
            self._line(line[:_LOOKED_AT])
        self._rest = (self._rest + rest)[:_LOOKED_AT]

    def _line(self, line: str) -> None:
        if _BEGIN.fullmatch(line):
            if not self._before.startswith(_CHAINED):
                self._handled = self._before.startswith(_HARMLESS) or _RECORD.match(self._before) is not None
            self._inside = not self._handled
        elif _SLURM.match(line):
            self.event, self._slurm = {"event": "state", "state": "preempted"}, True
        elif _KILLED.match(line) and not self._slurm:
            self.event = {"event": "crash", "type": "OutOfMemory"}
        elif self._inside and (match := _EXCEPTION.match(line)):
            self._inside, self._after, self._bar = False, 0, None
            if not self._slurm:
                self.event = ending(match[2] or match[1])
        elif self.event is not None and not self._slurm and self._goes_on(line):
            self.event = None
        self._before = line or self._before

    def _goes_on(self, line: str) -> bool:
        """Return True if a ``line`` after an exception shows that it ended nothing."""
        self._after += bool(line) and not line.startswith(_OF_WANDB)
        bar = next(_bars(line), None)
        self._bar = self._bar or bar
        moved = bar is not None and self._bar is not None and bar[1] == self._bar[1] and bar[0] > self._bar[0]
        return moved or self._after > _LAST_WORDS


def ending(name: str) -> dict[str, Any]:
    """Return the event of a run that the exception called ``name`` has ended."""
    if name in _STOPPED:
        return {"event": "state", "state": "stopped", "exception": name}
    return {"event": "crash", "type": name}
