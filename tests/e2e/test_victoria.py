"""Our rules in VictoriaMetrics, which keeps no NaN: a page of one, and sick runs of every kind, pushed and scraped."""

from __future__ import annotations

import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from math import nan
from pathlib import Path

import pytest
import yaml

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="the extra `otlp` is not installed")

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

from rlexporter.catalog.metrics import NAMED
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs.otlp_data import Origin, metrics_data
from rlexporter.outputs.prometheus import encode
from tests.alerts.expected import RAISED
from tests.e2e.paging import desk, exporting, replaced, rules
from tests.e2e.victoria import alerting, database, receiving, scraping, settle
from tests.tools import Prometheus, free_port

pytestmark = [pytest.mark.slow, pytest.mark.waits]

SECONDS = 260
"""For how long the runs are told of, every three seconds; a minute of the rules is five seconds."""
LONGEST = 330
"""For how long at most, where a slow machine has not seen it all by then."""
BAD = 90
"""When it goes wrong. For ten seconds VictoriaMetrics does not know a new series, and rules are built on rules."""
AWAY, BACK = 150, 175
"""From when to when nobody evaluates rules."""
SCRAPED_ONLY = {"RLTargetSilent"}
"""What asks for `up`, which nobody is who pushes."""

GONE = ("vanished", "never began", "unseen")
"""The runs that vanish, the last one while nobody evaluates rules."""
ORPHAN = "orphan#3"
"""A run whose rank 0 is not there: what is told of is the name of a run, and behind it the rank, if it is not 0."""

SICK = {(alert, severity): condition for alert, condition, severity in reversed(RAISED)}
"""One condition of each alert and severity: those of one alert are told apart by a label."""

ORIGIN = Origin()
"""Who pushes; made once, as it looks at host and process."""

Samples = dict[tuple[str, ...], float]


def deliver(told: Sequence[Snapshot], scraped: Prometheus, exporter: OTLPMetricExporter) -> None:
    """Write runs to a database as a scrape does, and push them: all at once, which a slow machine can do in time."""
    now = time.time()
    bodies = [encode(each, "text/plain;version=0.0.4")[0] for each in told]
    place = {"timestamp": str(int(now * 1000)), "extra_label": "job=rlexporter"}
    url = f"http://127.0.0.1:{scraped.port}/api/v1/import/prometheus?{urllib.parse.urlencode(place)}"
    with urllib.request.urlopen(urllib.request.Request(url, b"".join(bodies)), timeout=600) as response:
        assert response.status == 204
    pushed = MetricsData(
        [part for each in told for part in metrics_data(each, ORIGIN.resource(each), int(now * 1e9)).resource_metrics]
    )
    assert exporter.export(pushed) is MetricExportResult.SUCCESS


def snapshot(name: str, samples: Mapping[tuple[str, ...], float]) -> Snapshot:
    run, _, rank = name.partition("#")
    found = {Series(NAMED[name], tuple(labels)): value for (name, *labels), value in samples.items()}
    return Snapshot({"run": run, "rank": rank or "0"}, found)


def alive(began: float, state: str = "running") -> Samples:
    """What every run has."""
    states: Samples = {
        ("rl_run_state", each): float(each == state) for each in ("starting", "running", "failed", "preempted")
    }
    return {**states, ("rl_run_start_timestamp_seconds",): began, ("rlexporter_time_seconds",): time.time()}


def begun(at: float, condition: str, severity: str) -> Samples:
    """A condition that holds since then."""
    latest = {"timestamp_seconds": at, "value": 7.0, "step": 40.0, "threshold": 3.0}
    events: Samples = {
        (f"rl_condition_last_event_{name}", condition, severity): value for name, value in latest.items()
    }
    return {**events, ("rl_condition", condition, severity): 1.0}


def sick(began: float, now: float) -> Iterator[tuple[str, Samples]]:
    """What each run tells after ``now`` seconds; a run that is gone tells nothing."""
    running = alive(began)
    for (_, severity), condition in SICK.items():
        events = begun(began + BAD, condition, severity)
        yield f"{condition}-{severity}", running | {("rl_gpus",): 8.0} | (events if now > BAD else {})
    yield ORPHAN, running
    yield "missing#0", running
    if now < BAD:
        yield "missing#1", running
    if now < AWAY + 3:
        yield "unseen", running
    for rank, slower in (("0", 0.0), ("1", 0.6)):
        worked = 0.3 * now + slower * max(0.0, now - BAD)
        yield f"straggling#{rank}", running | {("rl_phase_seconds_total", "generation"): worked}
    if now < BAD + 40:
        died = alive(began, "running" if now < BAD else "failed")
        yield (
            "failed",
            died
            | begun(began, "kl_high", "critical")
            | {("rl_step",): 9.0, ("rl_last_good_checkpoint_step",): 5.0}
            | ({("rl_run_exception_info", "ValueError"): 1.0} if now >= BAD else {}),
        )
        yield "died of NaN", died | ({("rl_condition_symptom", "run_failed", "critical"): 1.0} if now >= BAD else {})
        yield "preempted", alive(began, "running" if now < BAD else "preempted")
    if now < BAD:
        yield "vanished", running
        yield "never began", alive(began, "starting") | {("rl_stall_after_seconds",): 12.0}
    yield "stalled", running | {("rl_last_step_timestamp_seconds",): began, ("rl_stall_after_seconds",): 5.0}
    yield "restarting", alive(began + 5 * min(now // 5, 16))
    yield "lost", running | {("rl_step",): 100.0 if now < BAD else 20.0}
    yield "erring", running | {("rlexporter_errors_total", "tap"): float(now > BAD)}
    yield "blind", running | {("rl_signal_unavailable_info", "kl", "error"): 1.0}
    yield "fast clock", running | {("rlexporter_time_seconds",): time.time() + 3600}


def shortened(folder: Path) -> Path:
    """The rules, in which waits are shorter still, and what takes this database a minute to see is no death."""
    waits = {
        "> 150": "> 20",
        "for: 50s": "for: 5s",
        "for: 75s": "for: 15s",
        "< time() - 7.5": "< time() - 60",
        "time() - 75": "time() - 300",
    }
    file = rules(folder)
    file.write_text(replaced(file.read_text(), waits))
    return file


def found(at: Prometheus) -> set[tuple[str, ...]]:
    """What was recorded and what fired, of which run and condition, at any time."""
    settle(at)
    names = ("__name__", "alertname", "run", "condition", "severity", "state", "exception")
    by = f"count by ({', '.join(names)})"
    records = at.query(f'{by} (last_over_time({{__name__=~"rl:.+"}}[1h]))')
    alerts = at.query(f'{by} (last_over_time(ALERTS{{alertstate="firing"}}[1h]))')
    return {tuple(each["metric"].get(name, "") for name in names) for each in (*records, *alerts)}


def on_time(told: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Without what is in one of both only because a busy machine told of it too late, or looked too late.

    That is a run that vanished and should not have, and who was part of a storm: it lasts 75 seconds here.
    """
    gone = {"run_vanished", "run_end_unseen", "RLRunVanished", "rl:run_end_unseen"}
    late = {each for each in told if gone & {*each} and each[2] not in GONE}
    return told - late - {each for each in told if each[0] == "rl:storm_member"}


def test_every_rule_finds_as_much(tmp_path: Path) -> None:
    """In runs with every sickness there is: each rule finds some, the same ones in both."""
    file = shortened(tmp_path / "rules")
    written = [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]
    expected = {rule.get("record") or rule["alert"] for rule in written} - SCRAPED_ONLY
    of_both: list[set[tuple[str, ...]]] = [set(), set()]
    began = time.time()

    def silent() -> list[set[str]]:
        """The rules that have found nothing, in each database."""
        return [expected - {alert or record for record, alert, *_ in told} for told in of_both]

    def tell(until: float) -> None:
        while (now := time.time() - began) < until:
            deliver([snapshot(run, samples) for run, samples in sick(began, now)], scraped, exporter)
            time.sleep(max(0.0, 3 - (time.time() - began - now)))

    with receiving(tmp_path / "pushed") as pushed, database(tmp_path / "scraped") as scraped:
        exporter = OTLPMetricExporter(f"http://127.0.0.1:{pushed.port}/opentelemetry/v1/metrics")
        with alerting(tmp_path / "one", scraped, file), alerting(tmp_path / "two", pushed, file):
            tell(AWAY)
        tell(BACK)
        with alerting(tmp_path / "three", scraped, file), alerting(tmp_path / "four", pushed, file):
            tell(SECONDS)
            while time.time() - began < LONGEST:
                of_both = [found(scraped), found(pushed)]
                if on_time(of_both[0]) == on_time(of_both[1]) and silent() == [set(), set()]:
                    break
                tell(time.time() - began + 3)
        exporter.shutdown()

    assert silent() == [set(), set()]
    assert on_time(of_both[0]) == on_time(of_both[1]), on_time(of_both[0]) ^ on_time(of_both[1])


def test_a_nan_pages_where_nan_is_dropped(tmp_path: Path) -> None:
    """The gauge is not there, the alert is, with its step.

    Each rule that reads another's series finds them an evaluation later, new ones after some ten seconds: the step is
    known when the wait of the group is over, as long as it is shipped.
    """
    port = free_port()
    with (
        desk("new", tmp_path / "desk", group_wait=30) as at,
        exporting(port, "a") as exporter,
        scraping(tmp_path / "database", [f"127.0.0.1:{port}"], "1s") as database,
        alerting(tmp_path / "alerting", database, rules(tmp_path), pager=at.port),
    ):
        exporter.log({"loss": 0.1, "grad_norm": nan})
        page = at.page("a", "RLNotANumber")
        assert page.description == "Run a, rl_grad_norm, step 2: 1 NaN or infinite value."
        assert page.labels["severity"] == "critical"
        assert database.value("last_over_time(rl_loss[1m])") == 0.1
        assert database.value("last_over_time(rl_grad_norm[1m])") is None
