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
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rlexporter.commands.run import STARTUP
from rlexporter.exporter import Exporter
from rlexporter.integrations import auto
from rlexporter.integrations.import_hook import after_import
from rlexporter.run import shutdown
from tests.conftest import serving

PRINTS = "import os, sys; print(sys.argv[1:], os.getpid(), os.getcwd()); sys.exit(7)"
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


class TestTheCommand:
    """Its words, its process and its end are its own."""

    @pytest.mark.parametrize("form", ["script.py", "script", "module", "code", "program"])
    def test_words_and_status(self, tmp_path: Path, form: str) -> None:
        """What comes after the command belongs to it, also what looks like ours."""
        (tmp_path / "script.py").write_text(PRINTS)
        (tmp_path / "script").write_text(PRINTS)
        command = {
            "script.py": ["--", str(tmp_path / "script.py")],
            "script": [str(tmp_path / "script")],
            "module": ["-m", "script"],
            "code": ["-c", PRINTS],
            "program": [sys.executable, str(tmp_path / "script.py")],
        }[form]
        words = ["--port", "3", "-m", "x", "-h", "--", "--run=a b"]
        done = _run("--port", "0", *command, *words, PYTHONPATH=str(tmp_path))

        assert done.stdout.startswith(f"{words} ")
        assert (done.returncode, done.stderr) == (7, "")

    def test_the_process_is_the_same(self, tmp_path: Path) -> None:
        """One process id, in the folder where it was started."""
        command = [sys.executable, "-m", "rlexporter", "run", "-c", PRINTS]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as started:
            assert started.communicate(timeout=600)[0] == f"[] {started.pid} {tmp_path}\n"

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGPIPE, signal.SIGINT])
    def test_a_signal_ends_it(self, number: signal.Signals) -> None:
        """As it would have; Python ignores SIGPIPE, and what it starts is not to."""
        assert _run("sh", "-c", f"kill -{number} $$; sleep 5").returncode == -number

    @pytest.mark.parametrize("how", [["-u", "-X", "dev", "-m", "rlexporter"], ["-uXdev", "-mrlexporter"]])
    def test_options_of_the_interpreter_stay(self, how: list[str]) -> None:
        """torchrun starts its modules unbuffered."""
        done = _python(*how, "run", "-c", "import sys; print(sys.stdout.write_through, sys.flags.dev_mode)")
        assert done.stdout == "True True\n", done.stderr

    def test_options_are_variables(self) -> None:
        """Every other setting is one already."""
        names = ("RLEXPORTER_RUN", "RLEXPORTER_LISTEN_HOST", "RLEXPORTER_LISTEN_PORT", "RLEXPORTER_LABELS")
        code = f"import os; print([os.environ.get(name) for name in {names}])"
        done = _run("--run", "r", "--host=::1", "--port", "7", "-c", code, RLEXPORTER_LABELS="a=b")
        assert done.stdout == "['r', '::1', '7', 'a=b']\n"

    @pytest.mark.parametrize("before", ["", "/a:/b", f"/a:{STARTUP}:/b"])
    def test_the_search_path_is_kept(self, before: str) -> None:
        """Ours comes first, once; an empty part would be the current folder."""
        done = _run("-c", "import os; print(os.environ['PYTHONPATH'])", PYTHONPATH=before)
        assert done.stdout == ":".join([STARTUP, *(["/a", "/b"] if before else [])]) + "\n"

    @pytest.mark.parametrize(
        ("words", "environ", "says"),
        [
            ([], {}, "a command is needed: a Python script, -m MODULE, -c CODE, or a program"),
            (["--port", "3"], {}, "a command is needed"),
            (["gone.py", "--x"], {}, "error: there is no file gone.py\n"),
            (["torchrunn"], {}, "error: there is no file torchrunn, and no program of that name\n"),
            (["/"], {}, "error: there is no file /, and"),
            (["--bogus", "-c", "1"], {}, "unrecognized arguments: --bogus"),
            (["-c", "1"], {"RLEXPORTER_LISTEN_PORT": "x"}, "environment variable RLEXPORTER_LISTEN_PORT='x' is not"),
            (["--port", "99999", "-c", "1"], {}, "argument port='99999' is not usable"),
        ],
    )
    def test_a_mistake_is_told_before_anything_starts(self, words: list[str], environ: Any, says: str) -> None:
        """With the exit status of a wrong command line."""
        done = _run(*words, **environ)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr
        assert "Traceback" not in done.stderr
        assert "usage: rlexporter" in done.stderr or "is not usable" in done.stderr

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

    @pytest.mark.parametrize("stderr", ["open", "closed"])
    def test_a_broken_rlexporter_is_one_line(self, tmp_path: Path, stderr: str) -> None:
        """And the import that it hung on goes on."""
        folder = _packages(tmp_path, FAKE)
        (tmp_path / "rlexporter").mkdir()
        (tmp_path / "rlexporter" / "__init__.py").write_text("1 / 0")
        code = "import sys; " + ("sys.stderr.close(); " if stderr == "closed" else "")
        done = _python("-c", f"{code}import transformers.trainer; print('on')", PYTHONPATH=f"{STARTUP}:{folder}")
        assert done.stdout == "on\n"
        expected = "rlexporter: this process is not watched: ZeroDivisionError('division by zero')\n"
        assert done.stderr == (expected if stderr == "open" else "")

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
def started(monkeypatch: pytest.MonkeyPatch, any_port: None) -> None:
    """As in a process that `rlexporter run` started, which has transformers."""
    trainer = pytest.importorskip("transformers.trainer")
    monkeypatch.setattr(trainer, "DEFAULT_CALLBACKS", list(trainer.DEFAULT_CALLBACKS))
    auto._add_default_callback(trainer)
    auto._add_default_callback(trainer)


def _made(folder: Path, how: str) -> tuple[Any, str]:
    """A trainer of a script that reports in this way, if at all, and the name that its run should have."""
    from rlexporter import RLExporterCallback, attach
    from tests import tiny

    if how == "callback":
        return tiny.grpo(folder, callbacks=[RLExporterCallback(run="given")]), "given"
    trainer = tiny.grpo(folder, report_to=["rlexporter"] if how == "report_to" else [])
    if how == "attach":
        attach(trainer, run="given")
    if how == "added":
        trainer.add_callback(RLExporterCallback(run="given"))
    return trainer, "given" if how in ("attach", "added") else "trainer_output"


@pytest.mark.usefixtures("started")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestEveryTrainer:
    """Whatever the script says of rlexporter itself, each has one exporter."""

    @pytest.mark.parametrize("how", ["nothing", "report_to", "callback", "added", "attach"])
    def test_one_exporter_that_counts_once(self, tmp_path: Path, how: str) -> None:
        """With the settings that the script gave."""
        trainer, name = _made(tmp_path, how)
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

    def test_other_callbacks_hear_everything(self, tmp_path: Path) -> None:
        """Also when ours leaves the run to the one that was asked for, in the middle of an event."""
        from transformers import TrainerCallback

        from rlexporter import RLExporterCallback
        from tests import tiny

        heard: list[str] = []

        class Hears(TrainerCallback):  # type: ignore[misc] # transformers is not checked
            def on_init_end(self, *args: Any, **kwargs: Any) -> None:
                heard.append("init_end")

        trainer = tiny.grpo(tmp_path, callbacks=[Hears(), RLExporterCallback()])
        assert heard == ["init_end"]
        ours = [each for each in trainer.callback_handler.callbacks if isinstance(each, RLExporterCallback)]
        assert [type(each) for each in ours] == [RLExporterCallback]

    def test_evaluation_before_training_and_several_trainers(self, tmp_path: Path) -> None:
        """Each has its own exporter; the one whose training is over gives way."""
        from tests import tiny

        first, second = tiny.plain(tmp_path), tiny.plain(tmp_path)
        first.evaluate()
        for trainer in (first, second):
            trainer.train()
            (exporter,) = serving()
            assert exporter.snapshot.value("rl_steps_total") == 3
            exporter.close()

    def test_a_training_that_raises(self, tmp_path: Path) -> None:
        """Noticed at once."""
        from tests import tiny

        trainer = tiny.grpo(tmp_path, rewards=[lambda **_: 1 // 0])
        with pytest.raises(ZeroDivisionError):
            trainer.train()
        (exporter,) = serving()
        assert exporter.snapshot.value("rl_run_state", state="failed") == 1
        exporter.close()

    def test_a_trainer_that_is_not_used_goes(self, tmp_path: Path) -> None:
        """Scripts build trainers that they never train."""
        from tests import tiny

        trainer = tiny.plain(tmp_path)
        gone = weakref.ref(trainer)
        del trainer
        gc.collect()
        assert gone() is None

    @pytest.mark.parametrize(("setting", "says"), [("some", "environment variable"), ("main", "modulo by zero")])
    def test_an_error_of_ours_is_one_warning(
        self, tmp_path: Path, setting: str, says: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """`rlexporter run` has checked the settings, but a job script may set others later."""
        from tests import tiny

        monkeypatch.setenv("RLEXPORTER_RANKS", setting)
        if setting == "main":
            monkeypatch.setattr("rlexporter.adapters.transformers.callers", lambda: 1 // 0)
        trainer = tiny.plain(tmp_path)
        trainer.train()
        trainer.evaluate()
        (warning,) = [each.message for each in caplog.records if each.name == "rlexporter"]
        assert warning.startswith("rlexporter does not watch this training: ")
        assert says in warning
        assert not shutdown.live()


class TestLegacy:
    """The PPO that has no callbacks; tests/versions has the real one."""

    @pytest.fixture
    def attached(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """What was attached to, and how."""
        calls: list[Any] = []

        def attach(trainer: Any, settings: Any, *, fallback: bool) -> None:
            calls.append((trainer, settings, fallback))

        monkeypatch.setattr("rlexporter.integrations.attach.attach_legacy", attach)
        return calls

    @pytest.mark.parametrize("tracker", ["", "rlexporter"])
    def test_it_is_attached_to_when_it_is_built(self, attached: Any, tracker: str) -> None:
        """On a free port where its own is taken; not at all where our tracker has its log lines."""

        class PPOTrainer:
            def __init__(self, n: int) -> None:
                self.n = n
                self.accelerator = SimpleNamespace(trackers=[SimpleNamespace(name=tracker)])

        auto._watch_legacy(SimpleNamespace(PPOTrainer=PPOTrainer))  # type: ignore[arg-type]
        trainer = PPOTrainer(n=3)
        assert trainer.n == 3
        assert attached == ([] if tracker else [(trainer, {}, True)])

    def test_one_that_has_callbacks_is_left_alone(self) -> None:
        """Modern PPO has the same name and place in trl 0.12 to 0.25."""

        class PPOTrainer:
            def add_callback(self) -> None:
                """As Trainer has."""

        auto._watch_legacy(SimpleNamespace(PPOTrainer=PPOTrainer))  # type: ignore[arg-type]
        assert PPOTrainer.__init__ is object.__init__
