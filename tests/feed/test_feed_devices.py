"""What lies on a GPU, on its way into a run: counted there, sent with a step, served when it has come.

No GPU is needed: tensors of the host are taken for such of a device, by the one function that tells them apart. What
differs on a real one (that copies take time, that reads wait) is tested in tests/tensors/test_device.py.
"""

from __future__ import annotations

import dis
import functools
import math
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from rlexporter import Exporter
from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions.view import View
from rlexporter.feed import builder, feed
from rlexporter.feed.builder import SnapshotBuilder
from rlexporter.logs import reader, recorded_alerts
from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import Transition
from rlexporter.model.metric import Series
from rlexporter.model.sink import NotSeenError
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.tensors import tally
from rlexporter.tensors.device import DeviceTally

RATIO = Series(NAMED["rl_policy_ratio_dist"])


@pytest.fixture(autouse=True)
def _on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor is taken for one on a GPU."""
    for module in (feed, tally):
        monkeypatch.setattr(module, "on_gpu", torch.is_tensor)


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """An exporter that serves nobody: while another thread takes what has come, `current` does not wait for it."""
    found = Exporter(run="test")
    yield found
    found.close()


@pytest.fixture
def grpo(exporter: Exporter) -> Exporter:
    """An exporter of a GRPO run that has begun."""
    exporter.run.begin(RunFacts(algorithm="grpo", step=0))
    return exporter


def _count(exporter: Exporter, name: str) -> int:
    found = exporter.snapshot.buckets.get(Series(NAMED[name]))
    return found.count if found else 0


def test_observed_values_come_with_the_next_log_line(exporter: Exporter) -> None:
    """Sent by it, and there for the next scrape."""
    exporter.observe("policy_ratio", torch.tensor([0.9, 1.1, 300.0]), torch.tensor([True, True, False]))
    assert _count(exporter, "rl_policy_ratio_dist") == 0

    exporter.log({"loss": 0.5}, step=1)
    exporter._run.current()
    assert _count(exporter, "rl_policy_ratio_dist") == 2

    exporter.observe("policy_ratio", torch.tensor([math.nan]))
    exporter.log({"loss": 0.5}, step=2)
    exporter.log({"loss": 0.5}, step=3)
    assert exporter.snapshot.value("rl_nonfinite_values_total", metric="rl_policy_ratio_dist", kind="nan") == 1


def test_a_line_with_values_on_a_gpu_does_not_read_them(grpo: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, a NaN, several values, an unknown key, a running total, an evaluation: each where its key belongs."""

    def wait(*_: Any) -> None:
        raise AssertionError("this waits for the device")

    with monkeypatch.context() as patch:
        for name in ("item", "numpy", "__float__", "__array__"):
            patch.setattr(torch.Tensor, name, wait)
        grpo.log({"kl": torch.tensor(0.25), "entropy": torch.tensor([1.0, 2.0]), "reward": 2.0}, step=1)
        grpo.log({"mine": torch.tensor(7), "grad_norm": torch.tensor(math.nan)}, step=2)
        grpo.log({"num_tokens": torch.tensor(100.0)}, step=3)
        grpo.log({"eval_loss": torch.tensor(0.5), "eval_runtime": 1.0}, step=3)
        assert grpo.snapshot.value("rl_reward_mean") == 2.0
    grpo.log({"num_tokens": torch.tensor(150.0), "kl": torch.tensor(0.5)}, step=4)
    value = grpo.snapshot.value

    assert value("rlexporter_errors_total", where="log") is None
    assert value("rl_kl_per_token") == 0.5
    assert value("rl_entropy_per_token") == 1.5
    assert value("rl_logged_value", key="mine") == 7.0
    assert math.isnan(value("rl_grad_norm") or 0)
    assert value("rl_nonfinite_values_total", metric="rl_grad_norm", kind="nan") == 1
    assert value("rl_tokens_total") == 150.0
    assert value("rl_eval_loss", dataset="default") == 0.5


def test_a_step_is_served_whole_once_it_has_come(exporter: Exporter) -> None:
    """What a device counted, and what the host did, of the same series and of others."""
    exporter.run.sink.observe("rl_policy_ratio_dist", torch.full((5,), 1.0))
    exporter.run.sink.observe("rl_completion_length_dist", [3, 4])
    exporter.run.sink.advance(StepUpdate(step=1))
    assert _count(exporter, "rl_completion_length_dist") == 2

    exporter._run.current()
    assert _count(exporter, "rl_policy_ratio_dist") == 5


def test_what_was_flushed_before_a_failure_is_served_after_it(grpo: Exporter) -> None:
    """Even where nothing can be sent any more."""
    grpo.run.sink.observe("rl_weight_norm", torch.tensor([math.nan]))
    grpo.run.sink.flush()
    found = grpo._run.feed._tally.devices["cpu"]
    found.flush = found.add = None  # type: ignore[method-assign,assignment]
    grpo.end(RuntimeError("device-side assert"))
    snapshot = grpo.snapshot

    assert snapshot.value("rl_run_state", state="failed") == 1
    assert snapshot.value("rl_nonfinite_values_total", metric="rl_weight_norm", kind="nan") == 1
    assert snapshot.value("rlexporter_errors_total", where="tap") == 1


def _grpo_step(exporter: Exporter, step: int) -> None:
    """A rollout and an update of GRPO: it flushes before the one and after the other."""
    exporter.run.sink.flush()
    spread = torch.tensor([0.0, 0.25 + step / 100, 1.0 + step / 50])
    exporter.run.sink.observe("rl_reward_function_dist", spread, labels=("accuracy",))
    exporter.run.sink.observe("rl_reward_function_dist", 1.0 - spread / 4, labels=("format",))
    exporter.run.sink.advance(StepUpdate(step=step))


def test_reward_functions_on_a_gpu_have_a_spread(grpo: Exporter) -> None:
    """Every completion got another reward, so no function is dead; the extremes are those of all steps."""
    for step in range(1, 61):
        _grpo_step(grpo, step)
    grpo.run.sink.flush()
    snapshot = grpo.snapshot
    found = snapshot.buckets[Series(NAMED["rl_reward_function_dist"], ("accuracy",))]

    assert snapshot.value("rl_condition_judged", condition="reward_function_dead") == 1
    assert snapshot.value("rl_condition_events_total", condition="reward_function_dead", severity="warning") is None
    assert (found.count, found.minimum, round(found.maximum, 5)) == (180, 0.0, 2.2)


def test_a_late_part_is_judged_with_its_own_extremes(grpo: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is judged with what was counted in it, though it comes in two parts, or after the step."""
    judged: list[dict[Series, Histogram]] = []
    watch = grpo._run.feed._watch
    assert watch
    judge = watch._judge.step

    def noted(view: View) -> list[Transition]:
        judged.append(dict(view.seen))
        return judge(view)

    monkeypatch.setattr(watch._judge, "step", noted)
    for step, values in enumerate([[-5.0, 9.0], [1.0, 2.0], [3.0, 4.0]], 1):
        grpo.run.sink.observe("rl_reward_dist", torch.tensor(values))
        grpo.run.sink.advance(StepUpdate(step=step))
        grpo.run.sink.flush()
        if step == 2:
            grpo._run.current()
            grpo.run.sink.observe("rl_reward_dist", torch.tensor([1.5, 7.0]))
            grpo.run.sink.flush()
    grpo.run.sink.advance(StepUpdate(step=4))
    reward = Series(NAMED["rl_reward_dist"])
    extremes = [(seen[reward].count, seen[reward].minimum, seen[reward].maximum) for seen in judged if reward in seen]

    assert extremes == [(2, -5.0, 9.0), (2, 1.0, 2.0), (4, 1.5, 7.0)]


def _began(exporter: Exporter) -> dict[tuple[str, str], int]:
    watch = exporter._run.feed._watch
    assert watch
    return {key: step for key, (step, _) in watch.first.items()}


def _ppo_step(exporter: Exporter, step: int, kl: float) -> None:
    """A step of modern PPO, whose line has the KL of a sequence of 20 tokens."""
    exporter.run.sink.observe("rl_kl_per_token_dist", torch.tensor([kl]))
    exporter.run.sink.log({"objective/kl": 20 * kl}, step=step, update=StepUpdate(step=step))


@pytest.mark.parametrize("scraped", [True, False])
def test_a_step_is_judged_with_what_a_gpu_has_counted_in_it(exporter: Exporter, tmp_path: Path, scraped: bool) -> None:
    """The line is served at once; the KL is that of a token from the first step on, with or without a scrape.

    What was recorded is judged likewise.
    """
    object.__setattr__(exporter._run.settings, "record", str(tmp_path / "run.jsonl"))
    exporter._run.record()
    exporter.run.begin(RunFacts(algorithm="ppo", step=0))
    for step in range(1, 9):
        _ppo_step(exporter, step, 3.5 if step == 1 else 8.0)
        assert exporter.snapshot.value("rl_kl_per_sequence") == (70.0 if step == 1 else 160.0)
        if scraped:
            exporter._run.current()
            assert exporter.snapshot.value("rl_threshold", condition="kl_high", severity="critical") == 4.0
    exporter.end()
    exporter._run.stop_recording()
    expected = {
        ("kl_at_start", "info"): 1,
        ("kl_at_start", "critical"): 1,
        ("kl_high", "warning"): 4,
        ("kl_high", "critical"): 5,
    }

    assert _began(exporter) == expected
    alerts = recorded_alerts.judge(reader.read(tmp_path / "run.jsonl")).alerts
    assert {(each.condition, each.severity): each.step for each in alerts} == expected


def test_all_that_is_of_a_step_waits_for_its_counts(grpo: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another line of it, an evaluation, and what the host counts for the next step."""
    sink = grpo.run.sink
    with monkeypatch.context() as patch:
        patch.setattr(DeviceTally, "arrived", lambda _: None)
        sink.observe("rl_grad_norm_dist", torch.tensor([math.nan]))
        sink.log({"loss": 0.5}, step=1, update=StepUpdate(step=1))
        sink.log({"entropy": math.nan}, step=1)
        sink.log({"eval_loss": 0.5, "eval_runtime": 1.0}, step=1)
        grpo.observe("reward", [math.nan])
        grpo._run.current()
        assert _began(grpo) == {}
    grpo._run.current()
    assert _began(grpo) == {("nonfinite", "critical"): 1}
    sink.log({"loss": 0.5}, step=2)
    assert _began(grpo)["nonfinite_reward", "critical"] == 2


def test_what_the_next_step_has_flushed_is_not_judged_as_of_the_step_before(
    grpo: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nobody had read the counts of that step before the next one flushed its own."""
    sink = grpo.run.sink
    with monkeypatch.context() as patch:
        patch.setattr(DeviceTally, "arrived", lambda _: None)
        sink.observe("rl_grad_norm_dist", torch.tensor([1.0]))
        sink.log({"loss": 0.5}, step=1, update=StepUpdate(step=1))
        sink.observe("rl_grad_norm_dist", torch.tensor([math.nan]))
        sink.flush()
    grpo._run.current()
    assert _began(grpo) == {}
    sink.log({"loss": 0.5}, step=2, update=StepUpdate(step=2))
    grpo._run.current()
    assert _began(grpo) == {("nonfinite", "critical"): 2}


@pytest.mark.parametrize("end", [False, True])
def test_no_step_waits_for_longer_than_one(grpo: Exporter, end: bool) -> None:
    """Counts that have not come by the next line, or by the end, are judged late, and as those of their own step."""
    sink = grpo.run.sink
    sink.observe("rl_grad_norm_dist", torch.tensor([math.nan]))
    sink.log({"reward": math.nan}, step=5, update=StepUpdate(step=5))
    sink.saved(5)
    buffer = grpo._run.feed._tally.devices["cpu"]._buffers[1]
    buffer[0] = -1.0  # the copy is under way
    grpo._run.current()
    assert _began(grpo) == {}
    if end:
        grpo._run.preempt()
        assert _began(grpo) == {("nonfinite_reward", "critical"): 5}
        return
    sink.advance(StepUpdate(step=6))
    assert _began(grpo) == {("nonfinite_reward", "critical"): 5}
    buffer[0] = 1.0
    sink.advance(StepUpdate(step=7))
    grpo._run.current()
    assert _began(grpo)["nonfinite", "critical"] == 6
    assert grpo.snapshot.value("rl_last_good_checkpoint_step") is None


def test_what_a_gpu_has_counted_before_the_end_is_judged(grpo: Exporter) -> None:
    """A run often dies in the step of its fault."""
    grpo.run.sink.observe("rl_grad_norm_dist", torch.tensor([math.nan]))
    grpo.run.sink.advance(StepUpdate(step=1))
    grpo.end(RuntimeError("nan"))
    assert _began(grpo) == {("nonfinite", "critical"): 1}


def test_a_counter_of_a_device_survives_flushes(exporter: Exporter) -> None:
    """A running total that legacy PPO keeps on the GPU: the largest that was seen, whichever flush has sent it."""
    exporter.run.begin(RunFacts(algorithm="ppo-legacy", step=0))
    for step, total in enumerate([1.0, 4.0], 1):
        exporter.run.sink.observe("rl_skipped_updates_total", torch.tensor(total))
        exporter.run.sink.advance(StepUpdate(step=step))
        exporter.run.sink.flush()
        exporter.run.sink.flush()
        assert exporter.snapshot.value("rl_skipped_updates_total") == total


def test_parts_are_served_in_the_order_in_which_they_came(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape that was held up with a part in its hands: a total that shrinks would be counted once more."""
    exporter.run.begin(RunFacts(algorithm="ppo-legacy", step=0))
    exporter.run.sink.observe("rl_skipped_updates_total", torch.tensor(5.0))
    exporter.run.sink.advance(StepUpdate(step=1))
    absorb = exporter._run.feed.absorb

    def held_up(part: StepUpdate, **said: Any) -> None:
        monkeypatch.setattr(exporter._run.feed, "absorb", absorb)
        exporter.run.sink.observe("rl_skipped_updates_total", torch.tensor(6.0))
        exporter.run.sink.advance(StepUpdate(step=2))
        training = Thread(target=exporter._run.current)
        training.start()
        training.join(timeout=10)
        absorb(part, **said)

    monkeypatch.setattr(exporter._run.feed, "absorb", held_up)
    exporter._run.current()

    assert exporter.snapshot.value("rl_skipped_updates_total") == 6.0


def test_known_keys_on_a_gpu_are_read_without_a_change(grpo: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """New keys or known ones: a line is one change, and the part that has come with it another."""
    grpo.log({"loss": 0.5}, step=1)
    changes, made = [0], grpo._run.feed._changes

    def counted() -> Iterator[SnapshotBuilder]:
        changes[-1] += 1
        return made()

    monkeypatch.setattr(grpo._run.feed, "_changes", counted)
    for step in (2, 3, 4):
        grpo.log({"kl": torch.tensor(step), "mine": torch.tensor(1.0), "reward": torch.tensor(2.0)}, step=step)
        changes.append(0)

    assert changes == [1, 2, 2, 0]


def test_seeing_keeps_errors_away_and_says_what_is_lost(exporter: Exporter) -> None:
    """A reason is no error; after a success the signal is there again."""

    def fail(error: Exception) -> None:
        raise error

    with exporter.run.sink.observing("kl"):
        fail(NotSeenError("beta is 0"))
    assert exporter.snapshot.value("rl_signal_unavailable_info", signal="kl", cause="configuration") == 1
    assert exporter.snapshot.reasons == {"kl": "beta is 0"}
    assert exporter.snapshot.value("rlexporter_errors_total", where="tap") is None

    with exporter.run.sink.observing("kl"):
        fail(ZeroDivisionError("planted"))
    assert exporter.snapshot.value("rl_signal_unavailable_info", signal="kl", cause="configuration") is None
    assert exporter.snapshot.value("rl_signal_unavailable_info", signal="kl", cause="error") == 1
    assert exporter.snapshot.reasons == {"kl": "ZeroDivisionError: see the log of the training"}
    assert exporter.snapshot.value("rlexporter_errors_total", where="tap") == 1

    with exporter.run.sink.observing("kl"):
        pass
    assert exporter.snapshot.value("rl_signal_available", signal="kl") == 1
    assert exporter.snapshot.value("rl_signal_unavailable_info", signal="kl", cause="error") is None
    assert exporter.snapshot.reasons == {}


def test_the_time_of_looking_is_counted_once(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one another it is that of the outer one; with the next update it is served."""
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    with exporter.run.sink.observing("logprob"):
        now += 1.0
        with exporter.run.sink.observing("ratio"):
            now += 2.0
    now += 100.0
    exporter.run.sink.advance(StepUpdate(step=1))

    assert exporter.snapshot.value("rlexporter_observe_seconds_total") == 3.0


LOOKS = ("CALL", "JUMP_BACKWARD", "RESUME")
"""Instructions at whose end CPython looks for signals, by how their names begin."""


@functools.cache
def _instructions(code: Any) -> dict[int, tuple[str, int]]:
    """Return the name of each instruction, and where its exceptions are handled (-1: nowhere)."""
    bytecode: Any = dis.Bytecode(code)
    handlers = {at: each.target for each in bytecode.exception_entries for at in range(each.start, each.end)}
    return {each.offset: (each.opname, handlers.get(each.offset, -1)) for each in bytecode}


def _interrupted(act: Callable[[], object], at: int) -> bool:
    """Let Ctrl-C come at the ``at``th place of `sink`, `feed`, `current` or `builder` where Python looks for signals.

    Return False if ``act`` has ended before.
    """
    files = {module.__file__ for module in (feed, builder)}
    left, before = at, dict[int, tuple[str, int]]()

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            name, handler = before.get(id(frame), ("", -1))
            before[id(frame)] = now = _instructions(frame.f_code)[frame.f_lasti]
            # What is raised here is handled as that of the instruction that begins, and not as that of the one before.
            looks = name.startswith(LOOKS) and handler == now[1]
            left -= looks
            if looks and not left:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 looks for signals nearly everywhere")
def test_no_lock_is_left_held_by_ctrl_c(exporter: Exporter) -> None:
    """Wherever it comes: in a notebook one goes on after it, and other threads serve what has come."""

    def act() -> None:
        exporter.observe("policy_ratio", torch.tensor([0.5]))
        exporter.log({"kl": torch.tensor(0.5), "reward": 1.0})
        exporter._run.current()

    act()
    at = 0
    while _interrupted(act, at := at + 1):
        lock = exporter._run.feed._lock
        with ThreadPoolExecutor(1) as other:
            assert other.submit(lock.acquire, timeout=60).result(), at
            other.submit(lock.release)
        assert (exporter._run.feed._folds, exporter._run.feed._logs) == (False, False), at
    assert at > 100
    before = _count(exporter, "rl_policy_ratio_dist")
    act()
    act()
    assert _count(exporter, "rl_policy_ratio_dist") > before
