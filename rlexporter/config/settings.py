"""The settings object. An argument wins over the environment (`RLEXPORTER_*`), the environment over the default."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from rlexporter.conditions.judge import Factor
from rlexporter.config import parsers, thresholds
from rlexporter.model.errors import SetupError

DEFAULT_PORT = 9750
MAIN = "main"
TIMINGS = "timings"
RANKS = (MAIN, TIMINGS, "all")
_T = TypeVar("_T")


def _setting(parse: Callable[[object], _T], text: str, *, env: str, default: Any) -> Any:
    return field(default=default, metadata={"parse": parse, "help": text, "env": env})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one exporter. `Settings.load` makes it and checks every value."""

    run: str | None = _setting(
        parsers.text,
        "Name of the run, the label `run` of every series. Default: the trainer's run name, else its output folder's "
        "name and a short id that all ranks share and that a resumed run keeps.",
        env="RLEXPORTER_RUN",
        default=None,
    )
    algorithm: str | None = _setting(
        parsers.text,
        "What trains: `grpo`, `rloo`, `ppo`, `ppo-legacy` or a name of your own. Default: found from the trainer.",
        env="RLEXPORTER_ALGORITHM",
        default=None,
    )
    host: str = _setting(
        parsers.text,
        "Address to listen on. `0.0.0.0` opens the endpoint to the network.",
        env="RLEXPORTER_LISTEN_HOST",
        default="127.0.0.1",
    )
    port: int = _setting(
        parsers.between(0, 65535, int),
        "Port to listen on; 0 takes a free one.",
        env="RLEXPORTER_LISTEN_PORT",
        default=DEFAULT_PORT,
    )
    linger: float = _setting(
        parsers.between(0, 3600, float),
        "How many seconds the final state is served at most, when the process ends, to scrapers that have not fetched "
        "it yet. 0: not at all.",
        env="RLEXPORTER_LINGER_SECONDS",
        default=150.0,
    )
    labels: Mapping[str, str] = _setting(
        parsers.labels,
        "Labels for every series, few: `team=llm,project=math`.",
        env="RLEXPORTER_LABELS",
        default=None,
    )
    max_keys: int = _setting(
        parsers.between(0, 10000, int),
        "How many keys that the catalogue does not know are served; further ones are dropped and counted.",
        env="RLEXPORTER_MAX_LOGGED_KEYS",
        default=200,
    )
    thresholds: Mapping[tuple[str, str], Factor | None] = _setting(
        thresholds.parse,
        "Limits of conditions that differ from the declared ones: a mapping, `kl_high=0.5,entropy_low=off`, or the "
        "path of a TOML file.",
        env="RLEXPORTER_THRESHOLDS",
        default=None,
    )
    ranks: str = _setting(
        parsers.choice(*RANKS),
        "Which ranks serve: `main`, rank 0; `all`, each one what it sees itself, on port + local rank; `timings`, the "
        "same without distributions, at most 60 series a rank.",
        env="RLEXPORTER_RANKS",
        default=MAIN,
    )
    token_file: str | None = _setting(
        parsers.path,
        "File with a token that every request has to bring (`Authorization: Bearer ...`), but for `/livez`.",
        env="RLEXPORTER_TOKEN_FILE",
        default=None,
    )
    tls_cert_file: str | None = _setting(
        parsers.path,
        "Certificate chain (PEM) to serve TLS with.",
        env="RLEXPORTER_TLS_CERT_FILE",
        default=None,
    )
    tls_key_file: str | None = _setting(
        parsers.path,
        "Its private key (PEM). Default: in the same file.",
        env="RLEXPORTER_TLS_KEY_FILE",
        default=None,
    )
    tls_client_ca_file: str | None = _setting(
        parsers.path,
        "Certificates (PEM) of those who may sign clients: with it nobody connects without a certificate.",
        env="RLEXPORTER_TLS_CLIENT_CA_FILE",
        default=None,
    )
    otlp: str = _setting(
        parsers.switch_or_text,
        "Push by OTLP: `on`, to where `OTEL_EXPORTER_OTLP_ENDPOINT` says, or the address of a collector. Needs the "
        "extra `otlp`.",
        env="RLEXPORTER_OTLP",
        default="",
    )
    discovery_dir: str | None = _setting(
        parsers.path,
        "Folder for a target file of Prometheus' `file_sd_configs`, there while the endpoint is.",
        env="RLEXPORTER_DISCOVERY_DIR",
        default=None,
    )
    advertise: str | None = _setting(
        parsers.text,
        "Host, or host:port, under which Prometheus reaches this endpoint. Default: the address of the default route.",
        env="RLEXPORTER_ADVERTISE",
        default=None,
    )
    state_file: str = _setting(
        parsers.switch_or_text,
        "Keep the last state in a file, for after a SIGKILL: `on`, beside the checkpoints, or a path. `rlexporter "
        "replay` serves it.",
        env="RLEXPORTER_STATE_FILE",
        default="",
    )
    record: str | None = _setting(
        parsers.path,
        "File to which log lines and step feed are appended, as JSON lines.",
        env="RLEXPORTER_RECORD",
        default=None,
    )
    rank: int = _setting(
        parsers.between(0, 1e9, int),
        "This process's rank. Rank 0 serves.",
        env="RANK",
        default=0,
    )
    local_rank: int = _setting(
        parsers.between(0, 1e9, int),
        "Rank of this process on its machine.",
        env="LOCAL_RANK",
        default=0,
    )
    world_size: int = _setting(
        parsers.between(1, 1e9, int),
        "Number of ranks.",
        env="WORLD_SIZE",
        default=1,
    )

    @classmethod
    def load(cls, arguments: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
        """Load settings from ``arguments`` (None: not given), then from ``environ``, then from defaults.

        Raises: SetupError that names the argument or variable, its fault, and what is expected.
        """
        environ = os.environ if environ is None else environ
        known = {each.name: each for each in fields(cls)}
        for name in arguments:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
                raise SetupError(f"rlexporter has no setting {name!r}; {hint}")
        chosen: dict[str, Any] = {}
        for name, each in known.items():
            variable = each.metadata["env"]
            if arguments.get(name) is not None:
                chosen[name] = _parsed(each.metadata["parse"], arguments[name], f"argument {name}")
            elif environ.get(variable, "").strip():
                chosen[name] = _parsed(each.metadata["parse"], environ[variable], f"environment variable {variable}")
            elif each.default is not MISSING:
                chosen[name] = each.default
        for name in ("labels", "thresholds"):
            chosen[name] = chosen[name] or {}
        return cls(**chosen)


def _parsed(parse: Callable[[object], object], value: object, where: str) -> object:
    try:
        return parse(value)
    except (TypeError, ValueError) as error:
        raise SetupError(f"{where}={value!r} is not usable: {error}") from None
