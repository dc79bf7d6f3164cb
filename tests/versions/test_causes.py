"""What the dashboard of a run says first of each fault of the demo: its cause, and before that only what foretells it.

A real trainer runs under a real Prometheus until the verdict has stood for some steps; it waits until that was seen, so
that no machine is too slow. Then the dashboard is read as Grafana would have shown it at each scrape of the run. The
page at `/` says the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest

from rlexporter.catalog.run_metrics import PHASES
from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.demo.faults import KINDS, LACKS
from rlexporter.demo.tiny import letter_reward
from scripts.pack.outside import PROCESS_ALERTS
from tests.conftest import fetch
from tests.dashboards.grafana import View
from tests.e2e import victoria
from tests.tools import Prometheus, eventually, free_port, prometheus
from tests.versions import demos
from tests.versions.demos import ALGORITHMS
from tests.versions.trls import VERSION
from tests.versions.watched_demo import CRITICAL, HEALTHY, seen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ALGORITHMS, reason="each algorithm once, in the newest version that has it"),
]

STANDS = 30
"""The steps that a run makes after the verdict, which must not change any more."""
FINE = ("fine", "Nothing is wrong in what is judged.")
BUSY = {"step_slow", "step_stalled"}
"""What the machine of the test may do to a run by itself."""
SEEN = {HEALTHY: {"fine", "look"}, CRITICAL: {"act"}}
"""What a run waits for, in order, and the words by which it is seen; a busy machine is a reason to look."""


class Fault(NamedTuple):
    """A fault of the demo, and what is said of it."""

    at: int
    """The step of the fault."""
    word: str
    """The word in the end. A warning may come before something critical: then it was `look` until then."""
    causes: frozenset[str]
    """The conditions of which one is named in the end, and none before but what foretells it."""

    def of(self, run: Run) -> frozenset[str]:
        """The causes in a run of this fault."""
        return OF_PPO.get(run.kind, self.causes) if run.algorithm.startswith("ppo") else self.causes


def _fault(at: int, word: str, *causes: str) -> Fault:
    return Fault(at, word, frozenset(causes))


OF_PPO = {
    # It has one reward and not several functions. That all of it is the same is known after three steps, and critical
    # after five; a function counts as dead after eight.
    "dead_reward": frozenset({"reward_flat"}),
}
"""The causes of faults that PPO shows another way."""
FAULTS = {
    "nan": _fault(60, "act", "nonfinite"),
    "nan_reward": _fault(60, "act", "nonfinite_reward"),
    "lr_spike": _fault(60, "act", "learning_rate_jump"),
    # The coefficient of the penalty becomes negative at once. The KL that grows is a symptom.
    "kl_runaway": _fault(80, "act", "kl_coef_lost"),
    # It needs a past of 70 steps and of 60 more.
    "reward_hacking": _fault(145, "act", "reward_hacking"),
    # The policy leaves its reference some steps before its completions have been short for five rollouts.
    "length_collapse": _fault(60, "act", "length_low"),
    "dead_reward": _fault(60, "act", "reward_function_dead"),
    "stall": _fault(60, "act", "run_stalled"),
}


@dataclass
class Run:
    """A run of the demo with a fault."""

    algorithm: str
    port: int
    kind: str
    folder: Path
    """What was seen of it, for which it waits."""
    name: str = ""
    step: int = 0
    unseen: list[str] = field(default_factory=lambda: [*SEEN])
    until: int | None = None
    """The step that it has still to reach, since its verdict is there."""
    stopped: bool = False
    """No more step comes."""
    page: list[tuple[str, str]] = field(default_factory=list)
    """The words of the page at `/`, each with the condition that it named first, in the order in which they came."""
    seen: list[float] = field(default_factory=list)
    """When its dashboard said what it waited for."""

    def watch(self, over: Event) -> None:
        """Read the page all the while, in a thread of its own: Prometheus may take long to answer on a busy machine."""
        while not over.wait(0.05):
            with suppress(OSError):
                self._read()

    def _read(self) -> None:
        _, text, _ = fetch(f"http://127.0.0.1:{self.port}/api/status")
        status: dict[str, Any] = json.loads(text)
        said, run = status["verdict"], status["run"]
        self.name, self.step = run["name"], run["step"] or 0
        self.stopped = self.kind == "stall" or run["state"] == "failed"
        self.page.append(
            (said["word"], "run_stalled" if said["code"] == "stalled" else next(iter(said["conditions"]), ""))
        )

    def is_over(self, server: Prometheus) -> bool:
        """Let it go on that waits to be seen; True when its verdict has stood for some steps, or no step comes."""
        if self.unseen and self._is_seen(server, SEEN[self.unseen[0]]):
            seen(self.folder, self.unseen.pop(0))
        if not self.unseen and self.until is None:
            self.until = self.step + STANDS
        return self.until is not None and (self.stopped or self.step >= self.until)

    def _is_seen(self, server: Prometheus, words: set[str]) -> bool:
        """Whether the page has said one of these words, and the dashboard says one now."""
        at = time.time()
        if not any(word in words for word, _ in self.page) or self._verdict(server, at)[0] not in words:
            return False
        self.seen.append(at)
        return True

    def course(self, server: Prometheus) -> Iterator[tuple[int, tuple[str, str]]]:
        """What its dashboard said when each step was scraped first and last, when it was seen, and says now."""
        [found] = server.query(f'rl_step{{run="{self.name}"}}[1h]')
        scraped = [(int(step), float(at)) for at, step in found["values"]]
        first_and_last = [*dict(reversed(scraped)).values(), *dict(scraped).values()]
        # The last word may be younger than the last scrape.
        for at in sorted({*first_and_last, *self.seen, time.time()}):
            step = max((step for step, scraped_at in scraped if scraped_at <= at), default=0)
            if step:
                yield step, self._verdict(server, at)

    def _verdict(self, server: Prometheus, at: float) -> tuple[str, str]:
        view = View({"job": "rlexporter", "run": self.name}, 900.0, 1.0)
        return demos.verdict(server, view, demos.dashboard(self.algorithm), at)


def _texts(conditions: Iterable[str]) -> set[str]:
    """What a dashboard says of these: their summaries, or sentences with what the demo breaks, or with a slow phase."""
    return {text for name in conditions for text in _texts_of(name)}


def _texts_of(name: str) -> set[str]:
    if name in PROCESS_ALERTS:
        return {PROCESS_ALERTS[name].summary}
    condition = CONDITION_NAMED[name]
    about = condition.about or condition.summary
    return {
        condition.summary,
        *(about.format(subject=subject) for subject in (letter_reward.__name__, *PHASES, "rl_grad_norm")),
    }


def _foretells(causes: frozenset[str]) -> set[str]:
    """What may be certain, and named, before one of these."""
    return {name for cause in causes - {*PROCESS_ALERTS} for name in CONDITION_NAMED[cause].foretold_by}


def test_every_fault_is_here() -> None:
    """Those of the demo, and no condition that is not one."""
    assert set(FAULTS) == set(KINDS)
    assert set(OF_PPO) < set(FAULTS)
    named = {name for fault in FAULTS.values() for name in fault.causes}.union(*OF_PPO.values())
    assert len(_texts(named)) == sum(len(_texts_of(name)) for name in named), "the words tell them apart"


def _run_by(kind: str) -> Sequence[pytest.MarkDecorator]:
    """All of them by `make causes`, and two of a single step in the newest version whenever all tests run."""
    at_once = kind in ("nan", "dead_reward")
    return [] if at_once and VERSION >= (1, 16) else [pytest.mark.soak]


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=_run_by(kind)) for kind in FAULTS])
def test_the_verdict_names_the_cause(kind: str, tmp_path: Path) -> None:
    """Nothing before the fault, and then nothing but its cause, in the dashboard and on the page."""
    fault = FAULTS[kind]
    algorithms = [algorithm for algorithm in ALGORITHMS if kind not in LACKS.get(algorithm, ())]
    runs = [Run(algorithm, free_port(), kind, tmp_path / f"seen-{algorithm}") for algorithm in algorithms]
    if not runs:
        pytest.skip(f"the demo of {' and '.join(ALGORITHMS)} has no such fault")
    options = ("--steps", "100000", "--fault", f"{kind}@{fault.at}", "--linger", "3600")
    with ExitStack() as stack:
        for run in runs:
            demos.start(stack, run.algorithm, run.port, *options, watched=run.folder)
        targets = [f"127.0.0.1:{run.port}" for run in runs]
        server = stack.enter_context(prometheus("3", tmp_path, targets, rules=victoria.RULES))
        watching = stack.enter_context(ThreadPoolExecutor(len(runs)))
        over = Event()
        stack.callback(over.set)
        watched = [watching.submit(run.watch, over) for run in runs]
        eventually(lambda: sum(run.is_over(server) for run in runs) == len(runs))
        over.set()
        for each in watched:
            each.result()
        for run in runs:
            _check(fault, run, list(run.course(server)))


def _check(fault: Fault, run: Run, course: list[tuple[int, tuple[str, str]]]) -> None:
    judged = list(dropwhile(lambda each: each[1][0] == "not judged", course))  # the rules follow the first scrape
    busy = _texts(BUSY)
    said = [(step, said) for step, said in judged if said[1] not in busy]
    assert min(step for step, _ in judged) < fault.at - 1, (run, course)
    assert {words for step, words in said if step < fault.at - 1} <= {FINE}, (run, course)

    causes = fault.of(run)
    early = _foretells(causes)
    broken = list(dropwhile(lambda words: words == FINE, (words for step, words in said if step >= fault.at - 1)))
    assert FINE not in broken, (run, course)
    assert {fault.word} <= {word for word, _ in broken} <= {"look", fault.word}, (run, course)  # it may ease meanwhile
    named = {*dropwhile(_texts(early).__contains__, [why for _, why in broken])}
    assert named, (run, course)
    assert named <= _texts(causes), (run, course)

    # The page goes by what is in force now: when that is over it calms down, perhaps by way of a consequence.
    last = max(i for i, (word, _) in enumerate(run.page) if word == fault.word)
    on_page = [cause for _, cause in run.page[: last + 1] if cause and cause not in BUSY]
    assert {*dropwhile(early.__contains__, on_page)} <= causes, run
    assert run.page[last][1] in causes, run
