"""Lines and parts of lines that are fed to a run: what is one line, what is a step, and what is never lost."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from rlexporter import Exporter
from rlexporter.frameworks.common import after_call
from rlexporter.integrations.logged_run import LoggedRun, Sources
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts
from tests.served import errors
from tests.tools import eventually


@pytest.fixture
def run() -> Iterator[LoggedRun]:
    """A run that has not begun."""
    made = LoggedRun(Exporter(run="test", port=0))
    yield made
    made.exporter.close()
    assert not [each for each in threading.enumerate() if each.name == "rlexporter-lines"]


def test_nothing_runs_before_the_first_line(run: LoggedRun) -> None:
    """Then with the facts that were given, once."""
    assert (run.exporter.port, run.exporter.state) == (None, RunState.STARTING)
    run.begin(RunFacts(algorithm="grpo", hyperparameters={"beta": 0.5}, open_ended=True))
    run.log({"loss": 1.5}, 3)
    assert run.exporter.port
    assert run.exporter.snapshot.value("rl_hyperparameter", name="beta") == 0.5
    assert run.exporter.state is RunState.RUNNING


def test_parts_wait_for_each_other_and_for_nothing_else(run: LoggedRun) -> None:
    """Until the step changes, a key comes again, or nothing comes for a while; a late part is of the same step."""

    def value(name: str) -> float | None:
        return run.exporter.snapshot.value(name)

    run.log({"loss": 1.5}, 1, whole=False)
    run.log({"reward": 0.5}, 1, whole=False)
    assert (value("rl_loss"), value("rl_step")) == (None, None)
    run.log({"loss": 2.5}, 2, whole=False)
    assert (value("rl_loss"), value("rl_reward_mean"), value("rl_step")) == (1.5, 0.5, 1)
    eventually(lambda: value("rl_step") == 2)
    run.log({"reward": 0.75}, 2)
    assert (value("rl_loss"), value("rl_reward_mean"), value("rl_step"), value("rl_steps_total")) == (2.5, 0.75, 2, 2)
    run.log({"loss": 3.5}, whole=False)
    run.log({"loss": 4.5}, whole=False)
    assert (value("rl_loss"), value("rl_step")) == (3.5, 3)
    assert errors(run.exporter) == 0


@pytest.mark.parametrize("how", ["end", "exit", "preempt"])
def test_the_last_part_is_not_lost(run: LoggedRun, how: str) -> None:
    """However the run ends."""
    run.log({"loss": 1.5}, 1)
    run.log({"loss": 2.5}, 2, whole=False)
    {"end": run.end, "exit": lambda: run.exporter._run.exit(None), "preempt": run.exporter._run.preempt}[how]()
    assert run.exporter.snapshot.value("rl_loss") == 2.5
    assert run.exporter.state is (RunState.PREEMPTED if how == "preempt" else RunState.FINISHED)


def test_arrays_do_not_wait_and_are_not_kept(run: LoggedRun) -> None:
    """They are counted as they are now, by a key or by a name of ours; others are means; texts are nothing."""
    array, tensor = np.array([1.0, 1.1, 3.0]), torch.tensor([0.25, 0.75], requires_grad=True)
    run.log({"policy_ratio": array, "mine": tensor, "reward": [0.5, 1.0], "note": "text"}, 1, whole=False)
    array += 100
    counted = {s.metric.series: b for s, b in run.exporter.snapshot.buckets.items()}
    assert counted["rl_policy_ratio_dist"].count == 3
    assert counted["rl_policy_ratio_dist"].maximum == 3.0
    run.flush()
    assert run.exporter.snapshot.value("rl_reward_mean") == 0.75
    assert run.exporter.snapshot.value("rl_logged_value", key="mine") == 0.5
    run.log({"note": "text"}, 2)
    assert run.exporter.snapshot.value("rl_step") == 1


def test_steps_of_the_past(run: LoggedRun) -> None:
    """Lines by epochs belong to the newest step; many in a row are those of a loop that began again."""
    run.log({"loss": 1.5}, 1000)
    run.log({"accuracy": 0.5}, 3)
    run.log({"loss": 2.5}, 1001)
    assert run.exporter.snapshot.value("rl_steps_total") == 2
    assert run.exporter.snapshot.value("rl_logged_value", key="accuracy") == 0.5
    for step in range(1, 12):
        run.log({"loss": 1.0}, step)
    assert run.exporter.snapshot.value("rl_step") == 11


def test_a_forked_child_says_nothing(run: LoggedRun) -> None:
    """Not even if its parent was in the middle of a line."""
    run.log({"loss": 1.5}, 1)
    with run._lock:
        child = os.fork()
        if not child:
            run.log({"loss": 9.0}, 2)
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert run.exporter.snapshot.value("rl_loss") == 1.5


class Logger:
    """A stand-in for any logger: the order of sources is ours, and needs none of their packages."""

    def log(self, values: Any, inner: Logger | None = None) -> str:
        """Log, and hand the line to another one."""
        if inner is not None:
            inner.log(values)
        return f"logged {sorted(values)}"


@pytest.mark.usefixtures("any_port", "no_callbacks")
def test_calls_inside_others_and_errors(caplog: pytest.LogCaptureFixture) -> None:
    """Only the outermost is a line; what the package raises passes; what we raise is one warning."""
    seen: list[Any] = []

    class Own(Logger):
        pass

    def then(logger: Any, values: Any, inner: Any = None) -> None:
        seen.append(values)
        raise KeyError("ours")

    after_call(Own, "log", then)
    after_call(Own, "log", then)
    assert Own().log({"a": 1.0}, Own()) == "logged ['a']"
    assert Own().log({"b": 1.0}) == "logged ['b']"
    with pytest.raises(TypeError):
        Own().log(3)
    assert seen == [{"a": 1.0}, {"b": 1.0}]
    assert [each.levelno for each in caplog.records] == [logging.WARNING]


@pytest.mark.usefixtures("any_port", "no_callbacks")
def test_an_exporter_of_the_script_feeds_alone() -> None:
    """Also if it comes later; what was opened for lines of a logger is closed."""
    sources = Sources(("wandb",))
    sources.log("wandb", lambda: RunFacts(run_name="first", open_ended=True), {"loss": 1.5}, 1, whole=True)
    assert sources.run is not None
    opened = sources.run.exporter
    assert (opened.name, opened.snapshot.value("rl_loss")) == ("first", 1.5)
    with Exporter(run="own", port=0, linger=0) as own:
        sources.log("wandb", RunFacts, {"loss": 9.0}, 2, whole=True)
        assert vars(sources)["run"] is None
        assert (opened.port, opened.state) == (None, RunState.FINISHED)
        assert own.snapshot.value("rl_loss") is None


@pytest.mark.usefixtures("any_port", "no_callbacks")
@pytest.mark.parametrize(
    ("line", "framework", "family", "series"),
    [
        ({"policy/final_loss": 0.5, "critic/critic_loss": 1.0}, "skyrl", "ppo", "rl_loss"),
        ({"env/all/turns_per_episode": 2.0, "env/all/reward/total": 0.5}, "tinker-cookbook", "grpo", "rl_reward_mean"),
        ({"actor/ratio_mean": 0.5, "actor/pg_loss": 0.25}, "roll", "grpo", "rl_policy_ratio_mean"),
    ],
)
def test_the_first_line_tells_the_framework(line: dict[str, float], framework: str, family: str, series: str) -> None:
    """Where a logger cannot: its keys are then known."""
    sources = Sources(("wandb",))
    sources.log("wandb", lambda: RunFacts(open_ended=True), line, 1, whole=True)
    assert sources.run is not None
    served = sources.run.exporter.snapshot
    sources.leave()

    assert (served.framework, served.family, served.value(series)) == (framework, family, 0.5)


@pytest.mark.usefixtures("any_port", "no_callbacks")
@pytest.mark.parametrize(
    ("told", "line"),
    [("verl", {"actor/ratio_mean": 0.5}), ("", {"loss": 0.5}), ("", {"frac_reward_zero_std_excluded": 0.5})],
)
def test_a_framework_is_not_told_twice(told: str, line: dict[str, float]) -> None:
    """A source that names it is believed, and keys of TRL and of what descends from it say nothing."""
    sources = Sources(("wandb",))
    sources.log("wandb", lambda: RunFacts(framework=told, open_ended=True), line, 1, whole=True)
    assert sources.run is not None
    served = sources.run.exporter.snapshot
    sources.leave()

    assert served.framework == told


@pytest.mark.usefixtures("any_port", "no_callbacks")
def test_a_rank_above_0_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one serves what is logged."""
    monkeypatch.setenv("RANK", "1")
    sources = Sources(("wandb",))
    sources.log("wandb", RunFacts, {"loss": 1.5}, 1, whole=True)
    assert vars(sources)["run"] is None
