"""The verdict: from what holds, the state of the process, and what was NaN."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlexporter.catalog.runbooks import runbook
from rlexporter.conditions.causes import WAKE
from rlexporter.conditions.table import CONDITION_NAMED, CONDITIONS
from rlexporter.feed.feed import Feed
from rlexporter.logs.saved_state import read_saved_state
from rlexporter.model.incident import Standing
from rlexporter.model.snapshot import RunState
from rlexporter.outputs import state_file
from rlexporter.status.samples import Samples
from rlexporter.status.steps import of_runbook
from tests.status.runs import NOW, goes_wrong, judged, recorded, said

EASED, OVER = Standing.EASED, Standing.OVER


def _running(algorithm: str = "grpo", steps: int = 5) -> Feed:
    feed = judged(algorithm)
    feed.enter(RunState.RUNNING)
    for step in range(1, steps + 1):
        feed.record({"reward": 0.5 + 0.1 * (step % 3), "reward_std": 0.3, "kl": 0.01}, step)
    return feed


def test_a_healthy_run_is_fine() -> None:
    """And it is said how much is judged."""
    found = said(_running().snapshot)

    assert (found.word, found.code, found.conditions, found.actions) == ("fine", "ok", [], [])
    assert " checks pass." in found.text


@pytest.mark.parametrize(("severity", "word"), [("critical", "act"), ("warning", "look"), ("info", "fine")])
def test_the_severity_is_the_word(severity: str, word: str) -> None:
    """Of each limit of the catalog; the text is the catalog's, and so is what to do."""
    found_in = [each for each in CONDITIONS if severity in {limit.severity.value for limit in each.limits}]
    assert found_in
    feed = _running()
    healthy = feed.snapshot
    for condition in found_in:
        feed.snapshot = healthy
        goes_wrong(feed, condition.name, severity, 3)
        found = said(feed.snapshot)
        assert found.word == word
        assert (condition.summary in found.text) is (word != "fine")
        assert found.actions == (
            of_runbook(condition.alert, condition.name, Samples(feed.snapshot)) if word != "fine" else []
        )
        assert found.conditions == ([condition.name] if word != "fine" else [])


Steps = dict[str, int]
SHORTLY, LONG = 30 - WAKE, 30 - WAKE - 1
TRUNCATION = {"truncation": 30}
EQUALS = {"entropy_collapsed": 46, "reward_drop": 35}
ORDERS: dict[str, tuple[Steps, Steps, list[str]]] = {
    "the worst, and among equals the cause, whatever began first": (
        {"nonfinite_value_loss": 45, "nonfinite": 13, "truncation": 3},
        {"kl_high": 48},
        ["nonfinite_value_loss", "nonfinite", "truncation", "kl_high"],
    ),
    "of equals the earliest": (EQUALS, {"kl_high": 5}, ["reward_drop", "entropy_collapsed", "kl_high"]),
    "by when it began at all: a warning that became critical later": (
        {**EQUALS, "kl_high": 40},
        {"kl_high": 5},
        ["kl_high", "reward_drop", "entropy_collapsed"],
    ),
    "a warning shortly before": (TRUNCATION, {"kl_high": SHORTLY}, ["kl_high", "truncation"]),
    "not long before": (TRUNCATION, {"kl_high": LONG}, ["truncation", "kl_high"]),
    "nor where it breaks no policy": (TRUNCATION, {"step_slow": 25}, ["truncation", "step_slow"]),
    "a warning that led to it by way of another": (
        {"reward_drop": 45},
        {"kl_coef_lost": 10, "kl_high": 28},
        ["kl_coef_lost", "reward_drop", "kl_high"],
    ),
    "what says more, although its symptom was certain before it": (
        {"kl_high": 10},
        {"length_low": 10 + WAKE},
        ["length_low", "kl_high"],
    ),
    "not long after": ({"kl_high": 10}, {"length_low": 11 + WAKE}, ["kl_high", "length_low"]),
    "nor one that only explains other warnings, before NaN": (
        {"nonfinite": 45},
        {"learning_rate_jump": 44},
        ["nonfinite", "learning_rate_jump"],
    ),
}


@pytest.mark.parametrize(("critical", "warnings", "order"), ORDERS.values(), ids=ORDERS.keys())
def test_what_speaks_first(critical: Steps, warnings: Steps, order: list[str]) -> None:
    """By severity, cause, and beginning; the word is that of the worst."""
    feed = _running(steps=50)
    for severity, steps in (("critical", critical), ("warning", warnings)):
        for name, step in steps.items():
            goes_wrong(feed, name, severity, step)
    found = said(feed.snapshot)

    assert (found.word, found.conditions) == ("act", order)


def test_the_first_is_told_with_its_step_and_how_many_others_hold() -> None:
    """Even where it is over, since what it began holds; with its number, and its runbook."""
    feed = _running(steps=50)
    goes_wrong(feed, "truncation", "critical", 30)
    goes_wrong(feed, "kl_high", "warning", SHORTLY + 1)
    goes_wrong(feed, "learning_rate_jump", "warning", SHORTLY, OVER)
    found = said(feed.snapshot)
    assert found.conditions == ["learning_rate_jump", "truncation", "kl_high"]
    assert found.word == "act"
    assert "It began in step 10 and is over, but what followed is not." in found.text

    goes_wrong(feed, "nonfinite", "critical", 43)
    found = said(feed.snapshot)
    assert found.text == "A number that training computes is NaN or infinite. In step 43: 7, limit 3."
    assert found.runbook.endswith("/alerts/runbooks/RLNotANumber.md")


def test_symptoms_never_speak() -> None:
    """Not even alone, and not by the order of those that began."""
    feed = _running(steps=50)
    goes_wrong(feed, "nonfinite", "critical", 13, cause="kl_high")
    goes_wrong(feed, "reward_flat", "critical", 14, cause="kl_high")
    assert said(feed.snapshot).word == "fine"

    goes_wrong(feed, "kl_high", "warning", 2)
    assert said(feed.snapshot).conditions == ["kl_high"]
    began = [each.condition for each in feed.snapshot.incidents]
    assert began == ["kl_high", "reward_flat", "nonfinite"]


def test_a_cause_begins_with_its_first_symptom() -> None:
    """Which may be certain before it: what is critical meanwhile comes after both."""
    feed = _running(steps=50)
    goes_wrong(feed, "reward_drop", "critical", 44)
    goes_wrong(feed, "length_low", "warning", 46)
    assert said(feed.snapshot).conditions[0] == "reward_drop"

    goes_wrong(feed, "kl_high", "warning", 42, cause="length_low")
    assert said(feed.snapshot).conditions[0] == "length_low"


def test_completions_of_nothing_have_the_same_reward() -> None:
    """A collapse to nothing is named before the rewards that do not differ since, and before what these explain."""
    feed = _running(steps=50)
    goes_wrong(feed, "reward_flat", "critical", 44)
    goes_wrong(feed, "value_loss_spike", "critical", 38, cause="reward_flat")
    assert said(feed.snapshot).conditions[0] == "reward_flat"

    goes_wrong(feed, "length_low", "warning", 41)
    assert said(feed.snapshot).conditions[0] == "length_low"


def test_completions_of_nothing_have_no_reward() -> None:
    """A reward that is 0 for short completions is certain before their length is."""
    feed = _running(steps=50)
    goes_wrong(feed, "reward_zeroed", "warning", 40)
    goes_wrong(feed, "reward_drop", "critical", 44)
    assert said(feed.snapshot).conditions[0] == "reward_zeroed"

    goes_wrong(feed, "length_low", "warning", 46)
    assert said(feed.snapshot).conditions[0] == "length_low"


def test_what_is_over_leads_to_nothing_by_way_of_another() -> None:
    """It may be the cause itself: a learning rate that jumped for one step."""
    feed = _running(steps=50)
    goes_wrong(feed, "kl_coef_lost", "warning", 10)
    goes_wrong(feed, "learning_rate_jump", "warning", 28, OVER)
    goes_wrong(feed, "reward_drop", "critical", 45)

    assert said(feed.snapshot).conditions == ["learning_rate_jump", "reward_drop", "kl_coef_lost"]


def test_what_flaps_does_not_flap_here() -> None:
    """A condition that is over speaks as long as its cause would explain others; a warning is not told later."""
    feed = _running(steps=50)
    goes_wrong(feed, "kl_high", "warning", 50 - WAKE, OVER)
    assert "earlier" not in said(feed.snapshot).text

    goes_wrong(feed, "kl_high", "critical", 50 - WAKE + 1, OVER)
    found = said(feed.snapshot)
    assert (found.word, found.code) == ("act", "condition")
    assert "It began in step 31 and is over." in found.text

    goes_wrong(feed, "kl_high", "critical", 50 - WAKE, OVER)
    found = said(feed.snapshot)
    assert (found.word, found.code) == ("fine", "ok")
    told = "Something was critical earlier. The policy is far from the reference. In step 30: 7, limit 3."
    assert found.text.endswith(f"{told} It began in step 30 and is over.")

    goes_wrong(feed, "kl_high", "critical", 5, EASED)
    found = said(feed.snapshot)
    assert (found.word, found.code, found.conditions) == ("look", "condition", ["kl_high"])
    assert "It began in step 5. It is back within its limit, but not at its earlier level." in found.text


def test_what_was_nan_is_worth_a_look_for_good() -> None:
    """It was learned from; where it is no fault it is not."""
    feed = _running()
    feed.record({"reward": math.nan, "kl": 0.01}, 6)
    assert said(feed.snapshot).word == "act"
    for step in range(7, 40):
        feed.record({"reward": 0.5 + 0.1 * (step % 3), "kl": 0.01}, step)
    found = said(feed.snapshot)
    assert (found.word, found.code, found.conditions) == ("look", "condition", ["nonfinite_reward"])
    assert found.text.startswith("A reward is NaN or infinite. It began in step 6. None came since")

    feed = _running("ppo")
    feed.record({"val/ratio_var": math.nan}, 6)
    assert said(feed.snapshot).word == "fine"


def test_the_state_file_keeps_what_went_wrong(tmp_path: Path) -> None:
    """So that the page of a process that was killed says what it said."""
    feed = _running()
    goes_wrong(feed, "kl_high", "critical", 3, EASED)
    goes_wrong(feed, "entropy_low", "warning", 2, cause="kl_high")
    file = tmp_path / "state.json"
    file.write_text(state_file.text(feed.snapshot))
    kept = read_saved_state(file)

    assert kept is not None
    assert kept.snapshot.incidents == feed.snapshot.incidents
    assert said(kept.snapshot) == said(feed.snapshot)


def test_a_run_that_hangs() -> None:
    """After the seconds that are served, with the phase; one that is over does not hang."""
    feed = _running()
    feed.under_way("reward")
    limit = feed.snapshot.value("rl_stall_after_seconds")
    assert limit == 600.0
    assert said(feed.snapshot, NOW + limit).word == "fine"
    found = said(feed.snapshot, NOW + limit + 61)
    assert (found.word, found.code, found.actions) == (
        "act",
        "stalled",
        [step.text for step in runbook("RLRunStalled").steps],
    )
    assert found.text == (
        "The run is stuck: its last step ended 11 min ago (limit: 10 min). It is in its reward phase."
    )
    for state in (each for each in RunState if each.over and each is not RunState.FAILED):
        feed.enter(state)
        assert said(feed.snapshot, NOW + 10 * limit).word == "fine"


@pytest.mark.parametrize("state", [RunState.STARTING, RunState.RUNNING])
def test_a_run_without_a_step_starts_until_it_is_late(state: RunState) -> None:
    """The first step has longer."""
    feed = judged()
    feed.enter(state)
    found = said(feed.snapshot)
    assert (found.word, found.code) == ("fine", "starting")
    assert found.text.startswith("No step has finished yet.")
    assert said(feed.snapshot, NOW + 1700).word == "fine"
    found = said(feed.snapshot, NOW + 1900)
    assert (found.word, found.code) == ("act", "stalled")
    assert "it started 32 min ago and has not finished a step" in found.text


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (RunState.FINISHED, "The run has finished after step 5."),
        (RunState.STOPPED, "The run was stopped after step 5."),
        (RunState.PREEMPTED, "The run was told to stop (SIGTERM) after step 5."),
    ],
)
def test_a_run_that_has_ended_says_how_and_what_still_held(state: RunState, text: str) -> None:
    """A run that ended well with NaN in its weights has not ended well."""
    feed = _running()
    feed.enter(state)
    found = said(feed.snapshot)
    assert (found.word, found.code) == ("fine", state.value)
    assert found.text.startswith(f"{text} All ")

    goes_wrong(feed, "nonfinite", "critical", 5)
    found = said(feed.snapshot)
    assert (found.word, found.code) == ("act", "condition")
    assert found.text.startswith(f"A number that training computes is NaN or infinite. In step 5: 7, limit 3. {text}")


def test_a_run_of_two_steps_is_too_short_to_judge() -> None:
    """As `check` says of its log; while it runs, what is judged so far is told."""
    feed = _running(steps=2)
    assert " checks pass." in said(feed.snapshot).text
    feed.enter(RunState.FINISHED)
    expected = "The run has finished after step 2. It is too short to judge: fewer than 3 steps."
    assert said(feed.snapshot).text == expected


@pytest.mark.parametrize(
    ("run", "word", "code", "first"),
    [
        ("grpo-healthy_multi-0", "fine", "finished", None),
        ("rloo-healthy_multi-0", "fine", "finished", None),
        ("ppo-healthy_accum-0", "fine", "finished", None),
        ("grpo_mid-healthy_base-0", "fine", "finished", None),
        ("ppo-value_nan-0", "act", "failed", "nonfinite"),
        ("ppo_legacy-value_nan-0", "act", "failed", "nonfinite"),
        ("rloo-reward_inf-0", "act", "failed", "nonfinite_reward"),
        ("grpo-reward_nan_all-0", "act", "condition", "reward_lost"),
    ],
)
def test_recorded_runs(data: Path, run: str, word: str, code: str, first: str | None) -> None:
    """The cause is named, and before the failure that it explains."""
    snapshot, _, now = recorded(data / f"runs/{run}.jsonl")
    found = said(snapshot, now)

    assert (found.word, found.code) == (word, code)
    assert found.conditions[:1] == ([first] if first else [])
    if code == "failed" and first:
        (subject,) = [each.subject for each in snapshot.incidents if each.condition == first]
        assert subject
        assert found.text.startswith(CONDITION_NAMED[first].says(subject))
        assert "The run has failed with RuntimeError after step" in found.text
