"""Every block of code in README, docs and the pages beside them: it is run here, or it is on a list that says why not.

Python is in test_python_blocks.py. A block or command that nothing here knows
fails: add it to what is run, or to a list with the reason.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from rlexporter.catalog.metrics import NAMED
from rlexporter.commands.main import main
from rlexporter.config.settings import Settings
from rlexporter.exporter import Exporter
from scripts.pack.recording_rules import RECORDING_RULES
from tests.catalog.test_catalog import SERVED
from tests.conftest import fetch
from tests.docs.code_blocks import PAGES, Block, blocks, words
from tests.programs import printed
from tests.tools import GENERATIONS, ROOT, eventually, require_tools

PLAIN = {
    "README.md": {
        "rl_reward_mean": "lines of a scrape of `make demo`: another run has other numbers; test_quoted_series",
    },
    "docs/alerts.md": {
        "$ rlexporter check": "run: test_a_real_report",
        "Subject:": "what arrived from real servers; `python -m scripts.arrived` writes it",
        "[critical]": "the same",
        "act  ": "an example of what is printed: tests/logs/commands/test_check_text.py has real ones",
    },
    "docs/howto/notify.md": {"act: ": "an example of a message: tests/outputs/test_notify.py has real ones"},
    "docs/cli.md": {"": "made from the code: tests/docs/test_generated.py"},
    "docs/python.md": {"": "made from the code: tests/docs/test_generated.py"},
}
"""Blocks without a language that are no commands, by their first words, and why they are not run."""

LISTED = {
    r"make demo-ppo\b": "tests/versions trains with that environment",
    r"make (demo|test|test-all|check|stack)( |$)": "tests/e2e/test_newcomer.py runs `make demo`; CI runs the others",
    r"git clone |cd rlexporter$": "GitHub is not at hand; tests/e2e/test_newcomer.py begins with a copy",
    r"pip install (\.|'\.\[torch\]')$": "`make dist` installs the wheel into empty environments, and uses it",
    r"docker compose (--profile broken )?up -d$": "no engine; tests/deploy/test_docker.py asks Compose",
    r"kubectl get prometheus -A ": "no cluster",
    r"cp pack/grafana/alerting/\*.yml ": "no Grafana; tests/alerts/test_grafana_alerting.py has what the files say",
    r"sed -i 's/id: prometheus": "tests/alerts/test_grafana_alerting.py runs it",
    r"kubectl apply --server-side -k (deploy/kubernetes|grafana) ": "no cluster; tests/deploy builds both",
    r"kubectl apply -f deploy/kubernetes/networkpolicy.yaml ": "no cluster; tests/deploy/test_kubernetes_nodes.py",
    r"TARGETS=\S+ sbatch deploy/slurm/train.sbatch ": "no Slurm; tests/deploy/test_slurm.py has a stand-in for srun",
    r"ssh -L 9750:": "needs another machine",
    r"export RLEXPORTER_NOTIFY=|rlexporter notify --test$": "tests/outputs/test_notify.py has receivers of its own",
    r"pip install 'rlexporter\[notify\]'$": "`scripts/setup test` installs the extra",
    r"curl -s ": "its addresses are asked by test_the_endpoint_is_asked",
    r"python examples/(grpo|own_loop|ppo)\.py": "tests/docs/test_examples.py, tests/versions/test_ppo_scripts.py",
    r"RLEXPORTER_RANKS=all torchrun .* examples/grpo\.py$": "two ranks of it are in tests/docs/test_examples.py",
    r"ray job submit ": "needs a cluster of Ray",
    r"rlexporter run (python3? -m (verl|openrlhf)|uv run|python examples/run_grpo)": "tests/loggers has their loggers",
    r"rlexporter run torchrun ": "tests/e2e/test_zero_code.py has two processes of it",
    r"rlexporter run swift ": "tests/versions/test_swift.py",
    r"RLEXPORTER_FROM=\w+ (rlexporter run torchrun|python my_)": "tests/loggers runs scripts so",
    r"rlexporter run --from wandb train.py$": "tests/loggers runs scripts so",
    r"verl-command 2>&1 \| tee run.log \| rlexporter tail -$": "verl trains on GPUs; test_tail.py has the pipe",
}
"""Commands that are not run here, and who runs them or why nobody does. Those of rlexporter are parsed all the same."""

FINISHED = {
    "rlexporter check output/trainer_state.json": (2, "trainer_state.json: grpo run"),
    "rlexporter check metrics.jsonl": (0, "metrics.jsonl: grpo run"),
    "rlexporter check mine.jsonl --map 'mine/scalar_reward=reward,mine/kl=kl_per_sequence'": (0, "no alert"),
    "rlexporter check --thresholds kl_high=0.5,entropy_low=off run.jsonl": (0, "run.jsonl: grpo run"),
    "rlexporter demo --fault dead_reward@150 --steps 200 --linger 0": (0, "act: letter_reward no longer tells"),
    "rlexporter generate --out pack": (0, "alerts/rlexporter.rules.yml"),
    "rlexporter generate --out pack --grafana-url https://grafana.example.org "
    "--runbooks-url https://wiki.example.org/rl/runbooks": (0, "alerts/rlexporter.rules.yml"),
    "rlexporter run train.py --its-own args": (0, "trained with ['--its-own', 'args']"),
    "rlexporter run python train.py": (0, "trained with []"),
}
"""Commands that end by themselves: their exit status, and something that they print."""
FOLLOWING = (
    "rlexporter tail slurm-123.out",
    "rlexporter tail output/v0-1/logging.jsonl --run a",
    "rlexporter replay run.jsonl --speed 10",
)
"""Commands that serve until they are ended."""
ASKING = ("rlexporter status http://127.0.0.1:9750", ".venv/bin/rlexporter status http://127.0.0.1:9750")
TRAIN = "import sys\nprint('trained with', sys.argv[1:])\n"
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
RECORDED = {record.name for record in RECORDING_RULES}


def shell() -> list[tuple[Block, str]]:
    """All commands, with the block that they are in: of `sh`, and of blocks without a language that are no output."""
    told = [each for each in blocks("") if not _plain(each)]
    return [(block, command) for block in [*blocks("sh"), *told] for command in block.commands]


def _plain(block: Block) -> str:
    known = PLAIN.get(block.page, {})
    return next((why for start, why in known.items() if block.text.startswith(start)), "")


def _words(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables and words of a command; a pipe is one word."""
    return words(command.removeprefix("export ")) if "|" not in command else ({}, [command])


def _known(command: str) -> bool:
    return (
        not _words(command)[1]
        or command in FINISHED
        or command in FOLLOWING
        or command in ASKING
        or command == "promtool check rules my.rules.yml"
        or any(re.match(pattern, command) for pattern in LISTED)
    )


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the commands name: recordings, logs, a script; ports are free ones."""
    data = ROOT / "tests/data"
    for name, source in {
        "run.jsonl": data / "runs/grpo-healthy_multi-0.jsonl",
        "slurm-123.out": data / "formats/trl_console.log",
        "output/v0-1/logging.jsonl": next((data / "formats/ms_swift").rglob("*.jsonl")),
        "output/trainer_state.json": next((data / "formats/trl_output").rglob("trainer_state.json")),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tmp_path / name)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "metrics.jsonl").write_text(
        "".join(f'{{"step": {i}, "env/all/reward/total": 0.5, "optim/kl_sample_train_v1": 0.001}}\n' for i in range(3))
    )
    (tmp_path / "mine.jsonl").write_text(
        "".join(f'{{"step": {i}, "mine/scalar_reward": {0.01 * i}, "mine/kl": {0.5 + 0.02 * i}}}\n' for i in range(60))
    )
    monkeypatch.setenv("RLEXPORTER_LISTEN_PORT", "0")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_block_has_a_language_that_is_known() -> None:
    """Or it is a command, or something that is printed and on the list; what is on the lists is in the pages."""
    languages = {block.language for block in blocks()}
    assert languages <= {"", "sh", "python", "yaml", "toml", "json", "promql", "diff", "mermaid", "text"}
    assert {block.page for block in blocks("diff")} == {"docs/architecture.md"}
    assert {block.page for block in blocks("text")} == {"docs/cli.md"}
    assert all(any(_plain(each) == why for each in blocks("")) for known in PLAIN.values() for why in known.values())
    told = [command for _, command in shell()]
    assert [known for known in (*FINISHED, *FOLLOWING, *ASKING) if known not in told] == []
    assert [pattern for pattern in LISTED if not any(re.match(pattern, each) for each in told)] == []


def test_every_command_is_run_or_listed() -> None:
    """And what is of ours is a command with these options; a target of `make` is in the Makefile."""
    told = shell()
    new = [(str(block), command) for block, command in told if not _known(command)]
    assert new == [], "add them to FINISHED, FOLLOWING or LISTED"
    assert {called for _, command in told for called in re.findall(r"\bmake ([a-z-]+)", command)} <= TARGETS
    parts = [words(part.replace(" 2>&1", ""))[1] for _, command in told for part in command.split("|")]
    ours = [part[1:] for part in parts if part and part[0].endswith("rlexporter")]
    assert len(ours) > 30
    assert [(arguments, wrong) for arguments in ours if (wrong := _unknown_options(arguments))] == []


def _unknown_options(arguments: list[str]) -> list[str]:
    """Those that the help of the command does not name; it fails where there is no such command."""
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as left:
        main([arguments[0], "--help"])
    assert left.value.code == 0, arguments
    given = [each.split("=")[0] for each in arguments[1:] if each.startswith("--")]
    of_ours = [each for each in given if arguments[0] != "run" or each in ("--run", "--from", "--host", "--port")]
    return [each for each in of_ours if each not in out.getvalue()]


def test_variables_are_settings(caplog: pytest.LogCaptureFixture, desk: Path) -> None:
    """Each is known, and its value can be used; a file that it names has the form that it needs."""
    (desk / "limits.toml").write_text(next(each.text for each in blocks("toml")))
    given = [_words(command)[0] for block in blocks("sh") for command in block.commands]
    ours = [{name: value for name, value in each.items() if name.startswith("RLEXPORTER_")} for each in given]
    for variables in filter(None, ours):
        Settings.load({}, variables)
    assert len(list(filter(None, ours))) > 5
    assert "RLEXPORTER_" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("command", FINISHED)
def test_a_command_that_ends(command: str, desk: Path) -> None:
    """With the status and the words that one would expect."""
    status, said = FINISHED[command]
    done = subprocess.run(words(command)[1], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == status, done.stderr
    assert said in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", FOLLOWING)
def test_a_command_that_follows(command: str, desk: Path) -> None:
    """It serves the run of the file, until it is ended."""
    parts = words(command)[1]
    with (desk / "said").open("w") as said:
        process = subprocess.Popen([*parts, "--port", "0"], stdout=said, stderr=subprocess.STDOUT)
    try:
        found = eventually(lambda: re.search(r"serving run .* on (http://\S+/)", (desk / "said").read_text()))
        eventually(lambda: re.search(r"^rl_step\{.*\} [1-9]", fetch(f"{found[1]}metrics")[1], re.MULTILINE))
    finally:
        process.terminate()
        process.wait(600)


@pytest.mark.slow
def test_the_endpoint_is_asked(exporter: Exporter, desk: Path) -> None:
    """`rlexporter status` and the addresses of `curl`, with the port of a real exporter."""
    exporter.log({"reward": 0.5, "kl": 0.01}, step=1)
    addresses = [part for _, command in shell() for part in command.replace("'", " ").split() if ":9750/api" in part]
    assert len(addresses) == 2
    for address in addresses:
        with urllib.request.urlopen(address.replace("9750", str(exporter.port)), timeout=600) as response:
            assert json.load(response)["version"] == 1
    for command in ASKING:
        parts = [Path(part).name if part.endswith("rlexporter") else part for part in words(command)[1]]
        assert printed(*(part.replace("9750", str(exporter.port)) for part in parts)).startswith("fine ")


def test_a_real_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line as it is printed."""
    monkeypatch.chdir(ROOT)
    (block,) = (each for each in blocks("") if each.text.startswith("$ rlexporter check"))
    head, *lines = block.text.splitlines()
    assert main(words(head.partition("#")[0])[1][2:]) == 2
    assert capsys.readouterr().out.splitlines() == lines


def test_quoted_series() -> None:
    """The lines of a scrape in the README are of series that there are."""
    (block,) = (each for each in blocks("") if each.text.startswith("rl_reward_mean"))
    assert {line.partition("{")[0] for line in block.text.splitlines()} <= SERVED


QUERIES = [
    *((str(each), each.text) for each in blocks("promql")),
    *(
        (path.stem, text)
        for path in sorted((ROOT / "alerts/runbooks").glob("*.md"))
        for text in re.findall(r"```promql\n(.*?)```", path.read_text(), re.DOTALL)
    ),
]


def test_queries() -> None:
    """Each is PromQL, and asks for series that are served or recorded."""
    wrong = []
    for place, text in QUERIES:
        for query in _queries(text):
            asked = set(re.findall(r"\b(?:rl|rlexporter)_\w+|\brl:\w+", re.sub(r'"[^"]*"', "", query)))
            if not _is_promql(query) or asked - SERVED - RECORDED:
                wrong.append((place, query))
    assert len(QUERIES) > 30
    assert wrong == []


def _queries(text: str) -> list[str]:
    """The queries of a block, at least one; a line that is none continues the one before."""
    queries: list[str] = []
    for line in filter(None, (line.partition(" #")[0].strip() for line in text.replace("$run", "run").splitlines())):
        if queries and not (_is_promql(queries[-1]) and _is_promql(line)):
            queries[-1] += f"\n{line}"
        else:
            queries.append(line)
    return queries or [""]


def _is_promql(text: str) -> bool:
    try:
        promql_parser.parse(text)
    except ValueError:
        return False
    return True


def test_data(tmp_path: Path) -> None:
    """TOML is a file of limits; JSON is JSON."""
    assert all(json.loads(block.text) for block in blocks("json"))
    limits = tmp_path / "limits.toml"
    for block in blocks("toml"):
        limits.write_text(block.text)
        assert len(Settings.load({"thresholds": limits}, {}).thresholds) >= 4, block


PROMETHEUS = ("global", "rule_files", "scrape_configs", "alerting", "remote_write")
OF_TARGETS = ("metric_relabel_configs", "file_sd_configs")
RULES = ("groups",)
KUBERNETES = {
    "docs/howto/kubernetes.md": "deploy/kubernetes/example-job.yaml has the same: test_pods_say_what_the_example_says",
    "docs/security.md": "a part of a pod",
}


@pytest.mark.slow
@pytest.mark.parametrize("generation", GENERATIONS)
def test_configurations(generation: str, tmp_path: Path) -> None:
    """What is of Prometheus is taken by its own promtool; a part of one is put where it belongs."""
    checked = 0
    for block in blocks("yaml"):
        found: dict[str, Any] = yaml.safe_load(block.text)
        if not set(found) & {*PROMETHEUS, *OF_TARGETS, *RULES}:
            assert block.page in KUBERNETES
            continue
        checked += 1
        (folder := tmp_path / str(checked)).mkdir()
        if set(found) == set(RULES):
            file, command, text = "my.rules.yml", ["rules"], block.text
        else:
            if set(found) <= set(OF_TARGETS):
                found = {"scrape_configs": [{"job_name": "rlexporter", **found}]}
            file, command = "prometheus.yml", ["config", *["--agent"] * ("remote_write" in found)]
            text = _with_files_of(yaml.safe_dump(found), folder)
        (folder / file).write_text(text)
        promtool = require_tools(generation) / "promtool"
        assert "SUCCESS" in printed(promtool, "check", *command, file, cwd=folder), block
    assert checked >= 8


def _with_files_of(text: str, folder: Path) -> str:
    """The same text, whose files are in ``folder``: the rules of this repository, and secrets made up here."""
    shutil.copytree(ROOT / "alerts", folder / "alerts")
    for path in set(re.findall(r"/etc/prometheus/[\w.-]+", text)):
        (folder / Path(path).name).write_text("secret")
        text = text.replace(path, str(folder / Path(path).name))
    if "cert_file" in text:  # promtool reads certificates too: real ones
        authority = pytest.importorskip("trustme").CA()
        client = authority.issue_cert("client.example.org")
        authority.cert_pem.write_to_path(folder / "ca.crt")
        client.cert_chain_pems[0].write_to_path(folder / "client.crt")
        client.private_key_pem.write_to_path(folder / "client.key")
    return text


def test_pods_say_what_the_example_says() -> None:
    """Parts of Kubernetes objects in the pages are parts of files that are held against its schemas."""
    job = yaml.safe_load((ROOT / "deploy/kubernetes/example-job.yaml").read_text())["spec"]["template"]
    told, authorised = (yaml.safe_load(each.text) for each in blocks("yaml") if each.page == "docs/howto/kubernetes.md")
    assert told["metadata"]["labels"] == job["metadata"]["labels"]
    assert told["spec"]["terminationGracePeriodSeconds"] == job["spec"]["terminationGracePeriodSeconds"]
    (mine,), (real,) = told["spec"]["containers"], job["spec"]["containers"]
    assert {**real, **mine} == real
    assert "authorization: { credentials: { name: rlexporter, key: token } }" in (ROOT / "docs/security.md").read_text()
    assert authorised["podMetricsEndpoints"][0]["authorization"]["credentials"] == {
        "name": "rlexporter",
        "key": "token",
    }


NOT_SERVED = {"rlexporter_state", "rl_x"}
"""Names that look like series."""


_REMOVED = re.compile(r"^### Removed\n.*?(?=^##)", re.MULTILINE | re.DOTALL)
"""What a changelog says of names that are gone."""


def test_what_stands_between_backticks() -> None:
    """In each page: series that are served, commands of ours, and targets of `make`."""
    known = SERVED | set(NAMED) | RECORDED | NOT_SERVED
    commands = set(re.findall(r"^## ([a-z]+)$", (ROOT / "docs/cli.md").read_text(), re.MULTILINE))
    wrong = []
    for page in PAGES:
        text = _REMOVED.sub("", (ROOT / page).read_text())
        series = re.findall(r"`((?:rl|rlexporter)_[a-z_]+)(?:\{[^`]*)?`", text)
        starts = {name for name in series if name.endswith("_") and any(each.startswith(name) for each in known)}
        wrong += [(page, name) for name in set(series) - known - starts]
        wrong += [(page, f"make {target}") for target in set(re.findall(r"`make ([a-z-]+)", text)) - TARGETS]
        wrong += [(page, f"rlexporter {name}") for name in set(re.findall(r"`rlexporter ([a-z]+)", text)) - commands]
    assert wrong == []
