"""`rlexporter tail`: what it serves is what the log says, and what an attached exporter of the same run serves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from rlexporter import Rank
from rlexporter.commands import main
from rlexporter.config.settings import Settings
from rlexporter.logs import playback
from rlexporter.logs.growing import Stream
from rlexporter.logs.playback import Follower
from rlexporter.model.snapshot import RunState
from rlexporter.run.run import Run
from tests import tools
from tests.conftest import fetch
from tests.logs.commands.serving import process, scrape
from tests.logs.files import jsonl

_SELF = re.compile(
    r"rl_(\w+_timestamp_seconds|run_info|threshold|condition|steps_total|stall_after|signal|nearest_limit|\w+_dist)"
)
"""What depends on the clock, on this process, or on what is judged by tensors where there are some."""
_TRACE = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: no\n'


def _step(step: int, **logs: object) -> dict[str, object]:
    return {"step": step, "reward": 0.5, "rewards/f/mean": 0.5, **logs}


class _Log:
    """A log that is followed without a process and without waiting: ``now`` is the time, and moves when it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.now = 2e9
        monkeypatch.setattr(playback, "time", self)
        self.damage: list[str] = []
        self.run = Run(Settings.load({"rank": Rank(0, world_size=1)}, {}))
        self._stream = Stream(path, "", lambda error: self.damage.append(str(error)))
        self.player = Follower(self.run, self._stream)

    def time(self) -> float:
        return self.now

    def write(self, text: str, *, after: float = 1.0, past: bool = False) -> None:
        """What is in the file from then on; nothing more comes for a while."""
        self.now += after
        self.player.past = past
        self.player.follow([*self._stream.feed(text.encode()), *self._stream.settle()], self.now)

    def look(self, after: float) -> RunState:
        """The state after so many seconds without a line."""
        self.now += after
        self.player.look_for_an_end()
        return self.run.state

    def value(self, name: str, **labels: str) -> float | None:
        return self.run.feed.snapshot.value(name, **labels)

    def info(self, label: str) -> str:
        (series,) = [s for s in self.run.feed.snapshot.samples if s.metric.series == "rl_run_info"]
        return dict(zip(series.metric.labels, series.labels, strict=True))[label]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Log:
    """A log that is not there yet."""
    return _Log(monkeypatch, tmp_path / "my-run.log")


def test_a_run_begins_with_its_first_line(log: _Log) -> None:
    """Until then it is starting; its name is that of the log, its times are those at which lines came."""
    assert log.look(0) is RunState.STARTING
    log.write(jsonl(_step(1, kl=0.5)), after=100)
    log.write(jsonl(_step(2, kl=0.25)), after=7)

    assert log.run.state is RunState.RUNNING
    assert log.run.feed.snapshot.labels["run"] == "my-run"
    assert (log.info("algorithm"), log.info("attempt"), log.info("torch")) == ("grpo", "1", "")
    assert (log.value("rl_step"), log.value("rl_kl_per_token"), log.value("rl_steps_total")) == (2, 0.25, 2)
    assert log.value("rl_run_start_timestamp_seconds") == 2e9 + 100
    assert log.value("rl_last_step_timestamp_seconds") == 2e9 + 107


def test_the_past_has_its_own_times(log: _Log) -> None:
    """Those in the lines; never one that is yet to come."""
    log.write(jsonl(*({**_step(step), "time": 1.9e9 + 10 * step} for step in (1, 2, 3))), past=True)
    assert log.value("rl_run_start_timestamp_seconds") == 1.9e9 + 10
    assert log.value("rl_last_step_timestamp_seconds") == 1.9e9 + 30
    log.write(jsonl({**_step(4), "time": 3e9}))
    assert log.value("rl_last_step_timestamp_seconds") == log.now


def test_no_pace_is_learned_from_a_past_without_times(log: _Log) -> None:
    """It is read in no time; the steps that come later are not slow, and the time of the past is that of the file."""
    log.write(jsonl(*(_step(step) for step in range(1, 31))), past=True)
    assert log.value("rl_last_step_timestamp_seconds") == log.now
    for step in range(31, 61):
        log.write(jsonl(_step(step)), after=100)

    assert log.value("rl_condition_judged", condition="step_slow") is not None
    assert log.value("rl_condition_events_total", condition="step_slow", severity="warning") in (None, 0)
    assert log.value("rl_stall_after_seconds") == 1000


def test_a_step_that_goes_back_is_another_attempt(log: _Log) -> None:
    """It is judged anew and starts anew; tokens that a checkpoint knew of are not counted twice."""
    tokens = {20: 2000, 30: 3000}
    log.write(jsonl(_step(10, num_tokens=1000, kl=float("nan"))))
    log.write(jsonl(*(_step(step, num_tokens=count, kl=0.01) for step, count in tokens.items())))
    assert log.value("rl_condition", condition="nonfinite", severity="critical") is not None
    log.write(jsonl(_step(25, num_tokens=2500, kl=0.01)), after=50)

    assert (log.value("rl_step"), log.info("attempt")) == (25, "2")
    assert log.value("rl_run_start_timestamp_seconds") == log.now
    assert log.value("rl_condition", condition="nonfinite", severity="critical") == 0
    log.write(jsonl(_step(35, num_tokens=3500, kl=0.01)))
    assert log.value("rl_tokens_total") == 3000 + 1000
    log.write(jsonl(_step(1, num_tokens=100, kl=0.01)))
    assert (log.info("attempt"), log.value("rl_tokens_total")) == ("3", 4100)


def test_another_training_is_judged_as_what_it_is(log: _Log) -> None:
    """GRPO after SFT in one console; a further attempt of it, whose first line has few keys, is GRPO still."""
    sft = {"loss": 1.5, "mean_token_accuracy": 0.7}
    log.write("".join(f"{ {**sft, 'epoch': step / 10} }\n" for step in range(1, 10)) + "{'train_runtime': 60.5}\n")
    assert (log.info("algorithm"), log.run.state) == ("sft", RunState.FINISHED)
    log.write("{'loss': 0.1, 'reward': 0.5, 'rewards/f/mean': 0.5, 'epoch': 0.1}\n{'train_runtime': 60.5}\n")
    assert log.info("algorithm") == "grpo"
    log.write("{'loss': 0.1, 'reward': 0.5, 'epoch': 0.1}\n")
    assert (log.info("algorithm"), log.run.state) == ("grpo", RunState.RUNNING)


def test_an_evaluation_is_no_other_attempt(log: _Log) -> None:
    """Its line may come late, and with an earlier step."""
    log.write(jsonl(_step(10), _step(20), {"step": 10, "eval_reward": 0.25, "eval_runtime": 1.0}, _step(30)))

    assert (log.value("rl_step"), log.info("attempt")) == (30, "1")
    assert log.value("rl_eval_reward_mean", dataset="default") == 0.25


def test_a_summary_ends_a_run(log: _Log) -> None:
    """At once; what is trained later in the same log is another run of it."""
    log.write(jsonl(_step(1), _step(2), {"step": 2, "train_runtime": 9.0}))
    assert log.run.state is RunState.FINISHED
    log.write(jsonl({"step": 2, "eval_reward": 0.25, "eval_runtime": 1.0}))
    assert log.run.state is RunState.FINISHED
    log.write(jsonl(_step(3)))
    assert (log.run.state, log.info("attempt")) == (RunState.RUNNING, "1")


def test_an_exception_ends_a_run_in_silence_only(log: _Log) -> None:
    """Training may go on after one that was caught: the run is running again, and nothing is judged anew."""
    line = "{{'loss': 0.1, 'rewards/f/mean': 0.5, 'kl': {0}, 'epoch': {1}}}\n"
    log.write(line.format("nan", 0.1) + line.format(0.5, 0.2) + _TRACE)
    assert log.look(59) is RunState.RUNNING
    assert log.look(2) is RunState.FAILED
    assert log.value("rl_run_exception_info", exception="ValueError") == 1
    log.write(line.format(0.5, 0.3))

    assert (log.run.state, log.info("attempt"), log.value("rl_step")) == (RunState.RUNNING, "1", 3)
    assert log.value("rl_run_exception_info", exception="ValueError") is None
    assert log.value("rl_condition_events_total", condition="nonfinite", severity="critical") == 1
    assert log.look(1e6) is RunState.RUNNING


_OF_VERL = "(TaskRunner pid=1) step:{0} - actor/pg_loss:0.5 - critic/score/mean:0.{0}\n"
_BAR = "Training Progress:  {0}0%|# | {0}/9 [00:06<01:54, 6.00s/it]\r"
_OF_02 = "\"Final validation metrics: {'val/x': 0.5}\"\nstep:9 - val/x:0.5\n"
_VALIDATED = '("Final validation metrics: {\'val-core/x/acc/mean@1\': "\n(TaskRunner pid=1)  "0.56}")\n'


@pytest.mark.parametrize(
    ("before", "last", "planned"),
    [
        # LLaMA-Factory writes no summary, and verl's bar is there where standard error is: the last planned step.
        (*(jsonl({"current_steps": step, "total_steps": 10, "reward": 0.5}) for step in (5, 10)), 10),
        (_BAR.format(0) + _OF_VERL.format(8) + _BAR.format(8), _OF_VERL.format(9) + _BAR.format(9), 9),
        # The last words of verl 0.9, without and with a validation, and of 0.2; what Ray says then is no failure.
        (
            _OF_VERL.format(8),
            f"{_OF_VERL.format(9)}(TaskRunner pid=1) 'Final validation metrics: None'\n{_TRACE}",
            None,
        ),
        (_OF_VERL.format(8), f"{_OF_VERL.format(9)}(TaskRunner pid=1) {_VALIDATED}{_TRACE}", None),
        (_OF_VERL.format(8), f"{_OF_VERL.format(9)}{_OF_02}{_TRACE}", None),
    ],
)
def test_what_ends_a_run_in_silence(log: _Log, before: str, last: str, planned: float | None) -> None:
    """A log that does not say how many steps are planned, nor that it has come to its end, ends never."""
    log.write(before)
    assert (log.value("rl_steps_planned"), log.look(1e6)) == (planned, RunState.RUNNING)
    log.write(last)
    assert (log.look(30), log.look(31)) == (RunState.RUNNING, RunState.FINISHED)
    if planned is None:
        log.write(_OF_VERL.format(10))
        assert log.look(1e6) is RunState.RUNNING


def test_what_is_known_later_is_served_later(log: _Log) -> None:
    """The algorithm of verl, after an evaluation before the first step."""
    log.write("(TaskRunner pid=1) step:0 - val-core/x/reward/mean@1:0.25\n")
    assert log.info("algorithm") == "custom"
    log.write("(TaskRunner pid=1) step:1 - actor/pg_loss:0.5 - critic/score/mean:0.25\n")
    assert (log.info("algorithm"), log.value("rl_step"), log.value("rl_steps_total")) == ("grpo", 1, 2)


def test_a_recording_says_itself_where_it_begins(log: _Log) -> None:
    """Two trainings in one file, the second of them a resume that its own process has counted."""
    meta = {"event": "meta", "time": 1e9, "run": "kept", "algorithm": "ppo", "global_step": 0, "steps_planned": 9}
    state = {"event": "state", "time": 1e9 + 1}
    again = {**meta, "global_step": 5, "info": {"attempt": "2"}, "totals": {"episode": 50}}
    line = {"event": "log", "time": 1e9 + 2, "global_step": 6, "logs": {"episode": 60, "objective/kl": 0.5}}
    log.write(jsonl(meta, {**state, "state": "running"}, line, {**state, "state": "failed", "exception": "E"}))
    assert (log.run.state, log.run.name, log.value("rl_episodes_total")) == (RunState.FAILED, "kept", 60)
    log.write(jsonl(again, {**state, "state": "running"}, {**line, "logs": {"episode": 70, "objective/kl": 0.25}}))

    assert (log.run.state, log.info("attempt"), log.info("algorithm")) == (RunState.RUNNING, "2", "ppo")
    assert (log.value("rl_episodes_total"), log.value("rl_kl_per_sequence")) == (80, 0.25)
    assert log.value("rl_steps_planned") == 9


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (jsonl(_step(1)), RunState.FINISHED),
        (jsonl({"global_step/max_steps": "5/10", "reward": 0.5}), RunState.STOPPED),
        ("{'loss': 0.1, 'epoch': 1}\n" + _TRACE, RunState.FAILED),
        ("begin\n", RunState.STARTING),
    ],
)
def test_a_pipe_that_is_closed(log: _Log, text: str, state: RunState) -> None:
    """The writer is gone: what it said last tells how, or how far it came."""
    log.write(text)
    log.player.end()
    assert log.run.state is state


# The command


def _drain(out: IO[str] | None) -> list[str]:
    """What the process says from now on, as it says it."""
    lines: list[str] = []
    assert out
    threading.Thread(target=lambda: lines.extend(out), daemon=True).start()
    return lines


@pytest.mark.slow
@pytest.mark.waits
def test_a_file_that_comes_grows_is_replaced_and_damaged(tmp_path: Path) -> None:
    """In a process: each line is served once, what is damaged is told once and counted; SIGTERM ends no training."""
    path = tmp_path / "run.jsonl"
    with process("tail", path, "--run", "my-run") as (tail, url):
        said = _drain(tail.stdout)
        assert scrape(url)["rl_run_state{state=starting}"] == 1
        with path.open("w") as writer:
            writer.write(jsonl(_step(1), _step(2)) + '{"step": 3, "rew')
        tools.eventually(lambda: scrape(url).get("rl_step") == 2)
        with path.open("a") as writer:
            writer.write('ard": 0.75}\n{"step": 4, "rew\noops\n')
        tools.eventually(lambda: scrape(url)["rl_reward_mean"] == 0.75)
        tools.eventually(lambda: scrape(url)["rlexporter_errors_total{where=log}"] == 2)
        path.rename(tmp_path / "run.jsonl.1")
        path.write_text(jsonl(_step(5), _step(6)))
        tools.eventually(lambda: scrape(url)["rl_step"] == 6)
        path.write_text(jsonl(_step(1)))
        tools.eventually(lambda: scrape(url)["rl_step"] == 1)
        found = scrape(url)
        status = json.loads(fetch(f"{url}/api/status")[1])
        tail.send_signal(signal.SIGTERM)
        assert tail.wait(600) == 128 + signal.SIGTERM

    assert (found["rl_steps_total"], found["rl_run_state{state=running}"]) == (3 + 3 + 1, 1)
    assert (status["run"]["name"], status["run"]["attempt"], status["run"]["step"]) == ("my-run", 2, 1)
    tools.eventually(lambda: any("began" in line or "cut" in line for line in said))
    text = "".join(said)
    assert f"{path} is not there yet: waiting for it" in text
    assert text.count("left out: ") == 1
    assert f"left out: {path}:4: is no JSON" in text
    assert f"{path} was replaced by another file" in text
    assert "preempted" not in text
    assert "Traceback" not in text


@pytest.mark.waits
def test_the_page_has_the_curves_of_the_past(tmp_path: Path) -> None:
    """However fast it was read; a console that never falls silent hides no line. Ctrl-C ends it."""
    path = tmp_path / "slurm-1.out"
    lines = [
        f"{{'loss': {i / 10}, 'reward': {i / 100}, 'epoch': {i}}}\n {i}%|# | {i}/90 [00:01\n" for i in range(1, 41)
    ]
    path.write_text("".join(lines))
    with process("tail", path) as (tail, url):
        said = _drain(tail.stdout)
        tools.eventually(lambda: scrape(url).get("rl_step") == 40)
        found = json.loads(fetch(f"{url}/api/history?series=rl_reward_mean&points=100")[1])
        with path.open("a", buffering=1) as writer:
            writer.write(lines[-1].replace("40", "50"))

            def there() -> bool:
                writer.write("Processed prompts: 50%|# | 4/8 [00:01<00:01]\r")
                return scrape(url)["rl_step"] == 50

            tools.eventually(there)
        tail.send_signal(signal.SIGINT)
        assert tail.wait(600) == 130, "the status of a command that was interrupted"
    assert "Traceback" not in "".join(said)
    (curve,) = found["curves"]
    assert curve["steps"] == list(range(1, 41))
    assert curve["values"] == [step / 100 for step in range(1, 41)]


@pytest.mark.waits
def test_standard_input() -> None:
    """Until it is closed; then the final state is served for a while, and Ctrl-C ends that."""
    reading, writing = os.pipe()
    with process("tail", "-", "--linger", 600, stdin=reading) as (tail, url):
        os.close(reading)
        os.write(writing, jsonl(_step(1), _step(2)).encode())
        tools.eventually(lambda: scrape(url).get("rl_step") == 2)
        assert 'run="stdin"' in fetch(f"{url}/metrics")[1]
        os.write(writing, jsonl({"step": 2, "train_runtime": 9.0}).encode())
        os.close(writing)
        tools.eventually(lambda: scrape(url)["rl_run_state{state=finished}"] == 1)
        assert tail.stdout
        tools.said_until("Ctrl-C ends it", tail.stdout)
        tail.send_signal(signal.SIGINT)
        assert tail.wait(600) == 0


def test_what_cannot_be_followed_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it is, and what is followed; tests/logs/test_growing.py has all that is not."""
    (path := tmp_path / "run.csv").write_text("step,kl\n1,0.5\n")

    assert main.main(["tail", str(path), "--port", "0"]) == 3
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "serving" not in line]
    said = "is a table (CSV), which is not followed: what grows line by line is"
    assert line.startswith(f"rlexporter: {path}: {said}")


def test_it_leaves_after_the_end_and_has_written_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `--linger`. The environment may be that of the training, and name the file that is followed, or its state."""
    path = tmp_path / "run.jsonl"
    path.write_text(jsonl(_step(1), {"step": 1, "train_runtime": 9.0}))
    monkeypatch.setenv("RLEXPORTER_RECORD", str(path))
    monkeypatch.setenv("RLEXPORTER_STATE_FILE", str(tmp_path / "state.json"))
    before = path.read_bytes()
    assert main.main(["tail", str(path), "--port", "0", "--linger", "0.5"]) == 0
    assert "run run: finished after step 1" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# Beside an attached exporter


def _of_log_lines(samples: Mapping[str, float]) -> dict[str, float]:
    """The gauges that log lines feed; not those of the clock, of the process and of what taps see."""
    kept = re.compile(
        r"rl_(step|epoch|reward_mean|reward_std|reward_function_mean.*|reward_function_std.*|kl_per_token|grad_norm|loss|"
        r"learning_rate|completion_length_\w+|entropy_per_token|tokens_seen|clip_ratio_\w+|\w*zero_std\w*|step_time_seconds|"
        r"train_runtime_seconds)(\{.*)?"
    )
    return {name: value for name, value in samples.items() if kept.fullmatch(name) and "_dist" not in name}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_real_run_is_served_as_attached(tmp_path: Path) -> None:
    """A real GRPO run that is attached, and followed by its recording, its JSON lines and its console meanwhile."""
    pytest.importorskip("trl")
    from transformers import TrainerCallback
    from trl import GRPOTrainer  # noqa: F401 - before output is redirected

    import rlexporter
    from tests import tiny

    recording, lines, console = (tmp_path / name for name in ("record.jsonl", "log.jsonl", "slurm-1.out"))

    class Journal(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            with lines.open("a") as out:
                out.write(json.dumps({"step": state.global_step, **logs}) + "\n")

    with contextlib.ExitStack() as stack:
        followers = [stack.enter_context(process("tail", path)) for path in (recording, lines, console)]
        for tail, _ in followers:
            _drain(tail.stdout)
        trainer = tiny.grpo(tmp_path, max_steps=6, logging_steps=2, disable_tqdm=False, callbacks=[Journal()])
        exporter = stack.enter_context(
            contextlib.closing(rlexporter.attach(trainer, port=0, record=str(recording), linger=0))
        )
        with console.open("w", buffering=1) as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            trainer.train()
        attached = scrape(exporter.url or "")
        urls = [url for _, url in followers]
        tools.eventually(lambda: all(scrape(url).get("rl_run_state{state=finished}") == 1 for url in urls))
        of_recording, of_lines, of_console = map(scrape, urls)

    expected = _of_log_lines(attached)
    assert len(expected) > 15
    assert _of_log_lines(of_recording) == expected
    assert _of_log_lines(of_lines) == expected
    assert _of_log_lines(of_console) == pytest.approx(expected, rel=1e-3, abs=1e-4)  # printed with four digits
    ours = {name for name in of_lines if name.startswith("rl_") and not _SELF.match(name)}
    assert {name: of_lines[name] for name in ours} == {name: attached[name] for name in ours}, "nothing of its own"
    assert of_console["rl_steps_planned"] == attached["rl_steps_planned"] == 6
    states = {name: value for name, value in attached.items() if name.startswith("rl_run_state")}
    assert all({name: each[name] for name in states} == states for each in (of_recording, of_lines, of_console))
    buckets = {name: value for name, value in attached.items() if name.startswith("rl_reward_dist_bucket")}
    assert buckets
    assert {name: of_recording[name] for name in buckets} == buckets, "a recording has what taps saw"
    assert not any(name.startswith("rl_policy_ratio_dist") for name in of_lines)


def _peak(path: Path) -> int:
    """The most memory in kB that following a file took, from its beginning to its end."""
    with process("tail", path) as (tail, _):
        assert tail.stdout
        tools.said_until("following it now", tail.stdout)
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{tail.pid}/status").read_text())
    assert found
    return int(found[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lines", "console"])
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_memory_does_not_grow_with_the_log(tmp_path: Path, kind: str) -> None:
    """A log of 24 MB, most of it what libraries say, takes hardly more than one of 2 MB."""
    chatter = "WARNING a library says {something} that nobody reads, and a bar:  5%|# | 3/10 [00:01\r" * 200 + "\n"
    peaks = []
    for megabytes in (2, 24):
        path = tmp_path / f"{megabytes}"
        with path.open("w") as out:
            for step in range(1, 60 * megabytes):
                if kind == "lines":
                    out.write(json.dumps({"step": step, "reward": step % 7, "note": "x" * 16_000}) + "\n")
                else:
                    out.write(f"{chatter}{{'loss': {step % 7}, 'epoch': {step}}}\n{step}%|# | {step}/99999 [00:01\n")
        peaks.append(_peak(path))
    assert peaks[1] < 1.25 * peaks[0]
