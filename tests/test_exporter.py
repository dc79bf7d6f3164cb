"""The life of an exporter: start, ports, errors, close, several at once, forks."""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlexporter
from rlexporter import TLS, Exporter, SetupError
from rlexporter.catalog.metrics import NAMED
from rlexporter.logs.playback import played
from rlexporter.logs.reader import read
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.run import shutdown
from tests.conftest import fetch
from tests.endpoint import wire
from tests.tools import ROOT


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rlexporter")]


def _listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as sock:
        yield sock.getsockname()[1]


def test_the_ten_lines_of_the_readme() -> None:
    """A loop of one's own: log lines and tensors."""
    with rlexporter.Exporter(run="my-run", algorithm="ppo", port=0, labels={"team": "llm"}) as exporter:
        for step in range(3):
            ratio = torch.tensor([0.9, 1.0, 5.0])
            exporter.log({"objective/kl": 0.1 * step, "loss/value_avg": np.float32(0.5), "mine": None}, step=step)
            exporter.observe("policy_ratio", ratio, mask=torch.tensor([1, 1, 0]))
        _, text, _ = fetch(f"{exporter.url}/metrics")

    labels = 'rank="0",run="my-run",team="llm"'
    assert f"rl_kl_per_sequence{{{labels}}} 0.2\n" in text
    assert f"rl_policy_ratio_dist_count{{{labels}}} 6.0\n" in text
    assert 'rl_run_state{rank="0",run="my-run",state="running",team="llm"} 1.0\n' in text
    assert 'algorithm="ppo"' in text
    assert exporter.state is RunState.FINISHED


def test_buckets_of_a_users_own(tmp_path: Path) -> None:
    """For tensors and for what is logged; the counts are exact, and a recording of them is read as it was."""
    recorded = tmp_path / "run.jsonl"
    own = {"reward": (0.25, 0.5), "completion_length": (16, 64)}
    with Exporter(run="own", algorithm="grpo", port=0, buckets=own, record=str(recorded)).start() as exporter:
        exporter.observe("reward", torch.tensor([-3.0, 0.25, 0.3, 7.0]))
        exporter.log({"reward": 1.1375}, step=1)
        exporter.run.sink.observe("rl_completion_length_dist", torch.tensor([16.0, 17.0, 65.0]))  # as taps do
        exporter.run.sink.log({"reward": 1.0}, update=StepUpdate(step=2))
        _, text, _ = fetch(f"{exporter.url}/metrics")

    lowest = f"{min(NAMED['rl_reward_dist'].bounds)}"
    rewards = re.findall(r'^rl_reward_dist_bucket{le="(.*?)".*} (.*)$', text, re.M)
    assert rewards == [(lowest, "0.0"), ("0.25", "2.0"), ("0.5", "3.0"), ("+Inf", "4.0")]
    lengths = re.findall(r'^rl_completion_length_dist_bucket{le="(.*?)".*} (.*)$', text, re.M)
    assert lengths == [("16.0", "1.0"), ("64.0", "2.0"), ("+Inf", "3.0")]
    again = played(read(recorded), {}).run.feed.snapshot.buckets
    counted = {each.metric.series: found.counts for each, found in again.items()}
    assert counted["rl_reward_dist"] == (0, 2, 1, 1)
    assert counted["rl_completion_length_dist"] == (1, 1, 1)


def test_nothing_is_left_after_close() -> None:
    """No thread, no port, no hook; and it can start again on the same port."""
    before = _threads()
    exporter = Exporter(port=0).start()
    port = exporter.port
    assert port
    assert _listening(port)
    assert len(_threads()) == len(before) + 2  # one that answers, and one that keeps the history

    exporter.close()
    exporter.close()
    assert (_threads(), exporter.url, _listening(port)) == (before, None, False)
    assert list(shutdown.live()) == []

    exporter._run.settings = type(exporter._run.settings).load({"port": port})
    assert exporter.start().port == port
    assert exporter.start().port == port
    exporter.close()


def _open_files(path: Path) -> list[str]:
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [link for link in links if os.path.lexists(link) and os.readlink(link) == str(path)]


def _never_answer(server: Any) -> None:
    """Stand in for a server whose thread runs and does not come to the point where it answers."""
    while not server._uvicorn.should_exit:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("broken", "value", "said"),
    [
        ("discovery", "{missing}", r"cannot write target files to .*file: .*RLEXPORTER_DISCOVERY_DIR"),
        (
            "state_file",
            "{missing}",
            r"cannot keep the state in .*file: .* \(argument state_file, RLEXPORTER_STATE_FILE",
        ),
        ("tls", "{missing}", r"Not a directory .argument TLS\(cert_file="),
        ("otlp", "collector:4318", "begin with http://"),
        ("server", "", "did not start"),
    ],
)
def test_a_start_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, value: str, said: str
) -> None:
    """No thread, no open file and no target file, whatever failed; with the mended setting it starts, and records."""
    recording, targets = tmp_path / "run.jsonl", tmp_path / "targets"
    (tmp_path / "missing").write_text("a file where a folder should be")
    mended: dict[str, Any] = {"port": 0, "record": str(recording), "discovery": str(targets)}
    given = value.format(missing=tmp_path / "missing" / "file")
    wrong = {} if broken == "server" else {broken: TLS(given) if broken == "tls" else given}
    exporter = Exporter(**mended | wrong)
    before = shutdown.live()
    with monkeypatch.context() as patch:
        if broken == "server":
            patch.setattr("rlexporter.endpoint.endpoint._START_SECONDS", 0.1)
            patch.setattr("rlexporter.endpoint.server.HTTPServer.work", _never_answer)
        for _ in range(2):
            with pytest.raises(SetupError, match=said):
                exporter.start()

    assert (_threads(), _open_files(recording), exporter.url) == ([], [], None)
    assert not [*targets.glob("*")]
    assert shutdown.live() == before
    exporter._run.settings = type(exporter._run.settings).load(mended)
    exporter.start()
    exporter.log({"reward": 7.0})
    assert fetch(f"{exporter.url}/metrics")[0] == 200
    exporter.close()
    assert '"reward": 7.0' in recording.read_text()
    assert _open_files(recording) == []


def test_a_recorder_without_a_thread_keeps_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives no more threads, which is played here."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    recording = tmp_path / "run.jsonl"
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(SetupError, match=r"can't start new thread.*no more threads .ulimit -u"):
        Exporter(port=0, record=str(recording)).start()

    assert _open_files(recording) == []


def test_a_taken_port_is_a_clear_error(taken: int) -> None:
    """What holds it, and what to change."""
    said = rf"port {taken} on 127\.0\.0\.1 is taken by another process; choose another .*LISTEN_PORT={taken + 1}\)"
    with pytest.raises(SetupError, match=said):
        Exporter(port=taken).start()

    assert _threads() == []


def test_a_taken_port_inside_a_trainer(taken: int, caplog: pytest.LogCaptureFixture) -> None:
    """The next free one, with a warning: a rank that raises leaves the others waiting."""
    exporter = Exporter(port=taken).start(fallback=True)

    assert exporter.port not in (None, taken)
    assert f"port {taken} is taken; serving on {exporter.port}" in caplog.text
    exporter.close()


def test_other_addresses_that_cannot_be_had() -> None:
    """No address of this machine; a name that does not exist."""
    for host in ("192.0.2.1", "no such host.invalid"):
        with pytest.raises(SetupError, match=r"is no address of this machine; 127\.0\.0\.1 listens"):
            Exporter(host=host, port=0).start()


def test_an_earlier_exporter_gives_way() -> None:
    """A notebook cell that is run again."""
    first = Exporter(run="first", port=0).start()
    port = first.port
    first.log({"reward": 1.0})
    second = Exporter(run="second", port=port).start()

    assert (first.port, second.port) == (None, port)
    assert 'run="second"' in fetch(f"{second.url}/metrics")[1]

    first.run.begin(RunFacts(algorithm="grpo"))
    assert first.port not in (None, port)
    first.close()
    second.close()


def test_a_training_exporter_does_not_give_way() -> None:
    """Several trainers in one process."""
    first = Exporter(run="first", port=0).start()
    first.run.begin(RunFacts(algorithm="grpo"))

    with pytest.raises(SetupError, match="taken by the exporter of run first, which is training in this process"):
        Exporter(port=first.port).start()
    second = Exporter(port=first.port).start(fallback=True)
    assert second.port not in (None, first.port)
    first.close()
    second.close()


def test_errors_stay_here(exporter: Exporter, caplog: pytest.LogCaptureFixture) -> None:
    """Counted by place, logged once a kind with advice, and never raised."""
    for _ in range(3):
        exporter.log(["no", "mapping"])  # type: ignore[arg-type]
        exporter.log({}, step="x")  # type: ignore[arg-type]
        exporter.observe("policy_ratios", [1.0])
        exporter.observe("policy_ratio", "text")

    assert exporter.snapshot.value("rlexporter_errors_total", where="log") == 6
    assert exporter.snapshot.value("rlexporter_errors_total", where="observe") == 6
    assert "no histogram is called 'policy_ratios'; close: policy_ratio" in caplog.text
    assert caplog.text.count("Training goes on") == len({r.getMessage() for r in caplog.records})


@pytest.mark.parametrize(
    "step", [math.nan, math.inf, "seven", b"7", 2**53 + 1, 10**400, -1, [], torch.empty((), device="meta")]
)
def test_a_step_that_is_no_number_counts_as_not_given(exporter: Exporter, step: Any) -> None:
    """Its line is served and judged, with the step after the last one; what was given is counted as an error."""
    exporter.log({"reward": 0.5}, step=1)
    exporter.log({"reward": math.nan}, step=step)
    exporter.log({"eval_loss": 0.25, "eval_runtime": 1.0}, step=step)
    snapshot = exporter.snapshot

    assert snapshot.value("rl_step") == 2
    assert snapshot.value("rl_condition", condition="nonfinite_reward", severity="critical") == 1
    assert snapshot.value("rl_eval_loss", dataset="default") == 0.25
    assert snapshot.value("rlexporter_errors_total", where="log") == 2
    assert fetch(f"{exporter.url}/metrics")[0] == 200


def test_a_key_without_a_text_loses_itself_only(exporter: Exporter) -> None:
    """Whatever else the line has is served, and so is a key that becomes a text."""

    class Key:
        def __str__(self) -> str:
            raise ValueError("no text")

    exporter.log({Key(): 1.0, 7: 2.0, "reward": 0.5}, step=1)  # type: ignore[dict-item]

    assert exporter.snapshot.value("rl_reward_mean") == 0.5
    assert exporter.snapshot.value("rl_logged_value", key="7") == 2.0
    assert exporter.snapshot.value("rlexporter_errors_total", where="log") == 1


def test_a_signal_handler_that_logs_costs_no_line(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a line, which the handler's follows: both are served and judged."""
    record, told = exporter._run.feed._lines.write, list[bool]()

    def interrupted(*arguments: Any) -> int:
        if not told:
            told.append(True)
            exporter.log({"reward": 0.75})
        return int(record(*arguments))

    exporter.log({"reward": 0.25}, step=1)
    monkeypatch.setattr(exporter._run.feed._lines, "write", interrupted)
    exporter.log({"reward": 0.5}, step=2)

    assert exporter.snapshot.value("rl_step") == 3
    assert exporter.snapshot.value("rl_steps_total") == 3
    assert exporter.snapshot.value("rl_reward_mean") == 0.75
    assert exporter.snapshot.value("rlexporter_errors_total", where="log") is None


def test_a_name_that_is_mistyped_raises_before_the_first_step(exporter: Exporter) -> None:
    """It is a slip of the loop's author. Once a step was logged it is counted, as all errors are."""
    with pytest.raises(SetupError, match=r"no histogram is called 'policy_ratios'; close: policy_ratio"):
        exporter.observe("policy_ratios", [1.0])
    names = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/metrics.md").read_text().split("## Names for")[1], re.MULTILINE)
    with pytest.raises(SetupError, match=f"no histogram is called 'qqq'; there are {', '.join(names)}$"):
        exporter.observe("qqq", [1.0])  # one like no other gets all names
    with pytest.raises(SetupError, match=r"rl_reward_function_dist has the labels"):
        exporter.observe("reward_function", [1.0])
    exporter.observe("policy_ratio", "text")
    exporter.observe(7, [1.0])  # type: ignore[arg-type]
    exporter.observe("reward_function", [1.0], reward_function=7)  # type: ignore[arg-type]
    assert exporter.snapshot.value("rlexporter_errors_total", where="observe") == 3

    exporter.log({"reward": 0.5}, step=1)
    exporter.observe("policy_ratios", [1.0])
    assert exporter.snapshot.value("rlexporter_errors_total", where="observe") == 4


def test_a_mistyped_name_never_raises_into_a_trainer(exporter: Exporter) -> None:
    """A reward function that calls `observe` runs before the first step is over."""
    exporter.run.begin(RunFacts(algorithm="grpo", step=0))
    exporter.observe("policy_ratios", [1.0])
    assert exporter.snapshot.value("rlexporter_errors_total", where="observe") == 1


def test_what_a_person_stops_is_not_swallowed(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C inside our own code is the trainer's."""

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exporter._run.feed, "record", interrupt)
    with pytest.raises(KeyboardInterrupt):
        exporter.log({})


def test_a_run_that_was_preempted_stays_so_until_it_trains_again(exporter: Exporter) -> None:
    """What ends the training after SIGTERM is the consequence, not the cause."""
    exporter.run.begin(RunFacts(algorithm="grpo"))
    exporter._run.preempt()
    exporter.end(SystemExit())
    states = [exporter.state]
    exporter.run.begin(RunFacts(algorithm="grpo"))
    states.append(exporter.state)

    assert states == [RunState.PREEMPTED, RunState.RUNNING]


@pytest.mark.parametrize(
    ("trained", "error", "state"),
    [
        ("", None, RunState.STOPPED),
        ("by a trainer", None, RunState.STOPPED),
        ("by a trainer", ValueError(), RunState.FAILED),
        ("by a trainer", KeyboardInterrupt(), RunState.STOPPED),
        ("by a loop of one's own", None, RunState.FINISHED),
    ],
)
def test_a_process_that_ends_in_the_middle(
    exporter: Exporter, trained: str, error: BaseException | None, state: RunState
) -> None:
    """A training that nobody saw the end of; a loop of one's own that ends with its process has finished."""
    if trained == "by a trainer":
        exporter.run.begin(RunFacts(algorithm="grpo"))
    elif trained:
        exporter.log({"reward": 1.0})
    exporter._run.exit(error)

    assert exporter.state is state


def test_the_final_state_stays_up_in_the_background() -> None:
    """After the block, for a scraper that was seen; then nothing is left."""
    with Exporter(port=0) as exporter:
        url = exporter.url
        fetch(f"{url}/metrics", **{"User-Agent": "Prometheus/3.5.3"})  # once: how often it comes is not known
        exporter.log({"reward": 7.0})

    assert "rlexporter-linger" in _threads()
    _, text, _ = fetch(f"{url}/metrics", **{"User-Agent": "curl"})
    assert 'rl_reward_mean{rank="0",run="' in text
    assert 'state="finished"} 1.0' in text
    fetch(f"{url}/metrics", **{"User-Agent": "Prometheus/3.5.3"})
    for thread in threading.enumerate():
        if thread.name.startswith("rlexporter"):
            thread.join(60)
    assert _threads() == []
    assert exporter.port is None


def test_linger_0_waits_for_nobody() -> None:
    """As it was asked."""
    with Exporter(port=0, linger=0) as exporter:
        fetch(f"{exporter.url}/metrics", **{"User-Agent": "Prometheus/3.5.3"})

    assert _threads() == []


def _child(exporter: Exporter, result: Any, over: Any) -> None:
    exporter.log({"reward": 5.0})
    result.put((exporter.port, list(shutdown.live()), _threads(), exporter._ending.patience()))
    result.close()
    result.join_thread()
    over.wait()


def test_a_forked_child_holds_nothing(exporter: Exporter) -> None:
    """No port, no connection, no thread, no hook, and nobody to wait for; the parent can close its own meanwhile."""
    context: Any = multiprocessing.get_context("fork")
    result, over = context.Queue(), context.Event()
    port = exporter.port
    assert port
    for _ in range(2):
        fetch(f"{exporter.url}/metrics", **{"User-Agent": "Prometheus/3.5.3"})
    exporter.log({"reward": 1.0})
    child = context.Process(target=_child, args=(exporter, result, over))
    with wire.connect(exporter) as client:
        for begin in (child.start, lambda: None):  # a request before the fork, and one after it
            client.sendall(wire.request())
            assert wire.read(client)
            begin()
        try:
            assert result.get(timeout=600) == (None, [], [], 0)
            assert exporter._ending.patience() > 0
            exporter.close()
            assert child.is_alive()
            assert wire.ended(client)
            with closing(socket.create_server(("127.0.0.1", port))):
                pass
        finally:
            over.set()
            child.join()
    assert child.exitcode == 0


def _logs(exporter: Exporter) -> None:
    exporter.log({"reward": 5.0})


def test_a_forked_child_waits_for_no_lock_of_its_parent(exporter: Exporter) -> None:
    """Whatever another thread was doing at the fork: in the child it is not there to release anything."""
    context: Any = multiprocessing.get_context("fork")
    held, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        with exporter._run.feed._lock, exporter._closes:
            held.set()
            assert goes_on.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    child = context.Process(target=_logs, args=(exporter,))
    child.start()
    child.join(60)
    goes_on.set()
    holder.join()
    assert child.exitcode == 0


def test_a_name_is_told_once_what_is_served_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push in between would carry the name that was assumed before."""
    told: list[str] = []
    facts = RunFacts(algorithm="grpo", output_dir=str(tmp_path))
    with Exporter(port=0, linger=0) as before:
        before.run.begin(facts)
        (tmp_path / "checkpoint-5").mkdir()
    with Exporter(port=0, linger=0) as exporter:
        run, describe = exporter._run, exporter._run._describe

        def described(facts: RunFacts) -> None:
            told.append(run.known_as)
            describe(facts)

        monkeypatch.setattr(run, "_describe", described)
        run.prepare(facts)
        run.begin(facts)

        assert told == ["", ""]
        assert run.known_as == run.name == exporter.snapshot.labels["run"] != before.name


def test_undo_is_called_once_at_close(exporter: Exporter) -> None:
    """What was wrapped is unwrapped, and an error in it is kept here."""
    calls: list[int] = []
    exporter.run.sink.on_close(lambda: calls.append(1))
    exporter.run.sink.on_close(lambda: calls.append(1 // 0))
    exporter.close()
    exporter.close()

    assert calls == [1]
    assert exporter.snapshot.value("rlexporter_errors_total", where="exit") == 1


def _announced(folder: Path, capsys: pytest.CaptureFixture[str], run: str | None = None, resumed: bool = False) -> str:
    """Train in ``folder``, and return the name; the last one that a person was told is that of the series."""
    facts = RunFacts(output_dir=str(folder), resumed_from=str(folder / "checkpoint-5") if resumed else None)
    with Exporter(run=run, port=0) as exporter:
        exporter.close()
        exporter.run.prepare(facts)
        capsys.readouterr()
        exporter.start()
        exporter.run.begin(facts)
        told = re.findall(r"run ([\w-]+)", capsys.readouterr().err)
        exporter.log({"reward": 1.0}, step=1)
        served = set(re.findall(r'run="([\w-]+)"', fetch(f"{exporter.url}/metrics")[1]))
    assert served == {exporter.name}
    assert told == [exporter.name]
    return exporter.name


def test_the_name_that_is_announced_is_the_one_that_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the folder of an earlier run too: whether it goes on there is known when training begins."""
    first = _announced(tmp_path, capsys)
    (tmp_path / "checkpoint-5").mkdir()
    second = _announced(tmp_path, capsys)
    assert second != first
    assert _announced(tmp_path, capsys, resumed=True) == second
    assert _announced(tmp_path, capsys, run="ada") == "ada"
    assert _announced(tmp_path, capsys, run="bob") == "bob"
