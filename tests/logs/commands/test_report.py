"""`rlexporter report`: the page of a recorded run as one file, with what the recording says and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rlexporter import Exporter
from rlexporter.catalog.languages import language
from rlexporter.commands.main import main
from rlexporter.logs import reader
from rlexporter.status.account import incidents_as_json
from rlexporter.status.samples import Samples
from tests.conftest import DATA
from tests.logs.files import flat
from tests.status.runs import recorded

RUNS = DATA / "runs"
FILES = sorted(RUNS.glob("*.jsonl"))


def held(text: str) -> dict[str, Any]:
    """The data in a page, as a browser would read it."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return dict(json.loads(found))


def reported(file: Path, *options: str) -> dict[str, Any]:
    """The status on the page that is made of a file."""
    out = file.with_suffix(".html")
    assert main(["report", str(file), "-o", str(out), *options]) == 0
    return dict(held(out.read_text())["status"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_recorded_run_has_its_page(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its verdict, whose words tests/status/test_verdict.py has, and what was logged as its curve."""
    out = tmp_path / "run.html"
    assert main(["report", str(file), "-o", str(out)]) == 0

    data, found = held(out.read_text()), reader.read(file)
    verdict = data["status"]["verdict"]
    steps = [event.step for event in found.events if event.logs]
    if len(set(steps)) < 3:
        assert capsys.readouterr().out == f"wrote {out}: too short to judge. The log has 1 step, and 3 are the least.\n"
        assert data["check"].startswith("too short to judge. ")
    else:
        assert capsys.readouterr().out == f"wrote {out}: {verdict['word']}. {verdict['text']}\n"
        assert " ".join(data["check"].split()).startswith(f"{verdict['word']} {verdict['text']} {file}: ")
    assert f"\n  {file}: {found.facts.algorithm} run {found.run}, " in data["check"]
    assert "\n  not judged:\n" in data["check"]
    assert data["status"]["run"]["step"] == max(steps)
    lines = [(event.step, (event.logs or {}).get("reward")) for event in found.events]
    logged = {step: value for step, value in lines if value is not None}
    curves = {each["series"]: each for each in data["history"]["curves"]}
    if logged:
        assert curves["rl_reward_mean"]["steps"] == sorted(logged)
        shown = [float(value) for value in curves["rl_reward_mean"]["values"]]
        assert shown == pytest.approx([logged[step] for step in sorted(logged)], nan_ok=True)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_incidents_are_the_same_everywhere(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Byte for byte: of `check`, of the page, and of a feed that took the same steps while they were made."""
    out = tmp_path / "run.html"
    assert main(["report", str(file), "-o", str(out)]) == 0
    on_page = json.dumps(held(out.read_text())["status"]["conditions"])
    capsys.readouterr()
    main(["check", "--json", str(file)])
    (checked,) = json.loads(capsys.readouterr().out)
    snapshot, _, _ = recorded(file)

    assert json.dumps(checked["incidents"]) == on_page
    assert json.dumps(incidents_as_json(Samples(snapshot))) == on_page


def test_a_page_is_of_its_time(tmp_path: Path) -> None:
    """Nothing is stalled or late because the file is old."""
    lines = ({"step": step, "reward": 0.5 + step / 100, "timestamp": 1e9 + step} for step in range(1, 31))
    status = reported(flat(tmp_path / "old.jsonl", *lines), "--algorithm", "grpo")
    assert (status["run"]["state"], status["verdict"]["word"]) == ("finished", "fine")


@pytest.mark.parametrize("code", ["en", "zh"])
def test_a_page_has_a_language(code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That of `--language`, from its first line on; the terminal speaks English."""
    out = tmp_path / "run.html"
    assert main(["report", str(RUNS / "rloo-reward_inf-0.jsonl"), "-o", str(out), "--language", code]) == 0

    text = out.read_text(encoding="utf-8")
    status = held(text)["status"]
    assert f'<html lang="{code}">' in text
    assert status["language"] == code
    told = language(code)("{subject} returned NaN or infinity.", subject="letter_reward")
    assert told in status["verdict"]["text"]
    assert capsys.readouterr().out.isascii()


def test_a_run_that_was_killed(tmp_path: Path) -> None:
    """Its recording and its state file end while it trains: both pages say that it failed."""
    record, state = tmp_path / "run.jsonl", tmp_path / "state.json"
    with Exporter(run="cut", algorithm="grpo", port=0, linger=0, record=str(record), state_file=str(state)) as exporter:
        for step in (1, 2):
            exporter.log({"reward": 0.5 * step}, step=step)
        exporter._run.stop_recording()
        saved = tmp_path / "saved.json"
        saved.write_text(state.read_text())
    for file in (record, saved):
        status = reported(file)
        assert (status["verdict"]["word"], status["run"]["exception"]) == ("act", "Killed"), file


def test_a_limit_of_ones_own(tmp_path: Path) -> None:
    """It is the limit that the page judges by."""
    file = flat(tmp_path / "run.jsonl", *({"step": step, "reward": 0.5, "reward_std": 0.0} for step in range(1, 31)))
    begun = [
        reported(file, "--algorithm", "grpo", *limits)["verdict"]["conditions"]
        for limits in ((), ("--thresholds", "reward_flat=off"))
    ]
    assert begun == [["reward_flat"], []]


def test_the_name_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the run, without what no file may have in its name."""
    monkeypatch.chdir(tmp_path)
    with Exporter(run="../a b/<c>", algorithm="grpo", port=0, linger=0, record="r.jsonl") as exporter:
        exporter.log({"reward": 1.5}, step=1)
    assert main(["report", "r.jsonl"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-b-c.html", "r.jsonl"]
    assert "<c>" not in (tmp_path / "a-b-c.html").read_text()


def test_what_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recording itself, and a folder that is not there."""
    file = flat(tmp_path / "run.jsonl", {"step": 1, "loss": 0.1, "reward": 0.5})
    for out, said in ((file, "is the recording itself"), (tmp_path / "no/run.html", "No such file")):
        assert main(["report", str(file), "-o", str(out)]) == 2
        assert said in capsys.readouterr().err
    assert json.loads(file.read_text())["reward"] == 0.5


def test_another_run_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From its log or from its page, which is the same; a file that is neither is said."""
    mine, other = (tmp_path / name for name in ("mine.jsonl", "other.jsonl"))
    for file, steps in ((mine, 40), (other, 60)):
        flat(file, *({"step": step, "reward": 1.0 + 0.1 * (step % 3), "kl": 0.01} for step in range(1, steps + 1)))
    plain, out = tmp_path / "other.html", tmp_path / "mine.html"
    assert main(["report", str(other), "-o", str(plain)]) == 0
    found = []
    for beside in (other, plain):
        assert main(["report", str(mine), "-o", str(out), "--compare", str(beside)]) == 0
        found.append(held(out.read_text())["history"]["earlier"])
    assert found[0] == found[1]
    assert found[0]["step"] == 60
    (reward,) = [each for each in found[0]["curves"] if each["series"] == "rl_reward_mean"]
    assert reward["steps"][-1] == 60
    assert held(plain.read_text())["history"]["earlier"] is None

    capsys.readouterr()
    plain.write_text("<html>")
    assert main(["report", str(mine), "-o", str(out), "--compare", str(plain)]) != 0
    assert f"{plain} is no page of a run; `rlexporter report LOG -o PAGE.html` makes one" in capsys.readouterr().err
