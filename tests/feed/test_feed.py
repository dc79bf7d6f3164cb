"""How values become samples: absence, None, NaN, steps, counters, arrays, floods."""

from __future__ import annotations

import math
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.conditions.watch import watch
from rlexporter.feed.builder import SnapshotBuilder
from rlexporter.feed.feed import Feed
from rlexporter.feed.log_lines import MAX_DATASETS
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts, StepUpdate
from tests.conftest import observe


def _bad(feed: Feed, metric: str, kind: str = "nan") -> float | None:
    return feed.snapshot.value("rl_nonfinite_values_total", metric=metric, kind=kind)


def _undefined(feed: Feed, metric: str) -> float | None:
    return feed.snapshot.value("rl_undefined_values_total", metric=metric)


def _counts(feed: Feed, name: str) -> tuple[int, ...]:
    return next(found.counts for series, found in feed.snapshot.buckets.items() if series.metric.series == name)


def test_the_spread_of_one_value_is_undefined() -> None:
    """Its mean is a number; where that is none either, NaN is a fault."""
    feed = Feed(CATALOG, watch=watch({}))
    feed.begin(RunFacts(algorithm="ppo-legacy"), {"run": "x", "rank": "0"})
    alone = {
        "ppo/mean_scores": 0.5,
        "ppo/std_scores": float("nan"),
        "tokens/queries_len_mean": 7.0,
        "tokens/queries_len_std": float("nan"),
    }
    feed.record(alone, 1)
    assert not feed.snapshot.incidents
    feed.record({"ppo/mean_scores": float("nan"), "ppo/std_scores": float("nan")}, 2)
    assert {each.condition for each in feed.snapshot.incidents} == {"nonfinite_reward"}


def test_a_key_that_is_not_logged_keeps_its_value(grpo: Feed) -> None:
    """GRPO logs the reward only where it generates; the step that it is from stays known."""
    grpo.record({"reward": 1.5, "kl": 0.1}, step=1)
    grpo.record({"kl": 0.2}, step=2)

    assert grpo.snapshot.value("rl_reward_mean") == 1.5
    assert grpo.snapshot.value("rl_kl_per_token") == 0.2
    assert {s.metric.series: step for s, step in grpo.snapshot.steps.items()} == {
        "rl_reward_mean": 1,
        "rl_kl_per_token": 2,
    }


def test_none_drops_the_series_and_is_counted(grpo: Feed) -> None:
    """TRL logs None where nothing was left to average: neither 0 nor the last value."""
    grpo.record({"reward": 1.5}, step=1)
    assert _undefined(grpo, "rl_reward_mean") is None

    grpo.record({"reward": None}, step=2)
    assert grpo.snapshot.value("rl_reward_mean") is None
    assert _undefined(grpo, "rl_reward_mean") == 1

    grpo.record({"reward": 0.5}, step=3)
    assert grpo.snapshot.value("rl_reward_mean") == 0.5


@pytest.mark.parametrize(("value", "kind"), [(math.nan, "nan"), (math.inf, "+inf"), (-math.inf, "-inf")])
def test_what_is_not_finite_is_served_and_counted(grpo: Feed, value: float, kind: str) -> None:
    """As it is on the gauge, in no bucket and no sum, and in a counter that is absent until then."""
    grpo.record({"grad_norm": 2.0}, step=1)
    assert _bad(grpo, "rl_grad_norm", kind) is None
    grpo.record({"grad_norm": value}, step=2)

    served = grpo.snapshot.value("rl_grad_norm")
    assert served == value or (served is not None and math.isnan(served) and math.isnan(value))
    assert _bad(grpo, "rl_grad_norm", kind) == 1
    assert sum(_counts(grpo, "rl_grad_norm_dist")) == 1


def test_steps_are_counted_from_the_start_of_the_process(feed: Feed) -> None:
    """A resumed run continues its step; the counter is this process's own."""
    feed.begin(RunFacts(algorithm="grpo", step=500), {})
    assert (feed.snapshot.value("rl_step"), feed.snapshot.value("rl_steps_total")) == (500, 0)

    feed.record({"kl": 0.1}, step=510)
    feed.record({"kl": 0.1}, step=510)
    assert (feed.snapshot.value("rl_step"), feed.snapshot.value("rl_steps_total")) == (510, 10)


def test_a_loop_without_steps_counts_its_lines(feed: Feed) -> None:
    """Legacy PPO knows no step: each call is one. An evaluation is none."""
    feed.record({"objective/kl": 1.0})
    feed.record({"objective/kl": 1.0})
    feed.record({"eval_reward": 1.0, "eval_runtime": 2.0})

    assert (feed.snapshot.value("rl_step"), feed.snapshot.value("rl_steps_total")) == (2, 2)
    assert feed.snapshot.value("rl_eval_step", dataset="default") == 2


def test_a_step_and_its_line_are_one_change(grpo: Feed) -> None:
    """The update that goes with a log line is not a step more."""
    before = grpo.snapshot
    grpo.record({"kl": 0.1}, step=1, update=StepUpdate(step=1, duration=0.25))

    assert before.value("rl_step") == 0
    assert (grpo.snapshot.value("rl_step"), grpo.snapshot.value("rl_steps_total")) == (1, 1)
    assert sum(_counts(grpo, "rl_step_duration_seconds")) == 1


@pytest.mark.parametrize(
    ("restored", "logged", "expected"),
    [(0, [100, 250], 250), (1000, [1100, 1250], 250), (0, [100, 250, 40], 290), (0, [100, math.nan, 150], 150)],
)
def test_tokens_are_counted_from_the_start_of_the_process(
    feed: Feed, restored: int, logged: list[float], expected: float
) -> None:
    """Not what a checkpoint brought; a trainer that begins anew adds what it has done since."""
    feed.begin(RunFacts(algorithm="grpo", step=0, totals={"num_tokens": restored}), {})
    assert feed.snapshot.value("rl_tokens_total") == 0
    for step, tokens in enumerate(logged, 1):
        feed.record({"num_tokens": tokens}, step=step)

    assert feed.snapshot.value("rl_tokens_total") == expected
    assert feed.snapshot.value("rl_tokens_seen") == logged[-1]


def test_arrays_are_counted_value_by_value(feed: Feed) -> None:
    """Legacy PPO logs whole batches."""
    feed.begin(RunFacts(algorithm="ppo-legacy"), {})
    rewards = np.array([-0.5, 0.0, 0.6, math.nan, 2000.0], dtype=np.float32)
    feed.record({"env/reward_dist": rewards, "objective/kl_dist": torch.tensor([1.0, 3.0])})
    feed.record({"env/reward_dist": [0.6]})

    assert sum(_counts(feed, "rl_reward_dist")) == 5
    assert _counts(feed, "rl_reward_dist")[-1] == 1
    assert _bad(feed, "rl_reward_dist") == 1
    assert sum(_counts(feed, "rl_kl_per_sequence_dist")) == 2


def test_an_array_where_a_number_is_expected_is_its_mean(grpo: Feed) -> None:
    """Known key or not; NaN stays NaN."""
    grpo.record({"reward": [1.0, 2.0], "loss": [[1.0], [4.0]], "mine": torch.tensor([1.0, math.nan])}, step=1)

    assert grpo.snapshot.value("rl_reward_mean") == 1.5
    assert grpo.snapshot.value("rl_loss") == 2.5
    assert sum(_counts(grpo, "rl_loss_dist")) == 1
    assert math.isnan(grpo.snapshot.value("rl_logged_value", key="mine") or 0.0)
    assert _bad(grpo, "rl_logged_value") == 1


def test_padding_is_not_measured(feed: Feed) -> None:
    """Legacy PPO pads ratios with -1: no ratio, and counted as such."""
    feed.record({"ppo/policy/ratio": np.array([-1.0, 1.0, 1.0])})

    assert sum(_counts(feed, "rl_policy_ratio_unmasked_dist")) == 2
    assert _undefined(feed, "rl_policy_ratio_dist") == 1


def test_an_unmasked_array_is_not_served_as_the_distribution_of_tokens(feed: Feed) -> None:
    """Legacy PPO logs padding among its arrays: they are called so, and not served beside what taps see."""
    line = {"objective/logprobs": np.array([-1.0, -9.0]), "objective/kl_dist": np.array([1.0, 2.0])}
    feed.record(line)
    names = {series.metric.series for series in feed.snapshot.buckets}
    assert names == {"rl_logprob_unmasked_dist", "rl_kl_per_sequence_dist"}

    feed.tap(NAMED["rl_logprob_dist"])
    feed.record(line)
    assert sum(_counts(feed, "rl_logprob_unmasked_dist")) == 2
    assert sum(_counts(feed, "rl_kl_per_sequence_dist")) == 4


def test_strings_and_objects_are_ignored_and_counted(grpo: Feed) -> None:
    """A table beside the numbers costs none of them."""
    grpo.record({"game_log": object(), "note": "x", "kl": 0.1, "broken": torch.empty(4, device="meta")}, step=1)

    assert grpo.snapshot.value("rlexporter_ignored_values_total") == 3
    assert grpo.snapshot.value("rl_kl_per_token") == 0.1


def test_unknown_keys_are_served_up_to_a_cap() -> None:
    """Beyond it they are dropped and counted; what is known is never dropped."""
    feed = Feed(CATALOG, max_keys=3)
    for line in range(2):
        feed.record({f"key_{i}": float(line) for i in range(5)} | {"kl": 0.5})

    served = [series.labels[0] for series in feed.snapshot.samples if series.metric.series == "rl_logged_value"]
    assert served == ["key_0", "key_1", "key_2"]
    assert feed.snapshot.value("rl_logged_value", key="key_0") == 1.0
    assert feed.snapshot.value("rlexporter_unmapped_keys") == 3
    assert feed.snapshot.value("rlexporter_dropped_keys_total") == 4
    assert feed.snapshot.value("rl_kl_per_token") == 0.5


def test_a_known_key_takes_no_room_of_others() -> None:
    """Where it is served as it is logged too, but for one with a name of the user's in it."""
    feed = Feed(CATALOG, frameworks=FRAMEWORKS, max_keys=2)
    feed.begin(RunFacts(algorithm="grpo", framework="open-instruct", judged_as="grpo"), {})
    feed.record({"mine": 1.0, "scores": 0.5, "val/num_step_tokens": 9.0, "tools/a/avg_runtime": 1.0, "yours": 2.0}, 1)

    served = {series.labels[0] for series in feed.snapshot.samples if series.metric.series == "rl_logged_value"}
    assert served == {"mine", "scores", "val/num_step_tokens", "tools/a/avg_runtime"}
    assert feed.snapshot.value("rlexporter_dropped_keys_total") == 1
    assert feed.snapshot.value("rlexporter_unmapped_keys") == 1


def test_names_in_labels_are_capped_too() -> None:
    """A flood of reward functions or data sets cannot fill the server."""
    feed = Feed(CATALOG, max_keys=2)
    feed.record({f"rewards/f{i}/mean": 1.0 for i in range(10)})
    for i in range(MAX_DATASETS + 10):
        feed.record({f"eval_d{i}_loss": 1.0, f"eval_d{i}_runtime": 1.0, f"eval_d{i}_samples_per_second": 9.0})

    names = [series.metric.series for series in feed.snapshot.samples]
    assert names.count("rl_reward_function_mean") == 2
    assert names.count("rl_eval_loss") == MAX_DATASETS
    assert (feed.snapshot.value("rlexporter_dropped_keys_total") or 0) == 8 + 10 * 3


def test_a_second_training_brings_no_new_keys() -> None:
    """Training again and again in one process logs the same names: they take up their room once."""
    feed = Feed(CATALOG, max_keys=3)
    for training in range(5):
        feed.begin(RunFacts(algorithm="grpo", step=0), {"run": "again", "rank": "0"})
        feed.record({"rewards/format/mean": 1.0 + training, "mine": 10.0 + training}, step=1)
    feed.record({"rewards/answer/mean": 7.0, "one/too/many": 8.0}, step=2)

    value = feed.snapshot.value
    assert value("rl_reward_function_mean", reward_function="format") == 5.0
    assert value("rl_logged_value", key="mine") == 14.0
    assert value("rl_reward_function_mean", reward_function="answer") == 7.0
    assert value("rlexporter_unmapped_keys") == 1
    assert value("rlexporter_dropped_keys_total") == 1


def test_evaluations_have_series_and_a_time_of_their_own(grpo: Feed) -> None:
    """They move neither the step nor the training's values."""
    grpo.record({"reward": 1.0}, step=5)
    grpo.record({"eval_reward": 0.25, "eval_math_runtime": 3.0, "eval_math_samples_per_second": 8.0}, step=5)

    assert grpo.snapshot.value("rl_reward_mean") == 1.0
    assert grpo.snapshot.value("rl_eval_reward_mean", dataset="math") == 0.25
    assert grpo.snapshot.value("rl_eval_timestamp_seconds", dataset="math") == 1000.0
    assert grpo.snapshot.value("rl_eval_step", dataset="math") == 5
    assert grpo.snapshot.value("rl_steps_total") == 5


def test_the_line_is_not_changed(grpo: Feed) -> None:
    """Other callbacks see the same dict."""
    line: dict[str, Any] = {"reward": None, "kl": 0.1, "x": "y", 7: 1.0}  # type: ignore[dict-item]
    grpo.record(line, step=1)

    assert line == {"reward": None, "kl": 0.1, "x": "y", 7: 1.0}
    assert grpo.snapshot.value("rl_logged_value", key="7") == 1.0


def test_a_state_is_one_of_six(feed: Feed) -> None:
    """1 for the state it is in; the exception's class while there is one."""
    feed.enter(RunState.FAILED, "RuntimeError")
    assert {s.labels[0]: v for s, v in feed.snapshot.samples.items() if s.metric.series == "rl_run_state"} == {
        "starting": 0.0,
        "running": 0.0,
        "finished": 0.0,
        "failed": 1.0,
        "preempted": 0.0,
        "stopped": 0.0,
    }
    assert feed.snapshot.value("rl_run_exception_info", exception="RuntimeError") == 1

    feed.enter(RunState.RUNNING)
    assert feed.snapshot.value("rl_run_exception_info", exception="RuntimeError") is None


def test_observe_takes_the_name_of_a_histogram(feed: Feed) -> None:
    """Short or whole; another name is an error that says which are close."""
    for name in ("policy_ratio", "policy_ratio_dist", "rl_policy_ratio_dist"):
        observe(feed, feed.histogram(name, {}), torch.tensor([0.95, 1.0, 300.0]), torch.tensor([1, 1, 0]))

    assert sum(_counts(feed, "rl_policy_ratio_dist")) == 6
    with pytest.raises(LookupError, match=r"'policy_ratios'; close: policy_ratio"):
        feed.histogram("policy_ratios", {})
    with pytest.raises(LookupError, match="no histogram"):
        feed.histogram("kl", {})
    with pytest.raises(LookupError, match="rl_reward_function_dist has the labels"):
        feed.histogram("reward_function", {})
    observe(feed, feed.histogram("reward_function", {"reward_function": "accuracy"}), [1.0])
    assert Series(NAMED["rl_reward_function_dist"], ("accuracy",)) in feed.snapshot.buckets


def test_a_snapshot_never_changes(grpo: Feed) -> None:
    """A reader that has one has one moment."""
    grpo.record({"kl": 0.1, "grad_norm": 1.0}, step=1)
    kept = grpo.snapshot
    samples, buckets = dict(kept.samples), dict(kept.buckets)
    grpo.record({"kl": 0.2, "grad_norm": 2.0, "new": 1.0}, step=2)

    assert (kept.samples, kept.buckets) == (samples, buckets)


def test_a_line_that_is_written_again_is_whole(grpo: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that writes meanwhile has the line written again, with all that its new keys bring."""
    number, calls = SnapshotBuilder.number, []

    def interrupted(self: SnapshotBuilder, *args: Any, **kwargs: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            grpo.enter(RunState.PREEMPTED)
        number(self, *args, **kwargs)

    monkeypatch.setattr(SnapshotBuilder, "number", interrupted)
    grpo.record({"mine": 1.0, "mine/too": 2.0, "rewards/a/mean": 3.0, "grad_norm": 4.0}, step=1)

    value = grpo.snapshot.value
    assert len(calls) > 1
    assert value("rl_run_state", state="preempted") == 1
    assert value("rlexporter_unmapped_keys") == 2
    assert value("rl_logged_value", key="mine/too") == 2.0
    assert (value("rl_grad_norm"), value("rl_steps_total")) == (4.0, 1)


def test_writers_do_not_lose_each_other(grpo: Feed) -> None:
    """Two threads that count have both counted."""

    def write() -> None:
        for _ in range(100):
            observe(grpo, grpo.histogram("policy_ratio", {}), torch.ones(10))

    threads = [Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(_counts(grpo, "rl_policy_ratio_dist")) == 4000


_ANYTHING = st.one_of(
    st.none(),
    st.floats(),
    st.integers(),
    st.booleans(),
    st.text(),
    st.binary(),
    st.complex_numbers(),
    st.lists(st.one_of(st.floats(), st.none(), st.text(), st.integers())),
    st.dictionaries(st.text(), st.floats()),
    st.builds(lambda values: np.array(values, dtype=np.float32), st.lists(st.floats(width=32))),
    st.builds(lambda values: torch.tensor(values, dtype=torch.float64), st.lists(st.floats())),
    st.builds(object),
)
_LOGGED = st.sampled_from([key.name for metric in CATALOG for key in metric.keys])
_EVALUATED = st.builds("_".join, st.lists(st.sampled_from(["eval", "test", "math", "runtime"]), min_size=1))
_KEYS = st.one_of(
    st.text(), _LOGGED, st.builds("{}_{}".format, _EVALUATED, _LOGGED), _EVALUATED, st.integers(), st.none()
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(_KEYS, _ANYTHING, max_size=8), st.one_of(st.none(), st.integers(0, 10**9)))
def test_nothing_that_can_be_logged_raises(feed: Feed, line: dict[Any, Any], step: int | None) -> None:
    """Whatever the key and the value."""
    feed.record(line, step)

    assert all(isinstance(value, (int, float)) for value in feed.snapshot.samples.values())
    assert all(len(series.labels) == len(series.metric.labels) for series in feed.snapshot.samples)
    assert Series(CATALOG[0]) not in feed.snapshot.buckets


def test_asking_what_a_key_feeds_changes_nothing(grpo: Feed) -> None:
    """The next line counts a new key; a known one only needs a look. The keys of its line tell an evaluation."""
    keys = ("kl", "mine")
    before = grpo.snapshot
    first = grpo.targets("kl", keys), grpo.targets("mine", keys)
    again = grpo.targets("kl", keys), grpo.targets("mine", keys)

    assert grpo.snapshot is before
    assert first == again == ((Series(NAMED["rl_kl_per_token"]),), (Series(NAMED["rl_logged_value"], ("mine",)),))
    assert before.value("rlexporter_unmapped_keys") == 0
    grpo.record({"loss": 1.0}, step=1)
    assert grpo.snapshot.value("rlexporter_unmapped_keys") == 1

    (series,) = grpo.targets("eval_loss", ["eval_loss", "eval_math_runtime", "eval_math_samples_per_second"])
    assert (series.metric.series, series.labels) == ("rl_eval_loss", ("math",))


def test_a_tapped_metric_is_fed_by_no_key(grpo: Feed) -> None:
    """Not by one that was known before, nor by a new one; nor is that a key that was dropped."""
    assert grpo.targets("kl", ["kl"])
    grpo.tap(NAMED["rl_kl_per_token"])
    known, new = grpo.targets("kl", ["kl"]), grpo.targets("grad_norm", ["grad_norm"])
    grpo.record({"loss": 1.0}, step=1)

    assert (known, [series.metric.series for series in new]) == ((), ["rl_grad_norm", "rl_grad_norm_dist"])
    assert grpo.snapshot.value("rlexporter_dropped_keys_total") == 0


def test_a_key_without_room_is_counted_each_time() -> None:
    """With the next line, as it is where that line has it with a number of the host."""
    feed = Feed(CATALOG, max_keys=1, clock=lambda: 0.0)
    assert feed.targets("first", ["first", "second"])

    for step in (1, 2):
        assert feed.targets("second", ["first", "second"]) == ()
        feed.record({"first": 1.0}, step)
    assert feed.snapshot.value("rlexporter_dropped_keys_total") == 2
    assert feed.snapshot.value("rlexporter_unmapped_keys") == 1


def test_a_counter_needs_a_finite_total(grpo: Feed) -> None:
    """Counts without extremes, of whatever made them: the counter stays what it was, for later totals as well."""
    series = Series(NAMED["rl_skipped_updates_total"])
    for step, maximum in enumerate([2.0, -math.inf, math.inf, 3.0], 1):
        counted = Histogram((), (1,), positive_sum=1.0, minimum=maximum, maximum=maximum)
        grpo.absorb(StepUpdate(step=step, seen={series: counted}))

    assert grpo.snapshot.value("rl_skipped_updates_total") == 3.0


def _phase(feed: Feed) -> list[str]:
    return [labels[0] for labels, value in _of(feed, "rl_phase").items() if value == 1.0]


def _of(feed: Feed, name: str) -> dict[tuple[str, ...], float]:
    return {series.labels: value for series, value in feed.snapshot.samples.items() if series.metric.series == name}


def test_the_phase_under_way_is_there_for_whoever_reads(grpo: Feed) -> None:
    """Also after a change in the middle of it, and not any more once it is over; what was read does not change."""
    assert _phase(grpo) == []
    grpo.under_way("rollout")
    grpo.record({"reward": 1.5}, step=7)
    during = grpo.snapshot
    assert (_phase(grpo), during.value("rl_reward_mean"), grpo.step) == (["rollout"], 1.5, 7)
    assert grpo.snapshot is during

    grpo.under_way("update")
    assert _phase(grpo) == ["update"]
    grpo.under_way("")
    assert _phase(grpo) == []
    assert during.value("rl_phase", phase="rollout") == 1.0
    assert {phase for (phase,) in _of(grpo, "rl_phase")} == {
        *("rollout", "generation", "reward", "update", "eval", "save")
    }


def test_an_evaluation_may_take_longer_than_a_step_while_it_lasts() -> None:
    """Six times as long until one was measured: 3,600 seconds instead of 600 after the first steps."""
    feed = Feed(CATALOG, watch=watch({}))
    feed.begin(RunFacts(algorithm="grpo"), {})
    feed.record({"reward": 1.0}, update=StepUpdate(step=1, duration=2.0))
    found = []
    for phase in ("rollout", "eval", "update"):
        feed.under_way(phase)
        found.append(feed.snapshot.value("rl_stall_after_seconds"))

    assert found == [600.0, 3600.0, 600.0]
