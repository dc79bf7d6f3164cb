"""What the pictures show: recorded runs, on a clock of our own, as blocks of a Prometheus."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite, sin
from pathlib import Path

import yaml

from rlexporter.config.arguments import Rank
from rlexporter.config.settings import Settings
from rlexporter.logs import reader
from rlexporter.logs.playback import feed
from rlexporter.logs.reader import Event
from rlexporter.model.snapshot import RunState
from rlexporter.outputs.prometheus import Backfill
from rlexporter.run.run import Run
from scripts.pictures.look import Json
from tests.dashboards.past import END, SCRAPE
from tests.tools import Prometheus, prometheus, require_tools

ROOT = Path(__file__).parent.parent.parent
WORK, IMAGES = ROOT / ".work/pictures", ROOT / "docs/images"
SECONDS = 2 * 3600.0
_LINGER = 60.0
"""Seconds for which a run that is over serves its last state."""


@dataclass(frozen=True)
class Planned:
    """A run of the pictures. ``minutes``: from its start to the end of what is shown; ``until``: its last step."""

    name: str
    file: Path
    minutes: float
    algorithm: str = ""
    team: str = ""
    until: int = 10**9
    ended: float = 0.0
    """How many minutes ago it was over, as it was at the end of the recording; 0 if it goes on."""


def demo(name: str, *arguments: str) -> Path:
    """The recording of a demo; trained once."""
    file = WORK / f"{name}.jsonl"
    if not file.exists():
        part = file.with_suffix(".part")
        part.unlink(missing_ok=True)
        command = [sys.executable, "-m", "rlexporter", "demo", "--port", "0", "--linger", "0", *arguments]
        subprocess.run(command, check=True, env={**os.environ, "RLEXPORTER_RECORD": str(part)})  # noqa: S603 - our own command
        part.rename(file)
    return file


DEAD = ("dead-reward", "--steps", "260", "--fault", "dead_reward@150")
"""The recording of a run of which one reward function dies."""


def planned() -> list[Planned]:
    runs = ROOT / "tests/data/runs"
    return [
        Planned("grpo-healthy", demo("healthy", "--steps", "320"), 110, until=270),
        Planned("grpo-lr-spike", demo("broken", "--steps", "320", "--fault", "lr_spike@200"), 110, until=240),
        # Not longer ago: `recorded` evaluates each rule once, so that none remembers what it has recorded itself.
        Planned("grpo-nan", demo("nan", "--steps", "320", "--fault", "nan@150"), 80, ended=5),
        Planned("grpo-shared", demo("healthy", "--steps", "320"), 90, team="math", until=250),
        Planned("grpo-shared", demo(*DEAD), 70, team="code", until=200),
        Planned("rloo", runs / "rloo-healthy_multi-0.jsonl", 60),
        Planned("ppo", runs / "ppo-healthy_accum-0.jsonl", 100),
        Planned("ppo-legacy", runs / "ppo_legacy-healthy_wandb_types-0.jsonl", 25),
    ]


def _at_pace(event: Event, start: float, pace: float) -> Event:
    """As if each step had taken about so many seconds; what they were spent on is as it was recorded."""
    update, logs = event.update, event.logs
    took = pace * (1 + sum(0.03 * sin(speed * event.step) for speed in (0.9, 0.37, 0.11)))
    if update is not None:
        own = {name: seconds for name, seconds in update.phases.items() if name not in ("eval", "save")}
        factor = took / (sum(own.values()) or 1.0)
        phases = {**update.phases, **{name: factor * seconds for name, seconds in own.items()}}
        update = replace(update, duration=update.duration and took, phases=phases)
    if logs is not None and "step_time" in logs:
        logs = {**logs, "step_time": took}
    return replace(event, time=start + pace * event.step, update=update, logs=logs)


def history(told: Planned) -> Iterator[bytes]:
    """What scrapes every 15 seconds would have given, as OpenMetrics."""
    found = reader.read(told.file, told.algorithm)
    events = [each for each in found.events if isfinite(each.time) and each.step <= told.until]
    if not told.ended:
        events = [each for each in events if each.state is None or not each.state.over]
    start = END - told.minutes * 60
    pace, last = (told.minutes - told.ended) * 60 / max(each.step for each in events), 0
    clock = [start]
    settings = {"run": told.name, "rank": Rank(0, world_size=1), "algorithm": found.facts.algorithm}
    labels = {"team": told.team} if told.team else {}
    run = Run(Settings.load({**settings, "labels": labels}), clock=lambda: clock[0])
    run.prepare(replace(found.facts, info={**found.facts.info, "torch": ""}))
    run.enter(RunState.RUNNING)
    saved = 0
    history, scraped = Backfill({"job": "rlexporter", "instance": f"{told.team}{told.name}:9750"}), start
    for event in (_at_pace(replace(each, step=each.step or last), start, pace) for each in events):
        last = event.step
        while scraped < event.time:
            history.add(run.feed.snapshot, scraped)
            scraped += SCRAPE
        clock[0] = event.time
        if event.state is None:
            feed(run.feed, event)
            if event.step > saved and event.step % 50 == 0:
                run.sink.saved(saved := event.step)
        elif event.state.over:
            run.enter(event.state, event.exception)
    until = END if told.ended == 0 else clock[0] + _LINGER
    while scraped <= until:
        history.add(run.feed.snapshot, scraped)
        scraped += SCRAPE
    return history.text()


def recorded(data: Path) -> None:
    """Add to ``data`` what the recording rules give over all that time: first those that read no other, and so on."""
    rules = [each for each in _rules() if "record" in each]
    for level in _levels(rules):
        with tempfile.TemporaryDirectory() as folder, prometheus("3", data.parent, []) as server:
            file = Path(folder) / "rules.yml"
            file.write_text(yaml.safe_dump({"groups": [{"name": "level", "rules": level}]}))
            command = [
                *(str(require_tools("3") / "promtool"), "tsdb", "create-blocks-from", "rules", str(file)),
                *(f"--url=http://127.0.0.1:{server.port}", f"--output-dir={data}", f"--eval-interval={SCRAPE:.0f}s"),
                *(f"--start={END - SECONDS:.0f}", f"--end={END:.0f}"),
            ]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command


def _levels(rules: list[Json]) -> list[list[Json]]:
    """Rules in the order in which they can be evaluated, each after those before it in the file that it reads."""
    levels: list[list[Json]] = []
    for i, rule in enumerate(rules):
        read = set(re.findall(r"rl:\w+", rule["expr"]))
        before = [
            j for j, level in enumerate(levels) if any(each in level for each in rules[:i] if each["record"] in read)
        ]
        at = max(before, default=-1) + 1
        levels[at:] = [[*(levels[at] if at < len(levels) else []), rule], *levels[at + 1 :]]
    return levels


def alerts(server: Prometheus) -> Iterator[bytes]:
    """What the rules would have fired, as `ALERTS`: they are evaluated once more over all that time."""
    yield b"# TYPE ALERTS gauge\n"
    for rule in _rules():
        if "alert" not in rule or "__name__" in rule["expr"]:
            continue
        for series in over_time(server, rule["expr"], SCRAPE):
            labels = {**series["metric"], **rule["labels"], "alertname": rule["alert"], "alertstate": "firing"}
            # A label may be a template, which has quotes of its own.
            text = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(labels.items()) if key != "__name__")
            for at, _ in series["values"]:
                yield f"ALERTS{{{text}}} 1 {at}\n".encode()
    yield b"# EOF\n"


def _rules() -> list[Json]:
    groups = yaml.safe_load((ROOT / "alerts/rlexporter.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def over_time(server: Prometheus, expression: str, step: float) -> list[Json]:
    """The result of a range query over all that is shown."""
    end = END // step * step
    start = end - SECONDS // step * step
    return list(server.get("query_range", query=expression, start=f"{start}", end=f"{end}", step=f"{step}")["result"])
