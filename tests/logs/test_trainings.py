"""A file that holds several trainings: each is read, and judged, as what it is; and one is not torn apart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rlexporter.commands import main
from rlexporter.logs import reader
from rlexporter.logs.reader import Recording
from rlexporter.logs.recorded_alerts import judge
from tests.conditions import planted
from tests.logs.files import flat

_SFT = {"loss": 1.5, "grad_norm": 0.8, "learning_rate": 1e-5, "num_tokens": 900.0, "mean_token_accuracy": 0.7}
_PLAIN = {"loss": 0.6, "learning_rate": 1e-5}


def _console(*trainings: tuple[list[dict[str, Any]], int]) -> str:
    """Dicts as transformers prints them, each followed by its bar; a training is its lines and its planned steps."""
    text = "Loading checkpoint shards: 100%|###| 2/2 [00:01<00:00]\n"
    for lines, planned in trainings:
        for step, line in enumerate(lines, 1):
            text += (
                f"{ {**line, 'epoch': round(step / 100, 2)} }\n  {step}%|# | {step}/{planned} [00:0{step % 10}<01:00]\r"
            )
        text += "\n{'train_runtime': 60.5, 'train_loss': 1.25, 'epoch': 1.0}\n"
    return text


def _grpo(steps: int) -> list[dict[str, Any]]:
    return [planted.grpo(step) for step in range(1, steps + 1)]


def _steps(found: Recording) -> list[int]:
    return [event.step for event in found.events if event.logs]


def _split(path: Path, *lines: dict[str, Any]) -> list[list[int]]:
    """The steps of each training in a file with these lines, in the order of the file."""
    found = reader.read_all(flat(path / "run.jsonl", *lines))
    return [_steps(each) for each in sorted(found, key=lambda each: each.part)]


def test_sft_before_grpo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The RL training comes first, and neither is judged as the other; no key is gone."""
    (log := tmp_path / "run.log").write_text(_console(([_SFT] * 17, 17), (_grpo(60), 60)))

    assert main.main(["check", str(log)]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if not line.endswith("the others and why.")]
    assert [line.partition(" All ")[0] for line in said] == [
        "fine  The run has finished after step 60.",
        f"  {log}: grpo run run, 60 steps",
        "  training 2 of 2 in this file: lines 37 to 157",
        "  no alert",
        "fine  The run has finished after step 17.",
        f"  {log}: sft run run, 17 steps",
        "  training 1 of 2 in this file: lines 2 to 36",
        "  no alert",
    ]
    assert [each.facts.algorithm for each in reader.read_all(log, "rloo")] == ["rloo", "sft"]


def test_the_alert_is_that_of_its_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fault in the first one is no fault in the other; the exit status is the worst."""
    nan = {**_SFT, "loss": float("nan")}
    (log := tmp_path / "run.log").write_text(_console(([_SFT] * 9 + [nan], 10), (_grpo(60), 60)))

    assert main.main(["check", "--json", str(log)]) == 2
    reports = json.loads(capsys.readouterr().out)
    assert [(each["algorithm"], [fired["alert"] for fired in each["alerts"]]) for each in reports] == [
        ("grpo", []),
        ("sft", ["RLNotANumber"]),
    ]
    assert [each["part"][:15] for each in reports] == ["training 2 of 2", "training 1 of 2"]


def test_a_reward_model_before_ppo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """trlX shows its losses on the bar alone, drawn twice a step; if none is known, the reward model is no excuse."""
    text = _console(([_PLAIN] * 30, 30)).replace("{'train_runtime': 60.5, 'train_loss': 1.25, 'epoch': 1.0}\n", "")
    text += "  0%|   | 0/900 [00:00<?, ?it/s]"
    for step in range(1, 41):
        losses = f"[losses/total_loss: 0.{step} | losses/policy_loss: -0.05 | losses/value_loss: 0.35]"
        text += "".join(f"{losses}:   2%|# | {at}/900 [07:50<5:36,  6.46s/it]\r" for at in (step - 1, step))
        text += "[rollout 96 / 128]:  62%|## | 80/128 [00:10<00:05]\n" if step % 8 == 0 else ""
    (log := tmp_path / "run.out").write_text(text)

    ppo, model = reader.read_all(log)
    assert (_steps(ppo), _steps(model)) == (list(range(1, 41)), list(range(1, 31)))
    assert ppo.events[11].logs == {"losses/total_loss": 0.12, "losses/policy_loss": -0.05, "losses/value_loss": 0.35}
    assert judge(model).status == 0
    assert main.main(["check", str(log)]) == judge(ppo).status
    assert "training 2 of 2" in capsys.readouterr().out.splitlines()[2]


def test_attempts(tmp_path: Path) -> None:
    """Steps that begin anew; the longest attempt comes first, and none has the plateau that all of them make."""
    lengths = (4, 20, 96, 4, 70)
    lines = [{"step": step, "reward": 0.1 + 0.01 * step} for length in lengths for step in range(1, length + 1)]
    found = reader.read_all(flat(tmp_path / "run.jsonl", *lines))

    assert [len(_steps(each)) for each in found] == [96, 70, 20, 4, 4]
    assert found[0].part == "training 3 of 5 in this file: lines 25 to 120"
    assert [judge(each).alerts for each in found] == [()] * 5
    assert reader.read(tmp_path / "run.jsonl").part == found[0].part


def test_step_axes(tmp_path: Path) -> None:
    """Episodes, and updates of a policy and a value function at the same steps, in bursts; two meet in one line."""
    lines: list[dict[str, Any]] = []
    for n in range(1, 31):
        lines += [{"step": 10 * (4 * n + i), "time": 1e9 + n, "episodes/reward": 0.5} for i in range(4)]
        lines += [{"step": 3 * n + i, "policy/loss": 0.1, "policy/kl": 0.01} for i in range(3)]
        lines += [{"step": 3 * n + i, "value/loss": 0.2} for i in range(3)]
    lines[0] |= {**lines.pop(4), "time": 1e9}
    episodes, updates = reader.read_all(flat(tmp_path / "run.jsonl", *lines))

    assert _steps(episodes) == [3, *range(50, 1240, 10)]
    assert _steps(updates) == list(range(3, 93))
    assert episodes.part == "training 1 of 2 in this file: lines 1 to 293, with episodes"
    assert {str(event.time) for event in episodes.events} == {"nan"}, "one rests while the other moves"
    assert set(updates.events[5].logs or ()) == {"policy/loss", "policy/kl", "value/loss"}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([1, 2, 3, 1, 2, 3, 4], [[1, 2, 3], [1, 2, 3, 4]]),
        ([10, 20, 30, 40, 1, 2, 3], [[10, 20, 30, 40], [1, 2, 3]]),
        ([*range(1, 41), *range(31, 60)], [[*range(1, 41), *range(31, 60)]]),
        ([1, 2, 3, 2, 4, 5], [[1, 2, 3, 2, 4, 5]]),
        ([2, 1, 3, 2, 4, 3, 5, 4], [[2, 1, 3, 2, 4, 3, 5, 4]]),
        ([1, 1, 2, 2, 3, 3], [[1, 1, 2, 2, 3, 3]]),
        ([1, 2, 3, 1], [[1, 2, 3, 1]]),
    ],
    ids=["again", "sooner", "resumed", "one late line", "two ranks", "twice", "one last line"],
)
def test_what_begins_anew(tmp_path: Path, steps: list[int], expected: list[list[int]]) -> None:
    """Low steps, and more than one. A checkpoint that was resumed is the same training; so are lines out of order."""
    assert _split(tmp_path, *({"step": step, "reward": 0.5} for step in steps)) == expected


def test_one_training_with_lines_of_two_kinds(tmp_path: Path) -> None:
    """A loop that does SFT and RL by turns, and a loss of transformers before the first reward."""
    turns = [{"step": step, **(_SFT if step % 4 < 2 else {"reward": 0.5})} for step in range(1, 21)]
    assert len(_split(tmp_path, *turns)) == 1
    late = [{"step": step, "epoch": 0.1, "loss": 1.0, **({"reward": 0.5} if step > 3 else {})} for step in range(1, 9)]
    assert len(_split(tmp_path, *late)) == 1
    assert (
        len(_split(tmp_path, *({"step": step, **(_SFT if step < 9 else {"reward": 0.5})} for step in range(1, 21))))
        == 2
    )


_REWARD = {"loss": 0.6, "min_reward": -1.0, "mean_reward": 0.1, "max_reward": 1.0, "accuracy": 0.7, "margin": 0.4}
_DPO = {"loss": 0.6, "rewards/chosen": 0.1, "rewards/rejected": -0.1, "rewards/margins": 0.2, "logps/chosen": -9.0}


@pytest.mark.parametrize(
    ("before", "algorithm"), [(_REWARD, "reward"), (_DPO, "dpo"), (_SFT, "sft"), (_PLAIN, "custom")]
)
def test_what_stands_before_rl(tmp_path: Path, before: dict[str, float], algorithm: str) -> None:
    """With steps that go on, or without: the keys tell. What they do not tell is told by the steps alone."""
    rl = [{"rewards/chosen_words/mean": 0.5, **planned} for planned in _grpo(30)]
    lines = *({**before, "epoch": 0.1} for _ in range(20)), *({**line, "epoch": 0.1} for line in rl)
    found = reader.read_all(flat(tmp_path / "run.jsonl", *lines))
    assert [(each.facts.algorithm, len(_steps(each))) for each in found] == [("grpo", 30), (algorithm, 20)]
    going_on = reader.read_all(flat(tmp_path / "run.jsonl", *({"step": i, **line} for i, line in enumerate(lines))))
    assert [each.facts.algorithm for each in going_on] == (["grpo"] if before is _PLAIN else ["grpo", algorithm])


def test_an_evaluation_before_the_first_step(tmp_path: Path) -> None:
    """It is of the training that follows; the one after the last step, of that before."""
    steps = [{"step": step, "reward": 0.5} for step in range(1, 6)]
    lines = *steps, {"step": 5, "eval_reward": 0.4}, {"step": 0, "eval_reward": 0.2}, *steps
    assert _split(tmp_path, *lines) == [[1, 2, 3, 4, 5, 5], [0, 1, 2, 3, 4, 5]]


def test_a_summary_ends_a_training(tmp_path: Path) -> None:
    """Unless the steps go on after it; what resumes at a later step is the same training."""
    lines = [{"step": 20, "reward": 0.5}, {"step": 40, "reward": 0.5}, {"step": 40, "train_runtime": 9.0}]
    assert _split(tmp_path, *lines, *lines) == [[20, 40, 40], [20, 40, 40]]
    assert _split(tmp_path, *lines, {"step": 60, "reward": 0.5}) == [[20, 40, 40, 60]]


def test_recordings_stay_whole(tmp_path: Path) -> None:
    """A recorder writes where a run begins again."""
    log = [{"event": "log", "global_step": step, "logs": {"reward": 0.5}} for step in (1, 2, 3)]
    begun = {"event": "meta", "algorithm": "grpo"}, {"event": "state", "state": "running"}
    assert _split(tmp_path, *begun, *log, *begun, *log) == [[1, 2, 3, 1, 2, 3]]


def test_report_and_replay_take_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And say which it is."""
    (log := tmp_path / "run.log").write_text(_console(([_SFT] * 17, 17), (_grpo(30), 30)))
    page, history = tmp_path / "run.html", tmp_path / "run.txt"

    assert main.main(["report", str(log), "-o", str(page)]) == 0
    assert main.main(["replay", str(log), "--openmetrics", str(history)]) == 0
    assert capsys.readouterr().out.count("training 2 of 2 in this file: lines 37 to 97") == 2
    assert re.search(r'rl_run_info\{[^}]*algorithm="grpo"', history.read_text())
    assert "grpo run run, 30 steps" in page.read_text()
