"""What people have recorded is read as it was, or refused with the file and the line."""

from __future__ import annotations

import json
import math
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlexporter import Exporter
from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.commands import main
from rlexporter.feed.keys import Resolver, evaluation_prefix
from rlexporter.logs import reader
from rlexporter.logs.commands import check
from rlexporter.logs.reader import Recording
from rlexporter.logs.recorded_alerts import judge
from rlexporter.model.errors import UnreadableError
from rlexporter.model.metric import Kind, Series
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.model.step import RunFacts, StepUpdate
from tests.conftest import DATA
from tests.logs.files import ONE_LINE, jsonl, logged, read
from tests.status.runs import recorded

RATIO = NAMED["rl_policy_ratio_dist"]
RECORDED = sorted(Path(os.environ.get("RLEXPORTER_RUNS") or DATA / "runs").rglob("*.jsonl"))
CLOCK = ("_timestamp_seconds", "rlexporter_record_seconds_total", "rlexporter_observe_seconds_total")
PROCESS = ("rl_run_state", "rl_run_exception_info", "rlexporter_build_info")


def _read(folder: Path, text: str, name: str = "run.jsonl", algorithm: str = "") -> Recording:
    return read(folder / name, text, algorithm)


def _lasting(snapshot: Snapshot) -> dict[Series, float]:
    """What does not depend on the clock or the process."""
    return {
        series: value
        for series, value in snapshot.samples.items()
        if not series.metric.series.endswith(CLOCK) and series.metric.series not in PROCESS
    }


def _step(seen: object, step: int = 1, **fields: object) -> dict[str, object]:
    return {"event": "step", "global_step": step, "seen": seen, **fields}


def _counts(bounds: int, **fields: object) -> dict[str, object]:
    return {"counts": [1, *[0] * bounds], "positive_sum": 0.0, "negative_sum": 0.5, "min": -0.5, "max": -0.5, **fields}


# What is read


def test_flat_lines(tmp_path: Path) -> None:
    """The step and the time are no keys; NaN, the infinities and null are kept; blank lines are nothing."""
    text = '{"step": 3, "kl": 0.02, "time": 10.5}\n\n  \n{"global_step": 4, "kl": NaN, "loss": -Infinity, "r": null}\n'
    found = _read(tmp_path, text, "my-run.jsonl")

    (first, one), (second, two) = logged(found)
    assert (first, one) == (3, {"kl": 0.02})
    assert second == 4
    assert math.isnan(two.pop("kl"))
    assert two == {"loss": -math.inf, "r": None}
    assert found.events[0].time == 10.5
    assert math.isnan(found.events[1].time)
    assert (found.run, found.watched) == ("my-run", False)


def test_wrapped_lines(tmp_path: Path) -> None:
    """Events that nobody knows are passed over; ``inject`` says what nobody may know."""
    found = _read(
        tmp_path,
        jsonl(
            {"event": "meta", "time": 5.0, "trainer": "GRPOTrainer", "config": {"beta": 0.04, "seed": 1, "note": "x"}},
            {"event": "train_begin", "time": 6.0, "global_step": 0},
            {"event": "inject", "time": 7.0, "global_step": 1, "logs": {"kl": 99.0}},
            {"event": "log", "time": 8.0, "global_step": 1, "logs": {"kl": 0.5}},
            {"event": "evaluate", "global_step": 1, "logs": {"eval_kl": 1.0}},
            {"event": ["odd"], "global_step": 1},
            {"event": "train_end", "time": 9.0, "global_step": 2},
            {"event": "end", "time": 9.5},
        ),
    )

    assert logged(found) == [(1, {"kl": 0.5})]
    assert [event.state for event in found.events] == [None, RunState.FINISHED, RunState.FINISHED]
    assert (found.began, found.events[0].time, found.watched) == (5.0, 8.0, True)
    assert (found.facts.algorithm, found.facts.info["trainer"]) == ("grpo", "GRPOTrainer")
    assert found.facts.hyperparameters == {"beta": 0.04}


def test_a_trainer_state(tmp_path: Path) -> None:
    """As transformers writes it beside a checkpoint; the run is called like its folder."""
    folder = tmp_path / "my-run" / "checkpoint-20"
    folder.mkdir(parents=True)
    history = [{"epoch": 0.1, "loss": 1.0, "step": 10}, {"epoch": 0.2, "rewards/f/mean": math.nan, "step": 20}]
    text = json.dumps({"log_history": history, "global_step": 20, "max_steps": 100}, indent=2)
    found = _read(folder, text, "trainer_state.json")

    assert [step for step, _ in logged(found)] == [10, 20]
    assert logged(found)[0][1] == {"epoch": 0.1, "loss": 1.0}
    assert (found.run, found.facts.algorithm, found.watched) == ("my-run", "grpo", False)
    assert _read(tmp_path, text, "trainer_state.json").run == tmp_path.name


def test_legacy_ppo(tmp_path: Path) -> None:
    """Its two log lines a step; an array of which only a summary was kept counts as its mean, and NaN hides nowhere."""
    found = reader.read(DATA / "runs/ppo_legacy-value_nan-0.jsonl")
    (tracked, before), (step, stats), (added, tracker) = logged(found)[-3:]

    assert (tracked, step, added) == (39, 40, 40)
    assert (before["env/reward_mean"], tracker["env/reward_mean"]) == (1.7350364923477173, 1.7332165241241455)
    assert stats["objective/kl_dist"] == 7.251887321472168
    assert math.isnan(stats["ppo/policy/ratio"])
    assert math.isnan(stats["ppo/loss/value"])
    assert (found.events[-1].state, found.events[-1].exception) == (RunState.FAILED, "RuntimeError")
    assert found.facts.algorithm == "ppo-legacy"
    assert found.facts.hyperparameters.items() >= {"learning_rate": 0.0002, "adap_kl_ctrl": 1.0}.items()
    assert recorded(found.path)[0].value("rl_nonfinite_values_total", metric="rl_policy_ratio_dist", kind="nan") == 1
    infinite = {"env/reward_dist": {"__array__": True, "mean": 1.7246, "nan": 0, "inf": 1}}
    found = _read(tmp_path, jsonl({"event": "tracker_log", "global_step": 1, "logs": infinite}))
    assert logged(found) == [(1, {"env/reward_dist": math.inf})]


@pytest.mark.parametrize(
    ("meta", "keys", "algorithm"),
    [
        (None, "ppo/loss/value", "ppo-legacy"),
        (None, "val/ratio", "ppo"),
        (None, "rewards/f/mean", "grpo"),
        (None, "completions/mean_length", "grpo"),
        (None, "rewards/chosen entropy", "dpo"),
        (None, "rewards/chosen kl", "kto"),
        (None, "mean_token_accuracy", "sft"),
        (None, "something", "custom"),
        ({"trainer": "ppo_legacy07"}, "val/ratio", "ppo-legacy"),
        ({"trainer": "grpo_mid"}, "val/ratio", "grpo"),
        ({"trainer": "OnlineDPOTrainer"}, "val/ratio", "online-dpo"),
        ({"trainer": "AsyncGRPOTrainer"}, "val/ratio", "async-grpo"),
        ({"trainer": "PPOv2Trainer"}, "something", "ppo"),
        ({"algorithm": "my-own", "trainer": "GRPOTrainer"}, "val/ratio", "my-own"),
        ({"algorithm": "custom"}, "val/ratio", "ppo"),
    ],
)
def test_the_algorithm_is_found(tmp_path: Path, meta: dict[str, str] | None, keys: str, algorithm: str) -> None:
    """By what the recorder knew, by the trainer's class or what somebody called it, else by the keys."""
    begun = [] if meta is None else [{"event": "meta", **meta}]
    line = {"event": "log", "global_step": 1, "logs": dict.fromkeys(keys.split(), 1.0)}

    assert _read(tmp_path, jsonl(*begun, line)).facts.algorithm == algorithm
    if meta is None:
        assert _read(tmp_path, jsonl(line), algorithm="rloo").facts.algorithm == "rloo", "who reads it may know better"


def test_ratios_of_sequences_are_known_for_what_they_are(tmp_path: Path) -> None:
    """By the configuration, and for RLOO without: the limits of its ratios are others."""
    line = {"event": "log", "global_step": 1, "logs": {"kl": 0.5}}
    configured = {"event": "meta", "trainer": "grpo", "config": {"importance_sampling_level": "sequence"}}

    assert _read(tmp_path, jsonl(configured, line)).facts.info["importance_sampling_level"] == "sequence"
    for trainer, level in (("rloo", "sequence"), ("grpo", None)):
        facts = _read(tmp_path, jsonl({"event": "meta", "trainer": trainer}, line)).facts
        assert facts.info.get("importance_sampling_level") == level


def _counted(snapshot: Snapshot, name: str, series: Series) -> float:
    """A counter that has metrics as its first label, for the metric of a series, or for the one that it stands for."""
    metric = series.metric.of or series.metric.series
    return sum(v for s, v in snapshot.samples.items() if s.metric.series == name and s.labels[0] == metric)


def _lost(snapshot: Snapshot, before: Snapshot, series: Series, value: Any) -> bool:
    """Whether what is served of a key after its line is not what the line says; ``before``: served before it."""
    numbers = [float(each) for each in np.array(value, ndmin=1).flat if isinstance(each, (int, float, np.number))]
    finite = [each for each in numbers if math.isfinite(each)]
    kind = "rl_undefined_values_total" if value is None else "rl_nonfinite_values_total"
    grown = _counted(snapshot, kind, series) > _counted(before, kind, series)
    if value is None:
        return series in snapshot.samples or not grown
    if series.metric.kind is Kind.HISTOGRAM and isinstance(value, list):
        was = before.buckets[series].count if series in before.buckets else 0
        return snapshot.buckets[series].count - was != len(finite) or grown < (finite != numbers)
    if series.metric.kind is Kind.GAUGE and finite == [value]:
        return bool(snapshot.samples[series] != value)
    return finite != numbers and not grown


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_nothing_of_a_recorded_run_is_lost(path: Path) -> None:
    """Each key of each line of a real trainer is a series afterwards, with its value; None and NaN are counted.

    `RLEXPORTER_RUNS=folder` has every run below it read; without it these are the windows in tests/data/runs.
    """
    found = reader.read(path)
    exporter = Exporter(run=path.stem, algorithm=found.facts.algorithm)
    resolver, lost = Resolver(CATALOG, found.facts.algorithm), []
    for step, line in logged(found):
        before = exporter.snapshot
        exporter.log(line, step=step)
        for key, value in line.items():
            targets = resolver.resolve(key, evaluation_prefix(tuple(line)))
            lost += [(step, key) for each in targets[:1] if _lost(exporter.snapshot, before, each, value)]

    assert lost == []
    assert exporter.snapshot.value("rl_step") == logged(found)[-1][0]
    assert exporter.snapshot.value("rlexporter_unmapped_keys") == 0
    assert exporter.snapshot.value("rlexporter_dropped_keys_total") == 0
    assert exporter.snapshot.value("rlexporter_errors_total", where="log") is None


# What our own recorder wrote


def _live(path: Path) -> Exporter:
    """A run with all that can be recorded; closed, still there to look at."""
    exporter = Exporter(run='a "run"', port=0, record=str(path), linger=0, algorithm="ppo-legacy")
    exporter.start()
    start = {"totals": {"num_tokens": 100.0}, "step": 5, "steps_planned": 50, "hyperparameters": {"gamma": 0.9}}
    exporter.run.begin(RunFacts(info={"trainer": "T", "trl": "0.11"}, **start))  # type: ignore[arg-type]
    exporter.observe("kl_per_sequence", torch.tensor([0.5, -0.25, math.nan]))
    for step in range(11, 41):
        exporter.run.sink.observe("rl_policy_ratio_dist", np.array([0.5 + step / 40, 1.0, math.inf]))
        exporter.run.sink.observe("rl_reward_function_dist", [step / 4], labels=('a "b", \\{c}=d,e="f"',))
        exporter.run.sink.observe("rl_weight_norm", [float(step)])
        exporter.run.sink.undefined("rl_reward_dist", 2)
        exporter.run.sink.values({"ppo/loss/value": [1.0, math.nan if step == 20 else 2.0]})
        line = {"ppo/loss/value": 1.0 if step < 30 else 50.0, "ppo/policy/ratio": np.ones(3), "tokens": object()}
        line |= {"objective/kl_dist": torch.tensor([[0.5, -1.0]]), "env/reward_mean": None, "odd key, \u2028": step}
        if step % 3:
            exporter.run.sink.log(line, step=step, update=StepUpdate(step=step, duration=0.5))
        else:
            exporter.run.sink.advance(StepUpdate(step=step, duration=0.25))
            exporter.log({"eval_loss": 0.5, "eval_runtime": 1.0}, step=step)
    exporter.run.sink.observe("rl_weight_norm", [math.nan])
    exporter.end(RuntimeError("probability tensor"))
    exporter.close()
    return exporter


def test_what_was_recorded_gives_the_same_snapshot(tmp_path: Path) -> None:
    """Labels, numbers, counts, conditions: a fresh feed that is fed the recording knows what the run knew."""
    path = tmp_path / "run.jsonl"
    live = _live(path).snapshot
    found = reader.read(path)
    again, _, _ = recorded(path)

    assert again.labels == live.labels
    expected, got = _lasting(live), _lasting(again)
    assert got.keys() ^ expected.keys() == set()
    assert {s: (got[s], v) for s, v in expected.items() if got[s] != pytest.approx(v, nan_ok=True)} == {}
    assert again.steps == live.steps
    assert again.buckets == live.buckets
    assert again.totals == live.totals
    assert live.value("rl_weight_norm") != live.value("rl_weight_norm"), "the NaN before the crash"
    assert live.value("rl_nonfinite_values_total", metric="rl_policy_ratio_dist", kind="+inf") == 30
    assert sum(v for s, v in live.samples.items() if s.metric.series == "rl_condition_events_total") > 1
    states = [(event.state, event.exception) for event in found.events if event.state]
    assert states == [(RunState.RUNNING, ""), (RunState.FAILED, "RuntimeError")]


def test_a_step_and_its_log_line_are_one_event(tmp_path: Path) -> None:
    """As they were served: an evaluation, or the line of another step, is a change of its own."""
    log = {"event": "log", "global_step": 1, "logs": {"kl": 1.0}}
    evaluation = {"event": "log", "global_step": 1, "logs": {"eval_loss": 1.0, "eval_runtime": 1.0}}

    def kinds(*lines: dict[str, object]) -> list[tuple[bool, bool]]:
        return [(bool(event.update), bool(event.logs)) for event in _read(tmp_path, jsonl(*lines)).events]

    assert kinds(_step({}), log, log) == [(True, True), (False, True)]
    assert kinds(_step({}), evaluation, log) == [(True, False), (False, True), (False, True)]
    assert kinds(_step({}, step=2), log) == [(True, False), (False, True)]
    assert kinds(_step({}), {"event": "state", "state": "running"}, log)[-1] == (False, True)


def test_a_loop_without_a_trainer_is_recorded_with_its_name(tmp_path: Path) -> None:
    """Its name, what trains, and that somebody watched: a kill is seen by what is not there.

    Whoever writes states would have written the end, also where the beginning of the file is lost.
    """
    path = tmp_path / "other.jsonl"
    exporter = Exporter(run="mine", algorithm="ppo", port=0, record=str(path)).start()
    exporter.log({"loss": 1.0}, step=1)
    exporter.close()
    found = reader.read(path)

    assert (found.run, found.facts.algorithm, found.watched) == ("mine", "ppo", True)
    assert [event.state for event in found.events] == [RunState.RUNNING, None]
    line = {"event": "log", "global_step": 1, "logs": {"kl": 0.5}}
    assert _read(tmp_path, jsonl({"event": "state", "state": "running"}, line)).watched
    assert not _read(tmp_path, jsonl(line, {"event": "train_end"})).watched


def test_two_trainings_in_one_file(tmp_path: Path) -> None:
    """What comes after the second beginning is read with its bounds; where the run began says the first."""
    own = len(RATIO.bounds)
    bounds = {"bounds": {RATIO.series: list(RATIO.bounds)}}
    found = _read(
        tmp_path,
        jsonl(
            {"event": "meta", "run": "r", "algorithm": "ppo", "global_step": 3, "bounds": {RATIO.series: [1.0]}},
            _step({RATIO.series: _counts(own)}, step=4),
            {"event": "meta", "run": "r", "algorithm": "grpo", "global_step": 7, **bounds},
            _step({RATIO.series: _counts(own)}, step=8),
        ),
    )

    assert [len(event.update.seen) for event in found.events if event.update] == [0, 1]
    assert (found.facts.step, found.facts.algorithm) == (3, "grpo")


def test_counts_that_cannot_be_added_are_left_out(tmp_path: Path) -> None:
    """Other bounds, another number of buckets, series or labels that the catalog lacks; the rest is read."""
    own = len(RATIO.bounds)
    other = {"event": "meta", "bounds": {RATIO.series: [0.0, *RATIO.bounds[1:]]}}
    kl = "rl_kl_per_token_dist"
    seen = {RATIO.series: _counts(own), kl: _counts(len(NAMED[kl].bounds), nan=2, outside=1)}
    labelled = _counts(len(NAMED[kl].bounds))
    strange = {"rl_of_tomorrow": _counts(3), f'{kl}{{x="1"}}': labelled, RATIO.series: _counts(1)}

    found = _read(tmp_path, jsonl(other, _step(seen)))
    assert found.events[0].update
    ((series, counted),) = found.events[0].update.seen.items()
    assert series.metric.series == kl
    assert (counted.nonfinite.nan, counted.outside, counted.negative_sum, counted.minimum) == (2, 1, 0.5, -0.5)

    found = _read(tmp_path, jsonl(_step(strange, undefined={"rl_of_tomorrow": 1, "rl_reward_dist": 2})))
    assert found.events[0].update
    assert found.events[0].update.seen == {}
    assert found.events[0].update.undefined == {"rl_reward_dist": 2}


# What is refused, and what is left of a damaged file

UNDERSTOOD = (
    "understood are trainer_state.json, JSON lines, JSON with the histories of runs, notebooks, console output, CSV, "
    "TensorBoard event files, and a folder with one of these"
)
TEXT = "in 1 lines of text, the first of them"
CUT = "Unterminated string starting at: line 1 column 13 (char 12)"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", f": is empty: {UNDERSTOOD}"),
        (bytes(64), f": is empty: {UNDERSTOOD}"),
        (bytes(range(256)), f": is binary: {UNDERSTOOD}"),
        (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x04\x01\x02\x03", f": is binary: {UNDERSTOOD}"),
        (b"\x1f\x8b\x08\x00rest", ": is compressed (gzip): unpack it first"),
        (b"PK\x03\x04rest", ": is an archive (zip): unpack it first"),
        (b":W&B\x00rest", ": is the file that W&B synchronizes: export the run's history as CSV, or as JSON lines"),
        (b"hello\nworld\n", f": has no log line in 2 lines of text, the first of them 'hello': {UNDERSTOOD}"),
        (b"[1, 2]", f": is JSON, but no recorded run: [1, 2]: {UNDERSTOOD}"),
        (b"{}\n\n{}\n", f": has no log line: {UNDERSTOOD}"),
        (b'{"event": "meta", "trainer": "grpo"}\n', f": has no log line: {UNDERSTOOD}"),
        (b'{\n "a": 1\n}\n', f": is JSON, but no recorded run: an object with a: {UNDERSTOOD}"),
        (b'{"log_history": []}', f": has no log line: {UNDERSTOOD}"),
        (b'{"log_history": [7]}', f": log_history[0]: is no JSON object but int: {UNDERSTOOD}"),
        (b'{"log_history": [{"step": 1}, {}]}', ": log_history[1]: cannot be understood: a line has no step: {}"),
        (b'[{"step": 1, "kl": 1}, 7]', f": [1]: is no JSON object but int: {UNDERSTOOD}"),
        (f"{ONE_LINE}oops\n{ONE_LINE}".encode(), ":2: is no JSON: Expecting value: line 1 column 1 (char 0)"),
        (f'{ONE_LINE}{{"step": 2, "k\n'.encode(), f":2: is no JSON: {CUT}"),
        (b'{"step": 2, "k', f":1: is no JSON: {CUT}: {UNDERSTOOD}"),
        (f"{ONE_LINE}[1]\n".encode(), f":2: is no JSON object but list: {UNDERSTOOD}"),
        (b"[" * 100_000, f": has no log line {TEXT} '{'[' * 39}…': {UNDERSTOOD}"),
        (f'{ONE_LINE}{{"kl": 0.5}}\n'.encode(), ":2: cannot be understood: a line has no step: {'kl': 0.5}"),
        (b'{"step": "one", "kl": 0.5}', ":1: cannot be understood: 'one' is no step: {'kl': 0.5}"),
        (b'{"step": NaN, "kl": 0.5}', ":1: cannot be understood: nan is no step: {'kl': 0.5}"),
        (b'{"global_step/max_steps": "x/y", "kl": 1}', ":1: cannot be understood: 'x/y' is no step: {'kl': 1}"),
        (b'{"step": [1], "kl": 0.5}', ":1: cannot be understood: [1] is no step: {'kl': 0.5}"),
        (b'{"event": "log", "logs": {"kl": 0.5}}', ":1: cannot be understood: a line has no step: {'kl': 0.5}"),
        (
            b'{"event": "log", "global_step": 1, "logs": [0.5]}',
            ":1: cannot be understood: a log line has no logs, but [0.5]",
        ),
        (b'{"event": "state", "state": "odd"}', ":1: cannot be understood: 'odd' is not a valid RunState"),
        (
            b'{"event": "step", "global_step": 1, "seen": 5}',
            ":1: cannot be understood: AttributeError: 'int' object has no attribute 'items'",
        ),
        (
            f'{{"event": "meta", "steps_planned": "x"}}\n{ONE_LINE}'.encode(),
            ": cannot be understood: TypeError: '>' not supported between instances of 'str' and 'int'",
        ),
        (b"step,kl\n1,0.5,7\n2,0.5\n", ":2: has 3 cells, but the header has 2"),
        (b"step,kl\n1\n2,0.5\n", ":2: has 1 cells, but the header has 2"),
        (b"step,kl\n", f": has no log line: {UNDERSTOOD}"),
        (b"step,kl\nten,0.5\n", ":2: cannot be understood: 'ten' is no step: {'kl': 0.5}"),
        (b'"Step","a - train/kl","b - train/kl"\n1,2,3\n', ": holds 2 runs (a, b): export one run a file"),
        (b"{'lr': 1, 'model': 'x'}\n", f": has no log line {TEXT} \"{{'lr': 1, 'model': 'x'}}\": {UNDERSTOOD}"),
        (b"{'loss': 0.1, 'epoch': \n", f": has no log line {TEXT} \"{{'loss': 0.1, 'epoch':\": {UNDERSTOOD}"),
        (b"\x1b[0m\x1b[0m", f": has no log line {TEXT} '': {UNDERSTOOD}"),
        (b"step:one - actor/lr:1\n", f": has no log line {TEXT} 'step:one - actor/lr:1': {UNDERSTOOD}"),
        (
            b'{"event": "snapshot", "time": 1}',
            ":1: cannot be understood: this is the last state of a run and not its course: "
            "`rlexporter replay` serves it",
        ),
    ],
)
def test_a_malformed_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    """Which file, what it is, and what would be understood; no traceback, and a status of its own."""
    (path := tmp_path / "file").write_bytes(content)

    assert main.main(["check", str(path)]) == 3
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"rlexporter: {path}{said}\n")


@pytest.mark.parametrize(
    ("content", "logs"),
    [
        (f'{ONE_LINE}{{"step": 2, "k'.encode(), [(1, {"kl": 0.5})]),
        (b"step,kl\n1,0.5\n2,", [(1, {"kl": 0.5}), (2, {})]),
        (b"step,kl\n1,0.5\n2", [(1, {"kl": 0.5})]),
        (ONE_LINE.encode("utf-16"), [(1, {"kl": 0.5})]),
        (b"\xef\xbb\xbf" + ONE_LINE.replace("\n", "\r\n").encode(), [(1, {"kl": 0.5})]),
        (bytes(100) + ONE_LINE.encode(), [(1, {"kl": 0.5})]),
        (b"{'train_runtime': 9.0, 'epoch': 1.0}", [(0, {"train_runtime": 9.0, "epoch": 1.0})]),
        (b"{-'a': 1} {'kl': -1, 'epoch': -'b'} {'kl': 0.5, 'epoch': 1}", [(1, {"kl": 0.5, "epoch": 1})]),
        (b"{'kl': None, 'loss': 1e-09, 'epoch': 1}", [(1, {"kl": None, "loss": 1e-9, "epoch": 1})]),
        (b"caf\xe9\n{'kl': 0.5, 'epoch': 1}\n", [(1, {"kl": 0.5, "epoch": 1})]),
        (b"{'kl': 0.5, 'epoch': 1}\n{'kl': 0.", [(1, {"kl": 0.5, "epoch": 1})]),
        (b"{'a': <object at 0x7f>} {'kl': tensor(0.5, device='cuda:0'), 'epoch': 1}", [(1, {"kl": 0.5, "epoch": 1})]),
        (b'{"model": "x"}\nbegin\n{"kl": 0.5, "loss": null}\n', [(1, {"kl": 0.5, "loss": None})]),
        (b'{"kl": 0.5}\n{"kl": 0.25}\n', [(1, {"kl": 0.5}), (2, {"kl": 0.25})]),
        (b'{"step": 1.0, "kl": "0.5 nats"}', [(1, {"kl": "0.5 nats"})]),
        (b"step:1 - actor/lr:odd - actor/grad_norm:inf", [(1, {"actor/lr": "odd", "actor/grad_norm": math.inf})]),
    ],
)
def test_a_damaged_file_gives_what_is_whole(tmp_path: Path, content: bytes, logs: list[tuple[int, Any]]) -> None:
    """A killed process, an editor or a shell leaves a file so."""
    (path := tmp_path / "file").write_bytes(content)

    assert logged(reader.read(path)) == logs


def _damaged(content: bytes, rng: random.Random) -> bytes:
    made = bytearray(content)
    for _ in range(rng.choice((1, 2, 5, 30))):
        at = rng.randrange(len(made))
        how = rng.randrange(4)
        if how == 0:
            made[at] = rng.choice((rng.randrange(256), *b"{}[]\",':\n\r \x1b\0-"))
        elif how == 1:
            del made[at : at + rng.randrange(1, 60)]
        elif how == 2:
            made[at:at] = made[rng.randrange(len(made)) :][: rng.randrange(80)]
        else:
            del made[at + 1 :]
        made = made or bytearray(b"x")
    return bytes(made)


def test_no_damage_raises(tmp_path: Path) -> None:
    """Whatever became of a file: figures, or one line that names no error of ours."""
    contents = [path.read_bytes() for path in sorted((DATA / "formats").rglob("*")) if path.is_file()]
    rng, path, read, said = random.Random(13), tmp_path / "file", 0, ""
    for _ in range(300):
        path.write_bytes(_damaged(rng.choice(contents), rng))
        try:
            report = judge(reader.read(path))
        except UnreadableError as error:
            said = str(error)
        else:
            read += 1
            assert report.judged or report.status in (2, 4)
            assert check.written(report).count("no alert") == (report.judged and not report.alerts)
        assert "\n" not in said
        assert not re.search(r"understood: [A-Za-z]+Error: ", said)
    assert 60 < read < 240


@pytest.mark.parametrize("meta", [{"config": [1]}, {"config": None}, {"info": 3}, {"trainer": 5}, {"run": ""}])
def test_an_odd_meta_event_is_no_error(tmp_path: Path, meta: dict[str, object]) -> None:
    """What it lacks is not known."""
    found = _read(tmp_path, jsonl({"event": "meta", **meta}, {"event": "log", "global_step": 1, "logs": {"kl": 0.5}}))

    assert (found.run, found.facts.algorithm) == ("run", "custom")
