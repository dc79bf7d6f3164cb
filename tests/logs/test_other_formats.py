"""Files in which logs are found that nobody wrote as logs: notebooks, consoles of one's own, JSON of several runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.notebook import text_to_html_table

from rlexporter.commands import main
from rlexporter.logs import reader
from rlexporter.logs.recorded_alerts import Report, judge
from tests.logs.files import logged

REWARDS = [0.1 + 0.02 * i for i in range(60)] + [0.1 + 0.001 * (i % 3) for i in range(40)]
"""It rises, and falls back for good."""


def _checked(path: Path, content: object) -> list[Report]:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return [judge(each) for each in reader.read_all(path)]


def _notebook(*outputs: list[dict[str, Any]]) -> dict[str, Any]:
    cells = [{"cell_type": "code", "source": [], "outputs": each, "metadata": {}} for each in outputs]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "markdown"}, *cells]}


def _printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


FAILED = {"output_type": "error", "ename": "OutOfMemoryError", "evalue": "", "traceback": []}


def test_dicts_that_a_notebook_has_printed(tmp_path: Path) -> None:
    """Each cell is a training of its own, with its own end."""
    good = "".join(f"{{'reward': {value}, 'kl': 0.1, 'step': {i}}}\n" for i, value in enumerate(REWARDS[:60], 1))
    bad = "".join(f"{{'reward': {value}, 'kl': 0.1, 'step': {i}}}\n" for i, value in enumerate(REWARDS, 1))
    found = _checked(
        tmp_path / "run.ipynb", _notebook([_printed("hello\n")], [_printed(good)], [_printed(bad), FAILED])
    )

    assert {(each.run, each.steps) for each in found} == {("cell 3", 60), ("cell 4", 100)}
    alerts = {each.run: {fired.alert for fired in each.alerts} for each in found}
    assert alerts["cell 3"] == set()
    assert alerts["cell 4"] >= {"RLRewardCollapse", "RLRunFailed"}


def test_the_table_of_progress_in_a_notebook(tmp_path: Path) -> None:
    """As transformers draws it, with the columns of Unsloth; the last of its states is the one that stays."""
    head = ["Step", "Training Loss", "reward", "kl", "completions / mean_length"]
    rows = [[i, 0.1, value, 0.01, 1100.5] for i, value in enumerate(REWARDS, 1)]
    html = f"<div><progress value='100' max='100'></progress></div>{text_to_html_table([head, *rows])}"
    drawn = {"output_type": "display_data", "data": {"text/html": [html]}, "metadata": {}}
    path = tmp_path / "run.ipynb"
    (report,) = _checked(path, _notebook([drawn]))

    assert (report.algorithm, report.steps) == ("grpo", 100)
    assert "RLRewardCollapse" in {fired.alert for fired in report.alerts}
    line = logged(reader.read(path))[0]
    assert line == (1, {"loss": 0.1, "reward": 0.1, "kl": 0.01, "completions/mean_length": 1100.5})


def test_a_notebook_without_a_log_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its outputs may have been cleared."""
    path = tmp_path / "run.ipynb"
    path.write_text(json.dumps(_notebook([_printed("hello\n")])))

    assert main.main(["check", str(path)]) == 3
    assert "is a notebook whose outputs hold no log line: save it with its outputs" in capsys.readouterr().err


LAB = "objective/kl: {kl}\nppo/returns/mean: {reward}\nrewards/mean: {reward}\n" + "-" * 80 + "\n"
CHAT = (
    "Epoch: 0 | Step: {i} | PPO Epoch: 1 | Actor Loss: 0.02 | Critic Loss: 0.3 | Unsupervised Loss: 0.0\n"
    "End-to-End => Latency: 7.03s, TFLOPs: 1.6, Samples/sec: 2.28\naverage reward score: {reward}\n"
)
OWN = "Epoch:[1/1]({i}/5000), Reward: {reward}, KL_ref: {kl}, Actor Loss: -0.0, Avg Response Len: 200.5\n"


@pytest.mark.parametrize(
    ("line", "algorithm", "series"),
    [
        (LAB, "ppo-legacy", {"objective/kl", "ppo/returns/mean", "rewards/mean"}),
        (CHAT, "custom", {"Actor Loss", "Critic Loss", "Unsupervised Loss", "average reward score", "PPO Epoch"}),
        (OWN, "custom", {"Reward", "KL_ref", "Actor Loss", "Avg Response Len"}),
    ],
)
def test_numbers_that_a_loop_prints(line: str, algorithm: str, series: set[str], tmp_path: Path) -> None:
    """A log line goes on until a key comes again; what stands around is left out."""
    path = tmp_path / "run.log"
    text = "".join(line.format(i=i, reward=value, kl=0.01) for i, value in enumerate(REWARDS))
    (report,) = _checked(path, f"Model Params: 25.8\nLoading reward model: 1\n{text}done: 1\n")

    assert report.algorithm == algorithm
    assert [alert.alert for alert in report.alerts if alert.severity == "critical"] == ["RLRewardCollapse"]
    lines = logged(reader.read(path))
    assert len(lines) == 100
    assert {key for _, logs in lines for key in logs} - {"epoch", "TFLOPs", "Samples/sec"} == series


def test_numbers_of_anything_else_are_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server prints pairs too."""
    path = tmp_path / "server.log"
    path.write_text("".join(f"request: {i}, time: 0.4, size: 12\n" for i in range(100)))

    assert main.main(["check", str(path)]) == 3
    assert "has no log line" in capsys.readouterr().err


ROWS = [{"_step": i, "reward": value, "kl": 0.1} for i, value in enumerate(REWARDS, 1)]
SEVERAL = {
    "by name": {"good": ROWS[:60], "bad": ROWS},
    "a list": [{"name": "good", "config": {"lr": 1}, "history": ROWS[:60]}, {"name": "bad", "history": ROWS}],
    "columns": {
        name: {key: [row[key] for row in rows] for key in ROWS[0]}
        for name, rows in (("good", ROWS[:60]), ("bad", ROWS))
    },
}


@pytest.mark.parametrize("content", SEVERAL.values(), ids=SEVERAL.keys())
def test_several_histories_in_one_json(content: object, tmp_path: Path) -> None:
    """Each is judged by itself, under its name."""
    found = {each.run: each for each in _checked(tmp_path / "runs.json", content)}

    assert {name: each.steps for name, each in found.items()} == {"good": 60, "bad": 100}
    assert [name for name, each in found.items() if each.status == 2] == ["bad"]


def test_histories_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """W&B names no run for good."""
    found = _checked(tmp_path / "runs.json", [{"name": "a", "history": ROWS}, {"name": "a", "history": ROWS[:50]}])

    assert {(each.run, each.steps) for each in found} == {("a 1", 100), ("a 2", 50)}


def test_columns_alone_are_one_history(tmp_path: Path) -> None:
    """As `DataFrame.to_dict("list")` has them."""
    (report,) = _checked(tmp_path / "run.json", {key: [row[key] for row in ROWS] for key in ROWS[0]})

    assert (report.run, report.steps, report.status) == ("run", 100, 2)


def test_statistics_in_an_object_of_their_own(tmp_path: Path) -> None:
    """Those of legacy PPO keep their keys; what is not known is put below the key of its object."""
    stats = {"objective/kl": 0.5, "ppo/loss/value": 0.1, "mine": 2.0}
    lines = [json.dumps({"step": i, "query": "x", "ppo_stats": stats | {"env/reward_mean": 1.0}}) for i in range(30)]
    (report,) = _checked(tmp_path / "run.jsonl", "\n".join(lines))

    assert (report.algorithm, report.unknown_keys) == ("ppo-legacy", ("ppo_stats/mine", "query"))
