"""Starts a script, under `rlexporter run` or with an example of ours, and returns what was served at its end.

Stand-ins for packages that cannot be installed here become packages, and are held against the real ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.tools import ROOT, free_port

_READS = """
import os as _os, urllib.request as _request
_at = {url} + "/metrics"
print("SERVED")
try:
    print(_request.urlopen(_at, timeout=600).read().decode())
except OSError:
    print("# nobody is there")
"""
"""What is put behind each script. A name of its own for all it needs: it must not change the script."""


@dataclass
class Done:
    """How a script ended, what it printed, and what was served when it was through."""

    status: int
    printed: str
    errors: str
    served: dict[tuple[str, str], float]
    """The samples by name and label values with commas between them, in the order of names, without run and rank."""
    runs: set[str]
    ranks: set[str]

    def __getitem__(self, name: str) -> float:
        """The one sample of a series without labels of its own."""
        return self.served[name, ""]

    def logged(self) -> dict[str, float]:
        """What is served of keys that the catalog does not know."""
        return self.labelled("rl_logged_value")

    def settings(self) -> dict[str, float]:
        """The hyperparameters that are served."""
        return self.labelled("rl_hyperparameter")

    def labelled(self, series: str) -> dict[str, float]:
        """The samples of a series by their label values."""
        return {labels: value for (name, labels), value in self.served.items() if name == series}

    def info(self) -> list[str]:
        """What is said of the run: its algorithm, its model and so on."""
        return next(labels for name, labels in self.served if name == "rl_run_info").split(",")

    def counts(self, histogram: str, *bounds: float | str) -> list[float]:
        """The cumulative counts of a histogram at these bounds."""
        return [self.served[f"{histogram}_bucket", str(bound)] for bound in bounds]


def run(script: str, folder: Path, *options: str, **environ: str) -> Done:
    """Run a script in ``folder`` with these options of `rlexporter run`."""
    file = folder / "train.py"
    file.write_text(script + _READS.format(url='"http://127.0.0.1:" + _os.environ["RLEXPORTER_LISTEN_PORT"]'))
    own = {"RLEXPORTER_LISTEN_PORT": str(free_port()), "RLEXPORTER_LINGER_SECONDS": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rlexporter", "run", *options, str(file), str(folder)]
    return _done(command, folder, own | {"PYTHONPATH": str(ROOT)} | environ)


def run_worker(script: str, folder: Path, **environ: str) -> Done:
    """Run a script that imports an example of ours, has it serve, and names its `Exporter` ``exporter``."""
    file = folder / "worker.py"
    file.write_text(script + _READS.format(url="exporter.url"))
    path = os.pathsep.join((str(ROOT), str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")))
    own = {"PYTHONPATH": path, "RLEXPORTER_RUN": "mine", "OMP_NUM_THREADS": "1"}
    return _done([sys.executable, str(file)], folder, own | environ)


def _done(command: list[str], folder: Path, environ: dict[str, str]) -> Done:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    printed, _, text = done.stdout.partition("SERVED\n")
    served, runs, ranks = {}, set(), set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {name: value for name, value in sorted(sample.labels.items()) if name not in ("run", "rank")}
            served[sample.name, ",".join(labels.values())] = sample.value
            if sample.name.startswith("rl_"):
                runs.add(sample.labels["run"])
                ranks.add(sample.labels["rank"])
    return Done(done.returncode, printed, done.stderr, served, runs, ranks)


def no_errors(done: Done) -> bool:
    """Whether the script went through, and nothing of ours failed or complained."""
    broken = [key for key, value in done.served.items() if key[0] == "rlexporter_errors_total" and value]
    assert (done.status, broken) == (0, []), done.errors
    assert "Traceback" not in done.errors, done.errors
    assert "rlexporter cannot" not in done.errors, done.errors
    return True


def sample(text: str, name: str) -> float:
    """The one sample of a series in a scrape."""
    [line] = [each for each in text.splitlines() if each.startswith(name + "{")]
    return float(line.rpartition(" ")[2])


def last_scalar(folder: Path, tag: str) -> tuple[int, float]:
    """The last step and value of a tag, as TensorBoard reads its event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    last = read.Scalars(tag)[-1]
    return last.step, last.value


def package(folder: Path, module: str, text: str) -> str:
    """Write the text of a module, `its.package.name`, under ``folder``; return the PYTHONPATH that finds it."""
    *packages, name = module.split(".")
    at = folder
    for each in packages:
        at = at / each
        at.mkdir(parents=True, exist_ok=True)
        (at / "__init__.py").touch()
    (at / f"{name}.py").write_text(text)
    return f"{ROOT}{os.pathsep}{folder}"
