"""The questions that a person asks about a run, and what answers each: families of alerts, and numbers to show."""

from __future__ import annotations

from dataclasses import dataclass

from rlexporter.model.condition import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A number to show: that of a signal, or of the first of ``series`` that the run has."""

    name: str
    """The number in short words."""
    signal: str = ""
    """The signal whose limits belong to it; also the one that is read, where there are no ``series``."""
    series: tuple[str, ...] = ()
    prominent: bool = False
    """True for what is always worth a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a run. ``families``: those whose alerts are an answer; ``main``: the numbers to show."""

    name: str
    title: str
    families: tuple[Family, ...]
    main: tuple[Shown, ...]
    optional: bool = False
    """True if it is only asked where there is something to show."""


_EFFECTIVE = ("rl_sampling_effective_sample_fraction", "rl_update_effective_sample_fraction")

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="learning",
        title="Is it learning?",
        families=(
            *(Family.REWARD_FLAT, Family.REWARD_DROP, Family.REWARD_JUMP, Family.PLATEAU),
            *(Family.GRAD_DEAD, Family.LR, Family.ADVANTAGE, Family.DATA, Family.OBJECTIVE),
            *(Family.OPTIMIZER, Family.EVALUATION),
        ),
        main=(
            Shown(name="reward", signal="reward", prominent=True),
            Shown(name="reward spread", series=("rl_reward_std", "rl_scores_std")),
            Shown(name="groups without spread", series=("rl_reward_zero_std_fraction",)),
            Shown(name="learning rate", series=("rl_learning_rate",)),
        ),
    ),
    Question(
        name="stable",
        title="Is it stable?",
        families=(
            *(Family.POLICY_STEP, Family.KL_HIGH, Family.KL_COEF),
            *(Family.ENTROPY_LOW, Family.ENTROPY_HIGH, Family.GRAD, Family.WEIGHTS, Family.VALUE),
            *(Family.TRUNCATION, Family.LENGTH),
        ),
        main=(
            Shown(name="KL", signal="kl", prominent=True),
            Shown(name="entropy", signal="entropy", prominent=True),
            Shown(name="ratio", signal="ratio"),
            Shown(name="clipped", signal="clipfrac"),
            Shown(name="gradient norm", signal="grad_norm", prominent=True),
            Shown(name="value loss", signal="value_loss", prominent=True),
            Shown(name="completion length", signal="length", prominent=True),
            Shown(name="cut off", series=("rl_completion_truncated_fraction",)),
        ),
    ),
    Question(
        name="samples",
        title="Are samples what the policy would say?",
        families=(Family.KL_NEGATIVE,),
        main=(
            Shown(name="mismatch", signal="sampling_difference"),
            Shown(name="effective samples", series=_EFFECTIVE),
            Shown(name="staleness", series=("rl_sample_staleness_mean",)),
            Shown(name="failed rollouts", series=("rl_rollout_error_fraction",)),
            Shown(name="failed tool calls", series=("rl_tool_failure_frequency",)),
        ),
        optional=True,
    ),
    Question(
        name="fast",
        title="Is it fast?",
        families=(Family.SLOW, Family.STALL),
        main=(
            Shown(
                name="step time",
                signal="step_time",
                series=("rl_step_duration_seconds", "rl_step_time_seconds"),
                prominent=True,
            ),
            Shown(name="episodes per second", series=("rl_episodes_per_second",)),
            Shown(name="waiting", series=("rl_waiting_fraction",)),
        ),
    ),
    Question(
        name="hidden",
        title="Is anything hidden?",
        families=(Family.NONFINITE, Family.CRASH, Family.STORM, Family.EXPORTER),
        main=(
            Shown(name="NaN and infinite values", series=("rl_nonfinite_values_total",)),
            Shown(name="values not given", series=("rl_undefined_values_total",)),
            Shown(name="skipped updates", series=("rl_skipped_updates_total",)),
            Shown(name="errors of the exporter", series=("rlexporter_errors_total",)),
        ),
    ),
)
