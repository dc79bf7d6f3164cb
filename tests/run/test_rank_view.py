"""What a rank other than 0 serves, and what it costs."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import pytest

from rlexporter import Exporter, Rank
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.outputs import prometheus
from rlexporter.run import shutdown
from tests.conftest import fetch
from tests.tools import free_port


@pytest.fixture
def second() -> Iterator[Exporter]:
    """Rank 1 of 2, which serves all that it sees."""
    exporter = Exporter(run="r", algorithm="grpo", port=0, rank=Rank(1, local=1, world_size=2), ranks="all").start()
    yield exporter
    exporter.close()


def _names(exporter: Exporter) -> set[str]:
    now = exporter.snapshot
    return {series.metric.series for series in (*now.samples, *now.buckets)}


def test_what_is_logged_is_served_by_rank_0_only(second: Exporter) -> None:
    """It is reduced over all ranks; a NaN in it is no NaN of this rank."""
    second.log({"reward": 1.0, "kl": math.nan, "my_own_key": 2.0, "loss": math.nan}, step=3)

    assert not {"rl_reward_mean", "rl_kl_per_token", "rl_logged_value", "rl_loss", "rl_run_info"} & _names(second)
    assert second.snapshot.value("rl_step") == 3
    bad = [s for s, v in second.snapshot.samples.items() if s.metric.series == "rl_nonfinite_values_total" and v]
    assert bad == []


def test_an_evaluation_is_no_step_of_another_rank(second: Exporter) -> None:
    """A line without a step is one, unless it is of an evaluation; its values are rank 0's business."""
    second.log({"reward": 1.0})
    second.log({"reward": 2.0})
    second.log({"eval_reward": 3.0, "eval_runtime": 4.0})

    assert second.snapshot.value("rl_step") == 2
    assert second.snapshot.value("rl_eval_reward_mean", dataset="default") is None


def test_its_own_tensors_and_timings_are(second: Exporter) -> None:
    """With the NaN that only it has, judged where it is seen."""
    second.run.sink.observe("rl_reward_dist", [0.5, math.nan])
    second.run.sink.observe("rl_loss_dist", [math.inf])
    second.run.sink.advance(StepUpdate(step=1, duration=2.0))

    now = second.snapshot
    assert now.labels == {"run": "r", "rank": "1"}
    assert now.value("rl_nonfinite_values_total", metric="rl_reward_dist", kind="nan") == 1
    assert now.value("rl_nonfinite_values_total", metric="rl_loss", kind="+inf") == 1
    assert now.value("rl_condition", condition="nonfinite_reward", severity="critical") == 1
    assert now.value("rl_condition", condition="nonfinite", severity="critical") == 1
    assert now.value("rl_condition_judged", condition="reward_flat") is None
    assert {"rl_reward_dist", "rl_step_duration_seconds", "rl_last_step_timestamp_seconds"} <= _names(second)


def test_timings_are_few() -> None:
    """At most 60 series, and no distribution but that of the time of a step."""
    exporter = Exporter(run="r", algorithm="ppo", port=0, rank=Rank(1, world_size=2), ranks="timings").start()
    exporter.run.begin(RunFacts(algorithm="ppo", rank=1, world_size=2, step=0))
    with (
        exporter.run.sink.phase("rollout"),
        exporter.run.sink.phase("eval"),
        exporter.run.sink.phase("save"),
        exporter.run.sink.phase("update"),
    ):
        exporter.run.sink.observe("rl_reward_dist", [math.nan, 1.0])
    exporter.end(ValueError())
    exporter.run.sink.advance(StepUpdate(step=1, duration=2.0))
    text = prometheus.encode(exporter.snapshot, "")[0].decode()
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    exporter.close()

    assert 30 < len(samples) <= 60
    assert not [line for line in samples if "_dist_" in line or "nonfinite" in line]
    assert [line for line in samples if line.startswith("rl_step_duration_seconds_count")]


def test_each_rank_of_a_machine_has_a_port_of_its_own() -> None:
    """The base and its local rank; where that is taken, the next one."""
    base = free_port()
    ranks = [
        Exporter(run="r", port=base, rank=Rank(8 + local, local=local, world_size=16), ranks="all").start(fallback=True)
        for local in (0, 2)
    ]
    assert [rank.port for rank in ranks] == [base, base + 2]
    taken = Exporter(run="s", port=base + 1, rank=Rank(1, local=1, world_size=16), ranks="all")
    ranks[1].run.begin(RunFacts())  # which is under way: it does not give way
    taken.start(fallback=True)
    assert taken.port not in (base, base + 2, None)
    assert fetch(f"{taken.url}/livez")[0] == 200
    for rank in (*ranks, taken):
        rank.close()


def test_another_rank_does_nothing_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket, no thread, no file; it can be written to all the same."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    before = threading.active_count()
    exporter = Exporter(run="r", state_file="/nowhere/x", discovery="/nowhere").start()
    exporter.log({"reward": 1.0}, step=1)

    assert (exporter.url, exporter.snapshot.labels["rank"]) == (None, "3")
    assert threading.active_count() == before
    assert list(shutdown.live()) == []


def test_how_many_ranks_are_covered(second: Exporter) -> None:
    """Rank 0 says how many there are, each endpoint that it is one."""
    first = Exporter(run="r", rank=Rank(world_size=2))

    assert (first.snapshot.value("rl_world_size"), first.snapshot.value("rl_ranks_covered")) == (2, 1)
    assert (second.snapshot.value("rl_world_size"), second.snapshot.value("rl_ranks_covered")) == (None, 1)
