"""A log that grows: read in pieces cut anywhere it gives what the whole file gives; files are cut, replaced, gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlexporter.logs import growing, reader
from rlexporter.logs.formats import console, json_text
from rlexporter.logs.growing import GrowingFile, Stream
from rlexporter.logs.reader import Event
from rlexporter.model.errors import SetupError, UnreadableError
from rlexporter.model.snapshot import RunState
from tests.conftest import DATA
from tests.logs.files import jsonl, logged, read

LOGS = [
    DATA / "formats" / name
    for name in (
        *("trl_console.log", "trl_stdout.log", "verl_console.log", "verl_file.jsonl", "verl_critic.jsonl"),
        *("ms_swift/logging.jsonl", "llama_factory/trainer_log.jsonl", "wandb_history.jsonl", "strings.jsonl"),
        *("trimmed.jsonl", "failed_early.log"),
    )
]
RECORDED = [DATA / "runs" / f"{name}.jsonl" for name in ("grpo-healthy_multi-0", "ppo-value_nan-0")]


def _refuse(error: UnreadableError) -> None:
    raise error


def _told(events: list[Event]) -> list[tuple[Any, ...]]:
    """What can be compared: NaN is not equal to itself."""
    return [(e.time, e.step, e.logs, e.update, e.part, e.state, e.exception) for e in events]


def _in_pieces(path: Path, content: bytes, cuts: list[int], *, settled: bool = False) -> tuple[list[Event], Stream]:
    stream = Stream(path, "", _refuse)
    events: list[Event] = []
    for start, end in pairwise([0, *sorted(cuts), len(content)]):
        events += stream.feed(content[start:end])
        events += stream.settle() if settled else ()
    return [*events, *stream.close()], stream


def _without_end(path: Path) -> list[Event]:
    """What `check` reads, without the end that it concludes from a traceback."""
    return [event for event in reader.read(path).events if event.state is None]


@pytest.mark.parametrize("path", [*LOGS, *RECORDED], ids=lambda path: path.name)
def test_in_pieces(path: Path) -> None:
    """However it comes, nothing is lost, doubled or read otherwise; and the same facts are known at the end.

    Byte by byte, and recordings of our own, with the histograms of their tensors, a thousand bytes at a time.
    """
    content, own = path.read_bytes(), path in RECORDED
    size = 1000 if own else 1
    events, stream = _in_pieces(path, content, list(range(size, len(content), size)))
    whole = reader.read(path)

    assert repr(_told(events)) == repr(_told(whole.events if own else _without_end(path)))
    assert (stream.facts, stream.name, stream.dialect.notes) == (whole.facts, whole.run, whole.notes)
    assert stream.watched == whole.watched
    ended = [event for event in whole.events if event.state is not None and not own]
    # As text: a time that nobody knows is NaN, which Python 3.13 finds unequal to itself within a data class too.
    assert repr(stream.ending) == repr(ended[0] if ended else None)
    assert len(ended) < 2


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cuts=st.lists(st.integers(0, 10_000), max_size=8))
def test_cut_anywhere_with_pauses(path: Path, cuts: list[int]) -> None:
    """Where nothing more comes for a while, what is whole is handed on; the steps are those of the whole file."""
    content = path.read_bytes()
    events, _ = _in_pieces(path, content, [cut % len(content) for cut in cuts], settled=True)
    found, expected = ([each for each in some if each.logs] for some in (events, _without_end(path)))

    assert [sorted(event.logs or ()) for event in found] == [sorted(event.logs or ()) for event in expected]
    if "trl" not in path.name:  # there the steps are on a progress bar, which may not have been drawn yet
        assert [event.step for event in found] == [event.step for event in expected]


def test_a_dict_that_a_terminal_broke(tmp_path: Path) -> None:
    """Wherever it was broken, and wherever its text is cut; braces and quotes inside texts are none."""
    logs = {"loss": -0.0625, "rewards/a 'b' }/mean": 0.5, "kl": 1.5e-05, "epoch": 0.25}
    line, path = str(logs), tmp_path / "run.log"
    for width in (1, 4, 11, 40, 80):
        broken = "".join(f"{line[i : i + width]}\r\n" for i in range(0, len(line), width))
        content = f"don't panic {{\r\n{broken}  5%|# | 7/40 [00:01\r\nend"
        assert logged(read(path, content)) == [(7, logs)]
        for cut in range(0, len(content), 1 if width == 4 else 7):
            (event,), _ = _in_pieces(path, content.encode(), [cut])
            assert (event.step, event.logs) == (7, logs)


def test_the_bar_is_read_before_its_line_ends(tmp_path: Path) -> None:
    """tqdm ends it with the next one, which comes a step later."""
    stream = Stream(tmp_path / "run.log", "", _refuse)
    content = b"\r 10%|# | 4/40 [00:01<00:10]\r      \r{'loss': 0.5, 'epoch': 0.1}\n\r 12%|# | 5/40 [00:01<00:10]"
    events = [*stream.feed(content), *stream.settle()]

    assert [(event.step, event.logs) for event in events] == [(5, {"loss": 0.5, "epoch": 0.1})]
    assert stream.dialect.planned == 40


def test_bars_of_other_work_are_no_steps(tmp_path: Path) -> None:
    """Those of a sampler, between and after log lines; a line does not wait for ever for its own."""
    other = "Processed prompts: 50%|# | 4/8 [00:01<00:01]\n"
    line = "{{'loss': 0.5, 'epoch': {}}}\n"
    text = "".join(line.format(i) + other * 3 for i in (0.1, 0.2, 0.3))
    assert [event.step for event in _in_pieces(tmp_path / "run.log", text.encode(), [])[0]] == [1, 2, 3]
    assert [event.step for event in read(tmp_path / "run.log", text).events] == [1, 2, 3]

    reader = console.Console(tmp_path / "run.log")
    assert [*reader.feed(line.format(0.1)), *reader.feed(other * 3)] == []
    assert [found.logs["loss"] for _ in range(300) for found in reader.feed(other)] == [0.5]
    assert reader.count == 1


def _steps(stream: Stream, *pieces: str) -> list[int]:
    return [event.step for piece in pieces for event in (*stream.feed(piece.encode()), *stream.settle())]


def test_steps_of_a_bar_go_on(tmp_path: Path) -> None:
    """A line without its bar, and one with a bar of other work, come one interval on; a bar that stays is believed."""
    line, bar = "{{'loss': 0.1, 'epoch': {0}}}\n", " 5%|# | {}/{} [00:01<00:10]\n"
    texts = [line.format(0.1) + bar.format(10, 40), line.format(0.2) + bar.format(20, 40), line.format(0.3)]
    texts += [line.format(0.4) + bar.format(3, 8), line.format(0.5) + bar.format(50, 60)]
    texts += [line.format(0.6) + bar.format(55, 60), line.format(0.7) + bar.format(15, 60)]

    assert _steps(Stream(tmp_path / "run.log", "", _refuse), *texts) == [10, 20, 30, 40, 50, 55, 15]


def test_without_a_bar_lines_are_counted_as_they_come(tmp_path: Path) -> None:
    """The evaluation and the summary belong to the line before."""
    texts = ["{'loss': 0.1, 'epoch': 1}\n", "{'eval_loss': 1, 'eval_runtime': 2.0}\n", "{'loss': 0.2, 'epoch': 2}\n"]
    stream = Stream(tmp_path / "run.log", "", _refuse)

    assert _steps(stream, *texts, "{'train_runtime': 9.0}\n") == [1, 1, 2, 2]
    assert stream.dialect.notes == ("the log has no steps: its lines are counted",)


def test_damage_is_left_out(tmp_path: Path) -> None:
    """Each damaged line is told with its place; what is between them is read."""
    said: list[str] = []
    stream = Stream(tmp_path / "run.jsonl", "", lambda error: said.append(str(error)))
    text = '{"step": 1, "kl": 0.5}\n{"step": 2, "k\n[1]\n{"kl": 0.5}\n\n{"step": "x", "kl": 1}\n{"step": 3, "kl": 1}\n'

    assert _steps(stream, text) == [1, 3]
    assert [each.removeprefix(f"{tmp_path / 'run.jsonl'}:")[:16] for each in said] == [
        "2: is no JSON: U",
        "3: is no JSON ob",
        "4: cannot be und",
        "6: cannot be und",
    ]


def test_a_line_without_an_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is longer than any log line is let go of; the next line is read."""
    monkeypatch.setattr(json_text, "LONGEST", 100)
    monkeypatch.setattr(console, "_LONGEST", 100)
    said: list[str] = []
    stream = Stream(tmp_path / "run.jsonl", "", lambda error: said.append(str(error)))
    pieces = ['{"step": 1, "kl": 0.5}\n', '{"step": 2, "x": "', *["y" * 90] * 5, '"}\n', '{"step": 3, "kl": 1}\n']
    assert _steps(stream, *pieces) == [1, 3]
    assert said == [f"{tmp_path / 'run.jsonl'}:2: is longer than 100 characters"]

    stream = Stream(tmp_path / "run.log", "", _refuse)
    pieces = ["begin\n", *["." * 90] * 50, "\n{'loss': 0.5, 'epoch': 1}\n"]
    assert _steps(stream, *pieces) == [1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"log_history": [{"step": 1}]}', "is JSON in one piece, which is not followed"),
        (b'{\n "log_history": [\n {"step": 1}]\n}\n', "is JSON in one piece, which is not followed"),
        (b'[{"step": 1, "kl": 1}]\n', "is JSON in one piece, which is not followed"),
        (b"step,kl\n1,0.5\n", "is a table (CSV), which is not followed"),
        (b"\x18" + bytes(20) + b"\x1a\x0dbrain.Event:2", "is a TensorBoard event file, which is not followed"),
        (b"\x1f\x8b\x08\x00rest", "is compressed (gzip)"),
        (bytes(range(256)), "is binary"),
    ],
)
def test_what_does_not_grow_line_by_line_is_not_followed(tmp_path: Path, content: bytes, said: str) -> None:
    """One line says what it is."""
    with pytest.raises(UnreadableError, match=r"^/.*/log: ") as raised:
        list(Stream(tmp_path / "log", "", _refuse).feed(content))
    assert said in str(raised.value)


def test_half_a_trainer_state_is_not_followed_either(tmp_path: Path) -> None:
    """It is known by its name, as what is there of it is no JSON yet."""
    with pytest.raises(UnreadableError, match="is JSON in one piece, which is not followed"):
        _steps(Stream(tmp_path / "trainer_state.json", "", _refuse), '{\n  "best_metric": null,\n')


def test_one_object_does_not_tell_what_a_log_is(tmp_path: Path) -> None:
    """A program may print its configuration before its usual output; a logger of JSON lines has none in it."""
    config = '{"model": "x"}\n'
    assert _steps(Stream(tmp_path / "a", "", _refuse), config, "begin\n", "{'kl': 0.5, 'epoch': 1}\n") == [1]
    assert _steps(Stream(tmp_path / "b", "", _refuse), '{"kl": 0.5}\n', '{"kl": 0.25}\n') == [1, 2]
    assert _steps(Stream(tmp_path / "b", "", _refuse), '{"entropy": 0.5}\n{', '"entropy": 0.25}\n') == [1, 2]
    stream = Stream(tmp_path / "c", "", _refuse)
    assert [*_steps(stream, '{"kl": 0.5}\n'), *(event.step for event in stream.close())] == [1]


def test_the_last_line_of_ms_swift(tmp_path: Path) -> None:
    """The state of its trainer, with a step of another name: no log line, and the steps stay those of the lines.

    Written by `_save_trainer_state` in swift/llm/train/sft.py of modelscope/ms-swift, after an exception too.
    """
    lines: list[dict[str, Any]] = [
        {"loss": 0.5, "reward": 0.5, "global_step/max_steps": f"{step}/30"} for step in (10, 20, 30)
    ]
    state = {"last_model_checkpoint": "c", "best_model_checkpoint": None, "best_metric": None, "memory": 1.5}
    last = {"model_parameter_info": "x", **state, "global_step": 30, "log_history": [{"loss": 0.5, "step": 10}]}
    summary = {"train_runtime": 9.0, "global_step/max_steps": "30/30"}

    def ended(*lines: Mapping[str, Any]) -> tuple[list[int], RunState | None]:
        found = read(tmp_path / "logging.jsonl", jsonl(*lines))
        return [event.step for event in found.events], found.events[-1].state

    assert ended(*lines, summary, last) == ([10, 20, 30, 30, 0], RunState.FINISHED)
    assert ended(*lines[:2], {**last, "global_step": 20}) == ([10, 20, 0], RunState.FAILED)
    megatron: list[dict[str, Any]] = [{"loss": 0.5, "iteration": "5/10"}, {"loss": 0.4, "iteration": "10/10"}, state]
    assert ended(*megatron) == ([5, 10, 0], RunState.FINISHED)


@pytest.mark.parametrize(
    ("text", "state", "exception"),
    [
        ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-23T08:00:00 DUE TO TIME LIMIT ***", "preempted", ""),
        ("slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-23T08:00:00 ***", "preempted", ""),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=12.batch.", "failed", "OutOfMemory"),
    ],
)
def test_what_slurm_writes_last(tmp_path: Path, text: str, state: str, exception: str) -> None:
    """The end of a job whose training could not say it; the traceback of a torn-down process changes nothing."""
    trace = 'Traceback (most recent call last):\n  File "t.py", line 1, in f\nRuntimeError: gone\n'
    written = f"{{'loss': 0.1, 'epoch': 1}}\n{text}\n" + (trace if state == "preempted" else "")
    (_, end) = read(tmp_path / "slurm-12.out", written).events

    assert (end.state, end.exception) == (RunState(state), exception)


# The bytes


def _read(source: GrowingFile) -> Iterator[str]:
    """What comes until nothing does; why it begins anew, in brackets."""
    while any(piece := source.next()):
        yield f"[{piece.anew}]" if piece.anew else piece.content.decode()


def test_a_file_that_grows_is_cut_and_replaced(tmp_path: Path) -> None:
    """Not there yet, growing, cut, written over, renamed while it grows, replaced, removed while it grows."""
    path = tmp_path / "run.log"
    source = GrowingFile(path)
    assert list(_read(source)) == []
    path.write_text("one\n")
    assert list(_read(source)) == ["one\n"]
    with path.open("a") as writer:
        writer.write("two\nhal")
        writer.flush()
        assert list(_read(source)) == ["two\nhal"]
        writer.write("f\n")
    assert list(_read(source)) == ["f\n"]
    assert source.read == (13, 13)

    path.write_text("cut\n")
    assert list(_read(source)) == ["[was cut or written over]", "cut\n"]
    path.write_text("as long or longer\n")
    assert list(_read(source)) == ["[was cut or written over]", "as long or longer\n"]

    with path.open("a") as writer:
        path.rename(tmp_path / "run.log.1")
        writer.write("late\n")
        writer.flush()
        assert list(_read(source)) == ["late\n"]
        writer.write("later\n")
    path.write_text("new\n")
    assert list(_read(source)) == ["later\n", "[was replaced by another file]", "new\n"]

    with path.open("a") as writer:
        path.unlink()
        writer.write("after its end\n")
    assert list(_read(source)) == ["after its end\n"]
    source.close()


def test_a_folder(tmp_path: Path) -> None:
    """The log in it that grows, also where transformers has written its state at the end; it cannot be one itself."""
    for name in ("trainer_state.json", "trainer_log.jsonl"):
        (tmp_path / name).write_text("{}\n")
    found = growing.source(str(tmp_path))
    assert isinstance(found, GrowingFile)
    assert found.path == tmp_path / "trainer_log.jsonl"
    source = GrowingFile(tmp_path / "log")
    assert not any(source.next())
    (tmp_path / "log").mkdir()
    with pytest.raises(SetupError, match=r"log: is a folder: name the log in it"):
        source.next()
