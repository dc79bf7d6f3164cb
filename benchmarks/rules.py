"""What the rules cost on a fleet of which one run in ten is sick: those of a revision, and today's, side by side.

`python -m benchmarks.rules BEFORE AFTER [SECONDS]` compares any two files of rules, or revisions of this repository; a
revision's rules meet what its own exporter served. SECONDS is for how long the servers run before they are measured.

`python -m benchmarks.rules storm RULES [SECONDS]` compares two fleets under the same rules: one in which every run is
well, and one in which every run became sick at once, so that each rule has all there is to tell.

Time runs five times as fast: scrape and evaluation every 3 seconds instead of 15, all windows a fifth as long. So a
window of an hour is full after 12 minutes, and has as many samples as in a day's work.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks import rule_targets, simulated
from benchmarks.rule_targets import DEAD, FAILED, HEALTHY, KL, NAN, RUN
from tests.tools import GENERATIONS, ROOT, Prometheus, free_port

BEFORE = "7f528b6"
"""The last revision whose alerts looked at each condition for themselves."""
RUNS, FASTER, EVERY = 200, 5, 15
WARM_SECONDS, EVALUATIONS = 750.0, 40
HUNG, GONE = "hung", "gone"
STORM = "storm"
_SICK = (KL, KL, KL, KL, KL, NAN, DEAD, FAILED, HUNG, GONE)
_FEW = tuple(_SICK[i // 10 % len(_SICK)] if i % 10 == 0 else HEALTHY for i in range(100))
_WINDOW = re.compile(r"(\[|offset |for: )(\d+)([smhd])(?=\]|\s|$)", re.MULTILINE)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_HOURS = 3600.0


@dataclass(frozen=True)
class Side:
    """Rules, and what runs serve to them, by what is wrong with a run."""

    rules: str
    texts: Mapping[str, str]
    kinds: Sequence[str] = _FEW
    """What is wrong with one run after the other."""
    whole: bool = False
    """Whether runs serve all that they do, and not only what the rules read."""

    @property
    def storm(self) -> bool:
        """Whether all conditions have begun when the servers start, and not hours ago."""
        return HEALTHY not in self.kinds


@dataclass
class Costs:
    """Milliseconds of each evaluation of all rules, and of each rule over all of them."""

    all: dict[str, float] = field(default_factory=dict)
    rules: dict[str, list[float]] = field(default_factory=dict)
    """By moment, and by the rule's place and name."""
    cpu: list[tuple[float, float]] = field(default_factory=list)
    """Moments, and the seconds of CPU that Prometheus has taken up to them."""

    @property
    def median(self) -> float:
        return statistics.median(self.all.values())

    @property
    def least(self) -> float:
        """The sum of what each rule cost in its best evaluation: the part that is not waiting for a busy machine."""
        return sum(map(min, self.rules.values()))

    @property
    def cores(self) -> float:
        """The cores that Prometheus kept busy, scrapes and all, from the first look to the last."""
        (began, before), (ended, after) = self.cpu[0], self.cpu[-1]
        return (after - before) / (ended - began)

    def __str__(self) -> str:
        low, _, high = statistics.quantiles(self.all.values(), n=4)
        return f"{self.median:.1f} ({low:.1f} to {high:.1f})"


def side(of: str) -> Side:
    """Return the rules in a file, with today's exporter, or those of a revision with its own."""
    if Path(of).is_file():
        return Side(Path(of).read_text(), _printed(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(  # noqa: S603 - our own
            ["/usr/bin/env", "git", "archive", of, "rlexporter", "tests", "alerts"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(folder, filter="data")
        return Side((Path(folder) / "alerts/rlexporter.rules.yml").read_text(), _printed(Path(folder)))


def _printed(tree: Path) -> dict[str, str]:
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, rule_targets.__file__],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(json.loads(done.stdout))


def fleets(rules: Side) -> dict[str, Side]:
    """The same rules for runs that are all well, and for runs that are all sick."""
    return {
        "all well": replace(rules, kinds=(HEALTHY,), whole=True),
        "all sick": replace(rules, kinds=_SICK, whole=True),
    }


def rows() -> Iterator[str]:
    """The table of the page."""
    yield from table(side(BEFORE), side(str(ROOT / "alerts/rlexporter.rules.yml")))


def table(before: Side, after: Side, warm: float = WARM_SECONDS) -> Iterator[str]:
    """The costs of two sides in each generation of Prometheus."""
    found = measured((before, after), warm)
    yield "| Prometheus | before, ms | now, ms | times as cheap |"
    yield "|---|---|---|---|"
    for generation, (old, new) in found.items():
        yield f"| {generation} | {old} | {new} | {old.median / new.median:.1f} |"


def measured(
    sides: Sequence[Side],
    warm: float = WARM_SECONDS,
    generations: Sequence[str] = GENERATIONS,
    evaluations: int = EVALUATIONS,
) -> dict[str, list[Costs]]:
    """What evaluations cost each side, by the version of Prometheus; all servers run at the same time."""
    with contextlib.ExitStack() as stack:
        servers: dict[str, list[Prometheus]] = {}
        for each in sides:
            port = stack.enter_context(simulated.answering(_fleet(each, warm)))
            for generation in generations:
                at = stack.enter_context(_server(generation, each, port))
                servers.setdefault(str(at.get("status/buildinfo")["version"]), []).append(at)
        time.sleep(warm)
        costs = {version: [Costs() for _ in each] for version, each in servers.items()}
        every = [pair for version, each in servers.items() for pair in zip(each, costs[version], strict=True)]
        while min(len(cost.all) for _, cost in every) < evaluations:
            for at, cost in every:
                _look(at, cost)
            time.sleep(EVERY / FASTER / 2)
    return costs


def _look(at: Prometheus, cost: Costs) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{at.port}/metrics") as answer:
        (taken,) = re.findall(r"^process_cpu_seconds_total (\S+)", answer.read().decode(), re.MULTILINE)
    cost.cpu.append((time.time(), float(taken)))
    group = at.get("rules")["groups"][0]
    if group["lastEvaluation"] not in cost.all:
        cost.all[group["lastEvaluation"]] = 1000 * float(group["evaluationTime"])
        for place, rule in enumerate(group["rules"]):
            name = f"{place} {rule['name']}"
            cost.rules.setdefault(name, []).append(1000 * float(rule["evaluationTime"]))


def faster(rules: str) -> str:
    """The same rules with each window a fifth as long."""
    return _WINDOW.sub(lambda found: f"{found[1]}{int(found[2]) * _UNITS[found[3]] * 1000 // FASTER}ms", rules)


def _fleet(of: Side, warm: float) -> Callable[[int], str | None]:
    """What each run answers; what ends ended a minute before it is measured."""
    read = set(re.findall(r"\b(?:rl|rlexporter)_\w+\b", of.rules))
    lines = {
        kind: [line for line in text.splitlines() if line[0] != "#" and (of.whole or re.split("[{ ]", line)[0] in read)]
        for kind, text in of.texts.items()
    }
    began = time.time()
    fleet = []
    for i in range(RUNS):
        kind = of.kinds[i % len(of.kinds)]
        text = lines.get(kind, lines[HEALTHY])
        fleet.append(_answers(i, kind, text, began, ends=began + warm - 60, storm=of.storm))
    return lambda number: fleet[number](time.time())


def _answers(
    number: int, kind: str, lines: Sequence[str], began: float, *, ends: float, storm: bool
) -> Callable[[float], str | None]:
    then, now = [], []
    for line in lines:
        series, _, value = line.replace(RUN, f"run-{number}").rpartition(" ")
        moving = series.startswith(("rlexporter_time_seconds", "rl_last_step_timestamp_seconds"))
        if moving and not (kind == HUNG and series.startswith("rl_last")):
            now.append(series)
        else:
            hours = 0 if storm and "_event_" in series else number % 7 + 1 + ("_start_" in series)
            then.append(f"{series} {began - hours * _HOURS if '_timestamp_' in series else value}\n")
    fixed = "".join(then)

    def text(at: float) -> str | None:
        if kind == GONE and at > ends:
            return None
        return fixed + "".join(f"{series} {at}\n" for series in now)

    return text


@contextlib.contextmanager
def _server(generation: str, of: Side, port: int) -> Iterator[Prometheus]:
    own, every = free_port(), f"{EVERY // FASTER}s"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.yml").write_text(faster(of.rules))
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "rlexporter", "static_configs": simulated.targets(port, RUNS)}],
        }
        lookback = f"--query.lookback-delta={300 // FASTER}s"
        with simulated.server(generation, Path(folder), own, config, lookback) as server:
            yield server


def main() -> None:
    """Compare two files or revisions, or two fleets; then the rules that cost most, of each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules")
    parser.add_argument("before", help=f"a file of rules or a revision, or `{STORM}` to compare two fleets")
    parser.add_argument("after", help="a file of rules or a revision")
    parser.add_argument("seconds", nargs="?", type=float, default=WARM_SECONDS, help="to run before measuring")
    options = parser.parse_args()
    before, after, warm = options.before, options.after, options.seconds
    sides = {before: side(before), after: side(after)} if before != STORM else fleets(side(after))
    found = measured(
        tuple(sides.values()), warm, *((GENERATIONS[-1:], EVALUATIONS // 4) if before == STORM else (GENERATIONS,))
    )
    for version, costs in found.items():
        for name, cost in zip(sides, costs, strict=True):
            print(
                f"Prometheus {version}, {name}: {cost} ms, at least {cost.least:.1f}; "
                f"{len(cost.all)} evaluations; {cost.cores:.3f} cores"
            )
            for rule, times in sorted(cost.rules.items(), key=lambda rule: -min(rule[1]))[:25]:
                print(f"    {min(times):6.2f}  {rule}")


if __name__ == "__main__":
    main()
