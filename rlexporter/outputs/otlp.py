"""Push of snapshots to a collector by OTLP, where nothing can scrape. The exporters are OpenTelemetry's own.

The variables that they read apply here too: `OTEL_EXPORTER_OTLP_*` with its variants for metrics (protocol,
endpoint, headers, certificate, compression, timeout in seconds), `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, and
`OTEL_METRIC_EXPORT_INTERVAL` in milliseconds. `OTEL_SDK_DISABLED` turns pushing off; `OTEL_METRICS_EXPORTER` does not:
it is about what the SDK sets up by itself, while this push was asked for.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from opentelemetry import context
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from rlexporter.atomic_file import read_regular
from rlexporter.config.parsers import ON
from rlexporter.model.errors import SetupError
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs.otlp_data import Origin, metrics_data
from rlexporter.outputs.periodic import REST_SECONDS, Ticker, unlogged

if TYPE_CHECKING:
    from requests import Response, Session

    from rlexporter.outputs import Served

GRPC, HTTP = "grpc", "http/protobuf"
INTERVAL_SECONDS = 15.0
TIMEOUT_SECONDS = 10.0
BACK_OFF_SECONDS = 300.0
"""Longest wait between two failing pushes."""

SPARE_SECONDS = 0.5
"""Seconds of the time for closing that are kept for all but the push."""

_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.metric_exporter", "opentelemetry.exporter.otlp.proto.grpc.exporter")
"""Loggers to which the exporters write why they have failed."""

_CREDENTIALS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_METRICS_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
)

_FILES = tuple(
    f"OTEL_EXPORTER_OTLP_{of}{what}"
    for of in ("METRICS_", "")
    for what in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
)
"""Variables with the path of a file that the exporters read; they would wait for whoever writes to a pipe."""
_MOST_FILE_BYTES = 1_000_000

_WORDS = 500
"""Characters kept of such a reason; a proxy may answer with whole pages."""

_IDLE_SECONDS = 86400.0
"""Interval of a ticker that has nothing to do."""

logger = logging.getLogger("rlexporter")


class PushError(Exception):
    """A push that the collector did not take, with the reason in the words of the exporter."""


def ticker(run: Served, port: int) -> Ticker:
    """Return a ticker that pushes ``run``, once its name is known. Raises as `pusher`."""
    snapshot = lambda: run.current() if run.known_as else None  # noqa: E731 - it is handed on
    return pusher(run.settings.otlp or "", snapshot, partial(run.errors.add, "otlp"))


def pusher(setting: str, snapshot: Callable[[], Snapshot | None], failed: Callable[[Exception], None]) -> Ticker:
    """Return a ticker that pushes snapshots; ``setting`` is `on` or the address of a collector.

    While ``snapshot`` returns None there is nothing to push.

    Raises:
        SetupError: ``setting`` or an environment variable is unusable.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        logger.warning("nothing is pushed by OTLP: OTEL_SDK_DISABLED is true")
        return Ticker("otlp", _IDLE_SECONDS, lambda: None, failed)
    interval = _positive(INTERVAL_SECONDS * 1000, "OTEL_METRIC_EXPORT_INTERVAL") / 1000
    timeout = _positive(TIMEOUT_SECONDS, "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
    return Pusher(snapshot, failed, _maker(setting), interval, timeout)


class Pusher(Ticker):
    """Pushes at once, every ``seconds``, after `wake`, and at the end; it waits longer after failures, also if woken.

    ``make`` returns an exporter. It gets a time-out in seconds, and a list to which the exporter adds what a receiver
    has rejected despite answering 200. Neither an export nor closing takes longer than ``timeout`` seconds. Raises
    SetupError if no exporter can be made.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot | None],
        failed: Callable[[Exception], None],
        make: Callable[[float, list[str]], MetricExporter],
        seconds: float,
        timeout: float,
    ) -> None:
        super().__init__("otlp", seconds, self._try, failed, last=self._finish, patience=timeout + SPARE_SECONDS)
        self._snapshot = snapshot
        self._make = make
        self._timeout = timeout
        self._origin = Origin()
        self._exporter: MetricExporter | None = None
        self._refused: list[str] = []
        self._failures = 0
        _check_files()
        try:
            make(timeout, []).shutdown()
            _leave_chance_alone()
        except Exception as error:
            raise SetupError(f"cannot push by OTLP: {error} (see the OTEL_EXPORTER_OTLP_ variables)") from error

    def _try(self) -> float:
        try:
            self._push(self._timeout)
        except Exception as error:  # noqa: BLE001 - whatever failed, the next push is tried later
            self._failures += 1
            self._rest = min(REST_SECONDS * 2.0 ** min(self._failures, 20), INTERVAL_SECONDS)
            self._drop()
            self._failed(error)
        else:
            if self._failures:
                self._failures, self._rest = 0, REST_SECONDS
        return wait(self._seconds, self._failures)

    def _finish(self) -> None:
        """Push once more; a push that hung until now and this one share the time-out of one export."""
        self._drop()
        left = self._until - SPARE_SECONDS - time.monotonic()
        if left > 0:
            try:
                self._push(left)
            finally:
                self._drop()

    def _push(self, seconds: float) -> None:
        """Push the current snapshot; a new exporter takes at most ``seconds``. Raises PushError."""
        snapshot = self._snapshot()
        if snapshot is None:
            return
        data = metrics_data(snapshot, self._origin.resource(snapshot), time.time_ns())
        self._refused.clear()
        with _alone() as said:
            try:
                if self._exporter is None:
                    _check_files()
                exporter = self._exporter = self._exporter or self._make(seconds, self._refused)
                if exporter.export(data) is MetricExportResult.SUCCESS and not self._refused:
                    return
            except (OSError, SetupError) as error:
                said.append(f"{type(error).__name__}: {error}")
        raise PushError("; ".join((*said, *self._refused))[:_WORDS] or "the collector did not take a push")

    def _drop(self) -> None:
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            exporter.shutdown()


def wait(seconds: float, failures: int) -> float:
    """Return the seconds until the next push: doubled for each of ``failures`` in a row, up to five minutes."""
    return min(seconds * 2.0 ** min(failures, 20), max(seconds, BACK_OFF_SECONDS))


@contextlib.contextmanager
def _alone() -> Iterator[deque[str]]:
    """Keep a push out of the process's logs and traces; yield the exporter's last messages.

    The exporter logs every attempt while a collector is away. Other exporters of the process are not affected.
    """
    with unlogged(_LOGGERS) as said:
        token = context.attach(context.set_value("suppress_instrumentation", True))
        try:
            yield said
        finally:
            context.detach(token)


def _leave_chance_alone() -> None:
    """Give the exporters their own random numbers: before each retry they draw from Python's, which training uses."""
    for name, module in list(sys.modules.items()):
        if name.startswith("opentelemetry.exporter.otlp") and getattr(module, "random", None) is random:
            module.random = random.Random()  # type: ignore[attr-defined]  # noqa: S311 - how long to wait


def _maker(setting: str) -> Callable[[float, list[str]], MetricExporter]:
    """Return a function that makes an exporter, as `Pusher` says. A gRPC receiver does not say what it has rejected."""
    endpoint = None if setting == ON else setting
    name, text = _first_set("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = text.lower() or HTTP
    if protocol not in (GRPC, HTTP):
        raise SetupError(f"environment variable {name} is {protocol!r}: must be {GRPC} or {HTTP}")
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        return lambda seconds, _: GrpcExporter(endpoint=endpoint, timeout=seconds)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

    if endpoint is not None:
        if not endpoint.lower().startswith(("http://", "https://")):
            raise SetupError(f"argument otlp or RLEXPORTER_OTLP is {setting!r}: must be `on`, or begin with http://")
        endpoint = endpoint.rstrip("/") + "/v1/metrics"
    if any(os.environ.get(name) for name in _CREDENTIALS):  # whoever provides them makes the session
        return lambda seconds, _: HttpExporter(endpoint=endpoint, timeout=seconds)
    return lambda seconds, refused: HttpExporter(endpoint=endpoint, timeout=seconds, session=_session(refused))


def _session(refused: list[str]) -> Session:
    """Return an HTTP session that follows no redirection, and adds to ``refused`` what the receiver has rejected.

    A proxy answers a push with its login page, and the exporter takes every 200 for a success.
    """
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
    from requests import Session

    def look(response: Response, **_: object) -> None:
        kind = response.headers.get("Content-Type", "")
        if not response.ok or not response.content:
            return
        if "protobuf" in kind:
            partial = ExportMetricsServiceResponse.FromString(response.content).partial_success
            if partial.rejected_data_points:
                refused.append(f"{partial.rejected_data_points} values were rejected: {partial.error_message}")
        elif "json" not in kind:
            refused.append(f"{response.status_code} with {kind or 'something'}: is this a collector?")

    session = Session()
    session.max_redirects = 0
    session.hooks["response"].append(look)
    return session


def _check_files() -> None:
    """Raise SetupError for a file that the exporters would read and that is none."""
    for name in _FILES:
        if path := os.environ.get(name, "").strip():
            try:
                read_regular(path, _MOST_FILE_BYTES)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise SetupError(f"environment variable {name} is {path!r}: cannot be read: {reason}") from None


def _positive(default: float, *names: str) -> float:
    """Return the first of the variables ``names`` that is set. Raises SetupError if it is not a positive number."""
    name, text = _first_set(*names)
    if not text:
        return default
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise SetupError(f"environment variable {name} is {text!r}: must be a positive number")


def _first_set(*names: str) -> tuple[str, str]:
    """Return the first of the variables ``names`` that is set, and its text; two empty texts if none is."""
    texts = ((name, os.environ.get(name, "").strip()) for name in names)
    return next(((name, text) for name, text in texts if text), ("", ""))
