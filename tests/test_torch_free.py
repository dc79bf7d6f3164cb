"""A laptop that never had torch: `pip install .` reads and serves there, and commands need what docs/install.md names.

The environment is a real one, of links to distributions that are installed here: nothing is fetched, nothing pretended.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from rlexporter.model import errors
from tests.tools import free_port

ROOT = Path(__file__).parent.parent
RUN = ROOT / "tests/data/runs/ppo-value_nan-0.jsonl"
INSTALL = (ROOT / "docs/install.md").read_text()
NEVER = ("torch", "transformers", "trl", "accelerate", "datasets", "opentelemetry.sdk", "numpy")


def _with_what_it_requires(names: Iterable[str]) -> set[str]:
    """``names``, and what these distributions require, as they are installed here."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        found.add(name)
        waiting += _names(distribution(name).requires or ())
    return found


def _names(requirements: Iterable[str]) -> list[str]:
    """The names of those ``requirements`` that this Python needs, without extras."""
    found = map(Requirement, requirements)
    return [each.name for each in found if each.marker is None or each.marker.evaluate({"extra": ""})]


def _laptop(folder: Path, names: Iterable[str]) -> Path:
    """The Python of an environment with rlexporter and ``names``; they are not copied, but linked to."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "rlexporter").symlink_to(ROOT / "rlexporter")
    for name in _with_what_it_requires(names):
        found = distribution(name)
        for file in found.files or ():  # each, since namespaces such as opentelemetry are shared
            if not {"..", "__pycache__"} & set(file.parts):
                link = packages / file
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(str(found.locate_file(file))))
    return folder / "bin/python"


def _toml(path: Path) -> Any:
    return pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(path.read_text())


def _project() -> Any:
    return _toml(ROOT / "pyproject.toml")["project"]


def _run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`rlexporter` there; the environment of this process is not passed on."""
    command = [str(python), "-m", "rlexporter", *arguments]
    return subprocess.run(command, cwd=python.parent, env={}, capture_output=True, text=True, timeout=600, check=False)


def _named_for(command: str) -> list[str]:
    """The packages that docs/install.md says to install for it."""
    (line,) = re.findall(rf"^\| .*`rlexporter {command}`.* \| (.*) \|$", INSTALL, re.MULTILINE)
    names = " ".join(re.findall(r"`([a-z0-9 -]+)`", line)).split()
    assert names.pop() == "tomli"
    return names + ["tomli"] * (sys.version_info < (3, 11))


def _importable(python: Path, *names: str) -> list[str]:
    """Those of ``names`` that can be imported there."""
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n    try: importlib.import_module(name)\n"
    code += "    except ImportError: pass\n    else: print(name)"
    command = [str(python), "-c", code, *names]
    return subprocess.run(command, env={}, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment for `check`: with rlexporter alone, but for tomli."""
    return _laptop(tmp_path_factory.mktemp("bare"), _named_for("check FILE"))


def test_what_needs_the_standard_library_alone(bare: Path, tmp_path: Path) -> None:
    """In an environment that is bare; thresholds from a TOML file too."""
    ours = ["rlexporter.commands.main", "rlexporter.exporter"]
    assert _importable(bare, *NEVER, *ours) == ours
    assert _run(bare, "generate", "--out", str(tmp_path / "pack")).stdout.startswith("wrote ")
    assert "rl_kl_per_token" in _run(bare, "metrics").stdout
    assert '"series": "rl_kl_per_token"' in _run(bare, "metrics", "--json").stdout
    found = _run(bare, "check", str(RUN))
    assert (found.returncode, found.stderr) == (2, "")
    assert "RLValueLossNonFinite" in found.stdout
    found = _run(bare, "report", str(RUN), "-o", str(tmp_path / "run.html"))
    assert (found.returncode, found.stderr) == (0, "")
    assert "RLNotANumber" in (tmp_path / "run.html").read_text()
    found = _run(bare, "status", "--timeout", "5", f"127.0.0.1:{free_port()}")
    assert (found.returncode, found.stdout) == (3, "")
    assert "does not answer: connection refused." in found.stderr
    (limits := tmp_path / "limits.toml").write_text("[thresholds]\nnonfinite_value_loss = false\n")
    found = _run(bare, "check", "--thresholds", str(limits), str(RUN))
    assert (found.returncode, found.stderr) == (2, "")
    assert "RLNotANumber" in found.stdout
    assert "RLValueLossNonFinite" not in found.stdout


@pytest.mark.slow
def test_replay_writes_without_torch(tmp_path: Path) -> None:
    """OpenMetrics, with the numbers of the run."""
    python = _laptop(tmp_path / "laptop", _named_for("replay FILE --openmetrics OUT"))
    assert _importable(python, *NEVER, "fastapi", "uvicorn") == []
    found = _run(python, "replay", str(RUN), "--openmetrics", str(tmp_path / "out"))
    assert (found.returncode, found.stderr) == (0, "")
    assert "rl_value_loss{" in (tmp_path / "out").read_text()


@pytest.mark.slow
def test_replay_serves_without_torch(tmp_path: Path) -> None:
    """What was recorded, from an endpoint of its own."""
    python = _laptop(tmp_path, _named_for("replay FILE"))
    assert _importable(python, *NEVER) == []
    found = _run(python, "replay", str(RUN), "--speed", "max", "--port", "0", "--linger", "0")
    assert found.returncode == 0, found.stderr
    assert "Traceback" not in found.stderr
    assert " on http://127.0.0.1:" in found.stderr
    assert " metrics served\n" in found.stdout
    followed = _run(python, "tail", str(RUN), "--port", "0", "--linger", "0")
    assert (followed.returncode, "Traceback" in followed.stderr) == (0, False)
    push = [str(python), "-c", "import rlexporter; rlexporter.Exporter(port=0, otlp='on').start()"]
    last = subprocess.run(push, env={}, capture_output=True, text=True, check=False).stderr.splitlines()[-1]
    assert f"SetupError: push by OTLP needs more: pip install {errors.OTLP} (" in last


def test_what_is_missing_is_said(bare: Path, tmp_path: Path) -> None:
    """With what to install: by commands in one line, in Python by a SetupError; there is no traceback of a command."""
    for words, said in (
        (("replay", str(RUN), "--port", "0"), f"the endpoint needs more: pip install {errors.ENDPOINT} ("),
        (
            ("replay", str(RUN), "--openmetrics", str(tmp_path / "out")),
            f"--openmetrics needs more: pip install {errors.TEXT} (",
        ),
        (("demo",), "the demo of grpo trains with TRL, and trl is not installed: pip install 'trl>=1.16'"),
    ):
        found = _run(bare, *words)
        assert found.returncode == 2, found.stderr
        assert found.stderr.startswith(f"rlexporter: {said}")
        assert found.stderr.count("\n") == 1
    code = """if True:
        import rlexporter
        for name in ("attach", "RLExporterCallback", "RLExporterTracker"):
            try: print(bool(getattr(rlexporter, name)))
            except rlexporter.SetupError as error: print(error)
        rlexporter.Exporter(port=0).start()
    """
    done = subprocess.run([str(bare), "-c", code], env={}, capture_output=True, text=True, check=False)
    attach, callback, tracker = done.stdout.splitlines()
    assert attach == "True"
    assert callback.startswith(f"rlexporter.RLExporterCallback needs more: pip install {errors.TORCH} transformers ")
    assert tracker.startswith(f"rlexporter.RLExporterTracker needs more: pip install {errors.TORCH} transformers ")
    assert "SetupError: the endpoint needs more: pip install fastapi " in done.stderr.splitlines()[-1]


def test_the_demo_without_torch() -> None:
    """With a TRL beside it, as `pip install --no-deps trl` leaves it."""
    code = "import sys; sys.modules['torch'] = None; import rlexporter.demo as demo; demo._check_trl = print; "
    code += "from rlexporter.commands.main import main; sys.exit(main(['demo', '--steps', '1', '--port', '0']))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert found.returncode == 2, found.stderr
    said = f"rlexporter: the demo of grpo needs more: pip install {errors.TORCH} (No module named 'torch')\n"
    assert found.stderr == said


def test_what_the_plain_install_does(tmp_path: Path) -> None:
    """In an environment with what pyproject.toml requires: `check`, and a bare exporter that is given arrays."""
    python = _laptop(tmp_path, _names(_project()["dependencies"]))
    assert _importable(python, *NEVER) == ["opentelemetry.sdk", "numpy"]
    assert _run(python, "check", str(RUN)).returncode == 2
    code = """if True:
        import sys, urllib.request
        import numpy
        import rlexporter
        with rlexporter.Exporter(run="light", port=0, linger=0) as exporter:
            exporter.observe("policy_ratio", numpy.array([[0.5, 1.0], [1.5, 9.0]]), mask=numpy.array([[1, 1], [1, 0]]))
            exporter.observe("policy_ratio", numpy.ones(5000, numpy.float32))
            exporter.log({"reward": numpy.array([0.5, 1.5])}, step=1)
            exporter.log({"reward": numpy.float32(0.25)}, step=2)
            print(urllib.request.urlopen(f"{exporter.url}/metrics", timeout=600).read().decode())
        try: rlexporter.attach(object())
        except rlexporter.SetupError as error: print(error)
        assert "torch" not in sys.modules
    """
    done = subprocess.run([str(python), "-c", code], env={}, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    *scraped, said = done.stdout.splitlines()
    assert 'rl_policy_ratio_dist_count{rank="0",run="light"} 5003.0' in scraped
    assert 'rl_reward_mean{rank="0",run="light"} 0.25' in scraped
    assert said == f"rlexporter.attach needs more: pip install {errors.TORCH} (No module named 'torch')"


def test_transformers_without_torch() -> None:
    """It can be loaded so, for its tokenizers: what `report_to` calls and `attach` say in one line what is missing."""
    if find_spec("transformers") is None:
        pytest.skip("needs transformers")
    code = """if True:
        import sys
        sys.modules["torch"] = None
        import rlexporter
        from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
        for make in (INTEGRATION_TO_CALLBACK["rlexporter"], lambda: rlexporter.attach(object())):
            try: make()
            except rlexporter.SetupError as error: print(error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout.splitlines() == [
        f"rlexporter.{name} needs more: pip install {errors.TORCH} (No module named 'torch')"
        for name in ("RLExporterCallback", "attach")
    ], done.stderr


def test_torch_is_an_extra() -> None:
    """Of the same bound in both extras that bring it, and required by nothing else; the errors name it."""
    project = _project()
    extras = {
        name: [each for each in needed if Requirement(each).name == "torch"]
        for name, needed in project["optional-dependencies"].items()
    }
    assert {name: needed for name, needed in extras.items() if needed} == {
        "demo": ["torch>=2.2"],
        "torch": ["torch>=2.2"],
    }
    assert "torch" not in _with_what_it_requires(_names(project["dependencies"]))
    assert f"'{project['name']}[torch]'" == errors.TORCH
    assert f"pip install {errors.TORCH}" in INSTALL


@pytest.mark.slow
def test_the_page_names_what_is_required() -> None:
    """All dependencies, and the extra for OTLP as it must be typed, which is what a missing exporter says too."""
    project = _project()
    paragraph = INSTALL.split("It needs", 1)[1].split("sets no upper bounds", 1)[0]
    required = {Requirement(each).name for each in project["dependencies"]}
    assert set(re.findall(r"`([a-z0-9-]+)`", paragraph)) == required
    assert {name for name in _named_for("replay FILE") if name != "tomli"} == set(errors.ENDPOINT.split())
    assert {name for name in _named_for("replay FILE --openmetrics OUT") if name != "tomli"} == {errors.TEXT}
    typed = set(re.findall(r"pip install ('[^']*otlp[^']*')", INSTALL))
    assert typed == {errors.OTLP} == {f"'{project['name']}[otlp]'"}
    assert "[otlp]" not in INSTALL.replace(errors.OTLP, "")
    assert [Requirement(each).name for each in project["optional-dependencies"]["otlp"]] == [
        "opentelemetry-exporter-otlp"
    ]
    assert {"opentelemetry-exporter-otlp-proto-http", "opentelemetry-exporter-otlp-proto-grpc"} <= (
        _with_what_it_requires(["opentelemetry-exporter-otlp"])
    )
