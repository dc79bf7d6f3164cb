"""One settings object. An argument wins over the environment (`RLEXPORTER_*`), the environment over the default."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from rlexporter.catalog import CATALOG
from rlexporter.conditions import thresholds
from rlexporter.conditions.judge import Factor
from rlexporter.model import SetupError

DEFAULT_PORT = 9750
MAX_STATIC_LABELS = 8
_OWN_LABELS = {"run", "rank", "le", "quantile", "job", "instance"}.union(*(metric.labels for metric in CATALOG))
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_T = TypeVar("_T")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    return value.strip()


def _between(low: float, high: float, number: Callable[[Any], _T]) -> Callable[[object], _T]:
    def parse(value: object) -> _T:
        parsed: Any = number(value)
        if not low <= parsed <= high:
            raise ValueError(f"must be between {low:g} and {high:g}")
        result: _T = parsed
        return result

    return parse


def _labels(value: object) -> dict[str, str]:
    """Labels given as a mapping, or as `team=llm,project=math`."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if any(not separator for _, separator, _ in pairs):
            raise ValueError("must look like team=llm,project=math")
        value = {name.strip(): text.strip() for name, _, text in pairs}
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping of names to values")
    for name in value:
        if not isinstance(name, str) or not _LABEL_NAME.fullmatch(name) or name.startswith("__"):
            raise ValueError(f"{name!r} is no label name: letters, digits and _ only, not first a digit or __")
        if name in _OWN_LABELS:
            raise ValueError(f"{name!r} is taken: rlexporter or Prometheus sets it")
    if len(value) > MAX_STATIC_LABELS:
        raise ValueError(f"has {len(value)} labels: at most {MAX_STATIC_LABELS}, since every series carries them")
    return {name: str(text) for name, text in value.items()}


def _setting(parse: Callable[[object], _T], text: str, *, env: str, default: Any) -> Any:
    return field(default=default, metadata={"parse": parse, "help": text, "env": env})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one exporter behaves. Made by `Settings.load`, which checks every value."""

    run: str | None = _setting(
        _text,
        "Name of the run, the label `run` of every series. Default: the trainer's run name, else its output folder's "
        "name and a short id that all ranks share and that a resumed run keeps.",
        env="RLEXPORTER_RUN",
        default=None,
    )
    algorithm: str | None = _setting(
        _text,
        "What trains: `grpo`, `rloo`, `ppo`, `ppo-legacy` or a name of your own. Default: found from the trainer.",
        env="RLEXPORTER_ALGORITHM",
        default=None,
    )
    host: str = _setting(
        _text,
        "Address to listen on. `0.0.0.0` opens the endpoint to the network.",
        env="RLEXPORTER_LISTEN_HOST",
        default="127.0.0.1",
    )
    port: int = _setting(
        _between(0, 65535, int),
        "Port to listen on; 0 takes a free one.",
        env="RLEXPORTER_LISTEN_PORT",
        default=DEFAULT_PORT,
    )
    linger: float = _setting(
        _between(0, 3600, float),
        "How many seconds the final state is served at most, when the process ends, to scrapers that have not fetched "
        "it yet. 0: not at all.",
        env="RLEXPORTER_LINGER_SECONDS",
        default=150.0,
    )
    labels: Mapping[str, str] = _setting(
        _labels,
        "Labels for every series, few: `team=llm,project=math`.",
        env="RLEXPORTER_LABELS",
        default=None,
    )
    max_keys: int = _setting(
        _between(0, 10000, int),
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
    record: str | None = _setting(
        _text,
        "File to which log lines and step feed are appended, as JSON lines.",
        env="RLEXPORTER_RECORD",
        default=None,
    )
    rank: int = _setting(
        _between(0, 1e9, int),
        "This process's rank. Rank 0 serves.",
        env="RANK",
        default=0,
    )
    world_size: int = _setting(
        _between(1, 1e9, int),
        "Number of ranks.",
        env="WORLD_SIZE",
        default=1,
    )

    @classmethod
    def load(cls, arguments: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
        """Settings from arguments (None: not given), then the environment, then defaults.

        Raises SetupError that names the argument or variable, what is wrong with it, and what is expected.
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
