"""`make trl-suite TRL=PATH`: TRL's tests of GRPO, RLOO and callbacks, without this exporter and with it.

PATH is a checkout of TRL, as its tests are in no package; its own code is what is tested. The outcome of every test and
the weights at the end of every training must be the same in both arms, and the exporter must have met no error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.tools import free_port

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".work/trl-suite"
MADE = FOLDER / "made"
GROUPS = {"GRPO": "test_grpo_trainer", "RLOO": "test_rloo_trainer", "callbacks": "test_callbacks"}
NO_HUB = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(MADE), "HF_HUB_CACHE": str(MADE / "hub")}

Results = Mapping[str, Mapping[str, Any]]


def compare(without: Results, watched: Results) -> list[str]:
    """Return a line for each test that differs, and for each in which the exporter met an error or did not serve."""
    found = []
    for test in sorted({*without, *watched}):
        one, two = without.get(test, {}), watched.get(test, {})
        outcomes = one.get("outcome"), two.get("outcome")
        if outcomes[0] != outcomes[1]:
            found.append(f"{test}: {outcomes[0]} without, {outcomes[1]} with")
        if one.get("weights", []) != two.get("weights", []):
            found.append(f"{test}: the weights differ")
        if any(two.get("errors", [])):
            found.append(f"{test}: the exporter met {sum(two['errors']):g} errors")
        if len(two.get("errors", [])) != len(two.get("weights", [])):
            found.append(f"{test}: the exporter did not serve every training")
    return found


def summary(results: Results) -> list[str]:
    """Return a line for each group of tests."""
    lines = []
    for name, file in GROUPS.items():
        members = [each for test, each in results.items() if f"{file}.py" in test]
        told = Counter(each.get("outcome") for each in members)
        trained = sum(len(each.get("weights", [])) for each in members)
        steps = sum(each.get("steps", 0) for each in members)
        lines.append(
            f"{name}: {len(members)} tests, {told['passed']} pass, {told['failed']} fail, {told['skipped']} are "
            f"skipped; {trained} trainings of {steps} steps"
        )
    return lines


def _run(trl: Path, *command: str, **more: str) -> int:
    paths = (str(trl), str(ROOT / "scripts/trl_suite"))
    environ = {**os.environ, **NO_HUB, **more, "PYTHONPATH": os.pathsep.join(paths)}
    environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "OMP_NUM_THREADS": "1", "TRL_SUITE_FOLDER": str(MADE)}
    return subprocess.run([sys.executable, *command], cwd=trl, env=environ, check=False).returncode  # noqa: S603 - ours


def _arm(trl: Path, name: str, rest: list[str]) -> Results:
    """Run the tests, by pytest as it is or as the exporter starts it."""
    print(f"trl-suite: TRL's tests {name} rlexporter", flush=True)
    tests = [f"tests/{each}.py" for each in GROUPS.values()]
    pytest = ("-m", "pytest", "-q", "--no-header", "--tb=no", "-rN", "-W", "ignore", "-p", "hashed_weights", *tests)
    file = FOLDER / f"{name}.json"
    file.unlink(missing_ok=True)
    port = str(free_port())
    more = {"TRL_SUITE_RESULTS": str(file)} | ({"TRL_SUITE_PORT": port} if name == "with" else {})
    start = ("-m", "rlexporter", "run", "--port", port) if name == "with" else ()
    if _run(trl, *start, *pytest, *rest, **more) not in (0, 1):
        raise SystemExit("trl-suite: pytest could not run TRL's tests; the lines above say why")
    found: Results = json.loads(file.read_text())
    return found


def main(path: str, *rest: str) -> int:
    """Run both arms and compare them; ``rest`` is for pytest. Returns the exit status."""
    trl = Path(path).resolve()
    if not (trl / "tests/test_grpo_trainer.py").exists():
        print(f"trl-suite: {trl} is no checkout of TRL: tests/test_grpo_trainer.py is missing", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    print("trl-suite: making tiny models and data, by TRL's scripts", flush=True)
    if _run(trl, str(ROOT / "scripts/trl_suite/hub.py"), str(MADE)):
        return 2
    without, watched = (_arm(trl, name, [*rest]) for name in ("without", "with"))
    differences = compare(without, watched)
    commit = subprocess.run(["git", "-C", trl, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True)  # noqa: S603, S607
    versions = ", ".join(f"{each} {version(each)}" for each in ("torch", "transformers", "rlexporter"))
    print(f"\ntrl-suite: TRL {commit.stdout.strip() or '(no git)'}, {versions}")
    print(*summary(watched), sep="\n")
    print(*differences, f"{len(differences)} differences between without and with", sep="\n")
    trained = sum(len(each.get("weights", [])) for each in watched.values())
    return 1 if differences or not trained else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
