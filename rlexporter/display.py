"""What a terminal shows of a run: a live line and a summary.

All numbers of a run are read from the snapshot.
"""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
import time
from collections import Counter
from math import isfinite
from typing import TextIO

from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.exporter import Exporter
from rlexporter.model.snapshot import Snapshot
from rlexporter.status.samples import Samples
from rlexporter.status.verdict import verdict

_SHOWN = (
    ("reward", "rl_reward_mean"),
    ("kl", "rl_kl_per_token"),
    ("kl", "rl_kl_per_sequence"),
    ("entropy", "rl_entropy_per_token"),
    ("clipped", "rl_clip_ratio_region_mean"),
    ("length", "rl_completion_length_mean"),
    ("value", "rl_value_loss"),
    ("grad", "rl_grad_norm"),
)
_DROPPED_FIRST = ("grad", "value", "clipped", "length", "entropy", "kl", "bars", "rate", "reward")
"""The parts of the live line, in the order in which a narrow terminal drops them."""
_LISTED = 8
_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 80
"""The width of a terminal that does not say how wide it is."""
_MOST_REWARDS = 4096
_EVERY_SECONDS = 0.2
_EVERY_SECONDS_IN_A_FILE = 5.0


class Display:
    """A live line, overwritten on a terminal and repeated now and then in a file or a log of CI."""

    _exporter: Exporter
    """The one to `watch`; until then there is only `say` and `teaching`."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._live = self._out.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
        self._shown = 0.0
        self._open = False
        self._began = 0.0
        self._first: dict[str, float] = {}
        self._rewards: list[float] = []
        self._begun: dict[tuple[str, ...], float] = {}

    def watch(self, exporter: Exporter) -> None:
        """Show the run of ``exporter`` from now on. The exporter itself prints its address."""
        self._exporter = exporter
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Print ``text`` on a line of its own."""
        print(("\n" if self._open else "") + text, file=self._out, flush=True)
        self._open = False

    def teaching(self, done: int, steps: int) -> None:
        """Show how much of teaching the demo's model is done."""
        if self._due() or done == steps:
            self._write(f"teaching a tiny model to write words: {100 * done // steps} %", last=done == steps)

    def reading(self, done: int, total: int) -> None:
        """Show the run, and how many of the bytes of its past were read."""
        if self._due():
            self._write(f"reading the past: {100 * done // total} %  {self._line(self._exporter.snapshot)}")

    def step(self) -> None:
        """Show the run as it is served now, and the conditions that began."""
        now = self._exporter.snapshot
        for _, name in _SHOWN:
            value = now.value(name)
            if value is not None:
                self._first.setdefault(name, value)
        reward = now.value("rl_reward_mean")
        if reward is not None and isfinite(reward):
            self._rewards.append(reward)
            if len(self._rewards) > _MOST_REWARDS:  # of a long run the means of two, of four ...
                self._rewards = [sum(pair) / 2 for pair in zip(self._rewards[::2], self._rewards[1::2], strict=False)]
        self._conditions(now)
        if self._due():
            self._write(self._line(now))

    def summary(self) -> None:
        """Print a summary of what was served."""
        now = self._exporter.snapshot
        samples = Samples(now)
        self._conditions(now)
        metrics = {series.metric.series for series in (*now.samples, *now.buckets)}
        state = now.state.value if now.state else ""
        self.say("")
        self.say(f"run {now.labels['run']}: {state} after step {now.value('rl_step') or 0:.0f}")
        for label, name in _SHOWN:
            value = now.value(name)
            if value is not None and name in self._first:
                self.say(f"  {label:8} {self._first[name]:8.3g} -> {value:8.3g}   {name}")
        self.say(f"  {_nonfinite(samples)}; {len(metrics)} metrics served")
        said = verdict(samples, time.time())
        self.say(textwrap.fill(f"{said.word}: {said.text}", int(min(self._columns(), 10_000)), break_on_hyphens=False))

    def stay(self, seconds: float) -> None:
        """Serve the final state for ``seconds`` more, so that it can be seen or scraped; Ctrl-C closes the endpoint."""
        if seconds <= 0:
            return
        try:
            self.say(f"the final state stays on port {self._exporter.port} for {seconds:.0f} s; Ctrl-C ends it")
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(left, 1.0))  # a Ctrl-C that comes just before a sleep is heard after it
        except KeyboardInterrupt:
            self._exporter.close()  # at the end of the process it would wait for scrapers once more
            self.say("")

    def _conditions(self, now: Snapshot) -> None:
        """Print the conditions that have begun since the last step."""
        subjects = {incident.condition: incident.subject for incident in now.incidents}
        for series, step in now.samples.items():
            if series.metric.series == "rl_condition_last_event_step" and self._begun.get(series.labels) != step:
                self._begun[series.labels] = step
                name, severity = series.labels
                begun = CONDITION_NAMED[name]
                self.say(f"step {step:.0f}  {severity:8}  {begun.alert}: {begun.says(subjects.get(name, ''))}")

    def _line(self, now: Snapshot) -> str:
        step, planned = now.value("rl_step") or 0, now.value("rl_steps_planned") or 0
        rate = (now.value("rl_steps_total") or 0) / max(time.monotonic() - self._began, 1e-9)
        parts = {"step": f"step {step:.0f}{f'/{planned:.0f}' if planned else ''}", "bars": self._bars()}
        for label, name in _SHOWN:
            value = now.value(name)
            if value is not None:
                parts[label] = f"{label} {value:.3g}"
        parts["rate"] = f"{rate:.1f} steps/s"
        return _fitted({name: part for name, part in parts.items() if part}, self._columns())

    def _bars(self) -> str:
        bars = _sparkline(self._rewards)
        try:
            bars.encode(self._out.encoding or "utf-8")
        except UnicodeEncodeError:
            return ""
        return bars

    def _columns(self) -> float:
        """Return how wide a line may be. Asked for each line, since a terminal can be resized."""
        if not self._live:
            return float("inf")
        columns = 0
        with contextlib.suppress(OSError, ValueError):
            columns = os.get_terminal_size(self._out.fileno()).columns
        return (columns or _COLUMNS) - 1  # some terminals wrap when the last column is written

    def _due(self) -> bool:
        if time.monotonic() - self._shown < (_EVERY_SECONDS if self._live else _EVERY_SECONDS_IN_A_FILE):
            return False
        self._shown = time.monotonic()
        return True

    def _write(self, text: str, *, last: bool = False) -> None:
        text = text[: int(min(self._columns(), len(text)))]
        self._out.write(f"\r\x1b[2K{text}" if self._live else f"{text}\n")
        if self._live and last:
            self._out.write("\n")
        self._open = self._live and not last
        self._out.flush()


def _nonfinite(samples: Samples) -> str:
    """Return which values were NaN or infinite, and how often."""
    counts: Counter[str] = Counter()
    for (metric, _), count in samples.nonfinite.items():
        counts[metric] += int(count)
    listed = [f"{count} in {metric}" for metric, count in sorted(counts.items(), key=lambda item: item[1])]
    more = [f"more in {len(listed) - _LISTED} metrics"] if len(listed) > _LISTED else []
    return f"NaN or infinite: {', '.join(listed[:_LISTED] + more) or 'none'}"


def _fitted(parts: dict[str, str], columns: float) -> str:
    """Return ``parts`` in one line of at most ``columns``, without the least important ones where there is no room."""
    kept = dict(parts)
    for name in _DROPPED_FIRST:
        if len("  ".join(kept.values())) <= columns:
            break
        kept.pop(name, None)
    return "  ".join(kept.values())


def _sparkline(values: list[float], width: int = 16) -> str:
    """Return the course of ``values`` as up to ``width`` bars of their means; empty for fewer than two values."""
    if len(values) < 2:
        return ""
    size = max(1, len(values) // width)
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)][-width:]
    low, high = min(means), max(means)
    return "".join(_BARS[round((mean - low) / ((high - low) or 1) * (len(_BARS) - 1))] for mean in means)
