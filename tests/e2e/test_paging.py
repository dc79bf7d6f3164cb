"""A fault in a real training ends as a call of a real webhook, and what is none does not."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.paging import FLAP, LATELY, SLACK, SOON, UNSEEN, Desk, chain, desk
from tests.e2e.runs import GIL_SECONDS, Training, start
from tests.tools import ALERTMANAGERS, GENERATIONS, Prometheus, eventually, free_ports

STALLED = 5
TRAININGS = {
    "ratio": ("--iterations", "2", "--labels", "cluster=one"),
    "reward": ("--labels", "cluster=one"),
    "abort": ("--labels", "cluster=two"),
    "hang": ("--stalled", str(STALLED), "--labels", "cluster=two"),
    "start": ("--stalled", str(STALLED), "--labels", "cluster=two"),
    "gil": (),
    "end": ("--stalled", str(STALLED)),
}
"""In two clusters: five sick runs in one are a single page of another alert."""


@dataclass
class Scene:
    """Trainings that go wrong in all ways at once, and the servers of two generations that watch them."""

    trainings: dict[str, Training]
    desks: dict[str, Desk]
    servers: dict[str, Prometheus]
    killed: dict[str, float] = field(default_factory=dict)

    def planted(self, kind: str) -> list[dict[str, Any]]:
        """The steps in which a fault did something so far, and when."""
        file = self.trainings[kind].folder / "faults.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def ask(self, kind: str) -> None:
        """Let the fault begin."""
        (self.trainings[kind].folder / "fault").touch()

    def kill(self, kind: str, by: signal.Signals) -> None:
        """End the process as the kernel would."""
        process = self.trainings[kind].process
        process.send_signal(by)
        self.killed[kind] = time.time()
        process.wait(600)
        assert process.returncode == -by


@contextmanager
def played(folder: Path) -> Iterator[Scene]:
    """All faults are planted once all runs train; the run with NaN rewards is killed while they last."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        # Under load a scrape may have been given up, and who gave it up would be waited for.
        patch.setenv("RLEXPORTER_LINGER_SECONDS", "10")
        trainings = {}
        ports = free_ports(TRAININGS)
        for kind, options in TRAININGS.items():
            fault = () if kind == "abort" else ("--fault", kind)
            started = start(folder / kind, ports[kind], "wait", "--pace", "0.5", *fault, *options)
            trainings[kind] = stack.enter_context(started)
        playing = Scene(trainings, {}, {})
        for generation, alertmanager in zip(GENERATIONS, ALERTMANAGERS, strict=True):
            at = stack.enter_context(desk(alertmanager, folder / alertmanager))
            playing.desks[generation] = at
            playing.servers[generation] = stack.enter_context(
                chain(generation, folder / generation, [*ports.values()], at)
            )
        play(playing)
        yield playing


def play(scene: Scene) -> None:
    """Each fault in its time."""
    for kind, training in scene.trainings.items():
        if kind != "start":
            training.wait_logged(6)
    eventually(lambda: scene.planted("start"))
    for kind in scene.trainings:
        scene.ask(kind)
    for kind in ("ratio", "reward", "hang", "gil", "end"):
        eventually(lambda kind=kind: scene.planted(kind))
    scene.kill("abort", signal.SIGABRT)
    began = scene.planted("reward")[0]["time"]
    eventually(lambda: time.time() > began + LATELY + 3, LATELY + 60)
    scene.kill("reward", signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.waits
def test_who_is_called(tmp_path: Path) -> None:
    """By Prometheus 2 with the old Alertmanager, and by Prometheus 3 with the new one.

    In three minutes of real waits; `test_trust.py` has a page in `make test`.
    """
    with played(tmp_path) as scene:
        for generation in GENERATIONS:
            _a_ratio_that_blows_up_in_one_step(scene, generation)
            _what_killed_it_stays(scene, generation)
            _aborted(scene, generation)
            _hanging(scene, generation)
            _no_page(scene, generation)


def _a_ratio_that_blows_up_in_one_step(scene: Scene, generation: str) -> None:
    """It is paged at once with run, step, limit and checkpoint, although all is well in the next; later it is over."""
    at, run, (planted,) = scene.desks[generation], scene.trainings["ratio"].name, scene.planted("ratio")
    page = at.page(run, "RLRatio")

    assert page.labels["severity"] == "critical"
    assert page.labels["cluster"] == "one"
    said = rf"Run {run}, step {planted['step']}: [\d.e+]+, limit 10\. The last good checkpoint is that of step (\d+)\."
    found = re.fullmatch(said, page.description)
    assert found, page.description
    assert int(found[1]) not in (0, planted["step"]), "by the time of the page one after it may be the last, and good"
    assert page.at - planted["time"] < SOON + SLACK
    of = f'{{condition="ratio_high",severity="critical",run="{run}"}}[1h]'  # a busy machine misses a scrape
    assert scene.servers[generation].value(f"last_over_time(rl_condition_events_total{of})") == 1
    assert scene.servers[generation].value(f"last_over_time(rl_condition{of})") == 0
    firing = f'ALERTS{{run="{run}",alertname="RLRatio",alertstate="firing"}}'
    least = planted["time"] + LATELY + FLAP
    eventually(lambda: time.time() > least and not scene.servers[generation].query(firing))
    last = scene.servers[generation].value(f"max(max_over_time(timestamp({firing})[1h:1s]))")
    assert last is not None
    assert least - 3 < last < least + SOON + SLACK
    assert at.told(run, status="resolved") == [], "a pager hears of no end"


def _what_killed_it_stays(scene: Scene, generation: str) -> None:
    """NaN rewards are paged; then SIGKILL: that is paged, and neither is ever over, since the run is not back."""
    at, run, planted = scene.desks[generation], scene.trainings["reward"].name, scene.planted("reward")
    page = at.page(run, "RLRewardLost")
    gone = at.page(run, "RLRunVanished")

    first = planted[0]["step"]
    what = r"[12] NaN or infinite values?\. The last good checkpoint is that of step \d+\."
    said = rf"Run {run}, paced, step {first}: {what}"
    assert re.fullmatch(said, page.description), page.description
    assert page.at - planted[0]["time"] < SOON + SLACK
    assert UNSEEN / 2 < gone.at - scene.killed["reward"] < UNSEEN + SOON + SLACK
    said = f"Run {run}: it was training, and has not been seen for more than three minutes. Its last step was "
    assert gone.description.startswith(said), gone.description
    last = int(gone.description.removeprefix(said).partition(".")[0])
    assert first < last <= planted[-1]["step"], "that of the last scrape, which a busy machine may have left waiting"
    assert gone.call in [each.call for each in at.told(run, "RLRewardLost")]
    over = scene.killed["reward"] + LATELY + FLAP + UNSEEN
    eventually(lambda: time.time() > over)
    both = {"RLRewardLost", "RLRunVanished"}
    firing = scene.servers[generation].query(f'ALERTS{{run="{run}",severity="critical",alertstate="firing"}}')
    assert {each["metric"]["alertname"] for each in firing} == both
    assert at.pages(run) == dict.fromkeys(both, "firing")


def _aborted(scene: Scene, generation: str) -> None:
    """SIGABRT, as a failed assertion of NCCL or of the device ends a process."""
    at, run = scene.desks[generation], scene.trainings["abort"].name
    gone = at.page(run, "RLRunVanished")

    assert UNSEEN / 2 < gone.at - scene.killed["abort"] < UNSEEN + SOON + SLACK
    assert at.pages(run) == {"RLRunVanished": "firing"}


def _hanging(scene: Scene, generation: str) -> None:
    """In a reward function, and before the first step."""
    at = scene.desks[generation]
    for kind, limit in (("hang", STALLED), ("start", 3 * STALLED)):
        run, (planted,) = scene.trainings[kind].name, scene.planted(kind)
        page = at.page(run, "RLRunStalled")

        assert page.at - planted["time"] < limit + SOON + SLACK
        assert "no step has ended for" in page.description
        assert ("in the phase reward." in page.description) is (kind == "hang")
        assert at.pages(run) == {"RLRunStalled": "firing"}


def _no_page(scene: Scene, generation: str) -> None:
    """Holding the GIL for several scrapes, and a normal end: no page when a run that was killed later has its own."""
    at, server = scene.desks[generation], scene.servers[generation]
    at.page(scene.trainings["reward"].name, "RLRunVanished")
    began, over = (each["time"] for each in scene.planted("gil"))
    assert over - began >= GIL_SECONDS > UNSEEN / 6
    instance = f'instance="127.0.0.1:{scene.trainings["gil"].port}"'
    (unseen,) = server.query(f"max_over_time(up{{{instance}}}[{GIL_SECONDS - 2}s])", time=str(over - 1.5))
    assert unseen["value"][1] == "0"
    eventually(lambda: server.value(f"up{{{instance}}}") == 1)
    (end,) = scene.planted("end")
    assert scene.killed["reward"] - max(over, end["time"]) > 0
    assert scene.trainings["end"].process.wait(600) == 0
    for kind in ("gil", "end"):
        assert at.pages(scene.trainings[kind].name) == {}, kind
