"""`rlexporter run`: the command is started as if we were not there, and every trainer that it builds is watched."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import call, create_autospec

import pytest

import rlexporter
from rlexporter.commands.main import main
from rlexporter.commands.run import STARTUP
from rlexporter.exporter import Exporter, serving
from rlexporter.integrations import registry
from rlexporter.integrations.attach import attach_legacy
from rlexporter.integrations.registry import after_import
from rlexporter.run import shutdown

WORDS = ["--port", "3", "-m", "x", "-h", "--", "--run=a b"]
PRINTS = """
import os, sys
print(sys.argv[1:], os.getpid(), os.getcwd(), os.environ["RLEXPORTER_LISTEN_PORT"])
print(sys.stdout.write_through, sys.flags.dev_mode)
sys.exit(7)
"""
Start = Callable[..., tuple[list[str], Mapping[str, str]]]
FAKE = {
    "transformers": {"trainer": "DEFAULT_CALLBACKS = []"},
    "trl": {"trainer/ppo_trainer": "class PPOTrainer:\n    'Old.'\n    def __init__(self, n): self.n = n"},
}


def _python(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A Python of this environment, in a folder that has no rlexporter of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, *words]
    environ = kept | environ
    return subprocess.run(command, capture_output=True, text=True, env=environ, cwd="/", timeout=600, check=False)


def _run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return _python("-m", "rlexporter", "run", *words, **environ)


def _packages(folder: Path, packages: dict[str, dict[str, str]]) -> str:
    """Write packages of these modules; the folder that they are in."""
    for package, modules in packages.items():
        for name, code in modules.items():
            file = folder / package / f"{name}.py"
            for each in (file.parent, folder / package):
                each.mkdir(parents=True, exist_ok=True)
                (each / "__init__.py").touch()
            file.write_text(code)
    return str(folder)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """Give words to `rlexporter run`, as if Python was told -u; what it would become: its words and environment."""
    started: list[tuple[list[str], Mapping[str, str]]] = []

    def replace(_: str, words: list[str], environ: Mapping[str, str]) -> None:
        started.append((words, environ))
        sys.exit()

    def start(*words: str) -> tuple[list[str], Mapping[str, str]]:
        monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-u", "-m", "rlexporter", "run", *words])
        monkeypatch.setattr(sys, "argv", ["rlexporter", "run", *words])
        with pytest.raises(SystemExit):
            main(["run", *words])
        return started.pop()

    monkeypatch.setattr(os, "execvpe", replace)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    return start


class TestTheCommand:
    """Its words, its process and its end are its own."""

    def test_it_takes_the_place_of_ours(self, tmp_path: Path) -> None:
        """One process id, in the folder where it was started, with the interpreter's options: torchrun gives -u."""
        (tmp_path / "script").write_text(PRINTS)
        command = [sys.executable, "-uXdev", "-mrlexporter", "run", "--port", "0", str(tmp_path / "script"), *WORDS]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path) as started:
            said = started.communicate(timeout=600)
        assert said == (f"{WORDS} {started.pid} {tmp_path} 0\nTrue True\n", "")
        assert started.returncode == 7

    @pytest.mark.parametrize(
        ("command", "expected"),
        [
            (["--", "script.py"], [sys.executable, "-u", "script.py"]),
            (["a-script"], [sys.executable, "-u", "a-script"]),
            (["-m", "module"], [sys.executable, "-u", "-m", "module"]),
            (["-c", "code"], [sys.executable, "-u", "-c", "code"]),
            (["sh"], ["sh"]),
        ],
    )
    def test_what_is_started(self, command: list[str], expected: list[str], start: Start) -> None:
        """What comes after the command belongs to it, also what looks like ours."""
        for name in ("script.py", "a-script"):
            Path(name).touch()
        assert start("--port", "0", *command, *WORDS)[0] == [*expected, *WORDS]

    def test_its_environment(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        """Options are variables, as every other setting is one already; our search path comes first, once."""
        for before, after in (("", ""), ("/a:/b", ":/a:/b"), (f"/a:{STARTUP}:/b", ":/a:/b")):
            monkeypatch.setenv("PYTHONPATH", before)
            _, environ = start("--run", "r", "--host=::1", "--port", "7", "-c", "1")
            assert environ["PYTHONPATH"] == STARTUP + after, "an empty part would be the current folder"
        options = {"RLEXPORTER_RUN": "r", "RLEXPORTER_LISTEN_HOST": "::1", "RLEXPORTER_LISTEN_PORT": "7"}
        assert dict(environ) == {**os.environ, **options, "PYTHONPATH": environ["PYTHONPATH"]}

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGPIPE])
    def test_a_signal_ends_it(self, number: signal.Signals) -> None:
        """As it would have; Python ignores SIGPIPE, and what it starts is not to."""
        assert _run("sh", "-c", f"kill -{number} $$; sleep 5").returncode == -number

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            ([], "a command is needed: a Python script, -m MODULE, -c CODE, or a program"),
            (["--port", "3"], "a command is needed"),
            (["gone.py", "--x"], "error: there is no file gone.py\n"),
            (["torchrunn"], "error: there is no file torchrunn, and no program of that name\n"),
            (["/"], "error: there is no file /, and"),
            (["--bogus", "-c", "1"], "unrecognized arguments: --bogus"),
            (["-c", "1"], "environment variable RLEXPORTER_LISTEN_PORT='x' is not usable"),
            (["--port", "99999", "-c", "1"], "argument port='99999' is not usable"),
        ],
    )
    @pytest.mark.usefixtures("start")
    def test_a_mistake_is_told_before_anything_starts(
        self, words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """With the exit status of a wrong command line."""
        monkeypatch.setenv("RLEXPORTER_LISTEN_PORT", "x")
        with pytest.raises(SystemExit) as ended:
            sys.exit(main(["run", *words]))
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        assert says in err
        assert "usage: rlexporter" in err or "is not usable" in err

    def test_an_interpreter_that_cannot_be_reached(self) -> None:
        """Else it would train and nobody would know why nothing is served."""
        done = _python("-I", "-m", "rlexporter", "run", "-c", "1")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "-E, -I or -S" in done.stderr

    def test_what_cannot_be_started(self, tmp_path: Path) -> None:
        """An error of the system is one line."""
        broken = tmp_path / "broken"
        broken.write_text("#!/nowhere/python\n")
        broken.chmod(0o755)
        done = _run(str(broken))
        assert (done.returncode, done.stderr) == (2, f"rlexporter: cannot start {broken}: No such file or directory\n")


class TestTheStartOfAnInterpreter:
    """Nothing is imported, nothing is hidden, and nothing of ours can break it."""

    def test_it_imports_nothing(self) -> None:
        """Most of these processes train nothing."""
        code = "import sys; print(sorted(sys.modules)); print(*sys.path, sep='\\n')"
        ours, plain = _python("-c", code, PYTHONPATH=STARTUP), _python("-c", code)
        assert eval(ours.stdout.splitlines()[0]) == sorted({*eval(plain.stdout.splitlines()[0]), "sitecustomize"})
        assert ours.stdout.splitlines()[1:] == plain.stdout.splitlines()[1:]

    def test_the_hidden_sitecustomize_runs(self, tmp_path: Path) -> None:
        """And is the one that the program finds."""
        (tmp_path / "sitecustomize.py").write_text("import sys; sys.here = True")
        done = _run(
            "-c", "import sys, sitecustomize; print(sys.here, sitecustomize.__file__)", PYTHONPATH=str(tmp_path)
        )
        assert done.stdout == f"True {tmp_path}/sitecustomize.py\n"

    @pytest.mark.parametrize("code", ["1 / 0", "import no_such_module"])
    def test_its_errors_are_told_as_ever(self, tmp_path: Path, code: str) -> None:
        """They are not ours, and trainers are watched all the same."""
        (tmp_path / "sitecustomize.py").write_text(code)
        look = ["-c", "import sys; print(type(sys.meta_path[0]).__name__)"]
        ours, plain = [_python(*look, PYTHONPATH=path) for path in (f"{STARTUP}:{tmp_path}", str(tmp_path))]
        assert ours.stdout == "_Waiting\n"
        assert ours.stderr == plain.stderr
        assert "Error in sitecustomize" in ours.stderr

    def test_an_environment_without_rlexporter(self, tmp_path: Path) -> None:
        """Its programs start and import transformers, without a word."""
        (tmp_path / "transformers.py").touch()
        interpreter: str = vars(sys)["_base_executable"]
        without = [interpreter, "-c", "import transformers; print(transformers.__file__)"]
        environ = os.environ | {"PYTHONPATH": f"{STARTUP}:{tmp_path}"}
        done = subprocess.run(without, capture_output=True, text=True, env=environ, cwd="/", timeout=600, check=False)
        assert (done.stdout, done.stderr) == (f"{tmp_path}/transformers.py\n", "")

    def test_a_broken_rlexporter_is_one_line(self, tmp_path: Path) -> None:
        """And the import that it hung on goes on, also where nothing can be said."""
        folder = _packages(tmp_path, {**FAKE, "rlexporter": {"__init__": "1 / 0"}})
        said = "rlexporter: this process is not watched: ZeroDivisionError('division by zero')\n"
        for before, expected in (("", said), ("sys.stderr.close(); ", "")):
            code = f"import sys; {before}import transformers.trainer; print('on')"
            done = _python("-c", code, PYTHONPATH=f"{STARTUP}:{folder}")
            assert (done.stdout, done.stderr) == ("on\n", expected)

    @pytest.mark.parametrize(
        ("code", "says"),
        [
            ("import transformers.trainer", "rlexporter cannot be part of transformers.trainer: "),
            ("from trl.trainer.ppo_trainer import PPOTrainer as P; assert P(3).n == 3", "does not watch this training"),
        ],
    )
    def test_a_library_that_we_do_not_know_is_one_warning(self, tmp_path: Path, code: str, says: str) -> None:
        """Classes of another shape than those of any release."""
        done = _run("-c", f"{code}; print('on')", PYTHONPATH=_packages(tmp_path, FAKE))
        assert done.stdout == "on\n"
        assert done.stderr.count("rlexporter ") == 1
        assert says in done.stderr


def _waiting(module: str) -> list[Any]:
    return [each for each in sys.meta_path if getattr(each, "waits_for", [""])[0] == module]


class TestAfterImport:
    """Acts once the module has run."""

    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        """One that can be imported, and was not yet."""
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "rl_waited_for.py").write_text("ready = True")
        yield "rl_waited_for"
        sys.modules.pop("rl_waited_for", None)
        assert not _waiting("rl_waited_for")

    def test_once_for_each_act(self, module: str) -> None:
        """However often it was asked for, and with several acts on one module."""
        seen: list[str] = []

        def one(found: ModuleType) -> None:
            seen.append(f"one {found.ready}")

        def other(found: ModuleType) -> None:
            seen.append(f"other {found.ready}")

        for act in (one, one, other):
            after_import(module, act)
        assert (len(_waiting(module)), seen) == (2, [])
        importlib.import_module(module)
        assert sorted(seen) == ["one True", "other True"]
        after_import(module, one)
        assert len(seen) == 3
        assert not _waiting(module)

    def test_an_error_stays_with_us(self, module: str, caplog: pytest.LogCaptureFixture) -> None:
        """One warning, and the module is there."""
        after_import(module, lambda found: found.missing)
        assert importlib.import_module(module).ready
        assert [each.levelno for each in caplog.records] == [logging.WARNING]


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch, any_port: None) -> ModuleType:
    """What makes trainers, as in a process that `rlexporter run` started, which has transformers."""
    trainer = pytest.importorskip("transformers.trainer")
    monkeypatch.setattr(trainer, "DEFAULT_CALLBACKS", list(trainer.DEFAULT_CALLBACKS))
    registry._add_default_callback(trainer)
    registry._add_default_callback(trainer)
    return importlib.import_module("tests.tiny")


def _made(trainers: ModuleType, folder: Path, how: str) -> tuple[Any, str]:
    """A trainer of a script that reports in this way, if at all, and the name that its run should have."""
    if how == "callback":
        return trainers.grpo(folder, callbacks=[rlexporter.RLExporterCallback(run="given")]), "given"
    trainer = trainers.grpo(folder, report_to=["rlexporter"] if how == "report_to" else [])
    if how == "attach":
        rlexporter.attach(trainer, run="given")
    if how == "added":
        trainer.add_callback(rlexporter.RLExporterCallback(run="given"))
    return trainer, "given" if how in ("attach", "added") else "trainer_output"


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestEveryTrainer:
    """Whatever the script says of rlexporter itself, each has one exporter."""

    @pytest.mark.parametrize("how", ["nothing", "report_to", "callback", "added", "attach"])
    def test_one_exporter_that_counts_once(self, trainers: ModuleType, tmp_path: Path, how: str) -> None:
        """With the settings that the script gave."""
        trainer, name = _made(trainers, tmp_path, how)
        trainer.train()
        (exporter,) = serving()
        assert isinstance(exporter, Exporter)

        assert str(exporter.name).startswith(name)
        assert exporter.snapshot.value("rl_steps_total") == 4
        assert exporter.snapshot.value("rl_run_state", state="finished") == 1
        lengths = next(
            b for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_completion_length_dist"
        )
        assert lengths.count == 16
        exporter.close()
        assert "train" not in trainer.__dict__

    def test_other_callbacks_hear_everything(self, trainers: ModuleType, tmp_path: Path) -> None:
        """Also when ours leaves the run to the one that was asked for, in the middle of an event."""
        from transformers import TrainerCallback

        heard: list[str] = []

        class Hears(TrainerCallback):  # type: ignore[misc] # transformers is not checked
            def on_init_end(self, *args: Any, **kwargs: Any) -> None:
                heard.append("init_end")

        trainer = trainers.grpo(tmp_path, callbacks=[Hears(), rlexporter.RLExporterCallback()])
        assert heard == ["init_end"]
        ours = [each for each in trainer.callback_handler.callbacks if isinstance(each, rlexporter.RLExporterCallback)]
        assert [type(each) for each in ours] == [rlexporter.RLExporterCallback]

    def test_a_trainer_that_is_not_used_goes(self, trainers: ModuleType, tmp_path: Path) -> None:
        """Scripts build trainers that they never train."""
        trainer = trainers.plain(tmp_path)
        gone = weakref.ref(trainer)
        del trainer
        gc.collect()
        assert gone() is None

    @pytest.mark.parametrize(("setting", "says"), [("some", "environment variable"), ("main", "modulo by zero")])
    def test_an_error_of_ours_is_one_warning(
        self,
        trainers: ModuleType,
        tmp_path: Path,
        setting: str,
        says: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """`rlexporter run` has checked the settings, but a job script may set others later."""
        monkeypatch.setenv("RLEXPORTER_RANKS", setting)
        if setting == "main":
            monkeypatch.setattr("rlexporter.adapters.transformers.callers", lambda: 1 // 0)
        trainer = trainers.plain(tmp_path)
        trainer.train()
        trainer.evaluate()
        (warning,) = [each.message for each in caplog.records if each.name == "rlexporter"]
        assert warning.startswith("rlexporter does not watch this training: ")
        assert says in warning
        assert not shutdown.live()


class TestLegacy:
    """The PPO that has no callbacks; tests/versions has the real one."""

    @pytest.mark.parametrize("tracker", ["", "rlexporter"])
    def test_it_is_attached_to_when_it_is_built(self, tracker: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a free port where its own is taken; not at all where our tracker has its log lines."""
        attach = create_autospec(attach_legacy)
        monkeypatch.setattr("rlexporter.integrations.attach.attach_legacy", attach)

        class PPOTrainer:
            def __init__(self, n: int) -> None:
                self.n = n
                self.accelerator = SimpleNamespace(trackers=[SimpleNamespace(name=tracker)])

        registry._watch_legacy(SimpleNamespace(PPOTrainer=PPOTrainer))  # type: ignore[arg-type]
        trainer = PPOTrainer(n=3)
        assert trainer.n == 3
        assert attach.mock_calls == ([] if tracker else [call(trainer, {}, fallback=True)])

    def test_one_that_has_callbacks_is_left_alone(self) -> None:
        """Modern PPO has the same name and place in trl 0.12 to 0.25."""

        class PPOTrainer:
            def add_callback(self) -> None:
                """As Trainer has."""

        registry._watch_legacy(SimpleNamespace(PPOTrainer=PPOTrainer))  # type: ignore[arg-type]
        assert PPOTrainer.__init__ is object.__init__
