"""Runs the tests as jobs beside each other, and what failed once more, alone: `python -m scripts.suite test | all`.

A test that fails and then passes alone is *flaky*: it is listed in the last lines, with the text of its first failure.
The suite fails if a test fails twice, if more than eight are flaky, or if anything else than a test fails. Each job
leaves its output and its results in .work/suite. The standard library is all that this needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".work/suite"
KNOWN = ROOT / "tests/flaky.txt"
"""The tests that were flaky before, a line each, with the date. One that is there already is mended or deleted."""
SUITES = ("test", "all", "versions", "loggers")
MOST_FLAKY = 8
"""A machine that is slow for a while makes several at once, which says little of each."""
MOST_AGAIN = 30
"""The failures beyond which nothing is run again: then it is no accident."""
_PROGRESS_SECONDS = 30
_TESTS_FAILED = 1


@dataclass
class Job:
    """Commands that run one after the other, the last of which may be pytest.

    ``prepare``: what is run before; ``options``: of pytest, None for a job without tests; ``workers``: those of
    pytest-xdist, each of which runs whole files, so that what a file sets up is set up once.
    """

    name: str
    prepare: tuple[tuple[str, ...], ...] = ()
    options: tuple[str, ...] | None = None
    python: str = ".venv/bin/python"
    workers: int = 0
    said: str = field(default="waits for its turn", init=False)
    failure: str = field(default="it did not come to its end", init=False)
    """What went wrong, other than tests that failed; empty once it has ended and nothing did."""

    @property
    def log(self) -> Path:
        """What the job printed."""
        return FOLDER / f"{self.name}.log"

    @property
    def results(self) -> Path:
        """What pytest found, as JUnit's XML."""
        return FOLDER / f"{self.name}.xml"

    def pytest(self, *more: str) -> tuple[str, ...]:
        """Return the command that runs the tests."""
        spread = ("-n", str(self.workers), "--dist", "loadfile") if self.workers else ()
        cache = ("-o", f"cache_dir={FOLDER / self.name}.cache")
        return (self.python, "-m", "pytest", "-q", *cache, *spread, *(self.options or ()), *more)

    def failed(self) -> list[str]:
        """Return the ids of the tests whose last run failed."""
        path = FOLDER / f"{self.name}.cache/v/cache/lastfailed"
        return list(json.loads(path.read_text())) if path.exists() else []


@dataclass(frozen=True)
class Outcome:
    """What a suite came to. ``flaky`` and ``broken``: texts of the first failure by id of the test."""

    counts: dict[str, int]
    flaky: dict[str, str]
    broken: dict[str, str]
    failures: list[str]

    @property
    def passed(self) -> bool:
        """True unless something failed twice, or too much failed once."""
        return not (self.broken or self.failures or len(self.flaky) > MOST_FLAKY)


_LONG = ("versions", "e2e", "alerts")
"""The folders whose tests start servers and trainings."""
_OLDER = ("-W", "default", "-m", "not soak", "--ignore=tests/versions/test_drift.py")


def _check() -> Job:
    return Job("check", (("make", "--no-print-directory", "check"),))


def _older(name: str) -> Job:
    """The trainers of an older TRL."""
    venv = f".venv-{name}"
    files = ("tests/versions", *sorted(map(str, Path("tests/adapters").glob("test_ppo_legacy*.py"))))
    return Job(name, (("scripts/setup", f"trl-{name}", venv),), (*_OLDER, *files), f"{venv}/bin/python")


def _loggers() -> Job:
    """Real loggers; what the main environment can run too is left to that."""
    elsewhere = ("logged_run", "accelerate", "nemo_rl", "prime_rl")
    ignored = (f"--ignore=tests/loggers/test_{each}.py" for each in elsewhere)
    options = ("-W", "default", "tests/loggers", "-k", "not torch and not no_steps", *ignored)
    prepare = (("scripts/setup", "loggers", ".venv-loggers"),)
    return Job("loggers", prepare, options, ".venv-loggers/bin/python")


def _tables() -> Job:
    """Compare what the tests have seen with the tables in docs/ that are made of it."""
    python = (".venv/bin/python", "-m")
    return Job("tables", ((*python, "scripts.compatibility", "--check"), (*python, "scripts.panels", "--check")))


def _long_first() -> list[str]:
    """Return where tests are: those of files that take minutes first, so that none is left alone at the end."""
    folder = ROOT / "tests"
    places = [each for each in folder.iterdir() if each.match("test_*.py") or any(each.rglob("test_*.py"))]
    places.sort(key=lambda each: (each.name not in _LONG, each.is_dir(), each.name))
    return [str(each.relative_to(ROOT)) for each in places]


def _lanes(which: str) -> list[list[Job]]:
    """Return the jobs: lanes run beside each other, the jobs of a lane one after the other."""
    if which == "loggers":
        return [[_loggers()]]
    if which == "versions":
        return [[_older("ppo"), _older("mid")], [_older("legacy"), _older("legacy07"), _loggers()]]
    few = " and not slow" if which == "test" else ""
    options = ("-m", f"not soak and not waits{few}", "--no-loadscope-reorder")
    tests = Job("tests", options=(*options, *_long_first()), workers=3)
    # Importing all others would take a minute.
    waiting = [str(path) for path in sorted(Path("tests").rglob("test_*.py")) if "mark.waits" in path.read_text()]
    waits = Job("waits", options=("-m", f"waits and not soak{few}", *waiting), workers=4)
    if which == "test":
        return [[tests], [_check(), waits]]
    # What waits begins when environments are set up: it measures time, of which they leave little.
    return [[tests], [_check(), waits], *_lanes("versions")]


_FRUGAL = {
    "OMP_NUM_THREADS": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "GOGC": "400",  # promtool spends a quarter of its time on memory that is there
    "UV_COMPILE_BYTECODE": "0",  # an environment for a few tests imports a fifth of what is in it
}
_RUNNING: set[subprocess.Popen[bytes]] = set()


def _call(job: Job, command: Sequence[str]) -> int:
    """Run a command, its output behind what the job has printed; return its exit status."""
    environ = {**os.environ, **_FRUGAL}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes import the package
    with job.log.open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log, start_new_session=True)  # noqa: S603 - our own
    _RUNNING.add(process)
    try:
        return process.wait()
    finally:
        _RUNNING.discard(process)


def _run(job: Job) -> None:
    began = time.monotonic()
    for command in job.prepare:
        job.said = " ".join(command[-2:])
        if _call(job, command):
            job.failure = f"{' '.join(command)} failed:\n{_tail(job.log.read_text(errors='replace'))}"
            job.said = "failed"
            return
    if job.options is not None:
        job.said = "tests"
        status = _call(job, job.pytest(f"--junitxml={job.results}"))
        if status != 0 and not (status == _TESTS_FAILED and job.failed()):
            job.failure = f"pytest ended with status {status}:\n{_tail(job.log.read_text(errors='replace'))}"
            job.said = "failed"
            return
    job.failure = ""
    job.said = f"done in {_clock(time.monotonic() - began)}"
    print(f"suite: {job.name} {job.said}{_counted(job)}", flush=True)


def _run_all(lane: Sequence[Job]) -> None:
    for job in lane:
        _run(job)


def _counted(job: Job) -> str:
    last = job.log.read_text(errors="replace").rstrip().rpartition("\n")[2]
    return f": {last}" if job.options is not None else ""


def _again(job: Job) -> None:
    """Run what failed once more, with nothing beside it."""
    names = job.failed()
    print(
        f"suite: {len(names)} failed in {job.name}; running {'it' if len(names) == 1 else 'them'} again, alone",
        flush=True,
    )
    job.workers = 0
    _call(job, job.pytest("--last-failed", "--last-failed-no-failures=none"))


def _results(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield name, outcome and text of each test of a job."""
    if not job.results.exists():
        return
    for case in ElementTree.parse(job.results).iter("testcase"):  # noqa: S314 - our own file
        name = f"{case.get('classname')}::{case.get('name')}"
        bad = [each for each in case if each.tag in ("failure", "error")]
        outcome = "failed" if bad else "skipped" if case.find("skipped") is not None else "passed"
        yield name, outcome, "\n".join(each.text or each.get("message") or "" for each in bad)


def _name(test: str) -> str:
    """Return what JUnit's XML calls a test: of a/b.py::c[d] a.b::c[d]."""
    address, bracket, parameters = test.partition("[")
    path, *names = address.split("::")
    *classes, own = names or [""]
    return ".".join([path.removesuffix(".py").replace("/", "."), *classes]) + f"::{own}{bracket}{parameters}"


def again(jobs: Sequence[Job]) -> dict[str, list[str]]:
    """Run what failed in ``jobs``, which are over, once more; return the ids of what had failed, by job."""
    first = {job.name: job.failed() for job in jobs}
    if sum(map(len, first.values())) <= MOST_AGAIN:
        for job in jobs:
            if first[job.name]:
                _again(job)
    return first


def outcome(jobs: Sequence[Job], first: dict[str, list[str]]) -> Outcome:
    """Say what a suite came to. ``first``: what `again` has returned."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    texts: dict[str, str] = {}
    for job in jobs:
        for name, result, text in _results(job):
            counts[result] += 1
            texts[name] = text
    broken = {test: texts.get(_name(test), "") for job in jobs for test in job.failed()}
    flaky = {test: texts.get(_name(test), "") for each in first.values() for test in each if test not in broken}
    counts["failed"], counts["passed"] = len(broken), counts["passed"] + len(flaky)
    return Outcome(counts, flaky, broken, [f"{job.name}: {job.failure}" for job in jobs if job.failure])


def report(found: Outcome, seconds: float) -> None:
    """Print what went wrong, and last the counts."""
    known = KNOWN.read_text() if KNOWN.exists() else ""
    for test, text in found.broken.items():
        print(f"\nfailed twice: {test}\n{_tail(text, 80)}")
    for failure in found.failures:
        print(f"\nfailed: {failure}")
    if found.flaky:
        print(
            f"\nflaky, that is failed and then passed alone: {len(found.flaky)} (more than {MOST_FLAKY} fail the suite)"
        )
    for test, text in found.flaky.items():
        todo = "was flaky before: mend or delete it" if test in known else f"new: add it to tests/{KNOWN.name}"
        print(f"\nflaky: {test} ({todo})\n{_tail(text, 25)}")
    verdict = "all is well" if found.passed else "FAILED"
    print(f"\nsuite: {verdict}, after {_clock(seconds)}; flaky: {len(found.flaky)}")
    print(", ".join(f"{found.counts[each]} {each}" for each in ("passed", "failed", "skipped")), flush=True)


def _tail(text: str, lines: int = 40) -> str:
    return "\n".join(text.rstrip().splitlines()[-lines:])


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _show_progress(jobs: Sequence[Job], over: threading.Event, began: float) -> None:
    while not over.wait(_PROGRESS_SECONDS):
        parts = []
        for job in jobs:
            if not job.said.startswith("done"):
                percent = (
                    re.findall(r"\[ *(\d+%)\]", _tail(job.log.read_text(errors="replace"), 5))
                    if job.log.exists()
                    else []
                )
                parts.append(f"{job.name}: {percent[-1] if percent and job.said == 'tests' else job.said}")
        print(f"suite: {_clock(time.monotonic() - began)}  {'; '.join(parts)}", flush=True)


@contextlib.contextmanager
def _nothing_left_running() -> Iterator[None]:
    """Take every process along that a job has started, also if this one is interrupted."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        for process in list(_RUNNING):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def main() -> int:
    """Run the suite that is named; return 0 if all is well."""
    began = time.monotonic()
    which = sys.argv[1] if len(sys.argv) > 1 else "test"
    if which not in SUITES:
        print(f"usage: python -m scripts.suite {' | '.join(SUITES)} [OPTION OF PYTEST ...]", file=sys.stderr)
        return 2
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    lanes = _lanes(which)
    jobs = [job for lane in lanes for job in lane]
    for job in jobs:
        if job.options is not None:
            job.options += tuple(sys.argv[2:])
    over = threading.Event()
    with _nothing_left_running():
        threads = [threading.Thread(target=_run_all, args=(lane,), daemon=True) for lane in lanes]
        threads.append(threading.Thread(target=_show_progress, args=(jobs, over, began), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads[:-1]:
            thread.join()
        over.set()
        first = again(jobs)
        if which == "all":
            jobs.append(_tables())
            _run(jobs[-1])
    found = outcome(jobs, first)
    report(found, time.monotonic() - began)
    return 0 if found.passed else 1


if __name__ == "__main__":
    sys.exit(main())
