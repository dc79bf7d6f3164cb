"""The public names as a type checker sees them in a user's file."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

import rlexporter
from rlexporter import Exporter
from rlexporter.config.arguments import SettingArguments
from rlexporter.config.settings import Settings, argument
from tests import wheels
from tests.programs import require_node

USER = '''\
"""What a user writes."""

from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback

import rlexporter
from rlexporter import (
    TLS,
    Discovery,
    Exporter,
    Notify,
    OnCritical,
    Rank,
    RLExporterCallback,
    RLExporterTracker,
    SetupError,
    StateFile,
)


def attached(trainer: Trainer) -> Exporter:
    """Every kind of setting."""
    return rlexporter.attach(
        trainer,
        run="mine",
        algorithm="grpo",
        host="0.0.0.0",
        port=9751,
        linger=10.0,
        labels={"team": "llm"},
        max_keys=50,
        thresholds={"kl_high": 0.5, "entropy_low": False, "kl_jump": {"warning": 2.0}},
        ranks="all",
        token_file=Path("token"),
        otlp=True,
        tls=TLS(Path("cert"), "key"),
        discovery="/shared/targets",
        report=False,
        state_file=True,
        record=Path("run.jsonl"),
        notify="ntfy://ntfy.sh/topic",
        on_critical=lambda incident: "stop",
        rank=0,
    )


def grouped(trainer: Trainer) -> Exporter:
    """The same, with more to say."""
    return rlexporter.attach(
        trainer,
        discovery=Discovery("/shared/targets", advertise="gpu-1"),
        state_file=StateFile(Path("state.json"), interval=5.0),
        notify=Notify(["ntfy://ntfy.sh/topic"], warnings=True),
        on_critical=OnCritical(["save", "stop"], only=("kl_high",), patience=3),
        rank=Rank(3, local=1, world_size=8),
    )


def called_back() -> list[TrainerCallback]:
    """As an argument of a trainer."""
    callback = RLExporterCallback(port=0)
    served: Exporter | None = callback.exporter
    assert served is None
    return [callback]


def looped(ratio: torch.Tensor, mask: torch.Tensor) -> str | None:
    """A loop of one's own."""
    try:
        with Exporter(run="mine", labels="team=llm", thresholds="limits.toml") as exporter:
            for step in range(3):
                exporter.log({"reward": 1.0, "kl": None, "ratio": ratio}, step=step)
                exporter.observe("policy_ratio", ratio, mask=mask)
                exporter.observe("reward_function", [1.0], reward_function="letters")
            port: int | None = exporter.port
            print(port, exporter.name, exporter.state.value, exporter.state.over, exporter.url, exporter)
            reward: float | None = exporter.snapshot.value("rl_reward_mean")
            print(reward, dict(exporter.snapshot.labels))
    except SetupError as error:
        return str(error)
    return None


def by_hand() -> None:
    """Started, ended and closed; and given to accelerate."""
    exporter = Exporter(port=0).start(fallback=True)
    tracker = RLExporterTracker(exporter)
    exporter.end(ValueError("too bad"))
    exporter.close()
    tracker.finish()
    version: str = rlexporter.__version__
    print(version)
'''
"""All public names, with every kind of setting, as users write them."""
WRONG = (
    "attach(trainer, prot=1)",
    'attach(trainer, port="9750")',
    'Exporter(ranks="some")',
    "RLExporterCallback(runs=3)",
    'Exporter(tls="cert")',
    "Exporter(on_critical=rlexporter.StateFile())",
    'OnCritical("stop", patience="3")',
    "Rank(3, 1)",
    "Rank(3).rank = 4",
    "Exporter().log(3, step=1)",
    "Exporter().url.upper()",
)
FOUND_BY_MYPY = (
    'Unexpected keyword argument "prot"',
    '"port"',
    '"ranks"',
    'Unexpected keyword argument "runs"',
    '"tls"',
    '"on_critical"',
    '"patience"',
    'Too many positional arguments for "Rank"',
    'Property "rank" defined in "Rank" is read-only',
    'Argument 1 to "log"',
    'has no attribute "upper"',
)
_GROUPS = ('"tls"', '"on_critical"', '"patience"', "positional argument", '"rank"')
FOUND_BY_PYRIGHT = ('"prot"', '"port"', '"ranks"', '"runs"', *_GROUPS, '"stats"', '"upper"')


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel: only of what is installed is it asked whether it is typed."""
    pytest.importorskip("transformers")  # which users name too
    folder = tmp_path_factory.mktemp("typing")
    return wheels.install(wheels.build(folder), folder / "env")


def mypy(python: Path) -> list[str]:
    """A command that checks files in strict mode; it skips torch and transformers, which pyright reads."""
    pytest.importorskip("mypy")
    (python.parent / "mypy.ini").write_text("[mypy-torch.*,transformers.*]\nfollow_imports = skip\n")
    options = ["--config-file", str(python.parent / "mypy.ini"), "--strict", "--no-error-summary"]
    return [sys.executable, "-m", "mypy", *options, "--python-executable", str(python)]


def pyright(python: Path) -> list[str]:
    """The same by pyright, whose strict mode is set in each file."""
    script = require_node("pyright") / "node_modules/pyright/index.js"
    return ["node", str(script), "--pythonpath", str(python)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checker", "found"),
    [(mypy, FOUND_BY_MYPY), pytest.param(pyright, FOUND_BY_PYRIGHT, marks=pytest.mark.soak)],
)
def test_what_users_write_is_checked(
    checker: Callable[[Path], list[str]], found: tuple[str, ...], python: Path, tmp_path: Path
) -> None:
    """In strict mode: no error in a file where nothing is wrong, and one for each line that is."""
    (tmp_path / "user.py").write_text(f"# pyright: strict\n{USER}")
    wrong = "".join(f"    rlexporter.{call}\n" for call in WRONG)
    (tmp_path / "wrong.py").write_text(
        f"# pyright: strict\nfrom typing import Any\nimport rlexporter\ndef f(trainer: Any) -> None:\n{wrong}"
    )
    command = [*checker(python), "user.py", "wrong.py"]
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "MYPY"))}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=1200, check=False)
    errors = [line.strip() for line in done.stdout.splitlines() if " error: " in line]
    lines = [re.findall(r"(\w+\.py):(\d+)", each)[0] for each in errors]
    assert lines == [("wrong.py", str(i)) for i in range(5, 5 + len(WRONG))], done.stdout + done.stderr
    assert all(text in line for line, text in zip(errors, found, strict=True)), errors


def test_every_setting_can_be_given() -> None:
    """The arguments that a type checker knows, and the members of groups, are the settings that there are."""
    assert [*SettingArguments.__annotations__] == [*dict.fromkeys(map(argument, fields(Settings)))]
    assert len(SettingArguments.__annotations__) == 24
    groups = [each.metadata for each in fields(Settings) if each.metadata["group"]]
    members = [(each["group"].name, each["member"]) for each in groups]
    kinds = [getattr(rlexporter, name) for name in dict.fromkeys(name for name, _ in members)]
    assert members == [(kind.__name__, each.name) for kind in kinds for each in fields(kind)]
    assert len(members) == 15


def test_an_exporter_shows_what_a_user_needs() -> None:
    """A dozen names at most."""
    public = {name for name in {*dir(Exporter), *vars(Exporter())} if not name.startswith("_")}
    names = "close end log name observe port run should_stop snapshot start state url"
    assert public == {*names.split()}
    assert all(inspect.getdoc(getattr(Exporter, name)) for name in public)
