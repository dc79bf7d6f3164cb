"""Logs of other writers: each gives the figures that are in it, or one line that says what is wrong with it."""

from __future__ import annotations

import csv
import io
import json
import sys
from math import inf, isnan, nan
from pathlib import Path

import pytest

from rlexporter.commands import main
from rlexporter.logs import reader
from rlexporter.logs.recorded_alerts import judge
from rlexporter.model.errors import UnreadableError
from rlexporter.model.snapshot import RunState
from tests.conftest import DATA
from tests.logs.files import ONE_LINE, jsonl, logged, read
from tests.served import gauges

FORMATS = DATA / "formats"
GRADIENT = "RLNotANumber"


# What is in the files


@pytest.mark.parametrize(
    ("name", "algorithm", "steps", "alerts"),
    [
        ("trl_console.log", "grpo", [10, 20, 20, 30], {("RLNotANumber", 30), (GRADIENT, 30), ("RLRunFailed", 31)}),
        ("trl_stdout.log", "grpo", [1, 2, 3, 3], set()),
        ("verl_console.log", "grpo", [0, 1, 2, 3], {(GRADIENT, 3)}),
        ("verl_file.jsonl", "grpo", [1, 2, 3], {(GRADIENT, 3)}),
        ("verl_critic.jsonl", "ppo", [1, 2, 3], set()),
        ("ms_swift", "grpo", [5, 10, 15], {(GRADIENT, 15)}),
        ("llama_factory", "custom", [5, 10, 15], {("RLRewardLost", 15)}),
        ("wandb_history.jsonl", "grpo", [0, 1, 1, 2, 2, 3, 3], {(GRADIENT, 3)}),
        ("wandb.csv", "custom", [1, 2, 3], {(GRADIENT, 3)}),
        ("pandas.csv", "custom", [1, 2, 3], {(GRADIENT, 3)}),
        ("strings.jsonl", "grpo", [1, 2, 3], {(GRADIENT, 3)}),
        ("history.json", "grpo", [1, 2, 3], {(GRADIENT, 3)}),
        ("trl_output", "grpo", list(range(1, 11)), {(GRADIENT, 10)}),
        ("trl_output/checkpoint-9", "grpo", list(range(1, 10)), set()),
        ("failed_early.log", "custom", [], {("RLRunFailed", 1)}),
        ("trimmed.jsonl", "grpo", [500, 510, 520], set()),
    ],
)
def test_each_format_is_judged(name: str, algorithm: str, steps: list[int], alerts: set[tuple[str, int]]) -> None:
    """The algorithm, the step of each log line, and the fault that was written into it."""
    found = reader.read(FORMATS / name)
    report = judge(found)

    assert found.facts.algorithm == algorithm
    assert [step for step, _ in logged(found)] == steps
    assert {(fired.alert, fired.step) for fired in report.alerts} == alerts
    assert (report.judged, report.status) == (name != "failed_early.log", 2 if alerts else 0)


def test_a_console_with_all_that_it_can_have() -> None:
    """Values as texts, a line that the terminal broke, one drawn over a bar, infinities; no configuration."""
    logs = logged(reader.read(FORMATS / "trl_console.log"))

    first, second, evaluation, last = (line for _, line in logs)
    assert (first["loss"], first["learning_rate"], first["rewards/right/mean"]) == (0.1, 1e-6, 0.7)
    assert (second["completions/mean_length"], second["rewards/right/std"], second["epoch"]) == (140.0, 0.3, 0.2)
    assert evaluation["eval_reward"] == 0.4
    assert isnan(last["grad_norm"])
    assert last["kl"] == inf


def test_lines_are_counted_where_nothing_tells_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    """The report says so; a summary is no step."""
    assert main.main(["check", str(FORMATS / "trl_stdout.log")]) == 0
    assert "  note: the log has no steps: its lines are counted\n" in capsys.readouterr().out


def test_a_bar_that_does_not_tell_every_step_is_not_believed(tmp_path: Path) -> None:
    """Of other work, or one that begins anew: lines are counted."""
    line, bar = "{{'loss': 0.1, 'epoch': {0}}}\n", " 5%|# | {}/{} [00:01<00:10]\n"

    def steps(*bars: tuple[int, int]) -> list[int]:
        text = "".join(line.format(i) + bar.format(*each) for i, each in enumerate(bars))
        return [step for step, _ in logged(read(tmp_path / "run.log", text))]

    assert steps((10, 40), (20, 40), (30, 40)) == [10, 20, 30]
    assert steps((10, 40), (20, 80), (30, 40)) == [1, 2, 3]
    assert steps((10, 40), (5, 40)) == [1, 2]
    assert steps((0, 40), (1, 40)) == [1, 2]


VERL = {"rl_reward_mean": 0.35, "rl_kl_per_token": 0.003, "rl_entropy_per_token": 0.3, "rl_advantage_mean": None}
"""Its advantages are not whitened without a critic: they are not those of PPO."""
VERL_CRITIC = {
    "rl_reward_mean": 0.35,
    "rl_rlhf_reward": 0.34,
    "rl_kl_per_token": 0.02,
    "rl_kl_coef": 0.001,
    "rl_value_loss": 0.2,
    "rl_value_clipfrac": 0.01,
    "rl_value_explained_variance": 0.5,
    "rl_advantage_mean": 0.3,
}


@pytest.mark.parametrize(
    ("name", "family", "served"),
    [("verl_console.log", "grpo", VERL), ("verl_file.jsonl", "grpo", VERL), ("verl_critic.jsonl", "ppo", VERL_CRITIC)],
)
def test_verl(name: str, family: str, served: dict[str, float | None]) -> None:
    """Its keys feed the series of GRPO where they mean the same; the reward is the score, before any penalty.

    With a critic it is PPO: the KL is that of the penalty. tests/catalog has the same run in the keys of verl and TRL.
    """
    found = reader.read(FORMATS / name)
    values = gauges(found)

    assert (found.facts.algorithm, found.facts.framework, found.facts.family) == (family, "verl", family)
    assert {series: values.get(series) for series in served} == served
    assert not judge(found).unknown_keys


def test_a_history_of_wandb() -> None:
    """Times, keys without their prefix, an evaluation apart; its own rows keep the step of the one before."""
    found = reader.read(FORMATS / "wandb_history.jsonl")

    assert found.events[1].time == 1763800008.5
    assert found.events[1].logs is not None
    assert found.events[1].logs["rewards/right/mean"] == 0.25
    assert dict(found.events[-1].logs or {}) == {
        "eval_reward": 0.4,
        "eval_runtime": 2.0,
        "eval_samples_per_second": 3.0,
    }
    assert found.events[0].logs == {"profiling/Time taken: GRPOTrainer._prepare_inputs": 1.5}


def test_an_evaluation_in_the_same_row_is_a_line_of_its_own(tmp_path: Path) -> None:
    """Else its runtime would make the whole row one."""
    row = {"_step": 4, "train/reward": 0.5, "eval/reward": 0.4, "eval/runtime": 2.0, "eval/unheard_of": 1.0}

    assert logged(read(tmp_path / "run.jsonl", jsonl(row))) == [
        (4, {"reward": 0.5, "eval/unheard_of": 1.0}),
        (4, {"eval_reward": 0.4, "eval_runtime": 2.0}),
    ]


def test_times_that_were_rounded_are_no_times(tmp_path: Path) -> None:
    """Six digits of a date are steps of hours: nothing stalled."""
    rows = [{"_step": i, "_timestamp": 1749500000.0 + 10000 * (i > 2), "train/kl": 0.1} for i in range(1, 5)]

    assert all(isnan(event.time) for event in read(tmp_path / "run.jsonl", jsonl(*rows)).events)
    rows[0]["_timestamp"] = 1749500000.5
    assert read(tmp_path / "run.jsonl", jsonl(*rows)).events[3].time == 1749510000.0


# What real writers write


def test_what_tensorboard_writes(tmp_path: Path) -> None:
    """Of torch's writer: a line for each step, with its time; texts and histograms are nothing; a restart goes on."""
    pytest.importorskip("tensorboard")
    from torch import ones
    from torch.utils.tensorboard import SummaryWriter

    for first in (1, 3):
        with SummaryWriter(str(tmp_path / "run"), filename_suffix=f".{first}") as writer:
            writer.add_text("args", "{}")
            for step in range(first, first + 2):
                writer.add_scalar("train/reward", 0.25 * step, step, walltime=1000.5 + 10 * step)
                writer.add_scalar("train/grad_norm", nan if step == 4 else 1.0, step, walltime=1000.5 + 10 * step)
            writer.add_histogram("weights", ones(3), first)
            writer.add_scalar("eval/reward", 0.5, first + 1)
            writer.add_scalar("eval/runtime", 2.0, first + 1)
    found = reader.read(tmp_path / "run")

    training = [(step, line["reward"]) for step, line in logged(found) if "reward" in line]
    assert training == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    assert [(step, line["eval_reward"]) for step, line in logged(found) if "eval_reward" in line] == [
        (2, 0.5),
        (4, 0.5),
    ]
    assert found.events[0].time == 1010.5
    assert (found.run, found.path) == ("run", tmp_path / "run")
    assert [(fired.alert, fired.step) for fired in judge(found).alerts] == [(GRADIENT, 4)]
    (file,) = (tmp_path / "run").glob("*.1")
    assert [step for step, _ in logged(reader.read(file))] == [1, 2, 2]
    file.rename(tmp_path / "renamed.bin")
    assert [step for step, _ in logged(reader.read(tmp_path / "renamed.bin"))] == [1, 2, 2]


def _scalars(folder: Path, *scalars: tuple[str, float, int]) -> None:
    """Write tags, their values and steps into an event file, as torch does."""
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for tag, value, step in scalars:
            writer.add_scalar(f"train/{tag}", value, step)


def test_a_step_of_tensorboard_that_was_done_again(tmp_path: Path) -> None:
    """Tags that come at different steps, and one that comes twice at one, are lines of their own. So for TensorFlow."""
    _scalars(tmp_path, ("kl", 0.5, 1), ("reward", 1.0, 1), ("loss", 0.25, 2), ("kl", 0.75, 2), ("kl", 0.5, 2))

    expected = [(1, {"kl": 0.5, "reward": 1.0}), (2, {"loss": 0.25, "kl": 0.75}), (2, {"kl": 0.5})]
    assert logged(reader.read(tmp_path)) == expected
    writer = pytest.importorskip("tensorboard.summary").Writer(str(tmp_path / "tensorflow"))
    for step in (1, 2):  # scalars as tensors, with the kind of a tag in its first record only
        writer.add_scalar("train/kl", 0.25 * step, step)
    writer.close()
    assert logged(reader.read(tmp_path / "tensorflow")) == [(1, {"kl": 0.25}), (2, {"kl": 0.5})]


def test_an_event_file_that_is_cut_off_or_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was whole before the damage is read; with nothing before it one line says so."""
    _scalars(tmp_path, *(("kl", 0.5, step) for step in range(1, 4)))
    (file,) = tmp_path.glob("*tfevents*")
    content = file.read_bytes()
    file.write_bytes(content[:-5])
    assert [step for step, _ in logged(reader.read(file))] == [1, 2]
    file.write_bytes(content[:60])
    assert main.main(["check", str(tmp_path)]) == 3
    assert f"{tmp_path}: holds TensorBoard events, but no scalars: understood" in capsys.readouterr().err


def test_an_integer_beyond_every_float(tmp_path: Path) -> None:
    """Of more digits than Python reads: it costs itself, and not the file."""
    (tmp_path / "run.jsonl").write_text('{"step": 1, "kl": 0.5, "n": ' + "1" * 5000 + '}\n{"step": 2, "kl": 0.75}\n')

    (first, *_), (second, *_) = lines = logged(reader.read(tmp_path / "run.jsonl"))
    assert (first, second) == (1, 2)
    assert [logs["kl"] for _, logs in lines] == [0.5, 0.75]


def test_an_event_that_claims_terabytes(tmp_path: Path) -> None:
    """Nothing of that size is made: a tensor of many values is no scalar."""
    _scalars(tmp_path, ("reward", 1.0, 1))
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util

    event = Event(step=2)
    value = event.summary.value.add(tag="train/kl", tensor=tensor_util.make_tensor_proto([0.5], dtype="float32"))
    value.metadata.plugin_data.plugin_name = "scalars"
    value.tensor.tensor_shape.dim[0].size = 2**40
    writer = EventFileWriter(str(tmp_path))
    writer.add_event(event)
    writer.close()

    assert logged(reader.read(tmp_path)) == [(1, {"reward": 1.0})]


def test_tensorboard_that_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what to install, and the other files are reported."""
    for name in [each for each in sys.modules if each.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    (tmp_path / "events.out.tfevents.1").write_bytes(b"\x18" + bytes(20) + b"\x1a\x0dbrain.Event:2")

    assert main.main(["check", str(tmp_path), str(FORMATS / "strings.jsonl")]) == 3
    out, err = capsys.readouterr()
    assert err.startswith("rlexporter: a TensorBoard event file needs more: pip install tensorboard (")
    assert err.count("\n") == 1
    assert GRADIENT in out


def test_what_the_csv_module_writes(tmp_path: Path) -> None:
    """Any delimiter, quotes around everything, line ends of Windows, empty cells."""
    for delimiter in ",;\t":
        text = io.StringIO()
        writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerows([["train/global_step", "train/kl", "train/reward"], [10, 0.5, None], [20, "nan", 0.25], []])
        first, second = logged(read(tmp_path / "run.csv", text.getvalue()))
        assert first == (10, {"kl": 0.5})
        assert (second[0], second[1]["reward"]) == (20, 0.25)
        assert isnan(second[1]["kl"])


# Beginnings and ends


@pytest.mark.parametrize(
    ("steps", "known"),
    [
        ([1, 2, 3], True),
        ([50, 100, 150], None),
        ([0, 1, 2], True),
        ([10], None),
        ([500, 510, 520], False),
        ([3, 4, 5], False),
        ([300], False),
    ],
)
def test_a_log_whose_beginning_is_missing_has_no_first_step(
    tmp_path: Path, steps: list[int], known: bool | None
) -> None:
    """What is said of the first step is not said of the first line that is left, nor of a line of fifty steps."""
    text = jsonl(*({"step": step, "kl": 2.0, "rewards/f/mean": 0.5} for step in steps))
    report = judge(read(tmp_path / "run.jsonl", text))

    trimmed = "the log begins in the middle of the run, or nothing in it shows it"
    expected = {True: None, False: trimmed, None: "too few steps, or nothing in the recording shows it"}[known]
    assert {each.signal: each.reason for each in report.not_judged}.get("kl_first") == expected


_TRACE = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    f()\n'
_LINE = "{'loss': 0.1, 'reward': 0.5, 'epoch': 0.1}\n"
_SUMMARY = "{'train_runtime': 9.0, 'epoch': 1.0}\n"


@pytest.mark.parametrize(
    ("text", "exception"),
    [
        (_LINE + _TRACE + "ValueError: no\n", "ValueError"),
        (_TRACE + "AssertionError\n", "AssertionError"),
        (_LINE + _TRACE, None),
        (_LINE + _TRACE + "odd text, not the name of an exception\nwandb: text\n", None),
        (_LINE + _TRACE + "odd text between\nsocket.timeout: text\n", "timeout"),
        (_TRACE + "torch.OutOfMemoryError: CUDA out of memory.\n", "OutOfMemoryError"),
        (
            _LINE
            + "\x1b[36m(W pid=3, ip=10.0.0.1)\x1b[0m "
            + _TRACE
            + "E: of a worker\n"
            + _TRACE
            + "ray.exceptions.RayTaskError(E): \x1b[36mray::f()\n",
            "E",
        ),
        (_LINE + "[rank0]: " + _TRACE.replace("\n", "\n[rank0]: ") + "ValueError: no\n", "ValueError"),
        (_LINE + _TRACE + "ValueError: no\n" + "wandb: a summary\n" * 300 + " 50%|# | 1/2 [00:01", "ValueError"),
        (_LINE + _TRACE + "A: a\n\nDuring handling of the above exception, another one\n\n" + _TRACE + "B: b\n", "B"),
        (
            _LINE + "ERROR:api:failed (exitcode: 1) of binary: python\n" + _TRACE + "ChildFailedError: \n",
            "ChildFailedError",
        ),
        (_TRACE + "ValueError: caught\n" + _LINE, None),
        (_LINE + _SUMMARY + _TRACE + "OSError: cannot push\n", None),
        (_LINE + _TRACE + "KeyboardInterrupt\n", None),
        (_LINE + "Exception in thread Thread-3:\n" + _TRACE + "OSError: gone\n", None),
        (_LINE + "(Agent pid=3) " + _TRACE.replace("\n", "\n(Agent pid=3) ") + "ToolError: handled\n", None),
        (_LINE + "2026-11-26 06:00:00 ERROR [tool.py:3] " + _TRACE + "ToolError: handled\n", None),
        (_LINE + "ERROR:root:tool failed\n" + _TRACE + "ToolError: handled\n", None),
        (
            _LINE
            + "ERROR:root:tool failed\n"
            + _TRACE
            + "A: a\n\nDuring handling of the above exception, another one\n\n"
            + _TRACE
            + "B: handled\n",
            None,
        ),
        (_LINE + _TRACE + "ToolError: handled\n" + "a completion\n" * 300, None),
        (_LINE + _TRACE + "ToolError: handled\n 50%|# | 5/9 [00:01\r 60%|# | 6/9 [00:02", None),
    ],
)
def test_a_console_that_ends_in_an_exception(tmp_path: Path, text: str, exception: str | None) -> None:
    """A failed run, unless training went on, was over, or was stopped by hand, or the exception was handled.

    The exception is named by its class, without the module; by that of the worker where Ray wraps it.
    """
    found = read(tmp_path / "run.log", text)

    failed = [event.exception for event in found.events if event.state is RunState.FAILED]
    assert failed == ([] if exception is None else [exception])
    assert [fired.alert for fired in judge(found).alerts] == ["RLRunFailed"] * len(failed)


# Nothing to judge, and nothing to read


def test_nothing_judged_is_no_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The keys that nobody knows are named, and the status is one of its own."""
    (odd := tmp_path / "odd.jsonl").write_text(jsonl({"step": 1, **{f"my/{i}": 0.5 for i in range(10)}}))

    assert main.main(["check", str(odd)]) == 4
    out = capsys.readouterr().out
    names = ", ".join(f"my/{i}" for i in range(8))
    said = f"nothing could be judged: unknown keys {names} and 2 more (--json)"
    assert f" {odd}: custom run odd, 1 step {said} 0 of " in " ".join(out.split())
    assert main.main(["check", "--json", str(odd)]) == 4
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["judged"], report["unknown_keys"]) == (False, [f"my/{i}" for i in range(10)])
    odd.write_text(jsonl({"step": 1, "epoch": 0.5, "eval_reward": 0.5, "eval_runtime": 1.0}))
    assert main.main(["check", str(odd)]) == 4
    assert "nothing could be judged: the log has no number that an alert is judged by" in capsys.readouterr().out


def test_of_several_files_the_worst_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unreadable, critical, nothing judged, warning, nothing: in this order."""
    rate = [{"step": i, "learning_rate": 1e-6 if i < 5 else 1e-5} for i in range(1, 6)]
    texts = {
        "none": jsonl(*({"step": i, "kl": 0.01} for i in range(1, 4))),
        "warning": jsonl(*rate),
        "odd": jsonl({"step": 1, "my_key": 1}),
        "critical": jsonl({"step": 1, "kl": nan}),
        "unreadable": "hello\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in texts]

    assert [main.main(["check", path]) for path in paths] == [0, 1, 4, 2, 3]
    assert [main.main(["check", *paths[: n + 1]]) for n in range(5)] == [0, 1, 4, 2, 3]
    capsys.readouterr()
    assert main.main(["check", *reversed(paths), str(tmp_path / "absent")]) == 3
    out, err = capsys.readouterr()
    assert out.count(": custom run ") == 4
    assert err.count("\n") == 2
    assert "absent: cannot be read: No such file" in err


def test_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of checkpoints the one with the highest number; several runs have to be named."""
    with pytest.raises(UnreadableError, match=r"is a folder without a log, with nothing in it: understood"):
        reader.read(tmp_path)
    assert reader.read(FORMATS / "trl_output").path.parent.name == "checkpoint-10"
    lines = (tmp_path / "run.jsonl", tmp_path / "other.jsonl")
    lines[0].write_text(ONE_LINE)
    assert reader.read(tmp_path).path == lines[0]
    lines[1].write_text(ONE_LINE)
    assert main.main(["check", str(tmp_path)]) == 3
    said = f"{tmp_path}: holds 2 files of JSON lines: name one of other.jsonl, run.jsonl, or {tmp_path}/*.jsonl\n"
    assert said in capsys.readouterr().err
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "events.out.tfevents.1").write_bytes(b"")
    assert main.main(["check", str(tmp_path)]) == 3
    assert f"{tmp_path}: holds 2 TensorBoard runs: name one of runs/a, runs/b\n" in capsys.readouterr().err
