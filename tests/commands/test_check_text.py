"""What `rlexporter check` says to a person, word by word, of findings made up here."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

import pytest

from rlexporter.catalog.conditions import CONDITION_NAMED
from rlexporter.commands.check import incidents, written
from rlexporter.commands.recorded_alerts import Fired, NotJudged, Report, limit_in_words
from rlexporter.conditions.from_catalog import SIGNAL_NAMED


def _fired(condition: str, severity: str, step: int, metric: str, value: float, threshold: float, **more: Any) -> Fired:
    found = CONDITION_NAMED[condition]
    unit = SIGNAL_NAMED[found.signal].unit
    more = {"unit": unit, **more}
    return Fired(found.alert, condition, found.family.value, severity, step, metric, value, threshold, **more)


NAN = _fired("nonfinite_weights", "critical", 51, "rl_weight_norm", 2.0, 0.0)
FAILED = Fired(
    "RLRunFailed", "", "CRASH", "critical", 52, "rl_run_state", None, None, cause="RLWeightsNonFinite", own_step=None
)
ENTROPY = _fired("entropy_low", "warning", 43, "rl_entropy_per_token", 0.2, 0.31, limit="0.35 x its start")
REPORT = Report("a.jsonl", "a", "grpo", 51, (), ())


def test_incidents() -> None:
    """In the order of steps: a cause, and below it what is its symptom; the milder limit of its alert is none."""
    kl = _fired("nonfinite_kl", "critical", 51, "rl_kl_per_token", 16.0, 0.0, cause="RLWeightsNonFinite")
    cut = _fired("truncation", "critical", 48, "rl_completion_truncated_fraction", 0.95, 0.9)
    mild = replace(cut, severity="warning", threshold=0.3, cause="RLTruncation", own_step=None)
    length = _fired(
        "length_high", "warning", 49, "rl_completion_length_mean", 90.0, 43.0, cause="RLTruncation", own_step=60
    )
    text = written(replace(REPORT, alerts=(FAILED, kl, NAN, length, mild, cut, ENTROPY)))

    assert text == textwrap.dedent("""
        a.jsonl: grpo run a, 51 steps
          warning   step 43     RLEntropyLow
              Entropy has fallen far below its start.
              rl_entropy_per_token 0.2 nats per token, limit 0.31: 0.35 x its start
              (entropy_low.warning)
          critical  step 48     RLTruncation
              Completions are cut off at the length limit.
              95 %, limit 90 % (truncation.critical)
            symptoms:
              step 49    RLLengthGrowth: rl_completion_length_mean 90 tokens, limit 43
                (length_high.warning); its own alert from step 60
          critical  step 51     RLWeightsNonFinite
              2 values were NaN or infinite in rl_weight_norm
            symptoms:
              step 51    RLKLNonFinite: 16 values in rl_kl_per_token
              step 52    RLRunFailed: A run has ended with an exception.
    """).strip("\n")


def test_a_cause_that_was_a_symptom_before() -> None:
    """What belongs to it is shown where it is; and with two causes of one name with the one that came before."""
    other = _fired("nonfinite_kl", "critical", 10, "rl_kl_per_token", 1.0, 0.0, cause="RLRewardNonFinite")
    reward = _fired("nonfinite_reward", "critical", 10, "rl_reward_mean", 1.0, 0.0)
    late = _fired("nonfinite_loss", "critical", 60, "rl_loss", 1.0, 0.0, cause="RLKLNonFinite")
    assert incidents([late, other, reward]) == [(reward, [other, late])]

    early = _fired("kl_high", "warning", 5, "rl_kl_per_token", 2.0, 1.0)
    worse = replace(early, severity="critical", step=20)
    first, second = (
        replace(late, step=step, cause="RLKLHigh", condition="reward_drop", alert="RLRewardDrop") for step in (8, 30)
    )
    assert incidents([early, worse, first, second]) == [(early, [first]), (worse, [second])]


def test_what_was_not_judged() -> None:
    """Conditions, and the keys that a log would need; each reason once. No alert is said too."""
    missing = (
        NotJudged("sampling_difference", "nothing feeds it", ("sampling_mismatch",), "sampling_difference"),
        NotJudged("ratio_tail", "nothing feeds it", ("ratio_tail",), "ratio_tail"),
        NotJudged("ratio_extreme", "nothing feeds it", ("ratio_extreme",), "ratio_extreme"),
        NotJudged("step_time", "the recording has no times", ("step_slow", "step_stalled")),
    )
    assert written(replace(REPORT, not_judged=missing)).splitlines()[1:] == [
        "  no alert",
        "  not judged:",
        "    sampling_mismatch: no sampling/sampling_logp_difference/mean in the log",
        "    ratio_tail, ratio_extreme: only seen at the tensors of a live trainer",
        "    step_slow, step_stalled: the recording has no times",
    ]


@pytest.mark.parametrize(
    ("fired", "words"),
    [
        (_fired("reward_lost", "critical", 3, "rl_reward_dist", 1.0, 0.5), "limit: reward_lost.critical"),
        (_fired("keys_gone", "warning", 3, "", 2.0, 0.5), "2 keys, limit: keys_gone.warning"),
        (_fired("keys_gone", "warning", 3, "", 7.125, 0.5, unit="orders of magnitude"), "a chance of 1 in 10^7.12, "),
        (_fired("reward_function_dead", "warning", 3, "", 1.0, 0.5), "1 reward function, limit: reward_function_dead"),
        (_fired("reward_plateau", "warning", 3, "rl_reward_mean", 0.1, 0.5), "0.1 spreads, limit 0.5 (reward_plateau"),
        (_fired("nonfinite_loss", "critical", 3, "rl_loss", 1.0, 0.0), "1 value was NaN or infinite in rl_loss"),
    ],
)
def test_numbers(fired: Fired, words: str) -> None:
    """What only is or is not has no number; what is computed is not called by a series that it is not."""
    *_, line = written(replace(REPORT, alerts=(fired,))).splitlines()
    assert line.strip().startswith(words)


def test_relative_limits() -> None:
    """What they are multiples of; the floor where it is in force."""
    kl, entropy = CONDITION_NAMED["kl_jump"], CONDITION_NAMED["entropy_low"]
    assert limit_in_words(entropy, 0.35, 0.31) == "0.35 x its start"
    assert limit_in_words(replace(kl, floor=0.5), 8.0, 1.2) == "8 x what it was 20 steps ago"
    assert limit_in_words(replace(kl, floor={"k1": 0.5, "k3": 1.0}), {"k1": 8.0}, 1.2) == "8 x what it was 20 steps ago"
    assert limit_in_words(replace(kl, floor={"k1": 0.5, "k3": 1.0}), 8.0, 0.5) == "the least that it can be"
    assert limit_in_words(CONDITION_NAMED["truncation"], 0.9, 0.9) == ""
