"""The types of all settings as arguments, for editors and type checkers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class SettingArguments(TypedDict, total=False):
    """The settings of an exporter, as arguments of `Exporter`, `attach` and `RLExporterCallback`.

    `rlexporter.config.settings.Settings` describes each; None means not given.
    """

    run: str | None
    algorithm: str | None
    host: str | None
    port: int | None
    linger: float | None
    labels: Mapping[str, str] | str | None
    max_keys: int | None
    thresholds: Mapping[str, Any] | str | os.PathLike[str] | None
    buckets: Mapping[str, Sequence[float]] | str | None
    ranks: Literal["main", "timings", "all"] | None
    sources: Sequence[str] | str | None
    token_file: str | os.PathLike[str] | None
    tls_cert_file: str | os.PathLike[str] | None
    tls_key_file: str | os.PathLike[str] | None
    tls_client_ca_file: str | os.PathLike[str] | None
    otlp: bool | str | None
    discovery_dir: str | os.PathLike[str] | None
    advertise: str | None
    state_file: bool | str | os.PathLike[str] | None
    state_interval: float | None
    record: str | os.PathLike[str] | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
