"""A recording once more: served by a real process, and read back from the blocks that real promtools make of it."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import time
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import torch

from rlexporter import display
from rlexporter.commands import main
from rlexporter.exporter import serving
from rlexporter.logs.commands import replay
from tests import tools
from tests.conftest import DATA, fetch
from tests.logs.commands.serving import scrape
from tests.logs.files import flat

Sample = tuple[str, tuple[tuple[str, str], ...]]
Points = dict[Sample, list[tuple[float, float]]]

RUNS = DATA / "runs"
WHERE = {"job": "rlexporter", "instance": "replay", "rank": "0"}


def _lines(path: Path, kind: str = "log") -> list[dict[str, Any]]:
    return [event for event in map(json.loads, path.read_text().splitlines()) if event["event"] == kind]


# Served


class _Clock:
    """Time for the replay: whenever it would wait there is a scrape instead, and the wait is over."""

    def __init__(self) -> None:
        self.now = 0.0
        self.url = ""
        self.scrapes: list[tuple[float, dict[str, float]]] = []
        self.time = time.time

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        (exporter,) = serving()
        self.url = exporter.url or ""
        self.scrapes.append((self.now, scrape(self.url)))
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """Replays take no time, and are scraped whenever they would wait."""
    made = _Clock()
    monkeypatch.setattr(replay, "time", made)
    monkeypatch.setattr(display, "time", made)
    return made


def _replay(path: Path, *options: str) -> int:
    return main.main(["replay", str(path), "--port", "0", *options])


def test_a_crash_happens_again(
    tmp_path: Path, clock: _Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Running until then; afterwards failed, with the NaN that killed it, and with the times of now.

    Nothing is recorded over the recording.
    """
    path, began = Path(shutil.copy(RUNS / "ppo-value_nan-0.jsonl", tmp_path)), time.time()
    monkeypatch.setenv("RLEXPORTER_RECORD", str(path))
    assert _replay(path, "--speed", "10", "--linger", "1") == 0
    assert path.read_bytes() == (RUNS / path.name).read_bytes()
    logs = _lines(path)
    (_, first), *steps, (end, last) = clock.scrapes

    assert first["rl_run_state{state=running}"] == 1
    assert "rl_step" not in first
    for at, event, (waited, now) in zip([0.0, *(e["time"] for e in logs)], logs, steps, strict=False):
        assert waited >= (at - 1795206835.4647) / 10
        assert (now["rl_step"], now["rl_learning_rate"]) == (event["global_step"], event["logs"]["lr"])
    assert len(steps) == len(logs)
    assert end == pytest.approx((1795206850.958 - 1795206835.4647) / 10, abs=1e-3)
    assert clock.now == pytest.approx(end + 1)

    assert (last["rl_run_state{state=failed}"], last["rl_run_state{state=running}"]) == (1, 0)
    assert last["rl_run_exception_info{exception=RuntimeError}"] == 1
    assert last["rl_kl_per_sequence"] == logs[-1]["logs"]["objective/kl"]
    assert math.isnan(last["rl_value_loss"])
    assert last["rl_nonfinite_values_total{kind=nan,metric=rl_value_loss}"] == 1
    condition = last["rl_condition_last_event_timestamp_seconds{condition=nonfinite_value_loss,severity=critical}"]
    assert began < condition <= time.time()
    assert began < last["rl_last_step_timestamp_seconds"] <= time.time()
    assert "failed after step 51" in capsys.readouterr().out


@pytest.mark.parametrize("timed", [True, False])
def test_steps_come_in_their_order_and_at_their_pace(tmp_path: Path, clock: _Clock, timed: bool) -> None:
    """A step a second where the file has no times; here four times as fast."""
    lines = [{"step": step, "kl": step / 10, **({"time": 1e9 + step} if timed else {})} for step in (1, 2, 3, 5)]
    assert _replay(flat(tmp_path / "my-run.jsonl", *lines), "--speed", "4", "--linger", "1") == 0

    seen = [(at, now["rl_step"], now["rl_kl_per_token"]) for at, now in clock.scrapes if "rl_step" in now]
    start = 0.0 if timed else 0.25
    assert seen == [(start + at, step, step / 10) for at, step in ((0, 1), (0.25, 2), (0.5, 3), (1, 5))]
    assert clock.scrapes[-1][1]["rl_run_state{state=finished}"] == 1
    ended = clock.now
    assert _replay(tmp_path / "my-run.jsonl", "--speed", "max", "--linger", "0") == 0
    assert clock.now == ended, "at once"


def test_curves_hold_each_step_however_fast_it_is_played(
    tmp_path: Path, clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows the whole run: far more steps than a reader finds that comes twice a second."""
    logs = [
        {"event": "log", "time": 1e9 + step, "global_step": step, "logs": {"reward": 0.1 * step}}
        for step in range(1, 301)
    ]
    ended = {"event": "state", "time": 1e9 + 301, "state": "finished"}
    path = flat(tmp_path / "r.jsonl", {"event": "meta", "time": 1e9, "run": "r", "algorithm": "grpo"}, *logs, ended)
    seen: list[list[int]] = []

    def sleep(seconds: float) -> None:
        (exporter,) = serving()
        curves = json.loads(fetch(f"{exporter.url}/api/history")[1])["curves"]
        seen.extend(curve["steps"] for curve in curves if curve["series"] == "rl_reward_mean")
        clock.now += seconds

    monkeypatch.setattr(clock, "sleep", sleep)
    assert _replay(path, "--speed", "max", "--linger", "1") == 0
    assert seen == [[*range(1, 301)]]


def test_a_recording_that_just_stops_takes_its_endpoint_along(
    tmp_path: Path, clock: _Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Running to the last: what a scraper sees of a killed process."""
    lines = (RUNS / "ppo-value_nan-0.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "killed.jsonl"
    path.write_text("".join(lines[:-1]) + '{"event": "log", "ti')
    assert _replay(path, "--linger", "60") == 0

    assert {now["rl_run_state{state=running}"] for _, now in clock.scrapes} == {1}
    assert clock.scrapes[-1][1]["rl_step"] == 50
    assert clock.now == pytest.approx(1795206850.9214 - 1795206835.4647)
    with pytest.raises(urllib.error.URLError):
        fetch(clock.url)
    said = capsys.readouterr().out
    assert "running after step 51" in said
    assert "just stops" in said


def test_a_second_training_in_a_file_runs_again(tmp_path: Path) -> None:
    """Finished, then running and failed: the last state is the one that counts."""
    path = flat(
        tmp_path / "two.jsonl",
        {"event": "meta", "time": 1e9, "run": "two", "algorithm": "grpo", "global_step": 0},
        {"event": "state", "time": 1e9, "state": "running"},
        {"event": "log", "time": 1e9 + 1, "global_step": 1, "logs": {"kl": 0.5}},
        {"event": "state", "time": 1e9 + 2, "state": "finished"},
        {"event": "meta", "time": 1e9 + 3, "run": "two", "algorithm": "grpo", "global_step": 1},
        {"event": "state", "time": 1e9 + 3, "state": "running"},
        {"event": "log", "time": 1e9 + 4, "global_step": 2, "logs": {"kl": 0.5}},
        {"event": "state", "time": 1e9 + 5, "state": "failed", "exception": "ValueError"},
        {"event": "state", "time": 1e9 + 5, "state": "finished"},
    )
    points = _points(_written(path, tmp_path / "out", "--interval", "0"))

    states = {}
    for state in ("running", "finished", "failed"):
        states[state] = [value for _, value in points[_sample("rl_run_state", "two", state=state)]]
    assert states["running"][-1] == states["finished"][-1] == 0
    assert states["failed"] == [0, 0, 0, 1]
    assert [value for _, value in points[_sample("rl_steps_total", "two")]] == [0, 1, 2, 2]


def test_what_a_broken_step_saw_is_judged(tmp_path: Path) -> None:
    """NaN weights come with no log line: the run dies of them."""
    counts = {"counts": [0], "positive_sum": 0.0, "negative_sum": 0.0, "nan": 1}
    path = flat(
        tmp_path / "r.jsonl",
        {"event": "meta", "time": 1e9, "run": "r", "algorithm": "grpo"},
        {"event": "log", "time": 1e9 + 1, "global_step": 1, "logs": {"kl": 0.5}},
        {"event": "part", "time": 1e9 + 2, "global_step": 1, "seen": {"rl_weight_norm": counts}},
        {"event": "state", "time": 1e9 + 2, "state": "failed", "exception": "RuntimeError"},
    )
    points = _points(_written(path, tmp_path / "out"))

    judged = points[_sample("rl_condition", "r", condition="nonfinite", severity="critical")]
    assert judged[-1] == (1e9 + 2, 1)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["none.jsonl"], 3, "none.jsonl: cannot be read: No such file or directory"),
        (["foreign.txt"], 3, "foreign.txt: has no log line in 1 lines of text, the first of them 'hello'"),
        (["run.jsonl", "--openmetrics", "run.jsonl"], 2, "run.jsonl is the recording itself"),
        (["run.jsonl", "--openmetrics", "no/out"], 2, "cannot write no/out: No such file or directory (--openmetrics)"),
        (["run.jsonl", "--openmetrics", "folder"], 2, "cannot write folder: it is a folder, not"),
        (["run.jsonl", "--port", "70000"], 2, "argument port=70000 is not usable"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path,
    arguments: list[str],
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line, exit status 3 for a file that cannot be read, else 2; the recording is as it was."""
    monkeypatch.chdir(tmp_path)
    path = flat(Path("run.jsonl"), {"step": 1, "kl": 0.5})
    before = path.read_text()
    Path("foreign.txt").write_text("hello\n")
    Path("folder").mkdir()

    assert main.main(["replay", *arguments]) == status
    assert capsys.readouterr().err.startswith(f"rlexporter: {said}")
    assert path.read_text() == before


def test_speeds(capsys: pytest.CaptureFixture[str]) -> None:
    """0 and max are at once; what is no speed is said by the option."""
    assert [replay._speed(text) for text in ("0", "0.0", "max", "2.5")] == [math.inf, math.inf, math.inf, 2.5]
    for text in ("-1", "nan", "fast", ""):
        with pytest.raises(SystemExit):
            main.main(["replay", "x", "--speed", text])
        assert "neither a number from 0 on nor max" in capsys.readouterr().err


# Written


def _sample(name: str, run: str, **labels: str) -> Sample:
    return name, tuple(sorted({**WHERE, "run": run, **labels}.items()))


def _points(text: str) -> Points:
    """All that is in an OpenMetrics text; promtool, below, says whether it is one."""
    families = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families)), "a family in two pieces"
    found: Points = {}
    for name, labels, value, at in re.findall(r"^(\w+)\{(.*)\} (\S+) (\S+)$", text, re.MULTILINE):
        pairs = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")', labels)
        of = tuple(sorted((label, json.loads(words)) for label, words in pairs))
        found.setdefault((name, of), []).append((float(at), float(value)))
    return found


def _moments(text: str) -> list[float]:
    """The times that are in an OpenMetrics text, in order."""
    return sorted({at for values in _points(text).values() for at, _ in values})


def _written(path: Path, out: Path, *options: str) -> str:
    assert main.main(["replay", str(path), "--openmetrics", str(out), *options]) == 0
    return out.read_text()


def test_scrapes_are_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The start, the steps that are at least an interval after the scrape before, and the end."""
    path = RUNS / "grpo-healthy_multi-0.jsonl"
    start, end = 1795205999.318, 1795206006.744
    logs = [round(event["time"], 3) for event in _lines(path)]

    assert _moments(_written(path, tmp_path / "out")) == [start, end]
    assert "2 scrapes of run grpo-healthy_multi-0" in capsys.readouterr().out
    some = [start]
    for at in logs:
        if at - some[-1] >= 0.3:
            some.append(at)
    assert len(some) == 4
    assert _moments(_written(path, tmp_path / "out", "--interval", "0.3")) == [*some, end]
    assert _moments(_written(path, tmp_path / "out", "--interval", "0")) == [start, *logs, end]


def test_a_long_step_leaves_no_hole(tmp_path: Path) -> None:
    """Prometheus forgets a series after five minutes; a run that is over may be forgotten."""
    lines = [{"event": "log", "time": 1e9 + at, "global_step": step, "logs": {}} for step, at in ((1, 0), (2, 1000))]
    lines[0]["logs"] = {"kl": 0.5}
    late = {"event": "log", "time": 1e9 + 9000, "global_step": 3, "logs": {"kl": 0.75}}
    path = flat(tmp_path / "slow.jsonl", *lines, {"event": "train_end", "time": 1e9 + 1001}, late)
    text = _written(path, tmp_path / "out")
    steps = dict(_points(text)[_sample("rl_step", "slow")])

    assert [at - 1e9 for at in _moments(text)] == [0, 240, 480, 720, 960, 1000, 9000]
    assert [value for _, value in sorted(steps.items())] == [1, 1, 1, 1, 2, 3]


def test_what_has_no_date_ends_now(tmp_path: Path) -> None:
    """Flat lines a second a step, also where only each tenth was logged; and times that count from the start."""
    plain = flat(tmp_path / "plain.jsonl", *({"step": step, "kl": 0.5} for step in (10, 20, 21)))
    since = flat(tmp_path / "since.jsonl", *({"step": step, "time": step / 2, "kl": 0.5} for step in (1, 2, 3)))

    for path, apart in ((plain, [0, 1, 11, 12]), (since, [0, 0.5, 1])):
        began = time.time()
        times = _moments(_written(path, tmp_path / "out", "--interval", "0"))
        assert began - 0.1 <= times[-1] <= time.time() + 0.1
        found = [round(at - times[0], 1) for at in times]
        assert sorted(set(found)) == apart


def test_a_clock_that_was_set_back_goes_on(tmp_path: Path) -> None:
    """Each moment is after the one before: Prometheus takes no other."""
    at = [1e9 + 5, 1e9 + 3, math.nan, 1e9 + 5, 1e9 + 9]
    lines = ({"step": step, "time": when, "kl": step / 10} for step, when in enumerate(at, 1))
    points = _points(_written(flat(tmp_path / "r.jsonl", *lines), tmp_path / "out", "--interval", "0"))
    steps = [(round(when - 1e9, 3), value) for when, value in points[_sample("rl_step", "r")]]

    assert steps == [(5.001, 1), (5.002, 2), (5.003, 3), (5.004, 4), (9, 5), (9.001, 5)]


def test_the_environment_of_this_process_is_not_that_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What trained then, and as which rank, is in the recording; labels are those of who looks at it."""
    for name, text in (("RLEXPORTER_RUN", "mine"), ("RLEXPORTER_ALGORITHM", "dpo"), ("RANK", "3"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("RLEXPORTER_LABELS", "team=llm")
    points = _points(_written(flat(tmp_path / "r.jsonl", {"step": 1, "val/ratio": 1.0}), tmp_path / "out"))
    info = next(dict(labels) for name, labels in points if name == "rl_run_info")

    assert (info["run"], info["algorithm"], info["rank"], info["world_size"]) == ("r", "ppo", "0", "1")
    assert info["team"] == "llm"
    assert info["torch"] == "" != torch.__version__


def test_both_log_lines_of_a_step_are_one_scrape(tmp_path: Path) -> None:
    """Legacy PPO logs twice a step: a scrape between the two would show half of it."""
    path = RUNS / "ppo_legacy-value_nan-0.jsonl"
    points = _points(_written(path, tmp_path / "out", "--interval", "0"))
    tracked = [(round(e["time"], 3), e["logs"]["env/reward_mean"]) for e in _lines(path, "tracker_log")]

    assert points[_sample("rl_reward_mean", path.stem)][: len(tracked)] == tracked
    assert [at for at, _ in points[_sample("rl_step", path.stem)]][: len(tracked)] == [at for at, _ in tracked]


def _stored(server: tools.Prometheus, selector: str, at: float) -> Points:
    """Raw samples of the six hours before."""
    found: Points = {}
    for series in server.query(f"{selector}[6h]", time=str(at)):
        labels = dict(series["metric"])
        name = labels.pop("__name__")
        found[name, tuple(sorted(labels.items()))] = [(float(at), float(value)) for at, value in series["values"]]
    return found


def _differing(one: Points, other: Points) -> list[Sample]:
    """Series that are not the same in both; NaN is NaN, and an empty label is none."""

    def plain(points: Points) -> dict[Sample, str]:
        return {(name, tuple(each for each in labels if each[1])): repr(p) for (name, labels), p in points.items()}

    first, second = plain(one), plain(other)
    return [series for series in first.keys() | second.keys() if first.get(series) != second.get(series)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Points]]:
    """Of some runs the text, and what is in it; one is longer than the two hours of a block."""
    folder = tmp_path_factory.mktemp("written")
    names = ("ppo-value_nan-0", "grpo-healthy_multi-0", "rloo-reward_inf-0", "ppo_legacy-healthy_wandb_types-0")
    odd = {"event": "log", "time": 1795206000.5, "global_step": 1, "logs": {'rewards/a "b\\", c=d/mean': 2.5}}
    files = {name: RUNS / f"{name}.jsonl" for name in names}
    files["odd"] = flat(folder / "odd.jsonl", {"event": "meta", "trainer": "grpo"}, odd)
    day = ({"step": step, "time": 1.79518e9 + 600 * step, "kl": step / 10} for step in range(30))
    files["long"] = flat(folder / "long.jsonl", *day)
    return {
        name: (folder / name, _points(_written(path, folder / name, "--interval", "0"))) for name, path in files.items()
    }


@pytest.mark.parametrize("generation", tools.EACH_GENERATION)
def test_prometheus_reads_what_was_written(
    generation: str, written: dict[str, tuple[Path, Points]], tmp_path: Path
) -> None:
    """Every sample, at its time, with its value: NaN, infinities, counters, buckets below zero, labels of any text."""
    loads = [str(tools.require_tools(generation) / "promtool"), "tsdb", "create-blocks-from", "openmetrics"]
    for text, _ in written.values():
        done = subprocess.run([*loads, str(text), str(tmp_path / "data")], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "data").glob("*/meta.json"))) >= len(written) + 2, "the long one is several blocks"

    with tools.prometheus(generation, tmp_path, []) as server:
        for name, (_, points) in written.items():
            stored = _stored(
                server, f'{{run="{name}"}}', points[_sample("rl_run_state", name, state="running")][-1][0] + 1
            )
            assert len(stored) > 80
            assert _differing(stored, points) == []
        for name, metric, there in (
            ("ppo-value_nan-0", "rl_value_loss", math.isnan),
            ("rloo-reward_inf-0", "rl_reward_mean", math.isinf),
        ):
            assert any(there(value) for _, value in written[name][1][_sample(metric, name)])
        rewarded = server.query('rl_reward_function_mean{run="odd"}', time="1795206001")
        assert rewarded[0]["metric"]["reward_function"] == 'a "b\\", c=d'
        assert rewarded[0]["value"][1] == "2.5"
