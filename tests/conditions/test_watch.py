"""A run under watch: what is served of a condition, and when; how long it may go without a step; good checkpoints."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from math import nan
from typing import Any

import pytest

from rlexporter import Exporter
from rlexporter.conditions.table import CONDITIONS
from rlexporter.conditions.watch import Patience
from rlexporter.model.incident import LOOK, Standing
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts, StepUpdate
from tests.conditions import planted
from tests.conditions.planted import HEALTHY, LINES, Line, Planted, wave

ENTROPY, GRADIENT = ("entropy_collapsed", "critical"), ("nonfinite", "critical")


def test_what_is_served_of_a_condition() -> None:
    """Absent until it begins; 1 while it holds, then 0; when it last began stays afterwards, with the limit of then."""
    run = Planted("grpo")
    assert run.snapshot.value("rl_condition_judged", condition="entropy_collapsed") == 0

    run.healthy(10)
    assert run.snapshot.value("rl_condition_judged", condition="entropy_collapsed") == 1
    first = sorted(planted.grpo(step)["entropy"] for step in range(1, 6))
    limit = run.value("rl_threshold", *ENTROPY)
    assert limit == pytest.approx(0.04 * first[2])
    for series in ("rl_condition", "rl_condition_events_total", "rl_condition_last_event_step"):
        assert run.value(series, *ENTROPY) is None

    for _ in range(7):
        run.line({"entropy": 0.001})
    assert run.value("rl_condition", *ENTROPY) == 1
    assert run.value("rl_condition_events_total", *ENTROPY) == 1
    assert run.value("rl_condition_last_event_step", *ENTROPY) == 14
    assert run.value("rl_condition_last_event_timestamp_seconds", *ENTROPY) == 1000.0 + 14 * 2.0
    assert run.value("rl_condition_last_event_value", *ENTROPY) == 0.001
    assert run.value("rl_condition_last_event_threshold", *ENTROPY) == run.value("rl_threshold", *ENTROPY)

    run.healthy(5)
    assert run.value("rl_condition", *ENTROPY) == 0
    assert run.value("rl_condition_last_event_step", *ENTROPY) == 14


def test_the_reward_function_that_is_hacked_is_named() -> None:
    """Of two the one that rises, as its weight counts it, since the step from which on it was too much."""
    run = Planted("grpo")
    for i in [0] * 80 + list(range(1, 30)):
        rising, falling = 0.5 + 0.03 * i + 0.01 * (run.step % 3), 2.0 - 0.05 * i
        rewards = {"rewards/answer/mean": rising, "rewards/format/mean": falling}
        spread = dict.fromkeys(("rewards/answer/std", "rewards/format/std"), 0.2)
        run.line({"kl": 0.1 + 0.1 * i, "reward": 1.2 + 0.03 * i + 0.01 * (run.step % 3), **rewards, **spread})
    (incident,) = [each for each in run.snapshot.incidents if each.condition == "reward_hacking"]
    assert incident.subject == "answer"
    assert 80 < incident.since <= run.began["reward_hacking", "critical"]


def test_rewards_are_flat_since_the_first_step_that_was() -> None:
    """Although it takes some to be sure."""
    run = Planted("ppo").healthy(60)
    for _ in range(20):
        run.line({"objective/scores": 0.5}, seen={"rl_reward_dist": [0.5] * 8})
    (incident,) = [each for each in run.snapshot.incidents if each.condition == "reward_flat"]
    assert incident.since == 61 < incident.step


def test_of_one_step_the_cause_is_the_earlier() -> None:
    """What the verdict names first, and what is served as the cause."""
    run = Planted("grpo").healthy(100)
    step = run.step + 1
    run.line({"learning_rate": 1.0, "kl": 90.0, "grad_norm": 1e4})
    names = ("learning_rate_jump", "grad_spike")
    assert {run.began[name, "warning"] for name in names} == {step}
    told = [each.condition for each in run.feed.snapshot.incidents]
    assert told[0] == "learning_rate_jump"
    assert "grad_spike" in told
    cause = {"condition": "learning_rate_jump", "severity": "warning", "subject": "", "signal": "learning_rate_step"}
    assert run.feed.snapshot.value("rl_run_cause_info", **cause) == 1
    assert run.feed.snapshot.value("rl_run_verdict") == 1


def test_one_step_is_an_event_of_its_own() -> None:
    """A NaN in two steps apart is two events; in the steps between it does not hold."""
    run = Planted("grpo").healthy(5)
    for grad_norm in (nan, 1.0, nan):
        run.line({"grad_norm": grad_norm})
        assert run.value("rl_condition", *GRADIENT) == float(grad_norm != grad_norm)
    assert run.value("rl_condition_events_total", *GRADIENT) == 2


def test_a_signal_that_is_missing_in_a_step_is_no_observation() -> None:
    """A row is of observations, not of steps; the state stays as it was meanwhile."""
    run = Planted("grpo").healthy(20)
    for _ in range(2):
        run.line({"grad_norm": 0.0})
        run.line({"grad_norm": ...})
    assert ("gradient_dead", "critical") not in run.began
    run.line({"grad_norm": 0.0})
    assert run.began["gradient_dead", "critical"] == run.step
    run.line({"grad_norm": ...})
    assert run.value("rl_condition", "gradient_dead") == 1


def test_algorithms_have_the_conditions_that_apply() -> None:
    """No series for what cannot be; everything for an algorithm that nobody knows."""
    grpo, custom = Planted("grpo").snapshot, Exporter(run="x").snapshot
    assert grpo.value("rl_condition_judged", condition="value_loss_spike") is None
    assert Planted("ppo").snapshot.value("rl_condition_judged", condition="value_loss_spike") == 0
    assert [c.name for c in CONDITIONS if custom.value("rl_condition_judged", condition=c.name) is None] == []


@pytest.mark.parametrize(("level", "began"), [("token", True), ("sequence", False)])
def test_gspo_is_judged_as_sequences(level: str, began: bool) -> None:
    """The same key, another kind of number: half of the sequences may be clipped."""
    run = Planted("grpo", None, importance_sampling_level=level).healthy(5)
    for _ in range(12):
        run.line({"clip_ratio/region_mean": 0.4})
    assert (("clipfrac_high", "warning") in run.began) is began


def test_numbers_of_each_step_come_before_means_over_a_window() -> None:
    """With logging_steps 10 the numbers that TRL will average are judged, and the mean that it logs is not."""
    run = Planted("grpo")
    for step in range(1, 41):
        entropy = 0.9 if step <= 25 else 0.001
        logs = {"entropy": 0.9} if step % 10 == 0 else {}
        run.feed.record(logs, step, StepUpdate(step=step, duration=1.0, values={"entropy": (entropy,)}))
    assert run.began["entropy_collapsed", "critical"] == 29


def test_the_tensor_comes_before_the_log_line() -> None:
    """A signal that is seen at the tensor is judged there, from the first step on; the line no longer counts."""
    run = Planted("grpo")
    for _ in range(20):
        run.line({"grad_norm": 0.0}, seen={"rl_grad_norm_dist": [1.0]})
    assert run.began == {}
    for _ in range(3):
        run.line({"grad_norm": 1.0}, seen={"rl_grad_norm_dist": [0.0]})
    assert run.began == {("gradient_dead", "warning"): 22, ("gradient_dead", "critical"): 23}


KL, KL_WARNING, AT_START = ("kl_high", "critical"), ("kl_high", "warning"), ("kl_at_start", "critical")
NO_LENGTH: dict[str, Any] = {"tokens/responses_len_mean": ...}


def _sequence(kl: float) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A step of legacy PPO that logs no length, so that the KL is that of a sequence."""
    return {"objective/kl": kl, **NO_LENGTH}, None


def _token(kl: float) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A step of legacy PPO that logs a length of 20."""
    return {"objective/kl": 20 * kl}, None


def _tensor(kl: float) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A step of modern PPO whose log line has the KL per sequence, and which was counted per token."""
    return {"objective/kl": 20 * kl}, {"rl_kl_per_token_dist": [kl]}


MOVES: dict[str, tuple[str, list[tuple[dict[str, Any], dict[str, Any] | None]], dict[tuple[str, str], int]]] = {
    "modern PPO, with a tensor from step 2": (
        "ppo",
        [({"objective/kl": 0.5}, None), *[_tensor(8.0)] * 12],
        {KL_WARNING: 5, KL: 5},
    ),
    "legacy PPO, whose length key comes in step 3": (
        "ppo-legacy",
        [*[_sequence(1.0)] * 2, *[_token(4.5)] * 12],
        {KL_WARNING: 6, KL: 6},
    ),
    "a length key from step 5: 25 nats a token there are not the first KL of the run": (
        "ppo-legacy",
        [*[_sequence(1.0)] * 4, *[_token(25.0)] * 12],
        {KL_WARNING: 8, KL: 8},
    ),
    "the row of a derived signal begins anew": (
        "ppo",
        [*[({"objective/kl": 0.0}, None)] * 7, *[_tensor(0.0)] * 12],
        {("policy_frozen", "warning"): 15},
    ),
}


@pytest.mark.parametrize(("algorithm", "steps", "began"), MOVES.values(), ids=MOVES.keys())
def test_a_signal_that_moves_begins_anew(
    algorithm: str,
    steps: list[tuple[dict[str, Any], dict[str, Any] | None]],
    began: dict[tuple[str, str], int],
) -> None:
    """The limits are those of the unit at the new source, and what was observed at the old one is forgotten."""
    run = Planted(algorithm)
    for changes, seen in steps:
        run.line(changes, seen=seen)
    assert {
        key: step for key, step in run.began.items() if key[0] in ("kl_at_start", "kl_high", "policy_frozen")
    } == began
    assert (run.value("rl_threshold", *KL_WARNING), run.value("rl_threshold", *KL)) == (1.2, 4.0)


def test_what_holds_ends_where_its_signal_moves() -> None:
    """60 nats a sequence are 3 a token, which is no critical KL, and a warning again after a row of its own.

    What was judged once, on the first KL, stays as it was.
    """
    run = Planted("ppo-legacy")
    for changes, _ in [_sequence(60.0)] * 10:
        run.line(changes)
    assert [run.value("rl_condition", *key) for key in (KL, KL_WARNING, AT_START)] == [1, 1, 1]
    run.line(_token(3.0)[0])
    assert [run.value("rl_condition", *key) for key in (KL, KL_WARNING, AT_START)] == [0, 0, 1]
    for changes, _ in [_token(3.0)] * 3:
        run.line(changes)
    assert [run.value("rl_condition", *key) for key in (KL, KL_WARNING)] == [0, 1]
    assert run.value("rl_condition_events_total", *KL_WARNING) == 2
    assert run.value("rl_threshold", *AT_START) == 20.0


def test_a_past_begins_anew_where_its_signal_moves() -> None:
    """No limit is served until the new source has a past, and a best reward of another kind is none to fall from."""
    run = Planted("ppo")
    for _ in range(40):
        run.line({"objective/rlhf_reward": 100.0 + planted.wave(run.step), "objective/scores": ...})
    assert run.value("rl_threshold", *ENTROPY) == pytest.approx(0.04 * 0.9)
    for i in range(40):
        run.line({"objective/rlhf_reward": 100.0}, seen={"rl_entropy_per_token_dist": [3.0]})
        assert run.snapshot.value("rl_condition_judged", condition="entropy_collapsed") == float(i >= 5)
        assert run.value("rl_threshold", *ENTROPY) == (pytest.approx(0.04 * 3.0) if i >= 5 else None)
    assert run.began == {}


def test_counts_of_the_next_step_are_not_of_the_one_that_waits() -> None:
    """They may come before the line of theirs, with those that it waits for."""
    run = Planted("grpo").healthy(5)
    run.feed.record(planted.grpo(6), 6, awaits=True)
    run.feed.absorb(StepUpdate(step=7, seen=planted.counted({"rl_grad_norm_dist": [nan]})), last=True)
    assert not bool(run.feed._turns)
    assert run.began == {}
    run.feed.record(planted.grpo(7), 7)
    assert run.began == {GRADIENT: 7}


def test_what_comes_between_steps_belongs_to_the_next(exporter: Exporter) -> None:
    """`observe()` in a loop of one's own."""
    ratio = {"condition": "nonfinite", "severity": "critical"}
    exporter.log({"reward": 1.0}, step=1)
    exporter.observe("policy_ratio", [1.0, nan])
    assert exporter.snapshot.value("rl_condition", **ratio) is None
    exporter.log({"reward": 1.0}, step=2)
    assert exporter.snapshot.value("rl_condition", **ratio) == 1
    assert exporter.snapshot.value("rl_condition_last_event_step", **ratio) == 2
    exporter.log({"reward": 1.0}, step=3)
    assert exporter.snapshot.value("rl_condition", **ratio) == 0


def test_an_evaluation_is_not_judged() -> None:
    """Its rewards are of other prompts. A key that ends in runtime makes none: a user may log that of a sandbox."""
    run = Planted("grpo").healthy(20)
    for _ in range(10):
        run.feed.record({"eval_reward": nan, "eval_entropy": 0.0, "eval_runtime": 1.0}, run.step)
    assert run.began == {}
    run.line({"reward": nan, "sandbox_runtime": 3.5})
    assert run.began["nonfinite_reward", "critical"] == 21


def test_a_second_training_has_no_past() -> None:
    """Another train() in the same process: its first KL is its first, and what held in the one before holds no more."""
    run = Planted("grpo").healthy(20)
    for _ in range(7):
        run.line({"entropy": 0.001})
    assert run.value("rl_condition", *ENTROPY) == 1
    run.begin()
    assert run.value("rl_condition", "kl_at_start") is None
    assert run.value("rl_condition", *ENTROPY) == 0
    run.line({"kl": 2.5})
    assert run.began["kl_at_start", "critical"] == 1


def test_a_resumed_run_begins_where_it_was() -> None:
    """Its first KL is not 0, and its reward may have risen before."""
    run = Planted("grpo")
    run.begin(500)
    for i in range(220):
        run.line({"kl": 2.5, "reward": 1.0 + 0.05 * (i % 3 - 1)})
    assert run.began == {}


def test_a_change_that_is_made_twice_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler that writes in between has the change made again, and no step counts double."""
    run = Planted("grpo").healthy(20)
    looks: list[int] = []
    look = run.watch.look

    def interrupted(*args: Any, **more: Any) -> Any:
        looks.append(1)
        found = look(*args, **more)
        run.feed.snapshot = run.feed.snapshot.__class__(run.feed.snapshot.labels, dict(run.feed.snapshot.samples))
        return found

    monkeypatch.setattr(run.watch, "look", interrupted)
    run.line({"grad_norm": nan})

    assert len(looks) == 1
    assert run.value("rl_condition_events_total", *GRADIENT) == 1


def test_memory_is_bounded() -> None:
    """Lines with new keys and new reward functions each: what is remembered of 4,000 is as small as that of 1,000."""
    run = Planted("grpo")
    sizes = []
    for i in range(4000):
        run.feed.record({f"key/{i}": 1.0, f"rewards/f{i}/mean": 1.0, f"rewards/f{i}/std": 0.1, "kl": 0.1}, i + 1)
        if i + 1 in (1000, 4000):
            judge: Any = run.watch._judge
            states = [
                (
                    each.past,
                    [vars(get.now) for get in each.getters if hasattr(get, "now") and hasattr(get.now, "__dict__")],
                )
                for each in judge._states.values()
            ]
            sizes.append(len(pickle.dumps((judge._run.functions, states))))
    assert sizes[1] < 1.1 * sizes[0]


class TestStall:
    """How long a run may go without a step, by what is under way."""

    def test_the_limit_follows_the_pace(self) -> None:
        """Half an hour before the first step, then ten times the median, never less than ten minutes.

        An evaluation may take an hour while none was measured, then ten times its own median.
        """
        patience = Patience()
        assert patience.limit() == 1800.0
        for seconds in (1.0, 2.0, 3.0):
            patience.step(seconds)
        assert (patience.limit(), patience.limit("update"), patience.limit("eval")) == (600.0, 600.0, 3600.0)
        for phase, seconds in (("eval", 1000.0), ("save", 1.0)):
            patience.phase(phase, seconds)
        assert (patience.limit("eval"), patience.limit("save")) == (10000.0, 600.0)
        for _ in range(10):
            patience.step(300.0)
        assert patience.limit("rollout") == 3000.0

    def test_it_is_served(self, any_port: None) -> None:
        """From the start of the run, by phase, with the minimum that a person has set."""
        exporter = Exporter(run="stall", algorithm="grpo", thresholds={"run_stalled": 5})
        exporter.run.begin(RunFacts(algorithm="grpo"))
        assert exporter.snapshot.value("rl_stall_after_seconds") == 15.0

        exporter.run.sink.advance(StepUpdate(step=1, duration=2.0))
        assert exporter.snapshot.value("rl_stall_after_seconds") == 20.0
        with exporter.run.sink.phase("eval"):
            assert exporter.snapshot.value("rl_stall_after_seconds") == 30.0
        assert exporter.snapshot.value("rl_stall_after_seconds") == 20.0
        exporter.close()

    @pytest.mark.parametrize("seconds", [20.0, 600.0])
    def test_steps_without_a_measured_duration(self, seconds: float) -> None:
        """The time between two lines is what a step takes, and an evaluation between them is not."""
        run = Planted("grpo")
        for _ in range(20):
            run.line({}, seconds=seconds)
        run.clock += 2900.0
        run.feed.record({"eval_reward": 1.0, "eval_runtime": 2900.0}, run.step)
        run.line({}, seconds=seconds)

        assert run.snapshot.value("rl_stall_after_seconds") == pytest.approx(max(600.0, 10 * seconds))
        assert run.began == {}

    def test_a_hang_that_is_over_stays_known(self) -> None:
        """Also one in an evaluation: how long it was, in which phase, and that it is worth a look to the end."""
        run = Planted("grpo").healthy(20)
        run.clock += 5000.0
        run.feed.record({"eval_reward": 1.0, "eval_runtime": 5000.0}, run.step)
        run.healthy(200)

        (incident,) = run.snapshot.incidents
        assert (incident.condition, incident.subject, incident.value) == ("step_stalled", "eval", 5002.0)
        assert (incident.since, incident.standing, incident.word) == (21, Standing.EASED, LOOK)

    @pytest.mark.parametrize("state", [state for state in RunState if state.over])
    def test_a_hang_that_nobody_waited_for(self, state: RunState) -> None:
        """A run that is stopped while it hangs says so for good; one that has finished only took long to end."""
        run = Planted("grpo").healthy(20)
        run.feed.under_way("reward")
        run.clock += 700.0
        run.feed.enter(state)

        found = [(each.condition, each.subject, each.since, each.value) for each in run.snapshot.incidents]
        assert found == ([] if state is RunState.FINISHED else [("step_stalled", "reward", 21, 700.0)])
        assert [each.word for each in run.snapshot.incidents] == [LOOK] * len(found)
        served = run.snapshot.value("rl_signal", signal="longest_pause")
        assert served == (2.0 if state is RunState.FINISHED else 700.0)

    def test_a_run_that_is_stopped_in_time(self) -> None:
        """Neither a short wait counts, nor an evaluation that took as long as they do, nor the time after one."""
        for phase, wait, after in (("reward", 500.0, 0.0), ("eval", 3000.0, 0.0), ("eval", 3000.0, 500.0)):
            run = Planted("grpo").healthy(20)
            run.feed.under_way(phase)
            run.clock += wait
            if after:
                run.feed.under_way("")
                run.clock += after
            run.feed.enter(RunState.PREEMPTED)
            assert not run.snapshot.incidents, phase


# The last good checkpoint: the newest that was written before anything critical

SAVE, AGAIN, SETTLE = "save", "again", "settle"
"""A checkpoint after the last step; another line of that step; the end of the run."""
LOSS, NAN_GRADIENT = {"loss": nan}, {"grad_norm": nan}
SEEN: dict[str, Any] = {"seen": {"rl_weight_norm": [1.0]}}
LOST: dict[str, Any] = {"seen": {"rl_weight_norm": [nan]}}
COLLAPSED, TRUNCATED = {"entropy": 0.001}, {"completions/clipped_ratio": 0.45}
RUNS: dict[str, list[Any]] = {
    "it is known with the next step: what its own step still shows is waited for": [
        *(10, SAVE, ("good", None), AGAIN, ("good", None), {}, ("good", 10)),
        *(9, SAVE, ("good", 10), 1, ("good", 20)),
    ],
    "one before the step of a NaN is good, even right before; not one of that step or later": [
        *(10, SAVE, 10, SAVE, NAN_GRADIENT, SAVE, ("good", 20)),
        *(NAN_GRADIENT, NAN_GRADIENT, NAN_GRADIENT, NAN_GRADIENT, SAVE, NAN_GRADIENT, ("good", 20)),
    ],
    "nor one of that step where the NaN ends at once: the checkpoint has what it did": [
        *(10, SAVE, SEEN, NAN_GRADIENT | SEEN, SAVE, SEEN, ("good", 10), SAVE, SEEN, ("good", 13)),
    ],
    "after a NaN the weights must have been seen: a trainer may hide that they are no numbers": [
        *(10, SAVE, LOSS, 5, SAVE, 2, ("good", 10), SEEN, 6, SAVE, 1, ("good", 25)),
    ],
    "weights that are NaN stay so": [
        *(10, SAVE, LOSS | SEEN, LOST, ("good", 10), SAVE, LOST, ("good", 10), SAVE, LOST, ("good", 10)),
    ],
    "what was saved while anything critical held is never good; what is saved when the entropy is back is": [
        *(10, SAVE, *[COLLAPSED] * 10, ("entropy_collapsed", 14), SAVE, COLLAPSED, ("good", 10)),
        *(10, ("good", 10), SAVE, 1, ("good", 31)),
    ],
    "a warning does not count: a person may look at it today": [
        *(20, SAVE, *[TRUNCATED] * 10, ("truncation", None), SAVE, TRUNCATED, ("good", 30)),
    ],
    "the end of a run decides of its last checkpoint, which no step comes after": [20, SAVE, SETTLE, ("good", 20)],
    "the end of a run in a NaN": [10, SAVE, 9, NAN_GRADIENT, SAVE, SETTLE, ("good", 10)],
}


@pytest.mark.parametrize("events", RUNS.values(), ids=RUNS.keys())
def test_which_one_is_good(events: list[Any]) -> None:
    """A number is of healthy steps, a line of one that is not; ("good", 10): by then the one of step 10 is served.

    Another name: in which step that condition has become critical by then.
    """
    run = Planted("grpo")
    for event in events:
        if isinstance(event, int):
            run.healthy(event)
        elif isinstance(event, dict):
            run.line({key: value for key, value in event.items() if key != "seen"}, seen=event.get("seen"))
        elif event == SAVE:
            run.feed.saved(run.step)
        elif event == AGAIN:
            run.feed.record({"epoch": 1.0}, run.step)
        elif event == SETTLE:
            run.feed.settle()
        elif event[0] == "good":
            assert run.snapshot.value("rl_last_good_checkpoint_step") == event[1]
        else:
            assert run.began.get((event[0], "critical")) == event[1]


def _good(run: Planted) -> float | None:
    return run.snapshot.value("rl_last_good_checkpoint_step")


def test_a_resumed_run_starts_with_its_own_checkpoint() -> None:
    """At once, before the first step, unless that shows that it was bad; a run from scratch has none."""
    run = Planted("grpo")
    run.begin(40)
    assert _good(run) == 40
    run.line({}, **SEEN)
    run.line(NAN_GRADIENT, **SEEN)
    assert _good(run) == 40
    run.begin(0)
    assert _good(run) is None
    run.begin(40)
    assert _good(run) == 40
    run.line({}, **LOST)
    assert _good(run) is None


@pytest.mark.parametrize(("before", "step", "good"), [(0, 10, None), (0, 11, 10), (10, 20, 10)])
def test_counts_that_come_late_are_of_their_own_step(before: int, step: int, good: int | None) -> None:
    """A checkpoint is not good for what a GPU has counted in its step, though that comes a step or two later."""
    run = Planted("grpo").healthy(10)
    run.feed.saved(10)
    if before:
        run.healthy(before)
        run.feed.saved(20)
        run.line({})
        assert _good(run) == 20
    run.late({"rl_grad_norm": [nan]}, step)
    run.line({})
    assert run.began["nonfinite", "critical"] == run.step
    assert _good(run) == good


SINKING: dict[str, Callable[[int], dict[str, float]]] = {
    "the reward falls": lambda n: {"reward": 0.05 * wave(n) - 1.0},
    "the reward sinks": lambda n: {"reward": 1.24 - 0.05 * n + 0.05 * wave(n)},
    "the reward sinks slowly": lambda n: {"reward": 1.24 - 0.02 * n + 0.05 * wave(n)},
    "the entropy is gone": lambda n: {"entropy": 0.001},
    "the entropy sinks": lambda n: {"entropy": 0.9 * 0.85**n},
    "the entropy rises": lambda n: {"entropy": 0.9 * 1.1**n},
    "completions are cut": lambda n: {"completions/clipped_ratio": 1.0},
    "more and more completions are cut": lambda n: {"completions/clipped_ratio": min(1.0, 0.02 + 0.04 * n)},
    "KL is high": lambda n: {"kl": 20.0},
    "KL grows": lambda n: {"kl": 0.2 * 1.2**n},
    "the gradient explodes": lambda n: {"grad_norm": 100.0},
    "the gradient is 0": lambda n: {"grad_norm": 0.0},
    "rewards are all alike": lambda n: {"reward_std": 0.0, "frac_reward_zero_std": 1.0, "reward": 0.3},
    "a reward function is dead": lambda n: {"rewards/answer/mean": 0.0, "rewards/answer/std": 0.0, "reward": 0.5},
    "the loss is NaN": lambda n: {"loss": nan},
    "the loss is NaN once": lambda n: {"loss": nan} if n == 1 else {},
}
"""What is logged in the n-th step of a fault: some are there at once, some come slowly."""


@pytest.mark.parametrize("every", [1, 7, 20])
@pytest.mark.parametrize("fault", SINKING.values(), ids=SINKING.keys())
def test_what_was_written_after_a_fault_began_is_not_good(fault: Callable[[int], dict[str, float]], every: int) -> None:
    """However long it takes to be certain, and from then on; nor is much more given up than that takes."""
    run = Planted("grpo")
    while run.step < HEALTHY:
        run.healthy(1)
        if run.step % every == 0:
            run.feed.saved(run.step)
    for number in range(1, 60):
        run.line(fault(number))
        if run.step % every == 0:
            run.feed.saved(run.step)
        if any(severity == "critical" for _, severity in run.began):
            break
    certain = min(step for (_, severity), step in run.began.items() if severity == "critical")
    good = _good(run)
    assert good is not None
    assert good <= HEALTHY
    assert good >= min(HEALTHY, certain) - run.watch.checkpoints.good.horizon - every
    horizon = run.watch.checkpoints.good.horizon
    assert 20 < horizon < 60


def test_a_cause_and_a_warning_before_it_count() -> None:
    """What is critical goes on from its warning; a checkpoint between the two is not good."""
    run = Planted("grpo", {"kl_high": {"warning": 0.5, "critical": 5.0}}).healthy(60)
    run.feed.saved(60)
    for _ in range(12):
        run.line({"kl": 1.0})
    run.feed.saved(run.step)
    run.line({"kl": 1.0})
    assert ("kl_high", "warning") in run.began
    assert _good(run) == 72, "a warning does not count by itself"
    for _ in range(12):
        run.line({"kl": 9.0})
    assert ("kl_high", "critical") in run.began
    assert _good(run) == 60


def test_what_goes_on_where_its_signal_moves_is_not_over() -> None:
    """A mean ratio above 10 in the log line, and then in the tensor: the checkpoint between the two is not good."""
    run = Planted("ppo").healthy(10)
    run.feed.saved(10)
    run.line({"val/ratio": 20.0})
    for _ in range(3):
        run.line({"val/ratio": 20.0}, seen={"rl_policy_ratio_dist": [9.0] * 99 + [190.0] * 2})
        run.feed.saved(run.step)
    assert run.value("rl_condition_events_total", "ratio_high") == 2
    assert _good(run) == 10


def test_a_run_that_fails_names_it(exporter: Exporter) -> None:
    """A checkpoint, a NaN in the next step, a checkpoint of that, a failure."""
    exporter.run.begin(RunFacts(algorithm="grpo", step=0))
    exporter.run.sink.log({"loss": 1.0}, step=5)
    exporter.run.sink.saved(5)
    exporter.run.sink.log({"loss": nan}, step=6)
    exporter.run.sink.saved(6)
    exporter.run.end(RuntimeError("nan"))
    assert exporter.state is RunState.FAILED
    assert exporter.snapshot.value("rl_last_good_checkpoint_step") == 5


# Lines of a log that are no observation of their own: one a conversation, or one for each epoch on a batch

CRITICAL = "critical"


def _conversations(updates: int, flat: int, *, each: int) -> Planted:
    """Legacy PPO with ``each`` lines an update, the last ``flat`` of which have no spread of reward."""
    run, rng = Planted("ppo-legacy"), random.Random(3)
    for update in range(updates):
        stats = {key: rng.uniform(0.9, 1.1) * value for key, value in LINES["ppo-legacy"](update).items()}
        if update >= updates - flat:
            stats |= {"env/reward_mean": 0.0, "env/reward_std": 0.0}
        for _ in range(each):
            run.line(stats)
    return run


def test_statistics_that_are_logged_again_are_counted_once() -> None:
    """Two updates without a spread are two, in eight lines: not enough for anything. Twelve updates are."""
    assert ("reward_flat", CRITICAL) not in _conversations(20, 2, each=4).began
    assert ("reward_flat", CRITICAL) in _conversations(24, 12, each=1).began
    assert ("reward_flat", CRITICAL) in _conversations(24, 12, each=4).began


def test_what_is_served_is_the_line() -> None:
    """Only the judge leaves out what it has seen."""
    run = _conversations(20, 2, each=4)

    assert (run.snapshot.value("rl_reward_mean"), run.snapshot.value("rl_step")) == (0.0, 80)


def test_a_run_that_stands_still_is_judged() -> None:
    """Some lines that repeat each other are a log's way; more than 64 in a row are the run's."""
    run = Planted("ppo-legacy").healthy()
    flat = {"env/reward_mean": 0.834, "env/reward_std": 0.0, "objective/kl": 2.234, "ppo/loss/value": 0.1234}
    for _ in range(60):
        run.line(flat)
    assert ("reward_flat", CRITICAL) not in run.began
    for _ in range(40):
        run.line(flat)
    assert ("reward_flat", CRITICAL) in run.began


def test_one_number_that_stays_is_an_observation() -> None:
    """Such as a mean of few rewards of 0 or 1: the others of the line are new."""
    run = Planted("grpo").healthy()
    for _ in range(20):
        run.line({"reward": 0.85, "reward_std": 0.0, "frac_reward_zero_std": 1.0})

    assert ("reward_flat", CRITICAL) in run.began


def _epochs(batches: int, epochs: int, high: range) -> Iterator[Line]:
    """Value losses of PPO, which fall a little with each epoch on one batch; those of the batches ``high`` are high."""
    rng = random.Random(5)
    for batch in range(batches):
        value = rng.uniform(0.2, 1.0) if batch not in high else 8.0
        policy = rng.uniform(-0.05, 0.05)
        for epoch in range(epochs):
            yield {"loss/value_avg": value - 0.01 * epoch, "loss/policy_avg": policy - 0.002 * epoch}


@pytest.mark.parametrize("epochs", [2, 4, 8])
def test_epochs_on_one_batch_are_one_observation_of_its_losses(epochs: int) -> None:
    """A value loss that is high for one batch is a warning; for three batches in five it is critical."""
    began = []
    for high in (range(60, 61), range(60, 63)):
        run = Planted("ppo")
        for line in _epochs(70, epochs, high):
            run.line(line)
        began.append({severity for name, severity in run.began if name == "value_loss_spike"})

    assert [CRITICAL in each for each in began] == [False, True]


def test_epochs_are_not_seen_where_there_are_none() -> None:
    """Losses that wander, or alternate with the prompts, are observations, all of them."""
    run = Planted("ppo")
    rng = random.Random(7)
    for step in range(300):
        run.line({"loss/value_avg": rng.uniform(0.2, 1.0), "loss/policy_avg": 0.01 * (step % 2) + 0.001 * rng.random()})

    assert run.watch._judge.past("value_loss").count == 300
