"""`rlexporter check`: which alerts a recorded run would have raised, also real ones, and that Prometheus agrees."""

from __future__ import annotations

import json
import re
import shlex
from math import nan
from pathlib import Path
from typing import Any

import pytest

from rlexporter.catalog.metrics import CATALOG
from rlexporter.commands import main
from rlexporter.conditions.watch import watch
from rlexporter.feed.feed import Feed
from rlexporter.logs import reader
from rlexporter.logs.playback import feed, played
from rlexporter.logs.reader import Event, Recording
from rlexporter.logs.recorded_alerts import judge, report
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.model.step import RunFacts
from rlexporter.run.run import Run
from tests.alerts import promtool
from tests.conditions import planted
from tests.conftest import DATA
from tests.logs.files import flat
from tests.tools import EACH_GENERATION


def _grpo(steps: int, **changes: Any) -> list[dict[str, Any]]:
    """Flat lines; from step 41 on with these changes."""
    changed = {key.replace("__", "/"): value for key, value in changes.items()}
    return [{"step": step, **planted.grpo(step), **(changed if step > 40 else {})} for step in range(1, steps + 1)]


def test_one_fault_is_one_incident(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A NaN, what else became NaN in that step, and that the run has failed."""
    lines = _grpo(41, reward=nan, grad_norm=nan)
    logs = [
        {"event": "log", "global_step": line.pop("step"), "time": 2.0 * at, "logs": line}
        for at, line in enumerate(lines)
    ]
    meta = {"event": "meta", "time": 0.0, "trainer": "grpo"}
    crash = {"event": "crash", "time": 121.0, "global_step": 41, "type": "RuntimeError"}
    file = str(flat(tmp_path / "run.jsonl", meta, *logs, crash))

    assert main.main(["check", file]) == 2
    verdict, more, title, *out, counted = capsys.readouterr().out.splitlines()
    assert verdict == "act   A reward is NaN or infinite. It began in step 41. The run has failed with"
    assert more == "      RuntimeError after step 41."
    assert title == f"  {file}: grpo run run, 41 steps"
    assert out == [
        "  critical  step 41     RLRewardLost",
        "      1 value was NaN or infinite in rl_reward_mean",
        "    symptoms:",
        "      step 41    RLNotANumber: 1 value in rl_grad_norm",
        "      step 42    RLRunFailed: A run has ended with an exception.",
        "  on_critical=stop would have stopped it at step 41 of 41 (0 % saved)",
    ]
    ran, of = map(int, re.findall(r"\d+", counted))
    assert counted == f"  {ran} of {of} checks ran; --verbose lists the others and why."
    assert 0 < ran < of
    assert main.main(["check", "--verbose", file]) == 2
    _, _, _, *out, last = capsys.readouterr().out.splitlines()
    assert last == f"  {ran} of {of} checks ran."
    assert "    sampling_jump: no sampling/sampling_logp_difference/mean in the log" in out
    assert max(map(len, out)) <= 80
    listed = re.findall(r"^ {4}(\w.*?):\s", "\n".join(out[out.index("  not judged:") :]), re.MULTILINE | re.DOTALL)
    assert len({*re.findall(r"\w+", " ".join(listed))}) == of - ran, "each of the others, also of too few values"
    causes = {fired.alert: fired.cause for fired in judge(reader.read(file)).alerts}
    assert causes == {
        "RLRewardLost": None,
        "RLNotANumber": "nonfinite_reward",
        "RLRunFailed": "nonfinite_reward",
    }


def test_unknown_keys_are_judged_once_their_meaning_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it nothing is judged, exit 4, and the line to add is printed."""
    lines = [{"step": i, "mine/reward_total": 1.0, "mine/kl_to_sft": 0.01 if i < 40 else 9.0} for i in range(60)]
    file = str(flat(tmp_path / "run.jsonl", *lines))

    assert main.main(["check", file]) == 4
    verdict, *_, proposal, counted = capsys.readouterr().out.splitlines()
    assert verdict == "not judged. No alert is judged by what the log has."
    assert counted.startswith("  0 of ")
    assert proposal == "    --map 'mine/kl_to_sft=kl,mine/reward_total=reward'"
    assert main.main(["check", "--verbose", file]) == 4
    assert "nonfinite: nothing in the log shows it" in " ".join(capsys.readouterr().out.split())
    assert main.main(["check", file, *shlex.split(proposal), "--algorithm", "grpo"]) == 2
    out = capsys.readouterr().out
    assert "RLKL" in out
    assert "--map" not in out


def test_keys_are_guessed_by_their_last_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That is said, and what a user says of a key wins."""
    lines = [
        {"step": i, "train/scalar_reward": 0.1 * i if i < 60 else 0.5, "ppo_policy/entropy": 1.0} for i in range(100)
    ]
    file = str(flat(tmp_path / "run.jsonl", *lines))

    assert main.main(["check", file]) == 2
    out = capsys.readouterr().out
    assert "guessed by the names of keys: train/scalar_reward for rl_reward_mean," in " ".join(out.split())
    assert "RLRewardCollapse" in out
    assert main.main(["check", "--json", file, "--map", "train/scalar_reward=kl_coef"]) < 2
    (report,) = json.loads(capsys.readouterr().out)
    assert report["guesses"] == {"ppo_policy/entropy": "rl_entropy_per_token"}


def test_what_the_json_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The keys that other programs rely on."""
    file = str(flat(tmp_path / "run.jsonl", *_grpo(60, entropy=0.1, grad_norm=nan, completions__clipped_ratio=1.0)))

    assert main.main(["check", "--json", file]) == 2
    (report,) = json.loads(capsys.readouterr().out)
    before = ["file", "run", "algorithm", "steps", "alerts", "not_judged"]
    later = ["judged", "unknown_keys", "notes", "framework", "incidents", "part", "guesses", "stop"]
    assert list(report) == [*before, *later], "new fields at the end"
    assert report["stop"] == {"step": 41, "of": 60, "condition": "nonfinite"}
    assert (report["judged"], report["unknown_keys"], report["notes"]) == (True, [], [])
    assert (report["file"], report["run"], report["algorithm"], report["steps"]) == (file, "run", "grpo", 60)
    by_name = {each["alert"]: each for each in report["alerts"]}
    low = by_name["RLEntropy"]
    assert low == {
        "alert": "RLEntropy",
        "condition": "entropy_low",
        "family": "ENTROPY_LOW",
        "severity": "warning",
        "step": 44,
        "metric": "rl_entropy_per_token",
        "value": 0.1,
        "threshold": low["threshold"],
        "cause": None,
        "own_step": None,
        "unit": "nats per token",
        "limit": "0.2 times its start",
    }
    assert 0.17 < low["threshold"] < 0.19
    assert ("RLLength", "critical", 48) in {(x["alert"], x["severity"], x["step"]) for x in report["alerts"]}
    grad = by_name["RLNotANumber"]
    assert (grad["metric"], grad["value"], grad["unit"], grad["limit"]) == ("rl_grad_norm", 1, "values", "")
    missing = {each["signal"]: each["reason"] for each in report["not_judged"]}
    assert "rl_sampling_logp_difference_mean" in missing["sampling_difference"]
    assert missing["step_time"] == "the recording has no times"


@pytest.mark.parametrize(
    ("lines", "status", "said"),
    [
        (_grpo(1), 4, "too short to judge. The log has 1 step, and 3 are the least."),
        (_grpo(2) * 2, 4, "too short to judge. The log has 2 steps, and 3 are the least."),
        (_grpo(3), 0, "fine  The run has finished after step 3. All "),
        ([{"step": 1, "loss": nan, "reward": 0.5}], 2, "act   rl_loss is NaN or infinite. It began in step 1."),
    ],
    ids=["1", "2 twice", "3", "nan"],
)
def test_a_log_may_be_too_short(
    lines: list[dict[str, Any]], status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fewer than three steps are never fine, here and for `report`; what is critical is so in the first one."""
    file = str(flat(tmp_path / "run.jsonl", *lines))
    assert main.main(["check", "--algorithm", "grpo", file]) == status
    assert capsys.readouterr().out.startswith(said)
    assert main.main(["report", "--algorithm", "grpo", file, "-o", str(tmp_path / "out")]) == 0
    assert f"{tmp_path / 'out'}: {said.replace('fine ', 'fine.').replace('act  ', 'act.')}" in capsys.readouterr().out


def test_a_run_that_resumed_begins_once(tmp_path: Path) -> None:
    """That it runs, which its recording says next, is no other training, which would begin with untrained rewards."""
    logs = [{"event": "log", "global_step": step, "logs": {"reward": step % 7}} for step in range(101, 221)]
    for step in (0, 100):
        begun = {"event": "meta", "algorithm": "grpo", "global_step": step}, {"event": "state", "state": "running"}
        found = judge(reader.read(flat(tmp_path / "run.jsonl", *begun, *logs)))
        assert ("reward_gain" in {each.signal for each in found.not_judged}) == (step == 100)


def test_limits_and_algorithm_can_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is set for a run is set for its check; RLOO cannot be told from GRPO by its keys."""
    file = str(flat(tmp_path / "run.jsonl", *_grpo(60, entropy=0.1)))

    assert main.main(["check", "--thresholds", "entropy_low=off", file]) == 0
    assert f"{file}: grpo run run, 60 steps\n  no alert\n" in capsys.readouterr().out
    assert main.main(["check", "--thresholds", "entropy_lo=off", file]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert main.main(["check", "--algorithm", "rloo", file]) == 1
    assert "rloo run" in capsys.readouterr().out


def test_a_failure_alone_is_no_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The process has stopped already; so it is with a run that vanished, and with one that is fine or warns."""
    logs = [{"event": "log", "global_step": s, "time": float(s), "logs": planted.grpo(s)} for s in range(1, 21)]
    meta = {"event": "meta", "time": 0.0, "trainer": "grpo"}
    crash = {"event": "crash", "time": 21.0, "global_step": 20, "type": "RuntimeError"}
    failed, vanished = flat(tmp_path / "failed.jsonl", meta, *logs, crash), flat(tmp_path / "gone.jsonl", meta, *logs)
    warns = flat(tmp_path / "warns.jsonl", *_grpo(60, entropy=0.1))

    assert main.main(["check", "--json", *map(str, (failed, vanished, warns))]) == 2
    reports = json.loads(capsys.readouterr().out)
    assert [each["alerts"][0]["alert"] for each in reports] == ["RLRunFailed", "RLRunVanished", "RLEntropy"]
    assert [each["stop"] for each in reports] == [None, None, None]


@pytest.mark.parametrize("file", sorted((DATA / "runs").glob("*.jsonl")), ids=lambda file: file.stem)
def test_the_brake_agrees(file: Path) -> None:
    """`on_critical="stop"` itself, asked after each step of a recording, gives its order in the step that is told."""
    recorded, ordered = reader.read(file), list[int]()

    def ask(run: Run) -> None:
        if run.brake.orders().stop:
            ordered.append(run.feed.step)

    run = played(recorded, {"on_critical": ("stop",)}, ask).run
    stop = report(run, recorded).stop
    assert ordered[:1] == ([] if stop is None else [stop.step])


def test_how_a_run_ended(tmp_path: Path) -> None:
    """A crash, a recording that stops, a normal end; a plain log cannot know."""
    lines = [{"event": "log", "global_step": s, "time": float(s), "logs": planted.grpo(s)} for s in range(1, 21)]
    meta = {"event": "meta", "time": 0.0, "trainer": "grpo"}
    crash = {"event": "crash", "time": 21.0, "global_step": 20, "type": "RuntimeError"}
    end = {"event": "end", "time": 22.0, "global_step": 20}
    failed = {"event": "state", "state": "failed", "exception": "E"}

    def ending(*events: dict[str, Any]) -> list[tuple[str, int]]:
        report = judge(reader.read(flat(tmp_path / "run.jsonl", *events)))
        return [(fired.alert, fired.step) for fired in report.alerts]

    assert ending(meta, *lines, crash, end) == [("RLRunFailed", 21)]
    assert ending(meta, *lines) == [("RLRunVanished", 21)]
    assert ending(meta, *lines, end) == []
    assert ending(meta, failed) == [("RLRunFailed", 1)]
    assert ending(*lines) == []


def _recording(pace: float) -> Recording:
    """38 steps of a GRPO run with faults that last one step, several, and for ever; a step takes ``pace`` seconds.

    The first has a symptom; the last begins in its wake, and outlives it.
    """
    events = []
    for step in range(1, 39):
        line = planted.grpo(step)
        line |= {"loss": nan, "grad_norm": nan} if step == 12 else {}
        line |= {"entropy": 0.2} if 15 <= step < 22 else {}
        line |= {"completions/clipped_ratio": 0.5} if step >= 24 else {}
        events.append(Event(step * pace, step, logs=line))
    events.append(Event(39 * pace, 38, state=RunState.FAILED, exception="RuntimeError"))
    return Recording(Path("run.jsonl"), RunFacts(algorithm="grpo"), "a", events, watched=True)


_SCRAPED = ("rl_condition", "rl_threshold", "rl_run_sta", "rl_last_step", "rl_stall", "rl_step")
"""Prefixes: of the state and the start of a run too."""


def _scraped(recorded: Recording, interval: float) -> dict[str, str]:
    """What a Prometheus that scrapes so often would have, as promtool writes it; the last state is scraped once."""
    clock = [0.0]
    store = Feed(CATALOG, clock=lambda: clock[0], watch=watch())
    store.begin(recorded.facts, {"run": recorded.run, "rank": "0"})
    store.enter(RunState.RUNNING)
    series: dict[str, list[str]] = {}
    scrapes = 0
    for event in recorded.events:
        while event.time > scrapes * interval:
            _scrape(store.snapshot, series, scrapes)
            scrapes += 1
        clock[0] = event.time
        if event.state is None:
            feed(store, event)
        else:
            store.enter(event.state, event.exception)
    _scrape(store.snapshot, series, scrapes)
    return {name: " ".join(values) for name, values in series.items()}


def _scrape(snapshot: Snapshot, series: dict[str, list[str]], scrapes: int) -> None:
    for found, value in snapshot.samples.items():
        if found.metric.series.startswith(_SCRAPED):
            labels = {**snapshot.labels, **dict(zip(found.metric.labels, found.labels, strict=True))}
            text = ",".join(f'{name}="{label}"' for name, label in {**labels, "instance": "h:1"}.items())
            values = series.setdefault(f"{found.metric.series}{{{text}}}", [])
            values += ["_"] * (scrapes - len(values))
            values.append(f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}")


@pytest.mark.parametrize("pace", [6.0, 15.0, 360.0])
@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_prometheus_agrees(generation: str, pace: float, tmp_path: Path) -> None:
    """The same record at 6 seconds, 15 seconds and six minutes a step, scraped every 15 seconds."""
    recorded = _recording(pace)
    alerts = judge(recorded).alerts
    told = [fired for fired in alerts if (fired.cause is None or fired.own_step) and fired.severity != "info"]
    expected = sorted((fired.alert, fired.severity) for fired in told)
    assert [(fired.alert, fired.step) for fired in alerts] == [
        ("RLNotANumber", 12),
        *(("RLLength", 31), ("RLRunFailed", 39)),
    ], "the pace of a step changes nothing"
    end = int(recorded.events[-1].time) + 60
    fired = f'max_over_time(ALERTS{{alertstate="firing",run="a"}}[{end}s])'
    labels = [f'{{alertname="{alert}",severity="{severity}"}}' for alert, severity in expected]
    check_end: dict[str, object] = {
        "expr": f"count by (alertname, severity) ({fired})",
        "eval_time": f"{end // 60 * 60}s",
        "exp_samples": [{"labels": each, "value": 1} for each in labels],
    }
    case: dict[str, object] = {
        "interval": "15s",
        "input_series": [{"series": name, "values": text} for name, text in _scraped(recorded, 15.0).items()],
        "promql_expr_test": [check_end],
    }
    assert promtool.run(generation, tmp_path, [case], every="60s" if pace > 60 else "15s") == ""


# Curves of real runs

CURVES: list[dict[str, Any]] = json.loads((DATA / "real_curves.json").read_text())
"""Of real runs, so that a fresh clone can check what docs/alerts.md says of many: numbers only, of three digits."""
_BROKEN = {
    "fl448341": {("RLRewardCollapse", "critical", 40), ("RLLength", "critical", 46)},
    "Nithin2311": {("RLNotANumber", "critical", 289)},
    "Sunshine535-03": {("RLRewardCollapse", "critical", 95), ("RLLength", "critical", 115)},
    "Sunshine535-11": {
        ("RLRewardCollapse", "critical", 50),
        ("RLLength", "critical", 75),
        ("RLEntropy", "critical", 70),
        ("RLNoSignal", "critical", 140),
    },
}


def _alerts(curve: dict[str, Any], folder: Path) -> set[tuple[str, str, int]]:
    columns = curve["numbers"]
    lines = [
        {"step": step} | {key: float(column[i]) for key, column in columns.items() if column[i] is not None}
        for i, step in enumerate(curve["steps"])
    ]
    report = judge(reader.read(flat(folder / "run.jsonl", *lines), "grpo"))
    return {(each.alert, each.severity, each.step) for each in report.alerts}


def test_every_curve_says_where_it_is_from() -> None:
    """They are other people's: a repository, a path in it, a commit."""
    assert all(len(each["commit"]) >= 7 for each in CURVES)
    assert all(each["repository"].count("/") == 1 and each["path"] for each in CURVES)
    assert sum(len(column) for each in CURVES for column in each["numbers"].values()) < 3500


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: f"{curve['label']} {curve['name']}")
def test_a_run_that_broke_is_critical_and_one_that_learned_is_not(curve: dict[str, Any], tmp_path: Path) -> None:
    """The reward fell lastingly, completions ran into the limit, or the gradient was NaN.

    Not with half of the groups flat, or gradients of 0 beside rewards that differ; one warns, at entropy 0.02.
    """
    broken = curve["label"] == "broken"
    severities = ("critical",) if broken else ("critical", "warning")
    expected = _BROKEN[curve["name"]] if broken else set(map(tuple, curve["warnings"]))
    assert {each for each in _alerts(curve, tmp_path) if each[1] in severities} == expected
