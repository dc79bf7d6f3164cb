"""Signals: how they are declared, what they say of runs that are healthy in an odd way, and how much that weighs."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from math import exp, inf, log10, nan
from textwrap import dedent
from typing import Any

import pytest

from rlexporter.catalog.metrics import MAY_BE_NONFINITE, NAMED
from rlexporter.conditions.declare import COMPUTED
from rlexporter.conditions.detectors import Still
from rlexporter.conditions.judge import Counted, getter
from rlexporter.conditions.table import (
    CONDITION_NAMED,
    CONDITIONS,
    NONFINITE,
    SIGNAL_NAMED,
    SIGNALS,
    FunctionsDead,
    ordered,
)
from rlexporter.conditions.view import Context, View
from rlexporter.model.condition import Read, Signal, Source
from rlexporter.model.snapshot import AnomalyCounts
from tests.conditions.planted import Line, Planted, counted, wave

ANSWER = "rl_reward_function_dist/answer"
GREEDY = {"rl_advantage_dist": [-1.0, 1.0], "rl_logprob_dist": [-0.2], "rl_entropy_per_token_dist": [1.0]}
STILL, MOVED = {"rl_weight_changed_fraction": [0.0]}, {"rl_weight_changed_fraction": [0.5]}
PUSH, REST = {"rl_grad_norm_dist": [0.3]}, {"rl_grad_norm_dist": [0.0]}


def _seen(steps: list[dict[str, Any]], lines: dict[str, Any] | None = None) -> Planted:
    """A run with these tensors, one dictionary a step."""
    run = Planted("grpo")
    for seen in steps:
        run.line(lines or {}, seen=seen)
    return run


USUAL, FAR = {ANSWER: [0.0, 1.0] * 30}, {ANSWER: [0.0, -40.0] * 30}
MOVING = [MOVED | PUSH] * 5
OFTEN_SURE = [{**GREEDY, "rl_logprob_dist": [-1.0 + (0.35 if i % 2 else -0.25)]} for i in range(40)]
VALUES: dict[str, tuple[str, list[dict[str, Any]], list[float]]] = {
    "a reward that is far off does not hide the next one: it is not taken for a usual reward": (
        "reward_outlier",
        [USUAL] * 2 + [FAR] + [USUAL] * 3 + [FAR],
        [0, 40, 0, 0, 0, 40],
    ),
    "a new scale of rewards is told three times; then it is what the reward function gives": (
        "reward_outlier",
        [USUAL] * 2 + [{ANSWER: [0.0, 50.0] * 30}] * 5,
        [0, 49, 49, 49, 0, 0],
    ),
    "fewer than 50 rewards say nothing": ("reward_outlier", [{ANSWER: [0.0, 1.0]}] * 24 + [{ANSWER: [0.0, 99.0]}], []),
    # Rewards that do not differ give no gradient; counts may arrive a step late, so that either step may be meant.
    "weights may stay without a gradient": ("weights_still", MOVING + [STILL | REST] * 20, [0] * 5),
    "weights may stay without a gradient in one step in two": (
        "weights_still",
        MOVING + [STILL | REST, STILL | PUSH] * 10,
        [0] * 5,
    ),
    # In bf16 the updates of a warm-up are lost.
    "weights that have never moved are frozen after 20 looks": ("weights_still", [STILL | PUSH] * 30, [1] * 10),
    "only steps with a rollout tell of the sampler: in others the policy has moved on": (
        "sampler_gap",
        [{name: values for name, values in GREEDY.items() if name != "rl_advantage_dist"}] * 12,
        [],
    ),
    "an offset of 0.3 either way, with a mean of 0.05, is the noise of few tokens": (
        "sampler_gap",
        OFTEN_SURE,
        [0] * 31,
    ),
    "advantages may be alike where the rewards of each group are": (
        "advantage_dead",
        [{"rl_advantage_dist": [0.0, 0.0], "rl_reward_group_range_dist": [0.0, 0.0]}] * 5,
        [0] * 5,
    ),
    "nor are rewards that differ by rounding": (
        "advantage_dead",
        [{"rl_advantage_dist": [0.0, 0.0], "rl_reward_group_range_dist": [0.0, 1e-7]}] * 5,
        [0] * 5,
    ),
}


@pytest.mark.parametrize(("signal", "steps", "values"), VALUES.values(), ids=VALUES.keys())
def test_what_a_signal_says_of_tensors(signal: str, steps: list[dict[str, Any]], values: list[float]) -> None:
    """In each step in which it says anything."""
    assert _seen(steps).signal(signal) == pytest.approx(values, rel=0.02)


def test_the_first_success_of_a_sparse_reward_is_no_outlier() -> None:
    """Though all rewards before it were within 0.05: rewards are of the order of 1."""
    run = _seen([{ANSWER: [0.0, 0.05] * 10}] * 20 + [{ANSWER: [0.0, 1.0] * 10}])

    assert run.signal("reward_outlier")[-1] == pytest.approx(0.95)
    assert run.began == {}


SPARSE = ([[0.0, 0.0, 0.0, 1.0]] + [[0.0] * 4] * 9) * 6
"""One step in ten has a success."""
LEARNING = [[float(i > j) for i in range(8)] for j in (6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0)]
DEAD: dict[str, tuple[list[list[float]], int, int]] = {
    "no sparse one: a pause of 30 steps is chance": (SPARSE + [[0.0] * 4] * 30, 0, 0),
    "but one with 100 flat steps in a row": (SPARSE + [[0.0] * 4] * 100, 121, 160),
    "none that tells prompts apart where all completions of each are alike": (
        [[0.0, 6.0], [1.0, 2.0]] * 10 + [[5.0 + i % 3] * 2 for i in range(30)],
        *(0, 0),
    ),
    "no solved one: it came to its best step by step": (LEARNING + [[1.0] * 8] * 60, 0, 0),
    "but one that jumped to its best: learning takes steps": ([[0.0, 0.0, 0.0, 1.0]] * 12 + [[1.0] * 4] * 10, 20, 20),
}


@pytest.mark.parametrize(("rewards", "first", "last"), DEAD.values(), ids=DEAD.keys())
def test_a_reward_function_that_is_dead(rewards: list[list[float]], first: int, last: int) -> None:
    """It tells no completion from another any more, from a step between these on; 0 for never."""
    run = _seen([{ANSWER: each} for each in rewards])
    assert first <= run.began.get(("reward_function_dead", "warning"), 0) <= last


@pytest.mark.parametrize(("rate", "judged"), [(1e-7, 0), (0.0, 12), (1e-5, 12)])
def test_weights_at_the_end_of_a_schedule(rate: float, judged: int) -> None:
    """Updates of a hundredth are lost in bf16; a learning rate of 0 is a fault."""
    run = _seen(MOVING)
    for _ in range(12):
        run.line({"learning_rate": rate}, seen={**STILL, **PUSH})

    assert sum(run.signal("weights_still")) == judged


@pytest.mark.parametrize(
    ("settings", "judged"),
    [
        ({}, True),
        ({"top_p": 1.0, "top_k": 0.0, "repetition_penalty": 1.0, "temperature": 0.7}, True),
        ({"top_p": 0.95}, False),
        ({"top_k": 20.0}, False),
        ({"min_p": 0.1}, False),
        ({"mask_truncated_completions": 1.0}, False),
    ],
)
def test_a_sampler_that_is_meant_to_differ_is_not_judged(settings: dict[str, float], judged: bool) -> None:
    """By the mean log-probability plus the mean entropy of what was just sampled."""
    run = Planted("grpo")
    run.begin(hyperparameters=settings)
    for _ in range(12):
        run.line({}, seen=GREEDY)

    assert (("sampler_differs", "warning") in run.began) is judged


def test_groups_are_flat_by_their_rewards_not_by_what_trl_logs() -> None:
    """TRL takes the rounding of equal rewards for a spread, and logs 0."""
    run = _seen([{"rl_reward_group_range_dist": [0.0, 0.0, 1e-7, 0.5]}] * 3, lines={"frac_reward_zero_std": 0.0})

    assert run.signal("flat_share") == [0.75] * 3


@pytest.mark.parametrize("extremes", [(inf, -inf), (0.0, -inf), (inf, 1.0), (nan, nan)], ids=str)
class TestSpreadWithoutExtremes:
    """Where the extremes of what was counted are unknown, the spread is, and is never taken for none."""

    @staticmethod
    def _view(extremes: tuple[float, float] | None) -> View:
        rewards = ("rl_reward_dist", "rl_reward_function_dist/accuracy", "rl_reward_function_dist/format")
        seen = counted({name: [0.25, 1.0] for name in rewards})
        if extremes is not None:
            seen = {each: found._replace(minimum=extremes[0], maximum=extremes[1]) for each, found in seen.items()}
        return View(1, True, None, 1, AnomalyCounts(), seen=seen)

    def test_reward_functions_are_not_flat(self, extremes: tuple[float, float]) -> None:
        """Nor is anything else said of them in such a step; the steps before and after count."""
        run, dead = Context({}), FunctionsDead()
        results = [dead(self._view(None if i in (0, 59) else extremes), run) for i in range(60)]

        assert results == [{}, *[None] * 58, {}]
        assert [past.count for past in run.functions.values()] == [2, 2]

    def test_the_judge_reads_the_next_source(self, extremes: tuple[float, float]) -> None:
        """This one gives nothing."""
        read = getter(Source("rl_reward_dist", Read.SPREAD), {})
        assert isinstance(read, Counted)

        assert read.of(self._view(extremes).counted[read.series]) is None
        assert read.of(self._view(None).counted[read.series]) == 0.75


def _legacy(coefficients: list[float], kl: list[float] | None = None) -> Planted:
    """A run of legacy PPO with these coefficients; the KL is per sequence of 20 tokens."""
    run = Planted("ppo-legacy")
    for i, coefficient in enumerate(coefficients):
        run.line({"objective/kl_coef": coefficient, "objective/kl": kl[i] if kl else 2.0})
    return run


RISING = [0.2 * 1.01**i for i in range(15)]
HIGHEST, LOWEST = RISING + RISING[-1:] * 10, [0.2 * 0.99 ** min(i, 14) for i in range(25)]
COEFFICIENTS: dict[str, tuple[Any, ...]] = {
    "one without a controller never moves": ("stuck", [0.2] * 60, None, [0] * 60),
    "or is moved now and then by hand": ("stuck", [0.2] * 20 + [0.1] * 20 + [0.05] * 20, None, [0] * 60),
    "at its upper bound, counted from the first step like the one before": ("stuck", HIGHEST, None, [*range(11)]),
    "at its upper bound, where KL came down to nine tenths": ("stuck", HIGHEST, [4.0] * 15 + [2.0] * 10, [0]),
    "at its lower bound": ("stuck", LOWEST, None, [0]),
    "at its lower bound, where KL has doubled": ("stuck", LOWEST, [2.0] * 15 + [5.0] * 10, [10]),
}


@pytest.mark.parametrize(("signal", "values", "kl", "last"), COEFFICIENTS.values(), ids=COEFFICIENTS.keys())
def test_a_kl_coefficient(signal: str, values: list[float], kl: list[float] | None, last: list[float]) -> None:
    """That does not move any more, or is 0 from the start."""
    assert _legacy(values, kl).signal(f"kl_coef_{signal}")[-len(last) :] == last


def test_a_kl_coefficient_that_is_no_fault() -> None:
    """It stands still where that does not matter, is always 0, or decays.

    To a hundredth, as TRL's controller does in a long run whose KL is below its target.
    """
    assert _legacy(HIGHEST, [4.0] * 15 + [2.0] * 10).began == {}
    run = _legacy([0.0] * 30)
    assert run.signal("kl_coef_share") == []
    assert run.began == {}
    assert ("kl_coef_lost", "warning") not in _legacy([0.2 * 0.98**i for i in range(230)]).began


# How much it weighs


def test_a_streak_weighs_by_how_often_it_happened_before() -> None:
    """Three in a row say much where it never happened in 98 observations, and little where every other one was so."""
    rare, usual = Still(), Still()
    for i in range(98):
        rare.add(False)
        usual.add(bool(i % 2))
    before = usual.add(False)
    found = [(rare.add(True), usual.add(True)) for _ in range(3)]

    assert before == 0.0
    assert [each[0] for each in found] == pytest.approx([2.0, 4.0, 6.0])
    assert [each[1] for each in found] == pytest.approx([-n * log10(50 / 101) for n in (1, 2, 3)])


def test_without_a_past_the_number_of_groups_counts() -> None:
    """One group a step is one toss: ten steps without a spread say less than three steps of 19 groups."""
    one, many = Still(), Still(19)

    assert [one.add(True) for _ in range(10)][-1] == pytest.approx(10 * log10(2))
    assert [many.add(True) for _ in range(3)][-1] == pytest.approx(3 * log10(20))


def test_known_chances_add_up_until_the_event_fails_to_appear() -> None:
    """Each observation counts by its own probability, of which none is below a hundredth."""
    still = Still()

    assert [still.add(True, 0.1), still.add(True, 0.0), still.add(True, 1.0)] == pytest.approx([1.0, 3.0, 3.0])
    assert [still.add(False, 0.1), still.add(True, 0.1)] == pytest.approx([0.0, 1.0])


def test_flat_steps_of_one_group_are_no_alert_in_a_run_that_has_many_of_them() -> None:
    """Every other step is flat, later seven in a row; in a run that never had one, four in a row are an alert."""
    flat = {"reward_std": 0.0, "frac_reward_zero_std": 1.0}
    usual, rare = Planted("grpo"), Planted("grpo")
    for step in range(67):
        reward = {"reward": 1.0 + 0.05 * wave(step)}
        usual.line(reward | flat if step % 2 or step >= 60 else reward)
        rare.line(reward | flat if step >= 60 else reward)

    assert ("reward_flat", "warning") not in usual.began
    assert rare.began["reward_flat", "warning"] == 64


def _logged(every: int, lines: int, changes: Line) -> Planted:
    """A run whose log has each ``every``-th step, from the first window on."""
    run = Planted("grpo")
    for _ in range(lines):
        run.step += every - 1
        run.line(changes)
    return run


@pytest.mark.parametrize(("every", "begins"), [(1, True), (10, False)])
def test_a_first_line_of_ten_steps_is_not_the_first_step(every: int, begins: bool) -> None:
    """The policy has been updated by then."""
    run = _logged(every, 1, {"kl": 3.0})

    assert (("kl_at_start", "critical") in run.began) is begins


@pytest.mark.parametrize(("every", "size"), [(1, 15), (5, 5), (10, 5), (2, 8)])
def test_the_level_of_the_reward_is_a_median_over_as_many_steps(every: int, size: int) -> None:
    """Fifteen steps, but five lines at least: half of them have to be low."""
    run = _logged(every, 40, {})
    at = run.step
    while ("reward_drop", "critical") not in run.began:
        run.step += every - 1
        run.line({"reward": -5.0})

    assert (run.step - at) // every == (size + 1) // 2


def _rewarded(rewards: Iterable[float], algorithm: str = "grpo", every: int = 1, **more: float) -> Planted:
    """A run with these rewards, in every so manieth line."""
    run = Planted(algorithm)
    key = "reward" if algorithm == "grpo" else "objective/scores"
    for reward in rewards:
        run.line({key: reward + 0.05 * wave(run.step), **{name.replace("__", "/"): x for name, x in more.items()}})
        for _ in range(every - 1):
            run.line({key: ...})
    return run


def _drop(run: Planted) -> dict[str, int]:
    return {severity: step for (name, severity), step in run.began.items() if name == "reward_drop"}


def test_a_dip_of_the_reward_is_a_warning_until_it_lasts() -> None:
    """It has cost half of what was gained, for 60 steps; from 100 steps on nobody knows that it will come back."""
    risen = [0.02 * step for step in range(100)]
    dip = _drop(_rewarded([*risen, *[1.0] * 60, *[2.0] * 60]))
    lasting = _drop(_rewarded([*risen, *[1.0] * 160]))
    deep = _drop(_rewarded([*risen, *[0.2] * 30]))

    assert (set(dip), set(deep)) == ({"warning"}, {"warning", "critical"})
    assert lasting["critical"] - lasting["warning"] == 100


def test_one_bad_reward_at_the_start_hides_no_fall() -> None:
    """The range of single rewards is that of their extremes, and says nothing of the levels."""
    usual = [0.1 + 0.003 * step for step in range(100)]

    assert "critical" in _drop(_rewarded([*usual, *[0.05] * 40]))
    assert "critical" in _drop(_rewarded([-2.0, *usual, *[0.05] * 40]))


def test_a_reward_that_comes_seldom_is_judged_at_its_own_pace() -> None:
    """Once in 200 lines: five of them are a level."""
    run = _rewarded([0.1 * step for step in range(12)] + [-1.0] * 5, every=200)

    assert _drop(run)["critical"] == 200 * 14 + 1


def test_the_total_is_read_where_the_score_is_tiny_beside_it() -> None:
    """The policy learns by score and penalty together: where that falls ninefold, a score of 0.006 says nothing."""
    run = Planted("ppo")
    for step in range(120):
        penalty = 0.2 + 0.0005 * max(0, step - 30) ** 2
        run.line({"objective/scores": 0.006 + 0.002 * wave(step), "objective/rlhf_reward": 0.05 * wave(step) - penalty})
    high = _rewarded([1.0] * 60, "ppo", objective__rlhf_reward=-5.0)

    assert "critical" in _drop(run)
    assert run.snapshot.incidents[-1].series == "rl_rlhf_reward"
    assert _drop(high) == {}


def test_a_gradient_of_one_step_is_not_compared_with_the_rewards_of_ten() -> None:
    """A norm of 0 in each line is chance where a third of the groups has no spread; it is no chance where none has."""
    some = _logged(10, 8, {"grad_norm": 0.0, "frac_reward_zero_std": 0.3})
    none = _logged(10, 8, {"grad_norm": 0.0, "frac_reward_zero_std": 0.0})

    assert ("gradient_dead", "critical") not in some.began
    assert none.began["gradient_dead", "critical"] == 30


# How they are declared


def _signal(name: str, of: str = "", after: tuple[str, ...] = ()) -> Signal:
    return Signal(name, "", (Source("rl_loss"),), of, after)


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        (
            (_signal("a"), _signal("b", of="a", after=("c", "d")), _signal("c")),
            "b is computed from d, which",
        ),
        ((_signal("a", after=("a",)),), "a is computed from itself"),
        ((_signal("a", of="b"), _signal("b", of="a")), "a is computed from itself"),
        ((_signal("a"), _signal("a")), "the signal a is declared twice"),
    ],
)
def test_signals_that_cannot_be_ordered(signals: tuple[Signal, ...], message: str) -> None:
    """An input that is not there, or is the signal itself."""
    with pytest.raises(ValueError, match=message):
        ordered(signals)


def test_a_signal_comes_after_what_it_is_computed_from() -> None:
    """Before it, it would read the step before, and nobody would notice."""
    declared = (_signal("c", of="b"), _signal("d"), _signal("b", after=("a",)), _signal("a"))
    assert [each.name for each in ordered(declared)] == ["a", "b", "c", "d"]


def _read(computed: object) -> set[str]:
    """The signals that a function or a class names: ``run.new("kl")``, ``run.past["kl"]``, ``"kl" in run.fresh``."""
    found = computed if inspect.isfunction(computed) else type(computed)
    (body,) = ast.parse(dedent(inspect.getsource(found))).body
    assert isinstance(body, (ast.FunctionDef, ast.ClassDef))
    body.decorator_list = []
    texts = {node.value for node in ast.walk(body) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts & set(SIGNAL_NAMED)


def test_what_a_signal_reads_is_declared() -> None:
    """So that the order of evaluation is checked for all of it."""
    read = {}
    restart = ("reward_weights_lost", "reward_zeros")  # they name the reward, which begins again with other weights
    for signal in (each for each in SIGNALS if each.name in COMPUTED and each.name not in restart):
        read[signal.name] = _read(COMPUTED[signal.name]())
        assert read[signal.name] <= {"", signal.name, signal.of, *signal.after}, signal.name

    assert len(read) >= 16
    assert any(read.values())


def test_every_condition_has_its_signal() -> None:
    """And no signal is evaluated for nothing."""
    judged = {condition.signal for condition in CONDITIONS}
    used = judged.union(*((signal.of, *signal.after) for signal in SIGNALS)) - {""}

    assert judged <= set(SIGNAL_NAMED)
    assert used == set(SIGNAL_NAMED)


def test_each_metric_is_counted_by_one_signal() -> None:
    """Of what is no number: or by none, where that is normal."""
    counted = [name for names in NONFINITE.values() for name in names]

    assert len(counted) == len(set(counted))
    assert set(counted) <= set(NAMED)
    assert not set(counted) & MAY_BE_NONFINITE


# What learning explains: a reward that is found late, and what the policy was like before it was

FOUND = 75
"""The step in which half of the completions are rewarded."""
DISTANT = {"kl_high", "kl_jump", "reward_hacking"}
NO_PARTS = dict.fromkeys(
    ("rewards/format/mean", "rewards/format/std", "rewards/answer/mean", "rewards/answer/std"), ...
)


def _risen(step: int) -> float:
    """How much has been learned, from 0 to 1."""
    return 1 / (1 + exp((FOUND - step) / 6))


def _reward(share: float, step: int) -> Line:
    """A reward of 0 or 1, of four groups of eight completions."""
    mean = min(1.0, max(0.0, 0.03 + 0.93 * share + 0.03 * wave(step)))
    flat = mean**8 + (1 - mean) ** 8
    return {"reward": mean, "reward_std": (mean * (1 - mean)) ** 0.5, "frac_reward_zero_std": flat, **NO_PARTS}


def _distance(share: float) -> tuple[Line, dict[str, Any]]:
    """What KL is then, and what the reference thinks of the completions."""
    return {"kl": 0.02 + 2.2 * share}, {"rl_ref_logprob_dist": [-0.9 - 2.2 * share]}


def _run(limits: object = None, *, rewarded: int = 200, steps: int = 140) -> Planted:
    """A run whose policy leaves its reference as it learns; ``rewarded``: the last step with the reward of it."""
    run = Planted("rloo", limits)
    for step in range(1, steps + 1):
        line, seen = _distance(_risen(step))
        run.line(line | _reward(_risen(step) if step <= rewarded else 0.0, step), seen=seen)
    return run


def _warned(run: Planted) -> dict[str, int]:
    return {name: step for (name, severity), step in run.began.items() if severity != "info" and name in DISTANT}


def test_a_reward_that_is_found_late_pays_for_its_distance() -> None:
    """KL grows from nothing to 2.2 nats a token, the reference is surprised three times as much, and nobody is told."""
    run = _run()

    assert run.signal("kl")[-1] > CONDITION_NAMED["kl_high"].limits[0].value["k1"]  # type: ignore[index]
    assert _warned(run) == {}


def test_the_same_distance_without_a_reward_is_told() -> None:
    """Nothing is gained by it."""
    assert _warned(_run(rewarded=0)).keys() == {"kl_high", "kl_jump"}


def test_a_distance_is_told_once_its_reward_is_lost() -> None:
    """The reward paid for it until then."""
    warned = _warned(_run(rewarded=110))

    assert {name: 110 < step <= 120 for name, step in warned.items()} == {"kl_high": True}


def test_a_distance_that_outgrows_the_gain_is_told() -> None:
    """A KL that grows tenfold while the reward stays at its best is not the price of the reward."""
    run = _run()
    for step in range(141, 150):
        run.line({"kl": 3.9 if step < 145 else 12.0} | _reward(1.0, step))

    assert _warned(run)["kl_high"] == 148


def test_a_limit_that_a_person_has_set_is_a_limit() -> None:
    """Nothing explains what is beyond it."""
    assert "kl_high" in _warned(_run({"kl_high": 1.0}))


@pytest.mark.parametrize(("flat", "told"), [(1.0, False), (0.5, True)])
def test_steps_without_a_reward_are_no_past_of_gradients(flat: float, told: bool) -> None:
    """The penalty alone has a gradient in them: the first reward is no explosion."""
    run = Planted("grpo")
    same = {"reward_std": 0.0} if flat == 1.0 else {}
    for _ in range(40):
        run.line({"frac_reward_zero_std": flat, "grad_norm": 0.005, **NO_PARTS, **same})
    for _ in range(20):
        run.line({"grad_norm": 1.0, **NO_PARTS})

    begun = {name for name, _ in run.began} & {"grad_spike", "grad_explosion"}
    assert begun == ({"grad_spike", "grad_explosion"} if told else set())


def test_updates_are_compared_with_those_that_had_something_to_learn() -> None:
    """A step in which most groups have no spread moves the weights by what is left of the steps before."""
    run = Planted("grpo")
    sizes = {"rl_weight_update_size": [0.1], "rl_weight_changed_fraction": [1.0]}
    for step in range(60):
        run.line({"frac_reward_zero_std": 0.75 if step % 2 else 0.0, "learning_rate": 1e-3}, seen=sizes)

    assert 0 < len(run.signal("update_per_rate")) < len(run.signal("update_size"))
