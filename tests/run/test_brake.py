"""What `on_critical` asks for: of which incidents, how often, and of a loop of one's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from rlexporter import Exporter, OnCritical, SetupError
from rlexporter.config.settings import Settings
from rlexporter.model.incident import Incident
from rlexporter.model.sink import Orders
from rlexporter.status.samples import Samples
from rlexporter.status.verdict import verdict

HEALTHY = {"loss": 0.1, "grad_norm": 1.0, "reward": 0.5, "kl": 0.01}
BAD = {**HEALTHY, "loss": nan}
LOST = {**HEALTHY, "reward": nan}


def _made(**settings: Any) -> Exporter:
    """A run that nobody serves, six healthy steps old."""
    made = Exporter(run="run", algorithm="grpo", **settings)
    for _ in range(6):
        made.log(HEALTHY)
    return made


def _asked(exporter: Exporter, line: dict[str, float]) -> Orders:
    """What a trainer is asked for after a step with this line."""
    exporter.run.sink.log(line)
    return exporter.run.brake.orders()


def test_a_loop_of_ones_own_is_told_to_stop(capfd: pytest.CaptureFixture[str]) -> None:
    """The log says why, and the run is stopped, by `on_critical`."""
    exporter = _made(on_critical="save,stop")
    before = exporter.should_stop
    exporter.log(BAD)
    assert (before, exporter.should_stop) == (False, True)
    assert "on_critical sets should_stop in step 7: rl_loss is NaN or infinite.\n" in capfd.readouterr().err
    exporter.end()
    assert exporter.state.value == "stopped"
    assert exporter.snapshot.value("rl_run_exception_info", exception="on_critical") == 1
    said = verdict(Samples(exporter.snapshot), time.time())
    assert (said.word, "The run was stopped by on_critical after step 7." in said.text) == ("act", True)


def test_nothing_is_asked_for_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    """And nothing is said."""
    exporter = _made()
    assert _asked(exporter, BAD) == Orders()
    assert "on_critical" not in capfd.readouterr().err


def test_each_incident_is_asked_about_once_and_each_training_begins_anew() -> None:
    """It is one incident while it lasts."""
    exporter = _made(on_critical=["stop", "save"])
    asked = [_asked(exporter, line) for line in (BAD, BAD, HEALTHY)]
    why = (
        "rl_loss is NaN or infinite. It began in step 7.\nStop the run. No checkpoint is known: start again, and save "
    )
    assert asked == [Orders(save=True, stop=True, why=f"{why}some along the way."), Orders(), Orders()]
    exporter.run.brake.obeyed(asked[0])
    exporter._run.brake.begin()
    assert not exporter.should_stop


def test_a_function_gets_the_incident_and_decides() -> None:
    """Its words are taken; None asks for nothing."""
    got: list[Incident] = []

    def act(incident: Incident) -> str | None:
        got.append(incident)
        return "save" if incident.condition == "nonfinite_reward" else None

    exporter = _made(on_critical=act)
    assert not any(_asked(exporter, BAD)[:2])
    asked = [_asked(exporter, LOST) for _ in range(3)]
    assert [(each.save, each.stop) for each in asked] == [(True, False), (False, False), (False, False)]
    assert [(each.condition, each.severity.value) for each in got] == [
        ("nonfinite", "critical"),
        ("nonfinite_reward", "critical"),
    ]
    assert got[0].step == 7


@pytest.mark.parametrize("act", [lambda _: 1 / 0, lambda _: "halt", lambda _: 7])
def test_an_error_of_a_function_is_counted_and_changes_nothing(act: Callable[[Incident], Any]) -> None:
    """It is not called again for the same incident."""
    exporter = _made(on_critical=act)
    assert [_asked(exporter, BAD) for _ in range(3)] == [Orders()] * 3
    assert exporter.snapshot.value("rlexporter_errors_total", where="on_critical") == 1


def test_patience_waits_for_what_lasts() -> None:
    """What is over before is not asked about."""
    exporter = _made(on_critical=OnCritical("stop", patience=3))
    assert not any(_asked(exporter, line).stop for line in (BAD, BAD, HEALTHY, HEALTHY, HEALTHY))
    assert [_asked(exporter, BAD).stop for _ in range(5)] == [False, False, False, True, False]


def test_only_the_conditions_that_are_meant() -> None:
    """And never a warning, nor what follows from something else."""
    exporter = _made(on_critical=OnCritical("stop", only="nonfinite_reward"))
    assert not _asked(exporter, BAD).stop
    assert _asked(exporter, LOST).stop
    assert [each.condition for each in exporter.snapshot.incidents if each.speaks].count("nonfinite") == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"on_critical": "halt"}, "argument on_critical='halt' is not usable: 'halt' is none of save, stop"),
        ({"on_critical": 3}, "must be save, stop, both with a comma between them, or a function"),
        ({"on_critical": OnCritical(only="kl_hihg")}, "'kl_hihg' is none of nonfinite_reward, "),
        ({"on_critical": OnCritical(only="reward_gain")}, "'reward_gain' is none of"),
        ({"on_critical": OnCritical(patience=-1)}, "must be between 0"),
        ({"keep_good": "maybe"}, "must be 1 or 0"),
    ],
)
def test_unusable_settings_are_named(settings: dict[str, Any], told: str) -> None:
    """Before anything is trained."""
    with pytest.raises(SetupError, match=told):
        Settings.load(settings)
