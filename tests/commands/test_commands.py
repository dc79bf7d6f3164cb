"""The command line as a whole: what it offers, and to whom."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rlexporter import commands
from rlexporter.commands import main
from tests.programs import printed
from tests.tools import ROOT

MODULES = [module for module, _ in commands.COMMANDS.values()]
COMMANDS = "demo run status top notify metrics check report replay tail generate discovery".split()


def test_the_help_lists_what_users_have(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of a first day."""
    with pytest.raises(SystemExit):
        main.main(["--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if re.match(r" {4}\S", line)]
    assert listed == COMMANDS


def test_without_a_command_there_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """It is no mistake."""
    assert main.main([]) == 0
    assert capsys.readouterr().out.startswith("usage: rlexporter [-h] [--version] COMMAND ...\n")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("statsu", "did you mean status?"),
        ("reprot", "did you mean report?"),
        ("x", f"there are {', '.join(COMMANDS)}"),
    ],
)
def test_a_mistyped_command(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The one that may be meant; else all that the help lists, and no other."""
    with pytest.raises(SystemExit, match="2"):
        main.main([word, "--json"])
    assert capsys.readouterr().err.splitlines()[-1] == f"rlexporter: error: there is no command '{word}': {said}"


@pytest.mark.parametrize("command", ["check", "report", "replay", "tail"])
def test_a_file_that_cannot_be_read_is_one_status(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each command that reads one. Only a file that is not there is waited for by `tail`."""
    for path in (tmp_path, tmp_path / "absent")[: 1 if command == "tail" else 2]:
        assert main.main([command, str(path)]) == 3
        assert capsys.readouterr().err.startswith(f"rlexporter: {path}: ")
    with pytest.raises(SystemExit, match="0"):
        main.main([command, "--help"])
    assert re.search(r"\b3 \S.* cannot be read", " ".join(capsys.readouterr().out.split()))


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("KL_per_tok", "rl_kl_per_token"),
        ("frac_reward_zero_std", "rl_reward_zero_std_fraction"),
        ("actor/ppo_kl", "rl_policy_policykl"),
        ("Spread of REWARD", "rl_reward_zero_std_fraction"),
    ],
)
def test_metrics_are_found_by_a_word(word: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In the name, the help, or a key, also one of another framework."""
    assert main.main(["metrics", word]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert found in [line.split()[0] for line in lines]
    assert len(lines) < 20
    assert main.main(["metrics", "--json", word]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(lines)


def test_a_word_of_no_metric(capsys: pytest.CaptureFixture[str]) -> None:
    """It is said, and is the exit status."""
    assert main.main(["metrics", "nonsense"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "rlexporter: no metric has 'nonsense' in its name, key or help; a key that is not known is served as "
        "rl_logged_value{key=...}\n"
    )


@pytest.mark.parametrize("word", ["critic/rewards/min", "train_loss"])
def test_a_key_that_nothing_reads_is_found(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the series that serves it."""
    assert main.main(["metrics", word]) == 0
    assert f'rl_logged_value{{key="{word}"}}  gauge  Served as it is logged.' in capsys.readouterr().out
    assert main.main(["metrics", "--json", word]) == 0
    assert [word] in [each["keys"] for each in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("demo", ["--stepz", "5"]),
        ("run", ["--prot", "1", "train.py"]),
        ("discovery prune", ["x", "--older", "1d", "y"]),
    ],
)
def test_a_typing_error_gets_the_usage_of_its_command(
    command: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not that of the whole program, which has none of its options; also of a command within a command."""
    with pytest.raises(SystemExit, match="2"):
        main.main([*command.split(), *words])
    usage, *_, said = capsys.readouterr().err.splitlines()
    assert usage.startswith(f"usage: rlexporter {command} [-h]")
    assert said.startswith(f"rlexporter {command}: error: unrecognized arguments: ")


def test_a_pipe_that_is_closed_is_no_error(tmp_path: Path) -> None:
    """As with `| head`: no traceback, and the status that a shell gives a command which ended so."""
    python, status = shlex.quote(sys.executable), shlex.quote(str(tmp_path / "status"))
    command = f"{python} -m rlexporter metrics; echo $? > {status}"
    with subprocess.Popen(["sh", "-c", command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert (tmp_path / "status").read_text() == "141\n"


@pytest.mark.parametrize(
    ("words", "own", "never"),
    [
        ("--help", "rlexporter.commands", ("rlexporter.catalog", "rlexporter.config", *MODULES)),
        ("status --help", "rlexporter.commands.status", ("rlexporter.logs", "rlexporter.run", "rlexporter.endpoint")),
        ("check tests/data/formats/trl_console.log", "rlexporter.logs", ("rlexporter.endpoint", "torch", "fastapi")),
        ("run --help", "rlexporter.commands.run", ("rlexporter.logs", "rlexporter.demo", "rlexporter.run")),
    ],
)
def test_only_the_command_that_runs_is_imported(words: str, own: str, never: tuple[str, ...]) -> None:
    """The list of commands names the others, with what they are for."""
    code = (
        "import sys, contextlib\n"
        "from rlexporter.commands.main import main\n"
        "with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):\n"
        f"    main({words.split()})\n"
        "print(*sys.modules)"
    )
    loaded = printed(sys.executable, "-c", code, cwd=ROOT).split()
    assert own in loaded
    assert [module for module in never if module in loaded] == []
