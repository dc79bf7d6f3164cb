"""What the dashboard of a run says first of each fault of the demo: the right cause, from its first word to its last.

A real trainer runs under a real Prometheus until the verdict is there. Then the dashboard is read as Grafana would have
shown it at each second of the run. The page at `/` says the same.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlexporter.catalog import CONDITION_NAMED, PROCESS_ALERTS
from rlexporter.demo.faults import KINDS
from tests.conftest import fetch
from tests.dashboards.grafana import View
from tests.e2e import victoria
from tests.tools import Prometheus, eventually, free_port, prometheus
from tests.versions import demos
from tests.versions.demos import ALGORITHMS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ALGORITHMS, reason="each algorithm once, in the newest version that has it"),
]

LEARNT = 30
"""The steps that a run makes after the verdict: it must not change its mind."""
FINE = ("fine", "Nothing is wrong in what is judged.")


class Fault(NamedTuple):
    """A fault of the demo, and what is said of it."""

    at: int
    """The step of the fault."""
    word: str
    """The word in the end. A warning may come before something critical: then it was `look` until then."""
    causes: frozenset[str]
    """The conditions of which one is named, and no other at any time."""


def _fault(at: int, word: str, *causes: str) -> Fault:
    return Fault(at, word, frozenset(causes))


FAULTS = {
    "nan": _fault(60, "act", "nonfinite_grad"),
    "nan_reward": _fault(60, "act", "nonfinite_reward"),
    "lr_spike": _fault(60, "act", "learning_rate_jump"),
    # The KL grows over tens of steps: by its factor (kl_jump) or past its limit (kl_high), whichever comes first.
    "kl_runaway": _fault(80, "act", "kl_jump", "kl_high"),
    # It needs a past of 70 steps and of 60 more.
    "reward_hacking": _fault(145, "act", "reward_hacking"),
    # The policy leaves its reference some steps before its completions are all short: see LATER too.
    "length_collapse": _fault(60, "act", "kl_jump", "kl_high"),
    "dead_reward": _fault(60, "act", "reward_function_dead"),
    "stall": _fault(60, "act", "run_stalled"),
}
LATER = {"length_collapse": "length_low"}
"""What is named beside the cause, by the time that the run is over."""


@dataclass
class Run:
    """A run of the demo that is over: what its dashboard and its page said, in the order in which they did."""

    algorithm: str
    port: int
    name: str = ""
    page: list[tuple[str, str]] = field(default_factory=list)
    spoke: set[str] = field(default_factory=set)
    step: int = 0
    over: bool = False

    def look(self) -> None:
        """Read the page, if it answers already."""
        try:
            status, text, _ = fetch(f"http://127.0.0.1:{self.port}/api/status")
        except OSError:
            return
        assert status == 200
        found: dict[str, Any] = json.loads(text)
        said, run = found["verdict"], found["run"]
        self.name, self.step, self.over = run["name"], run["step"] or 0, run["state"] == "failed"
        self.spoke.update(said["conditions"])
        cause = "run_stalled" if said["code"] == "stalled" else next(iter(said["conditions"]), "")
        if self.page[-1:] != [(said["word"], cause)]:
            self.page.append((said["word"], cause))


def _text(condition: str) -> str:
    alert = PROCESS_ALERTS.get(condition)
    return alert.summary if alert is not None else CONDITION_NAMED[condition].summary


def test_every_fault_is_here() -> None:
    """Those of the demo, and no condition that is not one."""
    assert set(FAULTS) == set(KINDS)
    named = {name for fault in FAULTS.values() for name in fault.causes} | set(LATER.values())
    assert len({_text(name) for name in named}) == len(named), "the words tell them apart"


def _played(kind: str, folder: Path, stack: ExitStack) -> tuple[Prometheus, list[Run]]:
    """Run the demo of each algorithm with a fault, all at once, until the verdict has stood for some steps."""
    fault = FAULTS[kind]
    runs = [Run(algorithm, free_port()) for algorithm in ALGORITHMS]
    for run in runs:
        demos.start(
            stack,
            run.algorithm,
            run.port,
            *("--steps", "100000", "--fault", f"{kind}@{fault.at}", "--linger", "3600"),
        )
    targets = [f"127.0.0.1:{run.port}" for run in runs]
    server = stack.enter_context(
        prometheus("3", folder, targets, rules=victoria.RULES, scrape={"scrape_timeout": "1s"})
    )
    ends = dict.fromkeys(range(len(runs)), 0)

    def over() -> bool:
        for i, run in enumerate(runs):
            run.look()
            found = server.query(f'rl:run_cause{{run="{run.name}",severity="critical"}}')
            if found and not ends[i]:
                ends[i] = run.step + LEARNT
        return all(
            ends[i] and (run.over or kind == "stall" or run.step >= ends[i]) and run.spoke >= _later(kind)
            for i, run in enumerate(runs)
        )

    eventually(over)
    return server, runs


def _later(kind: str) -> set[str]:
    return {LATER[kind]} if kind in LATER else set()


def _course(server: Prometheus, run: Run, since: float) -> Iterator[tuple[int, tuple[str, str]]]:
    """What the dashboard of a run says at each second in which the run was there, with its step then."""
    view = View({"job": "rlexporter", "run": run.name}, 900.0, 1.0)
    [found] = server.query(f'rl_step{{run="{run.name}"}}[1h]')
    steps = {int(at): int(step) for at, step in found["values"]}
    for at in range(int(since), int(time.time())):
        if steps.get(at):
            yield steps[at], demos.verdict(server, view, demos.dashboard(run.algorithm), at + 1.0)


@pytest.mark.parametrize("kind", FAULTS)
def test_the_verdict_names_the_cause(kind: str, tmp_path: Path) -> None:
    """Nothing before the fault, and then nothing but its cause, in the dashboard and on the page."""
    fault, since = FAULTS[kind], time.time()
    named = {_text(name) for name in fault.causes}
    with ExitStack() as stack:
        server, runs = _played(kind, tmp_path, stack)
        for run in runs:
            course = list(_course(server, run, since))
            healthy = [said for step, said in course if step < fault.at - 1]
            broken = [said for step, said in course if step >= fault.at - 1 and said != FINE]
            assert len(healthy) >= 5, course
            assert set(healthy) == {FINE}, (run, course)
            assert {why for _, why in broken} <= named, (run, course)
            words = re.sub(r"(\w+ )\1+", r"\1", "".join(f"{word} " for word, _ in broken)).split()
            assert words in ([fault.word], ["look", fault.word]), (run, course)
            assert run.page[-1][0] == fault.word, run
            assert {cause for word, cause in run.page if word != "fine"} <= fault.causes, run
