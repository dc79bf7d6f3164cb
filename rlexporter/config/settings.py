"""The settings: an argument wins over the environment (`RLEXPORTER_*`), the environment over the default.

A variable `RLEXPORTER_*` that is no setting is warned of: a typing error there would else go unnoticed.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, TypedDict

from rlexporter.catalog import buckets
from rlexporter.catalog.conditions import CONDITIONS
from rlexporter.conditions.judge import Factor
from rlexporter.config import mapping, parsers
from rlexporter.frameworks import WATCHED
from rlexporter.model.condition import Severity
from rlexporter.model.errors import SetupError
from rlexporter.model.incident import Incident

logger = logging.getLogger("rlexporter")

DEFAULT_PORT = 9750
MAIN = "main"
TIMINGS = "timings"
RANKS = (MAIN, TIMINGS, "all")
LOGGERS = tuple(WATCHED)
"""The loggers whose lines can feed a run."""
FROM = "RLEXPORTER_FROM"
"""The variable that names some of them. It is no argument: it is read before there is an exporter."""
_LENGTH = "completion_length"
_LIMITS = ("max_completion_length", "response_length")
"""The settings of trainers that bound the length of a completion."""
_MOST_TOKENS = 1e9
"""A larger limit, such as infinity, is none."""
_CRITICAL = tuple(each.name for each in CONDITIONS if any(limit.severity is Severity.CRITICAL for limit in each.limits))
Act = Callable[[Incident], object]
"""A function that is called with each critical incident, and returns "save", "stop", both in a list, or None."""
_LONGEST = 300
"""The characters of a value, or of what is wrong with it, that a message has."""
_warned: set[str] = set()
"""The variables of the environment that this process was warned of."""

_PREFIX = "RLEXPORTER_"
_OF_KUBERNETES = re.compile(
    r"RLEXPORTER_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Variables that Kubernetes sets in each container for a Service called rlexporter, or rlexporter-something."""
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
"""What `RLEXPORTER_PORT` holds where it is Kubernetes that sets it."""


def _setting(parse: Callable[[object], object], env: str, default: Any, *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"parse": parse, "env": env})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one exporter behaves; docs/settings.md describes each. `Settings.load` makes them, and checks every value."""

    run: str | None = _setting(parsers.text, "RLEXPORTER_RUN", None)
    algorithm: str | None = _setting(parsers.text, "RLEXPORTER_ALGORITHM", None)
    host: str = _setting(parsers.text, "RLEXPORTER_LISTEN_HOST", "127.0.0.1")
    port: int = _setting(parsers.between(0, 65535, int), "RLEXPORTER_LISTEN_PORT", DEFAULT_PORT)
    linger: float = _setting(parsers.between(0, 3600, float), "RLEXPORTER_LINGER_SECONDS", 150.0)
    labels: Mapping[str, str] = _setting(parsers.labels, "RLEXPORTER_LABELS", None)
    max_keys: int = _setting(parsers.between(0, 10000, int), "RLEXPORTER_MAX_LOGGED_KEYS", 200)
    thresholds: Mapping[tuple[str, str], Factor | None] = _setting(parsers.thresholds, "RLEXPORTER_THRESHOLDS", None)
    buckets: Mapping[str, tuple[float, ...]] = _setting(buckets.parse, "RLEXPORTER_BUCKETS", None)
    map: Mapping[str, str] = _setting(mapping.parse, "RLEXPORTER_MAP", None)
    ranks: str = _setting(parsers.choice(*RANKS), "RLEXPORTER_RANKS", MAIN)
    token_file: str | None = _setting(parsers.path, "RLEXPORTER_TOKEN_FILE", None)
    tls_cert_file: str | None = _setting(parsers.path, "RLEXPORTER_TLS_CERT_FILE", None)
    tls_key_file: str | None = _setting(parsers.path, "RLEXPORTER_TLS_KEY_FILE", None)
    tls_client_ca_file: str | None = _setting(parsers.path, "RLEXPORTER_TLS_CLIENT_CA_FILE", None)
    otlp: str = _setting(parsers.switch_or_text, "RLEXPORTER_OTLP", "")
    discovery_dir: str | None = _setting(parsers.path, "RLEXPORTER_DISCOVERY_DIR", None)
    advertise: str | None = _setting(parsers.text, "RLEXPORTER_ADVERTISE", None)
    notify: tuple[str, ...] = _setting(parsers.addresses, "RLEXPORTER_NOTIFY", (), secret=True)
    notify_warnings: bool = _setting(parsers.switch, "RLEXPORTER_NOTIFY_WARNINGS", False)
    on_critical: tuple[str, ...] | Act = _setting(parsers.orders, "RLEXPORTER_ON_CRITICAL", ())  # noqa: RUF009 - a field
    on_critical_for: tuple[str, ...] = _setting(parsers.words(*_CRITICAL), "RLEXPORTER_ON_CRITICAL_FOR", ())
    on_critical_patience: int = _setting(parsers.between(0, 1e9, int), "RLEXPORTER_ON_CRITICAL_PATIENCE", 0)
    keep_good: bool = _setting(parsers.switch, "RLEXPORTER_KEEP_GOOD", False)
    report: bool = _setting(parsers.switch, "RLEXPORTER_REPORT", True)
    completions: int = _setting(parsers.between(0, 50, int), "RLEXPORTER_COMPLETIONS", 0)
    compare: str = _setting(parsers.switch_or_text, "RLEXPORTER_COMPARE", parsers.ON)
    state_file: str = _setting(parsers.switch_or_text, "RLEXPORTER_STATE_FILE", "")
    state_interval: float = _setting(parsers.between(1, 3600, float), "RLEXPORTER_STATE_INTERVAL_SECONDS", 10.0)
    record: str | None = _setting(parsers.path, "RLEXPORTER_RECORD", None)
    rank: int = _setting(parsers.between(0, 1e9, int), "RANK", 0)
    local_rank: int = _setting(parsers.between(0, 1e9, int), "LOCAL_RANK", 0)
    world_size: int = _setting(parsers.between(1, 1e9, int), "WORLD_SIZE", 1)

    @classmethod
    def load(cls, arguments: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
        """Load settings from ``arguments`` (None: not given), then from ``environ``, then from defaults.

        A variable `RLEXPORTER_*` that is no setting is warned of, once.

        Raises: SetupError that names the argument or variable, its fault, and what is expected.
        """
        environ = os.environ if environ is None else environ
        known = {setting.name: setting for setting in fields(cls)}
        for name in arguments:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
                raise SetupError(f"rlexporter has no setting {name!r}; {hint}")
        _warn(environ, {**{name: setting.metadata["env"] for name, setting in known.items()}, "sources": FROM})
        if environ.get(FROM, "").strip():
            _parsed(parsers.words(*LOGGERS), environ[FROM], f"environment variable {FROM}")
        chosen: dict[str, Any] = {name: {} for name in ("labels", "thresholds", "buckets", "map")}
        for name, setting in known.items():
            given, where = arguments.get(name), f"argument {name}"
            if given is None:
                variable = setting.metadata["env"]
                given, where = environ.get(variable, ""), f"environment variable {variable}"
                if not given.strip():
                    continue
            chosen[name] = _parsed(setting.metadata["parse"], given, where, setting.repr)
        return cls(**chosen)


def fitted(arguments: SettingArguments, hyperparameters: Mapping[str, float]) -> SettingArguments:
    """Return ``arguments`` with buckets for lengths up to the longest that the trainer allows, where none are set."""
    limits = (hyperparameters.get(name, 0) for name in _LIMITS)
    longest = next((limit for limit in limits if 1 <= limit <= _MOST_TOKENS), None)
    given = Settings.load(arguments).buckets
    if longest is None or _LENGTH in given:
        return arguments
    return {**arguments, "buckets": {**given, _LENGTH: buckets.even(int(longest))}}


def _warn(environ: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Warn of each variable that looks like a setting and is none, once a process. ``settings``: by their arguments."""
    for name, value in sorted(environ.items()):
        of_kubernetes = _OF_KUBERNETES.fullmatch(name) or (name.endswith("_PORT") and _ADDRESS.match(value))
        known = name in settings.values() or name in _warned or of_kubernetes
        if name.startswith(_PREFIX) and value.strip() and not known:
            _warned.add(name)
            logger.warning("%s is no setting of rlexporter, and is ignored; %s", name, _meant(name, settings))


def _parsed(parse: Callable[[object], object], value: object, where: str, shown: bool = True) -> object:
    """Return what ``parse`` makes of ``value``; an error names it, unless it is a secret (not ``shown``)."""
    try:
        return parse(parsers.plain(value))
    except Exception as error:  # noqa: BLE001 - whatever an object does that somebody gives as a setting
        given = f"={_said(repr, value)}" if shown else ""
        kind = "" if isinstance(error, (TypeError, ValueError)) else f"{type(error).__name__}: "
        raise SetupError(f"{where}{given} is not usable: {kind}{_said(str, error)}") from None


def _said(words: Callable[[object], str], value: object) -> str:
    """Return ``value`` in words, cut to a length that a person reads; its class where it has no words."""
    try:
        text = words(value[:_LONGEST] if isinstance(value, str) else value)
    except Exception:  # noqa: BLE001 - as above
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class SettingArguments(TypedDict, total=False):
    """The settings of an exporter, as arguments of `Exporter`, `attach` and `RLExporterCallback`.

    `Settings` describes each; None means not given.
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
    map: Mapping[str, str] | str | os.PathLike[str] | None
    ranks: Literal["main", "timings", "all"] | None
    token_file: str | os.PathLike[str] | None
    tls_cert_file: str | os.PathLike[str] | None
    tls_key_file: str | os.PathLike[str] | None
    tls_client_ca_file: str | os.PathLike[str] | None
    otlp: bool | str | None
    discovery_dir: str | os.PathLike[str] | None
    advertise: str | None
    notify: Sequence[str] | str | None
    notify_warnings: bool | None
    on_critical: str | Sequence[str] | Act | None
    on_critical_for: str | Sequence[str] | None
    on_critical_patience: int | None
    keep_good: bool | None
    report: bool | None
    completions: int | None
    compare: bool | str | os.PathLike[str] | None
    state_file: bool | str | os.PathLike[str] | None
    state_interval: float | None
    record: str | os.PathLike[str] | None
    rank: int | None
    local_rank: int | None
    world_size: int | None


def _meant(name: str, settings: Mapping[str, str]) -> str:
    rest = name.removeprefix(_PREFIX)
    own = [variable.removeprefix(_PREFIX) for variable in settings.values() if variable.startswith(_PREFIX)]
    if rest.lower() in settings:
        return f"did you mean {settings[rest.lower()]}?"
    close = get_close_matches(rest, own, n=1, cutoff=0.7)
    if close:
        return f"did you mean {_PREFIX}{close[0]}?"
    return f"there are {', '.join(_PREFIX + variable for variable in own)}"
