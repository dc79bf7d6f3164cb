"""Snapshots pushed to a collector by OTLP, for where nothing can scrape. The exporters are OpenTelemetry's own.

What they read from the environment holds here too: `OTEL_EXPORTER_OTLP_*` with its variants for metrics (protocol,
endpoint, headers, certificate, compression, timeout in seconds), `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, and
`OTEL_METRIC_EXPORT_INTERVAL` in milliseconds. `OTEL_SDK_DISABLED` turns pushing off; `OTEL_METRICS_EXPORTER` does not:
it says what the SDK sets up by itself, and this was asked for.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from threading import get_ident

from opentelemetry import context
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from rlexporter.config.parsers import ON
from rlexporter.model.errors import SetupError
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs.otlp_data import Origin, metrics_data
from rlexporter.outputs.periodic import Ticker

GRPC, HTTP = "grpc", "http/protobuf"
INTERVAL_SECONDS = 15.0
TIMEOUT_SECONDS = 10.0
BACK_OFF_SECONDS = 300.0
"""Longest wait between two pushes that fail."""

SPARE_SECONDS = 0.5
"""Of the time that the end may take: for what is no push."""

_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.metric_exporter", "opentelemetry.exporter.otlp.proto.grpc.exporter")
"""Where the exporters say why they have failed."""

_WORDS = 500
"""Characters of that; a proxy answers with whole pages."""

_IDLE_SECONDS = 86400.0
"""Between two looks of who has nothing to do."""

logger = logging.getLogger("rlexporter")


class PushError(Exception):
    """The collector has not taken a push; says why, in the words of the exporter."""


def pusher(setting: str, snapshot: Callable[[], Snapshot], failed: Callable[[Exception], None]) -> Ticker:
    """Pushes snapshots. ``setting``: `on`, or the address of a collector. Raises SetupError."""
    environ = os.environ
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        logger.warning("nothing is pushed by OTLP: OTEL_SDK_DISABLED is true")
        return Ticker("otlp", _IDLE_SECONDS, lambda: None, failed)
    interval = _positive(environ, ["OTEL_METRIC_EXPORT_INTERVAL"], INTERVAL_SECONDS * 1000) / 1000
    names = ["OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"]
    make = _maker(setting, _protocol(environ))
    return Pusher(snapshot, failed, make, interval, _positive(environ, names, TIMEOUT_SECONDS))


class Pusher(Ticker):
    """Pushes at once, every ``seconds``, after `wake`, and at the end; after failures it waits longer.

    ``make``: an exporter whose exports take at most so many seconds; ``timeout``: that time, and also what the end may
    take. Raises SetupError where none can be made.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        failed: Callable[[Exception], None],
        make: Callable[[float], MetricExporter],
        seconds: float,
        timeout: float,
    ) -> None:
        super().__init__("otlp", seconds, self._try, failed, last=self._finish, patience=timeout + SPARE_SECONDS)
        self._snapshot = snapshot
        self._make = make
        self._timeout = timeout
        self._origin = Origin()
        self._exporter: MetricExporter | None = None
        self._failures = 0
        self._until = math.inf
        try:
            make(timeout).shutdown()
            _leave_chance_alone()
        except Exception as error:
            raise SetupError(f"cannot push by OTLP: {error} (see the OTEL_EXPORTER_OTLP_ variables)") from error

    def close(self, patience: float | None = None) -> None:
        """Push once more, and return when the thread has ended, after ``patience`` seconds at the latest.

        Whatever hangs then, and the last push after it, share the time-out of one export.
        """
        self._until = time.monotonic() + (self.patience if patience is None else patience) - SPARE_SECONDS
        super().close(patience)

    def _try(self) -> float:
        try:
            self._push(self._timeout)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next push is tried, later
            self._failures += 1
            self._drop()
            self._failed(error)
        else:
            self._failures = 0
        return wait(self._seconds, self._failures)

    def _finish(self) -> None:
        self._drop()
        left = self._until - time.monotonic()
        if left > 0:
            try:
                self._push(left)
            finally:
                self._drop()

    def _push(self, seconds: float) -> None:
        """Push what is known now. Raises PushError. A new exporter takes at most ``seconds``."""
        found = self._snapshot()
        data = metrics_data(found, self._origin.resource(found.labels), time.time_ns())
        with _alone() as said:
            try:
                exporter = self._exporter = self._exporter or self._make(seconds)
                if exporter.export(data) is MetricExportResult.SUCCESS:
                    return
            except OSError as error:
                said.append(f"{type(error).__name__}: {error}")
        raise PushError("; ".join(said[-2:])[:_WORDS] or "the collector did not take a push")

    def _drop(self) -> None:
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            exporter.shutdown()


def wait(seconds: float, failures: int) -> float:
    """Seconds until the next push: twice as many after each of so many ``failures`` in a row, up to five minutes."""
    return min(seconds * 2.0 ** min(failures, 20), max(seconds, BACK_OFF_SECONDS))


@contextlib.contextmanager
def _alone() -> Iterator[list[str]]:
    """A push shows neither in the logs nor in the traces of the process; what the exporter says of it is handed over.

    It says so at every attempt, for as long as a collector is away. Other exporters of the process are let be.
    """
    said: list[str] = []
    thread = get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        if get_ident() != thread:
            return True
        said.append(record.getMessage())
        return False

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for each in loggers:
        each.addFilter(elsewhere)
    token = context.attach(context.set_value("suppress_instrumentation", True))
    try:
        yield said
    finally:
        context.detach(token)
        for each in loggers:
            each.removeFilter(elsewhere)


def _leave_chance_alone() -> None:
    """Give the exporters random numbers of their own: before each retry they draw from Python's, the training's."""
    for name, module in list(sys.modules.items()):
        if name.startswith("opentelemetry.exporter.otlp") and getattr(module, "random", None) is random:
            module.random = random.Random()  # type: ignore[attr-defined]  # noqa: S311 - how long to wait


def _protocol(environ: Mapping[str, str]) -> str:
    for name in ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        found = environ.get(name, "").strip().lower()
        if found in (GRPC, HTTP):
            return found
        if found:
            raise SetupError(f"environment variable {name} is {found!r}: must be {GRPC} or {HTTP}")
    return HTTP


def _maker(setting: str, protocol: str) -> Callable[[float], MetricExporter]:
    """Makes exporters whose exports take at most so many seconds."""
    endpoint = None if setting == ON else setting
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        return lambda seconds: GrpcExporter(endpoint=endpoint, timeout=seconds)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

    if endpoint is not None:
        if not endpoint.lower().startswith(("http://", "https://")):
            raise SetupError(f"argument otlp or RLEXPORTER_OTLP is {setting!r}: must be `on`, or begin with http://")
        endpoint = endpoint.rstrip("/") + "/v1/metrics"
    return lambda seconds: HttpExporter(endpoint=endpoint, timeout=seconds)


def _positive(environ: Mapping[str, str], names: list[str], default: float) -> float:
    """The first of these variables that is set. Raises SetupError for what is no positive number."""
    for name in names:
        text = environ.get(name, "").strip()
        if text:
            with contextlib.suppress(ValueError):
                if 0 < float(text) < math.inf:
                    return float(text)
            raise SetupError(f"environment variable {name} is {text!r}: must be a positive number")
    return default
