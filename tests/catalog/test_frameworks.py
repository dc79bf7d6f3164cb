"""Frameworks other than TRL: what a log of theirs leaves behind and how it is judged, and what their tables name."""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rlexporter import frameworks
from rlexporter.catalog.algorithms import ALGORITHMS, family
from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.conditions.table import CONDITIONS
from rlexporter.feed.feed import Feed
from rlexporter.feed.keys import Resolver
from rlexporter.frameworks.known import FRAMEWORKS, written_by
from rlexporter.logs import reader
from rlexporter.logs.reader import Event, Recording
from rlexporter.logs.recorded_alerts import judge
from rlexporter.model.metric import AS_IT_IS
from rlexporter.model.step import RunFacts
from tests.programs import printed
from tests.served import gauges
from tests.tools import ROOT


@dataclass
class Log:
    """Lines of a framework, and what they leave: see tests/data/framework_logs.txt."""

    family: str
    rows: list[list[str]] = field(default_factory=list)
    last: list[list[str]] = field(default_factory=list)
    beside: list[list[str]] = field(default_factory=list)
    alerts: set[tuple[str, int]] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)

    @property
    def lines(self) -> list[dict[str, float | str]]:
        """The lines of the file."""
        both = {row[0]: row for row in (*self.beside, *self.rows)}.values()
        tables = (
            [(row[0], row[1]) for row in both if row[1] != "-"],
            [(row[0], row[2]) for row in both],
            [(row[0], row[2]) for row in self.last],
        )
        return [{key: _number(value) for key, value in table} for table in tables if table]

    @property
    def unknown(self) -> set[str]:
        """The keys that no series of the catalog has."""
        both = {row[0]: row for row in (*self.beside, *self.rows)}.values()
        return {row[0] for row in both if row[3:4] == ["unknown"]}

    @property
    def served(self) -> dict[str, str]:
        """What is served in the end, by series and labels."""
        rows = [row for row in (*self.rows, *self.last) if len(row) > 3]
        return {_series(row): str(float(row[-1] if len(row) > 4 else row[2])) for row in rows}


def _series(row: list[str]) -> str:
    return f"{AS_IT_IS}/{row[0]}" if row[3] in ("as logged", "unknown") else row[3]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _logs() -> dict[str, Log]:
    """The logs of the file, by the name of the framework, and what is more."""
    found: dict[str, Log] = {}
    for line in (ROOT / "tests/data/framework_logs.txt").read_text().splitlines():
        word, *rest = row = re.split("  +", line)
        if line.startswith("["):
            name, family = line[1:].split("] ")
            log = found[name] = Log(family)
            rows = log.rows
        elif word == "then":
            rows = log.last
        elif word == "beside":
            log.beside = found[rest[0]].rows
        elif word == "alert":
            log.alerts.add((rest[0], int(rest[1])))
        elif word == "absent":
            log.absent.add(rest[0])
        elif word and word[0] != "#":
            rows.append(row)
    return found


LOGS = _logs()


def written(folder: Path, lines: Iterable[Mapping[str, float | str]]) -> Path:
    """A file of these lines."""
    path = folder / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("name", LOGS)
def test_a_log(name: str, tmp_path: Path) -> None:
    """Its keys tell framework and family, and those are known that should be; the last values are served and judged."""
    log = LOGS[name]
    found = reader.read(written(tmp_path, log.lines))
    served, report = gauges(found), judge(found)

    assert (found.facts.framework, found.facts.family) == (name.partition(",")[0], log.family)
    assert {series: str(served.get(series)) for series in log.served} == log.served
    assert log.absent.isdisjoint(served)
    assert {(fired.alert, fired.step) for fired in report.alerts} == log.alerts
    assert set(report.unknown_keys) == log.unknown


def test_keys_that_say_nothing(tmp_path: Path) -> None:
    """OpenRLHF's KL is 0 without a reference, else the policy would be judged frozen."""
    bare = [
        {"step": step, "actor_lr": 1e-6, "reward": 0.5, "kl": 0.0, "logprobs_diff": 0.0, "policy_loss": 0.1 * step}
        for step in range(1, 31)
    ]
    found = reader.read(written(tmp_path, bare))
    served = gauges(found)

    assert found.facts.framework == "openrlhf"
    assert (served["rl_policy_loss"], served["rl_reward_mean"]) == (3.0, 0.5)
    assert not {"rl_kl_estimate_per_token", "rl_kl_k1_per_token"} & set(served)
    assert "RLPolicyFrozen" not in {fired.alert for fired in judge(found).alerts}


def test_ms_swift_where_the_kl_is_in_the_reward() -> None:
    """Its `kl` is then a sum over the completion."""
    feed = Feed(CATALOG, frameworks=FRAMEWORKS)
    feed.begin(RunFacts(algorithm="reinforce_plus_plus", framework="ms-swift", judged_as="rloo"), {})
    feed.record({"kl": -0.5}, 1)
    feed.record({"kl": -1.0}, 2)

    assert feed.snapshot.value("rl_kl_per_sequence") == -1.0
    assert feed.snapshot.value("rl_kl_per_token") is None


def test_another_task_of_ms_swift_is_no_grpo(tmp_path: Path) -> None:
    """Its supervised training has no family here."""
    lines: list[dict[str, float | str]] = [
        {"loss": 1.0 / i, "token_acc": 0.5, "global_step/max_steps": f"{i}/9"} for i in (1, 2)
    ]

    assert reader.read(written(tmp_path, lines)).facts.family == "custom"


# The tables


def test_what_a_framework_feeds_exists() -> None:
    """A series of the catalog, with as many labels as the template has; for algorithms that there are.

    A key without one is served as it is logged, whatever its template says.
    """
    assert [
        (name, key.name)
        for name, framework in FRAMEWORKS.items()
        for key in framework.keys
        if not set(key.families) <= set(ALGORITHMS)
        or (key.series not in ("", AS_IT_IS) and key.name.count("{") != len(NAMED[key.series].labels))
    ] == []
    assert all(framework.source for framework in FRAMEWORKS.values())


def test_a_key_means_one_thing_in_a_run() -> None:
    """Of one family of algorithms: it feeds one series, or a gauge and the histogram of the same values."""
    fed = {
        (name, family, key.name, key.series)
        for name, framework in FRAMEWORKS.items()
        for key in framework.keys
        for family in ("grpo", "ppo")
        if not key.families or family in key.families
    }
    assert repeated(each[:3] for each in fed) == []


def repeated(found: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """What is there more than once."""
    return [each for each, times in Counter(found).items() if times > 1]


def test_a_series_has_one_scale_in_a_framework() -> None:
    """It is kept by series, so it holds for TRL's own keys of that series too where a framework logs these."""
    scales = {
        (name, key.series, key.scale) for name, framework in FRAMEWORKS.items() for key in framework.keys if key.series
    }
    assert repeated((name, series) for name, series, _ in scales) == []
    assert [
        (name, series)
        for name, series, scale in scales
        if scale != 1.0 and FRAMEWORKS[name].of_trl and NAMED[series].keys
    ] == []


def test_a_mark_is_of_one_framework_only() -> None:
    """No key of TRL and no mark of another, nor a key of one that is not its twin; but a key that is known.

    Trainer V1 of verl is told by one that has no series.
    """
    twins = [{"verl", "verl-v1"}, {"slime", "miles"}, {"verl", "roll"}, {"verl-v1", "roll"}]
    keys = {name: {key.name for key in framework.keys} for name, framework in FRAMEWORKS.items()}
    of_trl = {key.name for metric in CATALOG for key in metric.keys}
    for name, framework in FRAMEWORKS.items():
        assert framework.marks.isdisjoint(of_trl), name
        assert name == "verl-v1" or framework.marks <= keys[name], name
        for other in set(FRAMEWORKS) - {name}:
            theirs = FRAMEWORKS[other].marks | (set() if {name, other} in twins else keys[other])
            assert framework.marks.isdisjoint(theirs), (name, other)


def test_all_keys_of_a_framework_tell_it() -> None:
    """Those of its twins among them. But the first trainer of verl has no key that the other has not."""
    told = {name: written_by([key.name for key in framework.keys]) for name, framework in FRAMEWORKS.items()}
    assert {name: found and found.name for name, found in told.items()} == {
        name: "verl" if name == "verl-v1" else name for name in FRAMEWORKS
    }


def test_a_log_of_trl_is_of_no_other_framework(data: Path) -> None:
    """Its keys decide how everything is judged."""
    files = sorted((data / "runs").glob("*.jsonl"))
    assert len(files) >= 12
    for file in files:
        keys = {key for event in reader.read(file).events for key in event.logs or ()}
        assert written_by(keys) is None, file


def test_algorithms_of_others_are_judged_as_those_of_trl() -> None:
    """By whether they have a value function."""
    assert [family(each) for each in ("ppo", "gae", "vapo")] == ["ppo"] * 3
    assert {family(each) for each in ("grpo", "dapo", "gspo", "rloo", "remax", "reinforce-plus-plus")} == {"grpo"}
    named = {algorithm for condition in CONDITIONS for algorithm in condition.algorithms}
    assert {"grpo", "ppo"} <= named


def test_one_key_of_verl_means_two_things() -> None:
    """The share of clipped tokens is GRPO's or PPO's; advantages are whitened with a critic only.

    Trainer V1 pads to the longest completion of a step: that key says nothing of the limit there.
    """
    meant = {
        ("grpo", "verl", "actor/pg_clipfrac"): "rl_clip_ratio_region_mean",
        ("ppo", "verl", "actor/pg_clipfrac"): "rl_policy_clipfrac",
        ("grpo", "verl", "critic/advantages/mean"): "rl_token_advantage_mean",
        ("ppo", "verl", "critic/advantages/mean"): "rl_advantage_mean",
        ("grpo", "verl", "actor/reward_kl_penalty"): "rl_kl_penalty_per_token",
        ("ppo", "verl", "actor/reward_kl_penalty"): "rl_kl_per_token",
        ("grpo", "verl", "response_length/clip_ratio"): "rl_completion_truncated_fraction",
    }
    found = {each: Resolver(CATALOG, each[0], FRAMEWORKS[each[1]]).resolve(each[2])[0] for each in meant}
    assert {each: series.metric.series for each, series in found.items()} == meant
    line = ["critic/score/mean", "actor/pg_loss", "response_length/clip_ratio"]
    assert written_by(line) is FRAMEWORKS["verl"]
    assert written_by([*line, "training/off_policy/trajectory_spans/mean"]) is FRAMEWORKS["verl-v1"]


# The page


def _judged(framework: str, algorithm: str) -> str:
    """How many conditions a run can have that logs all of its keys for 300 steps, of how many that apply."""
    rng = random.Random(1)
    keys = [
        key.name
        for key in FRAMEWORKS[framework].keys
        if key.series and "{" not in key.name and (not key.families or algorithm in key.families)
    ]
    events = [
        Event(1e9 + 60 * step, step, logs={key: 0.3 + 0.01 * rng.random() for key in keys}) for step in range(1, 301)
    ]
    found = judge(Recording(Path("x"), RunFacts(algorithm=algorithm, framework=framework, step=0), "x", events))
    missing = {name for each in found.not_judged for name in each.conditions}
    names = {condition.name for condition in CONDITIONS if condition.applies(algorithm)}
    return f"{len(names - missing)} of {len(names)}"


PAGE = (ROOT / "docs/frameworks.md").read_text()
ROWS = {
    "roll": "| [ROLL](#read-where-they-log) |",
    "skyrl": "| [SkyRL](#read-where-they-log) |",
    "tinker-cookbook": "| [Tinker cookbook](#read-where-they-log) |",
    "open-instruct": "| [open-instruct](#read-where-they-log) |",
    "areal": "| [AReaL](#read-where-they-log) |",
    "trlx": "| [trlX](#read-where-they-log) |",
    "deepspeed-chat": "| [DeepSpeed-Chat](#read-where-they-log) |",
    "verl": "| [verl](#verl) |",
    "verl-v1": "| [verl](#verl), trainer V1 |",
    "openrlhf": "| [OpenRLHF](#openrlhf) |",
    "nemo-rl": "| [NeMo-RL](#nemo-rl) |",
    "prime-rl": "| [prime-rl](#prime-rl) |",
    "slime": "| [slime](#slime-and-miles) |",
    "miles": "| [miles](#slime-and-miles) |",
    "ms-swift": "| [ms-swift](#ms-swift) |",
    "unsloth": "| [Unsloth](#unsloth) |",
}


def test_each_file_is_named_once() -> None:
    """In the list that all others derive from. It imports nothing: the start-up code of every Python runs it."""
    folder = Path(frameworks.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "common", "known"}
    modules = {found[0] for found in (frameworks.FRAMEWORKS | frameworks.LOGGERS).values()}
    assert modules == {f"rlexporter.frameworks.{file}" for file in files} | {"rlexporter.logs.frameworks"}
    assert "import " not in re.sub(r'""".*?"""', "", (folder / "__init__.py").read_text(), flags=re.DOTALL)


def test_the_table_of_frameworks_is_true() -> None:
    """Keys that are known, and conditions that are judged by them; where TRL's come on top, only the keys."""
    wrong = []
    for name, framework in FRAMEWORKS.items():
        (row,) = (line for line in PAGE.splitlines() if line.startswith(ROWS[name]))
        known, grpo, ppo = (cell.strip() for cell in row.strip("|").split("|")[3:6])
        keys = len({key.name for key in framework.keys if key.series})
        judged = (
            (grpo, ppo)
            if "TRL" in known
            else tuple(
                cell if cell == "-" else _judged(name, algorithm) for cell, algorithm in ((grpo, "grpo"), (ppo, "ppo"))
            )
        )
        if known not in (str(keys), f"TRL's and {keys}") or judged != (grpo, ppo):
            wrong.append((row, keys, *judged))
    assert wrong == []


def test_a_table_is_loaded_when_it_is_asked_for() -> None:
    """By its name: that one. By the keys of a log: all of them, in the order in which their marks are looked for."""
    code = (
        "import sys\n"
        "from rlexporter.frameworks.known import FRAMEWORKS, written_by\n"
        "def loaded(): return [m for m in sys.modules if m in modules]\n"
        "import rlexporter.frameworks as f\n"
        "modules = {found[0] for found in f.FRAMEWORKS.values()}\n"
        "print(loaded(), 'verl' in FRAMEWORKS, 'trl' in FRAMEWORKS, FRAMEWORKS.get('trl'))\n"
        "print(FRAMEWORKS['skyrl'].title, loaded())\n"
        "print(written_by(['actor/ratio_mean', 'actor/ppo_kl']).name, len(loaded()), written_by(['x']), len(loaded()))"
    )
    assert printed(sys.executable, "-c", code).splitlines() == [
        "[] True False None",
        "SkyRL ['rlexporter.logs.frameworks']",
        "roll 1 None 7",
    ]
