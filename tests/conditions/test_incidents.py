"""One fault is one alert: what begins in the wake of a cause is its symptom, on the clock of steps."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from rlexporter.conditions.causes import INHIBITIONS, NONFINITE_CONDITIONS, WAKE, may_explain
from rlexporter.conditions.table import CONDITION_NAMED, CONDITIONS
from rlexporter.model.condition import Family, Severity
from rlexporter.model.step import StepUpdate
from tests.conditions.planted import Planted, counted


def _faulty(*lines: dict[str, Any], algorithm: str = "grpo") -> Planted:
    """A run with these lines after ten healthy ones; ``seen`` in one of them: the tensors of its step."""
    run = Planted(algorithm).healthy(10)
    for each in lines:
        line = dict(each)
        run.line(line, seen=line.pop("seen", None))
    return run


def _symptoms(run: Planted) -> dict[str, float]:
    """What is served: 1 for a symptom, 0 for what is none any more."""
    return {
        "/".join(series.labels): value
        for series, value in run.snapshot.samples.items()
        if series.metric.series == "rl_condition_symptom"
    }


def _alerts(run: Planted) -> set[str]:
    """The non-finite conditions that hold and are no symptoms."""
    symptoms = {name for name, value in _symptoms(run).items() if value}
    return {
        series.labels[0]
        for series, value in run.snapshot.samples.items()
        if series.metric.series == "rl_condition" and value and "/".join(series.labels) not in symptoms
    }


def _nonfinite(*names: str) -> set[str]:
    return {f"{_full(name)}/critical" for name in names}


def _full(name: str) -> str:
    return f"nonfinite_{name}" if name in ("reward", "value_loss") else "nonfinite"


def _subject(run: Planted) -> str:
    """The number that `nonfinite` is about."""
    return next((each.subject for each in run.snapshot.incidents if each.condition == "nonfinite"), "")


def test_the_order_of_a_step() -> None:
    """As a step computes them."""
    assert NONFINITE_CONDITIONS[:3] == ("nonfinite_reward", "nonfinite_value_loss", "nonfinite")


LOSS, REWARD, LOST = {"loss": nan}, {"reward": nan}, {"seen": {"rl_weight_norm": [nan]}}
COMPARED = {"rl_weight_changed_fraction": [1.0]}
"""Before an update only NaN is counted in the norm of weights; that they were compared says that they were numbers."""
ENDED = {"rl_weight_norm": [nan], "rl_grad_norm_dist": [nan, nan]}
PPO = dict.fromkeys(("objective/scores", "objective/kl", "val/ratio", "loss/policy_avg", "loss/value_avg"), nan)
CASES: dict[str, tuple[str, list[dict[str, Any]], set[str], dict[str, str], str]] = {
    "weights that were NaN before the update: all else in that step follows from them": (
        "ppo",
        [{**PPO, "seen": {"rl_weight_norm": [nan] * 2, "rl_grad_norm_dist": [nan], "rl_advantage_dist": [nan]}}],
        {"other"},
        dict.fromkeys(("reward", "value_loss"), "other"),
        "rl_weight_norm",
    ),
    "weights that were numbers before the update come last: the reward ends them within its step": (
        "ppo",
        [{"objective/scores": nan, "loss/policy_avg": nan, "seen": {**COMPARED, **ENDED}}],
        {"reward"},
        {"other": "reward"},
        "rl_policy_loss",
    ),
    "that they were numbers in the step before says nothing of this one": (
        "grpo",
        [{"seen": {"rl_weight_norm": [3.0], **COMPARED}}, {**REWARD, "seen": {"rl_weight_norm": [nan, nan]}}],
        {"other"},
        {"reward": "other"},
        "rl_weight_norm",
    ),
    "what a policy computes comes before the value loss": (
        "ppo",
        [dict.fromkeys(("objective/kl", "loss/policy_avg", "loss/value_avg"), nan)],
        {"other"},
        {"value_loss": "other"},
        "rl_kl_per_sequence",
    ),
    "and the gradient after it": (
        "ppo",
        [{"loss/value_avg": nan, "seen": {"rl_grad_norm_dist": [nan]}}],
        {"value_loss"},
        {"other": "value_loss"},
        "rl_grad_norm",
    ),
    "weights that end without a NaN in the update before": ("grpo", [LOSS, {}, LOST], {"other"}, {}, "rl_weight_norm"),
    "weights that end long after a NaN began": ("grpo", [LOSS] * (WAKE + 1) + [LOSS | LOST], {"other"}, {}, "rl_loss"),
    "a number of an update beside one that none is computed from is told again": (
        "grpo",
        [{"entropy": nan}, {"entropy": nan} | LOSS],
        {"other"},
        {},
        "rl_loss",
    ),
    "what began earlier is no symptom": ("grpo", [LOSS, LOSS | REWARD], {"other", "reward"}, {}, "rl_loss"),
    "what unseen NaN weights do, but a reward is of its own": (
        "ppo",
        [{"seen": {"rl_grad_norm_dist": [nan]}}, {**PPO, "seen": {"rl_grad_norm_dist": [nan]}}],
        {"other", "reward"},
        {"value_loss": "other"},
        "rl_grad_norm",
    ),
    "what a NaN value loss does to all else in the next step": (
        "ppo",
        [{"loss/value_avg": nan}, dict.fromkeys(("objective/kl", "val/ratio", "loss/value_avg"), nan)],
        {"value_loss"},
        {"other": "value_loss"},
        "rl_kl_per_sequence",
    ),
    "a cause that holds explains what begins, however late": (
        "grpo",
        [REWARD] * (WAKE + 10) + [REWARD | LOSS],
        {"reward"},
        {"other": "reward"},
        "rl_loss",
    ),
}


@pytest.mark.parametrize(("algorithm", "lines", "alerts", "symptoms", "subject"), CASES.values(), ids=CASES.keys())
def test_what_is_an_alert(
    algorithm: str, lines: list[dict[str, Any]], alerts: set[str], symptoms: dict[str, str], subject: str
) -> None:
    """And what is a symptom of which cause, of the non-finite; and which number the others are named by."""
    run = _faulty(*lines, algorithm=algorithm)
    causes = {name: cause[0] for (name, _), cause in run.watch.causes.items() if cause}

    assert _alerts(run) == {_full(name) for name in alerts}
    assert set(_symptoms(run)) == _nonfinite(*symptoms)
    assert causes == {_full(name): _full(cause) for name, cause in symptoms.items()}
    assert _subject(run) == subject


def test_more_of_what_was_told_is_one_event() -> None:
    """A NaN that spreads is told by the number it began in; but what is worse than all before is told again."""
    spread = _faulty(LOSS, LOSS | {"grad_norm": nan, "kl": nan}, LOSS)
    worse = _faulty({"entropy": nan}, {"entropy": nan}, {"entropy": nan} | LOSS, LOSS)

    (one,) = [each for each in spread.snapshot.incidents if each.condition == "nonfinite"]
    (two,) = [each for each in worse.snapshot.incidents if each.condition == "nonfinite"]
    assert (one.subject, one.step, one.count) == ("rl_loss", 11, 1)
    assert (two.subject, two.since, two.step, two.count) == ("rl_loss", 13, 13, 2)


def test_weights_whose_end_arrives_after_the_line_of_its_step() -> None:
    """As it does from a GPU: they were compared before the line."""
    run = _faulty({"reward": nan, "seen": {"rl_weight_changed_fraction": [1.0]}})
    run.late({"rl_weight_norm": [nan]})
    run.feed.settle()

    assert _alerts(run) == {"nonfinite_reward"}
    assert set(_symptoms(run)) == _nonfinite("weights")


@pytest.mark.parametrize(
    ("losses", "norms", "cause"),
    [
        # The loss was a number: what the next updates compute is NaN by the weights, and not the other way round.
        ([0.1, nan, nan, nan], [nan, nan, nan, nan], "rl_grad_norm"),
        ([0.1, 0.2, 0.3, nan], [0.5, 0.6, nan, nan], "rl_grad_norm"),
        ([0.1, 0.2, 0.3, 0.4, nan, nan], [0.5, nan, nan], "rl_grad_norm"),  # two micro-batches an update
        ([0.1, 0.2], [0.5, nan], "rl_grad_norm"),  # in the last one
        # The loss was none in the same update: the order of a step holds.
        ([nan, nan], [nan, nan], "rl_policy_ratio_mean"),
        ([0.1, nan, nan], [0.5, nan, nan], "rl_policy_ratio_mean"),
        (
            [0.1, 0.2, 0.3, nan, nan, nan],
            [0.5, nan, nan],
            "rl_policy_ratio_mean",
        ),  # the second micro-batch of the second
        ([0.1, nan], [], "rl_policy_ratio_mean"),
    ],
)
def test_a_gradient_that_is_nan_in_one_of_several_updates(losses: list[float], norms: list[float], cause: str) -> None:
    """It is known from the losses of micro-batches, and the norms of the gradients of updates, what came first."""
    seen = {"rl_loss_dist": losses, "rl_grad_norm_dist": norms, "rl_policy_ratio_dist": [1.0, nan]}
    line = {"val/ratio": nan, "loss/policy_avg": nan, "loss/value_avg": nan, "seen": seen}
    run = _faulty(line, algorithm="ppo")

    assert _alerts(run) == {"nonfinite"}
    assert _subject(run) == cause
    assert _symptoms(run)["nonfinite_value_loss/critical"] == 1


def test_the_cause_comes_with_later_data_of_the_step() -> None:
    """Taps have seen the loss when the step ended, and its line, which comes after, has the reward."""
    run = _faulty()
    update = StepUpdate(step=11, seen=counted({"rl_loss_dist": [nan], "rl_grad_norm_dist": [nan]}))
    run.feed.record({}, 11, update)
    assert _alerts(run) == {"nonfinite"}
    run.feed.record({"reward": nan, "kl": nan}, 11)

    assert _alerts(run) == {"nonfinite_reward"}
    assert _symptoms(run) == {"nonfinite/critical": 1}
    assert _subject(run) == "rl_kl_per_token"
    reward = "nonfinite_reward", "critical"
    assert run.watch.causes == {reward: None, ("nonfinite", "critical"): reward}


def test_a_nan_gradient_ends_the_weights() -> None:
    """They are seen in the step after it, when the run dies of them: one fault, whose alert lasts."""
    run = _faulty({"loss": nan, "grad_norm": nan})
    run.late({"rl_weight_norm": [nan]})
    run.feed.settle()
    run.fail()

    assert _alerts(run) == {"nonfinite"}
    assert _subject(run) == "rl_loss"
    assert set(_symptoms(run)) == {"run_failed/critical"}


def test_a_symptom_that_outlives_its_cause_is_an_alert() -> None:
    """The reward was NaN once; the gradient still is when that is long ago. What begins then is of its own."""
    run = _faulty({"reward": nan, "grad_norm": nan}, *[{"grad_norm": nan}] * WAKE)
    assert _symptoms(run) == {"nonfinite/critical": 1}
    run.line({"grad_norm": nan})
    assert _symptoms(run) == {"nonfinite/critical": 0}


def test_symptoms_of_another_family_and_of_a_symptom() -> None:
    """Truncation explains the length, although that is certain before it; a milder limit begins with the worse one."""
    run = _faulty(*[{"completions/clipped_ratio": 1.0, "completions/mean_length": 400.0}] * 12)
    served = _symptoms(run)

    assert served["truncation/warning"] == 1
    assert run.began["length_high", "warning"] < run.began["truncation", "critical"]
    assert served["length_high/warning"] == 1
    run.line({"completions/mean_length": 10.0})
    for _ in range(5):
        run.line({"completions/clipped_ratio": 1.0, "completions/mean_length": 10.0})
    assert _symptoms(run)["length_low/warning"] == 1


SHORT, FAR, SURE = {"completions/mean_length": 20.0}, {"kl": 4.0}, {"entropy": 0.01}
FORETOLD: dict[str, tuple[list[dict[str, Any]], dict[str, str]]] = {
    "short completions are why KL is high, although that is certain after three": (
        [SHORT | FAR] * 5,
        {"kl_high": "length_low"},
    ),
    "not long after": ([FAR] * (WAKE + 1) + [FAR | SHORT] * 5, {}),
    "nor is what is worse": ([{"kl": 9.0}] * 3 + [SHORT | {"kl": 9.0}] * 5, {}),
    "with what follows from it": (
        [SHORT] + [SHORT | SURE | {"grad_norm": 0.0, "frac_reward_zero_std": 0.05}] * 4,
        {"entropy_low": "length_low", "gradient_dead": "entropy_collapsed"},
    ),
    "what was short first is why entropy is low": ([SHORT] + [SHORT | SURE] * 4, {"entropy_low": "length_low"}),
    "and the other way round": ([SURE] + [SHORT | SURE] * 5, {"length_low": "entropy_low"}),
}


@pytest.mark.parametrize(("lines", "causes"), FORETOLD.values(), ids=FORETOLD.keys())
def test_a_symptom_that_is_certain_before_its_cause(lines: list[dict[str, Any]], causes: dict[str, str]) -> None:
    """What says more needs more steps; what began earlier, by when the number left its limit, is no symptom else."""
    run = _faulty(*lines)
    told = {each.condition: each for each in run.snapshot.incidents if not each.cause}

    assert {each.condition: each.cause for each in run.snapshot.incidents if each.cause} == causes
    assert {*causes.values()} <= {*told}


def test_nothing_hides_what_is_worse() -> None:
    """In any pair, nor does anything hide itself, nor two each other."""
    limits = [(condition, limit) for condition in CONDITIONS for limit in condition.limits]
    order = [Severity.INFO, Severity.WARNING, Severity.CRITICAL].index
    hidden = [(a, b) for a in limits for b in limits if a is not b and may_explain(a, b)]
    assert len(hidden) > 100
    assert all(order(a[1].severity) >= order(b[1].severity) for a, b in hidden)
    kl = CONDITION_NAMED["kl_high"]
    assert not may_explain((kl, kl.limits[0]), (kl, kl.limits[1]))
    assert may_explain((kl, kl.limits[1]), (kl, kl.limits[0]))
    one, other = CONDITION_NAMED["ratio_tail"], CONDITION_NAMED["ratio_high"]
    assert one.alert == other.alert
    assert not may_explain((one, one.limits[1]), (other, other.limits[0])), "each condition is told"
    causes = {cause for of, _ in INHIBITIONS for cause in of}
    assert Family.NONFINITE in causes


@pytest.mark.parametrize(
    ("lines", "symptom"),
    [
        pytest.param([LOSS], 1.0, id="at once"),
        pytest.param([LOSS] * 4, 1.0, id="soon"),
        pytest.param([REWARD, LOST], 1.0, id="of the NaN that holds, not of one that is over"),
        pytest.param([REWARD] * (WAKE + 2), None, id="not of one that has lasted for long"),
        pytest.param([LOSS, {}], None, id="nor of one that is over"),
        pytest.param([{"kl": 9.0}], None, id="nor of a number"),
    ],
)
def test_a_run_that_dies_of_a_nan(lines: list[dict[str, Any]], symptom: float | None) -> None:
    """That it failed is a symptom where a NaN holds that began lately; else the failure is told by itself."""
    run = _faulty(*lines)
    run.fail()

    assert run.value("rl_condition_symptom", "run_failed") == symptom


def test_the_next_run_of_a_process_begins_without_symptoms() -> None:
    """They are 0 and not absent: Prometheus would see an absent one as it was for a while."""
    run = _faulty({"reward": nan, "loss": nan})
    run.fail()
    assert set(_symptoms(run).values()) == {1}
    run.begin()

    assert _symptoms(run) == {"nonfinite/critical": 0, "run_failed/critical": 0}
    run.healthy(10).line({"loss": nan})
    assert _symptoms(run)["nonfinite/critical"] == 0


def test_what_was_not_over_goes_on() -> None:
    """An incident that eased and holds again began when it did first; one that was over begins anew."""
    far, near = [FAR] * 5, [{"kl": 0.5}] * 5
    old: list[dict[str, Any]] = [{}] * 40
    (once,) = [each for each in _faulty(*far).snapshot.incidents if each.condition == "kl_high"]
    (again,) = [each for each in _faulty(*far, *near, *far).snapshot.incidents if each.condition == "kl_high"]
    (anew,) = [each for each in _faulty(*far, *old, *far).snapshot.incidents if each.condition == "kl_high"]

    assert (again.began, again.since, again.count) == (once.began, once.since, 2)
    assert again.step == once.step + 10
    assert (anew.began, anew.since, anew.count) == (once.began + 45, once.since + 45, 2)
