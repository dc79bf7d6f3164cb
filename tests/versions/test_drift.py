"""What TRL's versions have, by their sources: every key that they log is known, and what the taps need is there."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from rlexporter.adapters.ppo import _MICRO_BATCH, _STEP
from rlexporter.adapters.rewards import RewardTaps
from rlexporter.catalog.algorithms import ALGORITHMS
from rlexporter.catalog.metrics import CATALOG
from rlexporter.feed.keys import _pattern
from scripts import drift
from scripts.drift import TRAINERS, Found, Sources
from tests.tools import REQUIRED, ROOT

pytestmark = pytest.mark.slow

ADAPTERS = ROOT / "rlexporter/adapters"
GRPO, RLOO, PPO = TRAINERS
NEWEST = (1, 16)  # a release that nobody has looked at yet is for `python -m scripts.drift`, and fails no test

# Keys of which a source does not say the name. Everything else that a version logs is in the catalog.
NAMED_LATER = {
    "{name}",  # log_metric() of a reward function: the user's own names, served as rl_logged_value{key}
    "{key}",  # log() averages the lists of the keys that are there
}
ELSEWHERE = NAMED_LATER | {
    "{k}",  # as {key}
    "{metric_prefix}/distillation_loss",  # sdft/ and sdpo/, by the name of the class: both are in the catalog
    "correctness",  # what AsyncGRPO's worker for OpenEnv logs as rollout/correctness_mean
}
FROM_TRANSFORMERS = set(
    """
    epoch eval_runtime eval_samples_per_second eval_steps_per_second grad_norm learning_rate loss total_flos
    train_loss train_runtime train_samples_per_second train_steps_per_second
    """.split()
)
TENSORS = "reward, advantage, ratio, kl, logprob, entropy, completion_length, prompt_length"
WEIGHTS = "weights, reference, prompt, copies"
TABLE = [
    ("GRPOTrainer", "0.14", "partly", f"{TENSORS}, {WEIGHTS}, loss_mask"),
    ("GRPOTrainer", "0.15", "partly", f"{TENSORS}, {WEIGHTS}"),
    ("GRPOTrainer", "0.16", "partly", "reward, ratio, kl, logprob, entropy"),
    ("GRPOTrainer", "0.17 to 0.18", "partly", "reward, entropy"),
    ("GRPOTrainer", "0.19", "partly", "entropy"),
    ("GRPOTrainer", "0.20 to 1.16", "complete", "-"),
    ("RLOOTrainer", "0.12 to 0.21", "none", f"{TENSORS}, loss, grad_norm, {WEIGHTS}, loss_mask, {drift.NUMBERS}"),
    ("RLOOTrainer", "0.22 to 1.16", "complete", "-"),
    ("PPOTrainer", "0.12 to 1.12", "complete", "-"),
]


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def _get(versions: Callable[[], list[str]]) -> dict[str, Sources]:
    try:
        return {version: drift.read(version) for version in versions()}
    except drift.UnreachableError as error:
        if REQUIRED:
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def found() -> list[Found]:
    """Every trainer in every version."""
    wheels = _get(lambda: [version for version in drift.released() if _number(version) <= NEWEST])
    return drift.check(list(wheels))


def test_every_key_that_a_version_logs_is_in_the_catalogue(found: list[Found]) -> None:
    """For its own algorithm; up to 0.21 RLOO was a loop like PPO's, and logged PPO's keys."""
    assert {key for each in found for key in each.unknown} == NAMED_LATER
    assert {key for each in found if each.version.startswith("0.") for key in each.unknown} <= {"{key}"}
    assert {each.trainer for each in found if each.foreign} == {"RLOOTrainer"}
    assert {_number(each.version) < (0, 22) for each in found if each.foreign} == {True}


@pytest.fixture(scope="module")
def others() -> dict[str, tuple[str, frozenset[str]]]:
    """Every trainer without taps of its own, stable and experimental, in the newest version that was looked at."""
    found = _get(lambda: [version for version in drift.released() if _number(version) <= NEWEST][-1:])
    (sources,) = found.values()
    return drift.others(sources)


def test_every_key_of_the_other_trainers_is_in_the_catalogue(others: dict[str, tuple[str, frozenset[str]]]) -> None:
    """From AsyncGRPO to SFT; GMPO is a GRPO, and a distillation with a server a distillation."""
    algorithms = {algorithm for algorithm, _ in others.values()}

    assert len(others) == 19
    assert algorithms == {*ALGORITHMS, "grpo"} - {"ppo", "ppo-legacy", "rloo"}
    assert {key for found in others.values() for key in drift.unknown(*found)} == ELSEWHERE


def test_every_key_of_the_catalogue_is_logged_by_one_of_them(others: dict[str, tuple[str, frozenset[str]]]) -> None:
    """For its own algorithm. OnlineDPO lent its algorithm to others, up to trl 1.13; transformers is not read here."""
    for algorithm, logged in others.values():
        if algorithm in {"grpo", "online-dpo"}:
            continue
        same = {key for each, keys in others.values() if each == algorithm for key in keys}
        names = {key.name for metric in CATALOG for key in metric.keys if algorithm in key.algorithms}
        unlogged = {name for name in names if not any(_pattern(name).fullmatch(key) for key in same)}
        assert unlogged - {f"{algorithm}/distillation_loss"} <= FROM_TRANSFORMERS, algorithm
        assert logged


def test_every_key_of_the_catalogue_is_logged_by_some_version(found: list[Found]) -> None:
    """By TRL, or by transformers' Trainer, which is not read here."""
    for trainer in TRAINERS:
        names = {key.name for metric in CATALOG for key in metric.keys if trainer.algorithm in key.algorithms}
        logged = {drift._pattern(key) for each in found if each.trainer == trainer.name for key in each.keys}

        assert len(logged) > 15
        assert {name for name in names if drift._pattern(name) not in logged} <= FROM_TRANSFORMERS, trainer.name


def test_the_promised_versions_have_what_the_taps_need(found: list[Found]) -> None:
    """All of it."""
    promised = [(GRPO.name, "1.16"), (RLOO.name, "1.16"), (PPO.name, "0.19"), (PPO.name, "1.12")]
    have = [each for each in found if (each.trainer, ".".join(each.version.split(".")[:2])) in promised]

    assert len(have) == len(promised)
    assert [each for each in have if (each.absent, each.lost, each.state) != (frozenset(), (), "complete")] == []
    assert [each for each in have if len(each.keys) <= 15] == []


def test_what_each_range_of_versions_has(found: list[Found]) -> None:
    """The table of docs/compatibility.md."""
    assert drift.rows(found) == TABLE


def test_the_check_looks_at_all_that_is_tapped() -> None:
    """Local variables of PPO, and methods of the other trainers."""
    assert {*_MICRO_BATCH, *_STEP} <= {name for names in PPO.needs.values() for name in names}

    tapped = set()
    for file in ("grpo.py", "rewards.py", "optimizer.py"):
        calls = [node for node in ast.walk(ast.parse((ADAPTERS / file).read_text())) if isinstance(node, ast.Call)]
        for call in calls:
            function, *arguments = map(ast.unparse, (call.func, *call.args))
            if function == "self.tap" and arguments[0].endswith("trainer") and arguments[3:]:
                method = arguments[1]
                tapped.add(RewardTaps.method if method == "self.method" else ast.literal_eval(method))
    assert {"training_step", "_calculate_rewards"} <= tapped
    assert tapped <= {name for names in GRPO.needs.values() for each in names for name in each.split("|")}


LOG = "                self.log(metrics)"


def test_what_a_version_lacks_is_found() -> None:
    """A renamed method, a loop of its own, a changed attribute; a renamed or deleted variable, a call that is gone."""
    lacking = [
        (GRPO, "1.16.0", "def _compute_loss(", "def _loss(", "_compute_loss", "kl logprob entropy ratio"),
        (GRPO, "1.16.0", "def _calculate_rewards(", "def _score(", "_calculate_rewards", "reward"),
        (RLOO, "1.16.0", "def log(", "def train(self): ...\n\n    def log(", "training_step", "loss grad_norm"),
        (GRPO, "1.16.0", "self._metrics = {", "self._numbers = {", "_metrics['train']|_metrics", drift.NUMBERS),
        (PPO, "1.12.0", "pg_loss = ", "policy_loss = ", "pg_loss", "loss"),
        (PPO, "0.19.1", "padding_mask_p1 = ", "mask_p1 = ", "padding_mask_p1", "value"),
        (PPO, "1.12.0", "accelerator.backward(", "loss.backward(", "accelerator.backward", "grad_norm"),
        (PPO, "1.12.0", LOG, "                del advantages\n" + LOG, "advantages", "advantage"),
        (PPO, "0.19.1", LOG, "                scores = 0; del scores\n" + LOG, "scores", "reward"),
    ]
    for trainer, version, old, new, absent, lost in lacking:
        doctored = _doctored(trainer, version, old, new)

        assert doctored.absent == {absent}
        assert set(doctored.lost) == ({lost} if lost == drift.NUMBERS else set(lost.split())), absent
        assert doctored.state == "partly", absent


def test_a_method_of_a_base_class_counts() -> None:
    """TRL moves methods to a class of its own in another module."""
    sources = dict(_get(lambda: ["1.16.0"])["1.16.0"])
    path, base = GRPO.modules[0], "trl/trainer/base_trainer.py"
    sources[path] = sources[path].replace("def _calculate_rewards(", "def _score(")
    sources[base] = sources[base].replace(
        "class _BaseTrainer(Trainer):", "class _BaseTrainer(Trainer):\n    def _calculate_rewards(self): ...\n"
    )

    here = drift.inspect(GRPO, "1.16.0", sources)
    assert here is not None
    assert here.state == "complete"


def test_a_missing_index_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sentence, not in a traceback."""
    monkeypatch.setattr("sys.executable", "false")

    with pytest.raises(SystemExit, match="drift: no package index gave `pip index versions trl`"):
        drift.main()


def _doctored(trainer: drift.Trainer, version: str, old: str, new: str) -> Found:
    sources = dict(_get(lambda: [version])[version])
    path = next(path for path in trainer.modules if path in sources)
    assert old in sources[path]
    sources[path] = sources[path].replace(old, new)
    found = drift.inspect(trainer, version, sources)
    assert found is not None
    return found
