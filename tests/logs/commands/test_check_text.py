"""What `rlexporter check` says to a person, word by word, of findings made up here."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

import pytest

from rlexporter.catalog.alerts import RUN_FAILED, RUN_VANISHED
from rlexporter.conditions.table import CONDITION_NAMED, CONDITIONS, SIGNAL_NAMED
from rlexporter.logs.commands.check import incidents, written
from rlexporter.logs.recorded_alerts import Fired, NotJudged, Report, limit_in_words
from rlexporter.model.condition import Family, Severity
from rlexporter.status.verdict import Verdict


def _fired(condition: str, severity: str, step: int, metric: str, value: float, threshold: float, **more: Any) -> Fired:
    found = CONDITION_NAMED[condition]
    unit = SIGNAL_NAMED[found.signal].unit
    more = {"unit": unit, **more}
    return Fired(found.alert, condition, found.family.value, severity, step, metric, value, threshold, **more)


NAN = _fired("nonfinite", "critical", 51, "rl_weight_norm", 2.0, 0.0)
FAILED = Fired("RLRunFailed", "", "CRASH", "critical", 52, "rl_run_state", None, None, cause="nonfinite", own_step=None)
ENTROPY = _fired("entropy_low", "warning", 43, "rl_entropy_per_token", 0.2, 0.31, limit="0.35 x its start")
VERDICT = Verdict("act", "condition", [], "Two things are wrong.")
REPORT = Report("a.jsonl", "a", "grpo", 51, (), (), verdict=VERDICT, checks={"kl_high": False, "entropy_low": True})


def test_incidents() -> None:
    """In the order of steps: a cause, and below it what is its symptom; the milder limit of its alert is none."""
    loss = _fired("nonfinite_value_loss", "critical", 51, "rl_value_loss", 16.0, 0.0, cause="nonfinite")
    cut = _fired("truncation", "critical", 48, "rl_completion_truncated_fraction", 0.95, 0.9)
    mild = replace(cut, severity="warning", threshold=0.3, cause="truncation", own_step=None)
    length = _fired(
        "length_high", "warning", 49, "rl_completion_length_mean", 90.0, 43.0, cause="truncation", own_step=60
    )
    text = written(replace(REPORT, alerts=(FAILED, loss, NAN, length, mild, cut, ENTROPY)))

    assert text == textwrap.dedent("""
        act   Two things are wrong.
          a.jsonl: grpo run a, 51 steps
          warning   step 43     RLEntropy
              Entropy has fallen far below its start.
              rl_entropy_per_token 0.2 nats per token, limit 0.31: 0.35 x its start
              (entropy_low.warning)
          critical  step 48     RLLength
              Completions are cut off at the length limit.
              95 %, limit 90 % (truncation.critical)
            symptoms:
              step 49    RLLength: rl_completion_length_mean 90 tokens, limit 43
                (length_high.warning); its own alert from step 60
          critical  step 51     RLNotANumber
              2 values were NaN or infinite in rl_weight_norm
            symptoms:
              step 51    RLValueLossNonFinite: 16 values in rl_value_loss
              step 52    RLRunFailed: A run has ended with an exception.
          on_critical=stop would have stopped it at step 48 of 51 (5 % saved)
          1 of 2 checks ran; --verbose lists the others and why.
    """).strip("\n")


def _stop(*alerts: Fired, steps: int = 3000) -> list[str]:
    lines = written(replace(REPORT, alerts=alerts, steps=steps)).splitlines()
    return [line for line in lines if "on_critical" in line or "saved" in line]


def test_where_a_run_would_have_stopped() -> None:
    """At the first critical condition; the share is rounded down, also where floats would lose one, and never 100."""
    text = "  on_critical=stop would have stopped it at step {} ({} % saved)"
    late, early = replace(NAN, step=2100), replace(NAN, condition="nonfinite_reward", step=412)
    assert _stop(late, early, ENTROPY) == [text.format("412 of 3,000", 86)]
    assert _stop(replace(NAN, step=71), steps=100) == [text.format("71 of 100", 29)]
    (longest,) = _stop(replace(NAN, step=412_000), steps=999_999)
    assert longest == text.format("412,000 of 999,999", 58)
    assert len(longest) <= 80
    every_tenth = replace(REPORT, alerts=(late, early), steps=3000, logged=300)
    assert every_tenth.as_json()["stop"] == {"step": 412, "of": 3000, "condition": "nonfinite_reward"}
    released = replace(early, cause="entropy_low", own_step=600)
    assert _stop(late, released, ENTROPY) == [text.format("600 of 3,000", 80)], "a symptom that outlived its cause"
    assert _stop(replace(NAN, step=1), steps=3000) == [text.format("1 of 3,000", 99)]
    assert _stop(replace(NAN, step=0), steps=0) == [text.format("0 of 0", 0)], "a log of the step 0 alone"


def test_what_would_not_have_stopped_a_run() -> None:
    """A warning, a symptom, the process: of that one nothing is left to stop."""
    assert not _stop(ENTROPY)
    assert not _stop(replace(NAN, severity="info"))
    assert not _stop(ENTROPY, replace(NAN, cause="entropy_low"))
    for alert in (RUN_FAILED, RUN_VANISHED):
        assert not _stop(replace(FAILED, alert=alert.alert, cause=None))
    hangs = [each for each in CONDITIONS if each.family in (Family.STALL, Family.CRASH)]
    assert hangs
    assert all(limit.severity is not Severity.CRITICAL for each in hangs for limit in each.limits)


def test_a_cause_that_was_a_symptom_before() -> None:
    """What belongs to it is shown where it is; and with two causes of one name with the one that came before."""
    other = _fired("nonfinite", "critical", 10, "rl_kl_per_token", 1.0, 0.0, cause="nonfinite_reward")
    reward = _fired("nonfinite_reward", "critical", 10, "rl_reward_mean", 1.0, 0.0)
    late = _fired("nonfinite_value_loss", "critical", 60, "rl_value_loss", 1.0, 0.0, cause="nonfinite")
    assert incidents([late, other, reward]) == [(reward, [other, late])]

    early = _fired("kl_high", "warning", 5, "rl_kl_per_token", 2.0, 1.0)
    worse = replace(early, severity="critical", step=20)
    first, second = (
        replace(late, step=step, cause="kl_high", condition="reward_drop", alert="RLRewardCollapse") for step in (8, 30)
    )
    assert incidents([early, worse, first, second]) == [(early, [first]), (worse, [second])]


def test_what_was_not_judged() -> None:
    """Conditions, and the keys that a log would need; each reason once. No alert is said too."""
    missing = (
        _missing("sampling_difference", "sampling_jump"),
        _missing("ratio_tail", "ratio_tail"),
        _missing("ref_noise", "reference_noisy"),
        NotJudged("step_time", "the recording has no times", ("step_slow", "step_stalled")),
    )
    report = replace(REPORT, not_judged=missing, checks={"entropy_low": True, "kl_high": False, "ratio_tail": False})
    assert written(report).splitlines()[2:] == [
        "  no alert",
        "  1 of 3 checks ran; --verbose lists the others and why.",
    ]
    assert written(report, verbose=True).splitlines()[2:] == [
        "  no alert",
        "  not judged:",
        "    sampling_jump: no sampling/sampling_logp_difference/mean in the log",
        "    ratio_tail, reference_noisy: only seen at the tensors of a live trainer",
        "    step_slow, step_stalled: the recording has no times",
        "    kl_high: too few values for it in the log",
        "  1 of 3 checks ran.",
    ]
    assert written(replace(REPORT, checks={"kl_high": True})).endswith("  1 of 1 checks ran.")


def _missing(signal: str, condition: str) -> NotJudged:
    return NotJudged(signal, "nothing feeds it", (condition,), signal)


@pytest.mark.parametrize(
    ("signal", "framework", "keys", "why"),
    [
        ("zero_std_fraction", "", (), "no frac_reward_zero_std in the log"),
        ("zero_std_fraction", "verl", (), "no frac_reward_zero_std in the log"),
        ("kl_coef", "verl", (), "no actor/reward_kl_penalty_coeff or critic/kl_coeff or actor/kl_coef in the log"),
        ("approxkl", "", (), "no policy/approxkl_avg or ppo/policy/approxkl in the log"),
        ("ref_changed", "verl", (), "only seen at the tensors of a live trainer"),
        ("zero_std_fraction", "", ("frac_reward_zero_std",), "frac_reward_zero_std in the log does not show it"),
    ],
)
def test_why_it_was_not_judged(signal: str, framework: str, keys: tuple[str, ...], why: str) -> None:
    """What a key of the framework or of TRL may feed is not for a live trainer alone, of whatever algorithm it is."""
    report = replace(REPORT, framework=framework, keys=keys, not_judged=(_missing(signal, "x"),), checks={"x": False})
    assert f"not judged: x: {why} 0 of 1 checks ran." in " ".join(written(report, verbose=True).split())


@pytest.mark.parametrize(
    ("fired", "words"),
    [
        (_fired("weights_frozen", "critical", 3, "rl_weight_norm", 1.0, 0.5), "limit: weights_frozen.critical"),
        (_fired("reward_flat", "warning", 3, "", 7.125, 7.0), "a chance of 1 in 10^7.12, "),
        (_fired("reward_function_dead", "warning", 3, "", 1.0, 0.5), "limit: reward_function_dead"),
        (_fired("reward_plateau", "warning", 3, "rl_reward_mean", 0.1, 0.5), "0.1 spreads, limit 0.5 (reward_plateau"),
        (_fired("nonfinite", "critical", 3, "rl_loss", 1.0, 0.0), "1 value was NaN or infinite in rl_loss"),
    ],
)
def test_numbers(fired: Fired, words: str) -> None:
    """What only is or is not has no number; what is computed is not called by a series that it is not."""
    text = written(replace(REPORT, alerts=(fired,)))
    *_, line, _ = (each for each in text.splitlines() if "on_critical" not in each)
    assert line.strip().startswith(words)


def test_relative_limits() -> None:
    """What they are multiples of; the floor where it is in force."""
    kl, entropy = CONDITION_NAMED["kl_jump"], CONDITION_NAMED["entropy_low"]
    assert limit_in_words(entropy, 0.35, 0.31) == "0.35 times its start"
    past = "8 times the median of its last 30 values, without the newest 20"
    assert limit_in_words(kl, 8.0, 1.2) == limit_in_words(kl, {"k1": 8.0}, 1.2) == past
    assert limit_in_words(kl, 8.0, 0.25) == "the least that it can be"
    assert limit_in_words(CONDITION_NAMED["truncation"], 0.9, 0.9) == ""
