"""Phases within phases."""

from __future__ import annotations

from rlexporter.feed.feed import PhaseTimer


def test_each_phase_has_its_own_time_only() -> None:
    """That of an inner one is not that of the outer; what is open goes on after it was read."""
    now = 0.0
    phases = PhaseTimer(lambda: now)
    phases.enter("rollout")
    now = 2.0
    phases.enter("reward")
    assert phases.current == "reward"
    now = 5.0
    phases.leave()
    assert phases.current == "rollout"
    now = 6.0
    assert phases.take() == {"rollout": 3.0, "reward": 3.0}
    now = 7.0
    phases.leave()
    now = 100.0
    phases.enter("rollout")
    now = 101.0
    phases.leave()

    assert phases.current == ""
    assert phases.take() == {"rollout": 2.0}
    assert phases.take() == {}
