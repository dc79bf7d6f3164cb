"""The settings: an argument wins over the environment (`RLEXPORTER_*`), the environment over the default.

A variable `RLEXPORTER_*` that is no setting is warned of: a typing error there would else go unnoticed.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from rlexporter.catalog import buckets
from rlexporter.conditions.judge import Factor
from rlexporter.conditions.table import CONDITIONS
from rlexporter.config import mapping, parsers
from rlexporter.config.parsers import Act
from rlexporter.frameworks import WATCHED
from rlexporter.model.condition import Severity
from rlexporter.model.errors import SetupError

if TYPE_CHECKING:
    from rlexporter.config.arguments import SettingArguments

logger = logging.getLogger("rlexporter")

DEFAULT_PORT = 9750
MAIN = "main"
TIMINGS = "timings"
RANKS = (MAIN, TIMINGS, "all")
LOGGERS = tuple(WATCHED)
"""The loggers whose lines can feed a run."""
FROM = "RLEXPORTER_FROM"
"""The variable that names some of them. It is no argument: it is read before there is an exporter."""
FROM_TEXT = (
    f"Which loggers' lines feed a run, the preferred first: {', '.join(f'`{each}`' for each in LOGGERS)} "
    "([frameworks.md](frameworks.md)). Set by `rlexporter run --from`, or before `import rlexporter`; it is no "
    "argument."
)
"""What docs/settings.md says of it."""
_LENGTH = "completion_length"
_LIMITS = ("max_completion_length", "response_length")
"""The settings of trainers that bound the length of a completion."""
_MOST_TOKENS = 1e9
"""A larger limit, such as infinity, is none."""
_CRITICAL = tuple(each.name for each in CONDITIONS if any(limit.severity is Severity.CRITICAL for limit in each.limits))
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


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that one argument takes together: ``on_critical=OnCritical("stop", patience=3)``."""

    name: str
    """The name of its class in `rlexporter.config.arguments`."""
    argument: str
    plain: str
    """The member whose value can be given alone, as in ``on_critical="stop"``; empty if there is none."""
    text: str
    """What it is for, after the name of the argument and a colon."""


_TLS = Group("TLS", "tls", "", "the files of TLS.")
_DISCOVERY = Group(
    "Discovery", "discovery", "folder", "the folder for a target file of Prometheus, and the address in it."
)
_NOTIFY = Group("Notify", "notify", "addresses", "where messages go, and of what.")
_ON_CRITICAL = Group(
    "OnCritical", "on_critical", "orders", "what to do when something critical begins, for which conditions, and when."
)
_STATE_FILE = Group("StateFile", "state_file", "path", "the file of the last state, and how old it may be, in seconds.")
_RANK = Group("Rank", "rank", "rank", "the rank of this process, its rank on this machine, and the number of ranks.")
_PATH = "str | os.PathLike[str]"


def _setting(
    parse: Callable[[object], object],
    env: str,
    default: Any,
    takes: str,
    group: Group | None = None,
    member: str = "",
    *,
    secret: bool = False,
    found: bool = False,
) -> Any:
    """Declare a setting.

    ``env``: its variable; ``takes``: the types that an argument may have; ``group``, ``member``: where it is given, if
    it is no argument of its own; ``found``: whether its default is found out.
    """
    metadata = {"parse": parse, "env": env, "takes": takes, "group": group, "member": member, "found": found}
    return field(default=default, repr=not secret, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one exporter behaves. `Settings.load` makes them, and checks every value.

    This is the one place where a setting is declared. `make generate` makes docs/settings.md of it, with the text below
    each setting, and the arguments in `rlexporter.config.arguments`. A member of a group is named after its variable.
    """

    run: str | None = _setting(parsers.text, "RLEXPORTER_RUN", None, "str", found=True)
    """Name of the run. By default the trainer's run name, else the name of its output folder and a short id that all
    ranks share and that a resumed run keeps.
    """
    algorithm: str | None = _setting(parsers.text, "RLEXPORTER_ALGORITHM", None, "str", found=True)
    """`grpo`, `rloo`, `ppo`, `ppo-legacy`, or a name of your own."""
    host: str = _setting(parsers.text, "RLEXPORTER_LISTEN_HOST", "127.0.0.1", "str")
    """Address to listen on. `0.0.0.0` opens the endpoint to the network: then set a token."""
    port: int = _setting(parsers.between(0, 65535, int), "RLEXPORTER_LISTEN_PORT", DEFAULT_PORT, "int")
    """0 takes a free one. Other ranks that serve: this and their local rank."""
    ranks: str = _setting(parsers.choice(*RANKS), "RLEXPORTER_RANKS", MAIN, 'Literal["main", "timings", "all"]')
    """Which ranks serve: `main`, `all` or `timings` ([scale.md](scale.md#every-rank))."""
    token_file: str | None = _setting(parsers.path, "RLEXPORTER_TOKEN_FILE", None, _PATH)
    """A file with the token that every request has to bring ([security.md](security.md))."""
    tls_cert_file: str | None = _setting(parsers.path, "RLEXPORTER_TLS_CERT_FILE", None, _PATH, _TLS, "cert_file")
    """TLS: the certificate and its chain, PEM. Needs the key."""
    tls_key_file: str | None = _setting(parsers.path, "RLEXPORTER_TLS_KEY_FILE", None, _PATH, _TLS, "key_file")
    """TLS: the key of that certificate, PEM, without a passphrase."""
    tls_client_ca_file: str | None = _setting(
        parsers.path, "RLEXPORTER_TLS_CLIENT_CA_FILE", None, _PATH, _TLS, "client_ca_file"
    )
    """TLS: only clients with a certificate that these have signed, PEM."""
    otlp: str = _setting(parsers.switch_or_text, "RLEXPORTER_OTLP", "", "bool | str")
    """Push by OTLP: `on`, to where `OTEL_EXPORTER_OTLP_ENDPOINT` says, or an address. Every 15 seconds, or the
    milliseconds in `OTEL_METRIC_EXPORT_INTERVAL`. Needs `pip install 'rlexporter[otlp]'`.
    """
    discovery_dir: str | None = _setting(parsers.path, "RLEXPORTER_DISCOVERY_DIR", None, _PATH, _DISCOVERY, "folder")
    """Folder for a target file of Prometheus."""
    advertise: str | None = _setting(
        parsers.text, "RLEXPORTER_ADVERTISE", None, "str", _DISCOVERY, "advertise", found=True
    )
    """The address in that target file, where the found one is wrong, and a name that loopback answers to."""
    notify: tuple[str, ...] = _setting(
        parsers.addresses, "RLEXPORTER_NOTIFY", (), "Sequence[str] | str", _NOTIFY, "addresses", secret=True
    )
    """Where messages go: addresses of [apprise](https://github.com/caronc/apprise), such as `discord://ID/TOKEN`, with
    blanks or commas between ([notify.md](howto/notify.md)). Needs `pip install 'rlexporter[notify]'`.
    """
    notify_warnings: bool = _setting(parsers.switch, "RLEXPORTER_NOTIFY_WARNINGS", False, "bool", _NOTIFY, "warnings")
    """Send a message of a warning too, not only of what is critical."""
    on_critical: tuple[str, ...] | Act = _setting(  # noqa: RUF009 - a field
        parsers.orders, "RLEXPORTER_ON_CRITICAL", (), "str | Sequence[str] | Act", _ON_CRITICAL, "orders"
    )
    """What to do when something critical begins: `save` a checkpoint, `stop` the training, or both with a comma; or a
    function that gets the incident and returns one of these, or None. Default: nothing
    ([on-critical.md](howto/on-critical.md)).
    """
    on_critical_for: tuple[str, ...] = _setting(
        parsers.words(*_CRITICAL), "RLEXPORTER_ON_CRITICAL_FOR", (), "str | Sequence[str]", _ON_CRITICAL, "only"
    )
    """The conditions that this is for, with commas between them; by default all that are critical."""
    on_critical_patience: int = _setting(
        parsers.between(0, 1e9, int), "RLEXPORTER_ON_CRITICAL_PATIENCE", 0, "int", _ON_CRITICAL, "patience"
    )
    """For how many steps such a condition has to hold before."""
    keep_good: bool = _setting(parsers.switch, "RLEXPORTER_KEEP_GOOD", False, "bool")
    """Keep copies of the last good checkpoints, `good-checkpoint-STEP`, which `save_total_limit` does not delete: `on`
    or `off`.
    """
    report: bool = _setting(parsers.switch, "RLEXPORTER_REPORT", True, "bool")
    """Keep the page of a run that is over beside its checkpoints, as `rlexporter.html`: `on` or `off`."""
    completions: int = _setting(parsers.between(0, 50, int), "RLEXPORTER_COMPLETIONS", 0, "int")
    """How many of the best, the worst and the last completions of a rollout the page shows, with their prompts and
    rewards, 0 to 50. They stay in the process: no series, recording or kept page has them ([security.md](security.md)).
    GRPO, RLOO and legacy PPO.
    """
    compare: str = _setting(parsers.switch_or_text, "RLEXPORTER_COMPARE", parsers.ON, "bool | str | os.PathLike[str]")
    """The run that the page draws in gray beside this one: `on`, the one before in the same output folder, by its page;
    `off`; or the page of another, as `rlexporter report` makes it.
    """
    state_file: str = _setting(
        parsers.switch_or_text, "RLEXPORTER_STATE_FILE", "", "bool | str | os.PathLike[str]", _STATE_FILE, "path"
    )
    """Keep the last state in a file: `on`, beside the checkpoints, or a path."""
    state_interval: float = _setting(
        parsers.between(1, 3600, float), "RLEXPORTER_STATE_INTERVAL_SECONDS", 10.0, "float", _STATE_FILE, "interval"
    )
    """How many seconds old that file is at most while the run lasts, 1 to 3600."""
    linger: float = _setting(parsers.between(0, 3600, float), "RLEXPORTER_LINGER_SECONDS", 150.0, "float")
    """How many seconds the final state is served at most, until all scrapers have fetched it: one that is away when the
    run ends has so long to come back. 0 waits for nobody.
    """
    labels: Mapping[str, str] = _setting(parsers.labels, "RLEXPORTER_LABELS", None, "Mapping[str, str] | str")
    """A few labels for every series: `team=llm,project=math`, or a mapping."""
    thresholds: Mapping[tuple[str, str], Factor | None] = _setting(
        parsers.thresholds, "RLEXPORTER_THRESHOLDS", None, "Mapping[str, Any] | str | os.PathLike[str]"
    )
    """Limits of alerts: `kl_high=0.5,entropy_low=off`, a mapping, or a TOML file
    ([alerts.md](alerts.md#limits-of-your-own)).
    """
    buckets: Mapping[str, tuple[float, ...]] = _setting(
        buckets.parse, "RLEXPORTER_BUCKETS", None, "Mapping[str, Sequence[float]] | str"
    )
    """Bounds of histograms, where yours are on another scale than the catalog's:
    `reward=0,0.25,0.5,0.75,1;completion_length=64,256,1024`, or a mapping ([scale.md](scale.md#buckets)).
    """
    map: Mapping[str, str] = _setting(
        mapping.parse, "RLEXPORTER_MAP", None, "Mapping[str, str] | str | os.PathLike[str]"
    )
    """What keys mean that the catalog does not know: `train/score=reward,train/len=length`, a mapping, or a TOML file
    ([alerts.md](alerts.md#keys-of-your-own)).
    """
    record: str | None = _setting(parsers.path, "RLEXPORTER_RECORD", None, _PATH)
    """A file to which log lines and all that was seen in each step are appended, as JSON lines."""
    max_keys: int = _setting(parsers.between(0, 10000, int), "RLEXPORTER_MAX_LOGGED_KEYS", 200, "int")
    """How many keys that the catalog does not know are served."""
    rank: int = _setting(parsers.between(0, 1e9, int), "RANK", 0, "int", _RANK, "rank")
    """Rank of this process. Set by `torchrun` and `accelerate launch`."""
    local_rank: int = _setting(parsers.between(0, 1e9, int), "LOCAL_RANK", 0, "int", _RANK, "local")
    """Its rank on this machine. Set by them too."""
    world_size: int = _setting(parsers.between(1, 1e9, int), "WORLD_SIZE", 1, "int", _RANK, "world_size")
    """Number of ranks. Set by them too."""

    @classmethod
    def load(cls, arguments: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
        """Load settings from ``arguments`` (None: not given), then from ``environ``, then from defaults.

        Each member of a group is looked for in this order. A variable `RLEXPORTER_*` that is no setting is warned of,
        once.

        Raises: SetupError that names the argument or variable, its fault, and what is expected.
        """
        environ = os.environ if environ is None else environ
        known = {setting.name: setting for setting in fields(cls)}
        names = dict.fromkeys(map(argument, known.values()))
        for name in arguments:
            if name not in names:
                raise SetupError(f"rlexporter has no setting {name!r}; {_form(name, known, names)}")
        _warn(environ, {**{name: setting.metadata["env"] for name, setting in known.items()}, "sources": FROM})
        if environ.get(FROM, "").strip():
            _parsed(parsers.words(*LOGGERS), environ[FROM], f"environment variable {FROM}")
        chosen: dict[str, Any] = {name: {} for name in ("labels", "thresholds", "buckets", "map")}
        for name, setting in known.items():
            group, member = setting.metadata["group"], setting.metadata["member"]
            given, where = arguments.get(argument(setting)), f"argument {argument(setting)}"
            if group and given is not None:
                from rlexporter.config import arguments as generated

                form = getattr(generated, group.name)
                if type(given) is form:
                    given, where = getattr(given, member), f"{where}, {member}"
                elif not group.plain:
                    members = ", ".join(each.name for each in fields(form))
                    said = _said(repr, given)
                    raise SetupError(f"{where}={said} is not usable: must be rlexporter.{group.name}({members})")
                elif member != group.plain:
                    given = None
            if given is None:
                variable = setting.metadata["env"]
                given, where = environ.get(variable, ""), f"environment variable {variable}"
                if not given.strip():
                    continue
            chosen[name] = _parsed(setting.metadata["parse"], given, where, setting.repr)
        return cls(**chosen)


def argument(setting: Field[Any]) -> str:
    """Return the argument that gives a ``setting``, alone or with others of its group."""
    group: Group | None = setting.metadata["group"]
    return group.argument if group else setting.name


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


def _form(name: str, known: Mapping[str, Field[Any]], arguments: Collection[str]) -> str:
    """Return what to write in place of ``name``, which is none of ``arguments`` but may be a ``known`` field."""
    if name in known:
        group, member = known[name].metadata["group"], known[name].metadata["member"]
        form = f"{group.argument}=..." if member == group.plain else f"{group.name}({member}=...)"
        return f"it is {form} now"
    close = get_close_matches(name, arguments, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(arguments)}"


def _meant(name: str, settings: Mapping[str, str]) -> str:
    rest = name.removeprefix(_PREFIX)
    own = [variable.removeprefix(_PREFIX) for variable in settings.values() if variable.startswith(_PREFIX)]
    if rest.lower() in settings:
        return f"did you mean {settings[rest.lower()]}?"
    close = get_close_matches(rest, own, n=1, cutoff=0.7)
    if close:
        return f"did you mean {_PREFIX}{close[0]}?"
    return f"there are {', '.join(_PREFIX + variable for variable in own)}"
