"""What to do about a verdict: stop or go on, a first look, what mends it; for this algorithm, with its values."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rlexporter.catalog.languages import language
from rlexporter.catalog.runbooks import LABELS
from rlexporter.conditions.table import CONDITIONS
from rlexporter.feed.builder import write_incidents
from rlexporter.feed.feed import Feed
from rlexporter.model.incident import Standing
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts
from rlexporter.status import steps
from rlexporter.status.samples import Samples
from rlexporter.status.steps import Step
from tests.conditions.planted import Planted
from tests.status.runs import NOW, goes_wrong, judged, said

BESIDE = "(rl_kl_per_token|rl_reward_mean)"


def _running(algorithm: str = "grpo", steps: int = 10) -> Feed:
    feed = judged(algorithm)
    feed.enter(RunState.RUNNING)
    for step in range(1, steps + 1):
        feed.record({"reward": 0.5 + 0.1 * (step % 3), "kl": 0.01, "learning_rate": 1e-4}, step)
    return feed


def test_a_run_that_must_be_stopped() -> None:
    """Stop and resume, a command for the numbers beside it that this run has, the first thing that mends it."""
    feed = _running()
    goes_wrong(feed, "kl_high", "critical", 10)
    feed.change(lambda builder: builder.set("rl_hyperparameter", 0.04, "beta"))
    assert said(feed.snapshot).steps == [
        Step("Stop the run. No checkpoint is known: start again, and save some along the way."),
        Step(
            "Look at the numbers beside it:", "curl -s {address}/metrics | grep -E '^(rl_kl_per_token|rl_reward_mean)'"
        ),
        Step("Raise `beta` (0.04 in this run)."),
    ]

    feed.saved(8)
    assert (
        said(feed.snapshot)
        .steps[0]
        .text.endswith("No checkpoint is left from before this began, so start from scratch.")
    )
    feed.change(lambda builder: builder.set("rl_last_good_checkpoint_step", 8))
    first = said(feed.snapshot).steps[0].text
    assert first == "Stop the run. Resume from `checkpoint-8`, which was written before this began."


def test_a_run_that_may_go_on() -> None:
    """A warning asks for a look; of a run that is over, before its model is used, and no command asks a process."""
    feed = _running()
    goes_wrong(feed, "kl_high", "warning", 10)
    assert said(feed.snapshot).steps[0] == Step("Let the run continue, and look at it today.")
    feed.enter(RunState.FINISHED)
    found = said(feed.snapshot).steps
    assert found[0] == Step("Look at this before you use its model.")
    assert len(found) == 3
    assert not any(step.command for step in found)

    goes_wrong(feed, "kl_high", "critical", 10)
    assert said(feed.snapshot).steps[0].text.startswith("Do not use its last weights. ")


def test_what_was_critical_and_has_eased_names_the_checkpoint_before_it() -> None:
    """The run goes on, and may have to go back: never to a checkpoint that was written since."""
    feed = _running(steps=40)  # so many that it is not as if it still held
    goes_wrong(feed, "kl_high", "critical", 10, Standing.EASED)
    feed.change(lambda builder: builder.set("rl_last_good_checkpoint_step", 8))
    first = "Let the run continue, and look at it today. If it has done harm, resume from `checkpoint-8`."
    assert said(feed.snapshot).steps[0].text == first
    feed.change(lambda builder: builder.set("rl_last_good_checkpoint_step", 12))
    assert said(feed.snapshot).steps[0].text == "Let the run continue, and look at it today."


def test_nan_does_not_say_twice_that_it_must_stop() -> None:
    """The steps say it with this run's checkpoint; the runbook says it for all."""
    feed = _running()
    goes_wrong(feed, "nonfinite", "critical", 10)
    texts = [step.text for step in said(feed.snapshot).steps]
    assert [text.startswith("Stop") for text in texts] == [True, False, False]
    assert not any("rl_last_good_checkpoint_step" in text for text in texts)


def test_a_run_that_hangs_or_has_failed() -> None:
    """The stack while it hangs, by its own process where that trains; where to go on after a failure."""
    feed = _running()
    late = NOW + 10_000
    hanging = said(feed.snapshot, late).steps
    assert hanging[:2] == [
        Step("Leave it running for now: you can see what it waits for only while it hangs."),
        Step("See where each thread waits, on its machine:", "py-spy dump --pid PID"),
    ]
    assert hanging[2].text == "Give reward functions a time-out."
    feed.begin(RunFacts(algorithm="grpo", step=0, info={"trainer": "GRPOTrainer"}), {"run": "test", "rank": "0"})
    feed.enter(RunState.RUNNING)
    feed.record({"reward": 0.5}, 1)
    assert said(feed.snapshot, late).steps[1].command == "py-spy dump --pid {pid}"

    feed.saved(9)
    feed.change(lambda builder: builder.set("rl_last_good_checkpoint_step", 9))
    feed.enter(RunState.FAILED, "OutOfMemoryError")
    failed = said(feed.snapshot).steps
    assert failed[0].text.endswith("Resume from `checkpoint-9`, which was written before this began.")
    assert [step.text for step in failed[1:]] == [
        "Read the exception at the end of the log, and look for an alert on NaN before it."
    ]


@pytest.mark.parametrize(
    ("every", "told"),
    [
        (500.0, "No checkpoint was written yet: lower `save_steps` (500 in this run), and start again."),
        (2.0, "No checkpoint was written: set `save_steps` (2 in this run), and start again."),
    ],
)
def test_where_no_checkpoint_is(every: float, told: str) -> None:
    """What is set already is not told as if it were missing."""
    feed = _running()
    feed.change(lambda builder: builder.set("rl_hyperparameter", every, "save_steps"))
    goes_wrong(feed, "kl_high", "critical", 4)
    assert said(feed.snapshot).steps[0].text == f"Stop the run. {told}"


def test_a_penalty_with_the_wrong_sign_is_told_with_its_coefficient() -> None:
    """A share of its highest value, -100 %, would be a riddle; its curve is that of the coefficient."""
    run = Planted("ppo-legacy")
    for step in range(1, 9):
        run.line({"objective/kl_coef": 0.07 if step < 7 else -0.07})
    found = said(run.feed.snapshot)
    assert found.conditions[0] == "kl_coef_lost"
    assert found.text.startswith(
        "The coefficient of the KL penalty is 0 or negative. `rl_kl_coef` is now -0.07. It began in step 7."
    )
    assert found.curve == {"series": "rl_kl_coef", "labels": {}}


def test_a_healthy_run_has_none() -> None:
    """Nothing is to be done."""
    assert said(_running().snapshot).steps == []


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("grpo", ["Lower `learning_rate`, and warm up.", "Lower `num_iterations` and `steps_per_generation`."]),
        ("ppo", ["Lower `learning_rate`, and warm up.", "Lower `num_ppo_epochs`."]),
        ("ppo-legacy", ["Lower `learning_rate`, and warm up.", "Set `target_kl` with `early_stopping=True`;"]),
    ],
)
def test_advice_is_for_the_algorithm(algorithm: str, expected: list[str]) -> None:
    """Nobody who trains with GRPO is told of `num_ppo_epochs`."""
    found = steps.of_runbook("RLRatio", "ratio_high", Samples(_running(algorithm).snapshot))
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True)), found


def test_an_unknown_algorithm_gets_all_of_it_with_its_names() -> None:
    """Whoever reads it knows which of these it is."""
    assert steps.of_runbook("RLRatio", "ratio_high", Samples(judged("").snapshot))[:3] == [
        "Lower `learning_rate`, and warm up.",
        "GRPO, RLOO: Lower `num_iterations` and `steps_per_generation`.",
        "PPO: Lower `num_ppo_epochs`.",
    ]


def test_a_step_is_for_its_conditions_and_left_out_where_the_verdict_says_it() -> None:
    """By its mark in the runbook: nobody whose optimizer lost its moments is asked what loads weights."""
    samples = Samples(_running().snapshot)
    assert len(steps.of_runbook("RLWeights", "optimizer_restarted", samples)) == 1
    everything = steps.of_runbook("RLNotANumber", "nonfinite", samples)
    assert everything[1:] == steps.of_runbook("RLNotANumber", "nonfinite", samples, without=steps.SAID)
    assert everything[0].startswith("Stop the run")


def test_every_alert_has_something_to_do_in_each_algorithm_that_it_judges() -> None:
    """In each language as well."""
    for algorithm in LABELS:
        samples = Samples(judged(algorithm).snapshot)
        for condition in CONDITIONS:
            for code in ("en", "vi", "zh") if condition.applies(algorithm) else ():
                found = steps.of_runbook(condition.alert, condition.name, samples, language(code), without=steps.SAID)
                assert found, (condition.name, algorithm)
                assert not any(re.match(r"\W?((Legacy )?PPO|GRPO|RLOO)(, \w+)*: ", text) for text in found), found


def test_the_text_and_the_mark_name_one_step() -> None:
    """That since which the number is beyond its limit, which may be before the alert was certain."""
    feed = _running()
    goes_wrong(feed, "kl_high", "critical", 10)
    feed.change(lambda builder: write_incidents(builder, [replace(each, since=8) for each in builder.incidents]))
    assert "In step 10: 7, limit 3. It began in step 8." in said(feed.snapshot).text
