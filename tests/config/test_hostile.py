"""Settings that nobody means: each ends in a SetupError that can be read, and none of them hangs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rlexporter import TLS, Discovery, Exporter, Notify, OnCritical, Rank, StateFile
from rlexporter.config import mapping
from rlexporter.config.settings import Settings, fitted
from rlexporter.model.errors import SetupError
from tests.planted import UNREADABLE


class Raises:
    """Raises whatever is asked of it."""

    def __str__(self) -> str:
        raise RuntimeError("not today")

    __repr__ = __fspath__ = __index__ = __str__

    def __float__(self) -> float:
        raise RecursionError("not today")

    def __int__(self) -> int:
        raise ZeroDivisionError

    def __eq__(self, other: object) -> bool:
        raise KeyError("not today")

    __hash__ = object.__hash__


class RaisesError(ValueError):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("not today")


class Untellable:
    """Raises such an error."""

    def __fspath__(self) -> str:
        raise RaisesError

    __float__ = __int__ = __iter__ = __str__ = __repr__ = __fspath__


class EndlessMapping(Mapping[str, Any]):
    """Goes on for ever."""

    def __getitem__(self, key: str) -> Any:
        return 1

    def __iter__(self) -> Iterator[str]:
        return (f"k{number}" for number in itertools.count())

    def __len__(self) -> int:
        return 1


class EndlessDict(dict[str, Any]):
    """So does the dictionary that its items are."""

    def items(self) -> Any:
        return itertools.cycle([("kl_high", 1.0)])


class EndlessList(list[Any]):
    """So does the list."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(1.0)


class EndlessTuple(tuple[Any, ...]):
    """So does the tuple."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat("ntfy://x")


class Text(str):
    """A text with its own mind."""

    def strip(self, *_: object) -> str:
        raise RuntimeError("not today")

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


def _itself() -> dict[str, Any]:
    inside: dict[str, Any] = {}
    inside["kl_high"] = inside
    return inside


def _deep() -> list[Any]:
    inside: list[Any] = []
    for _ in range(100_000):
        inside = [inside]
    return inside


HOSTILE: dict[str, Any] = {
    "raises": Raises(),
    "untellable": Untellable(),
    "a list of it": [Raises()],
    "a mapping of it": {"kl_high": Raises(), "reward": Raises()},
    "it as a key": {Raises(): 1},
    "endless mapping": EndlessMapping(),
    "endless dict": EndlessDict(),
    "endless list": EndlessList(),
    "endless tuple": EndlessTuple(),
    "endless inside": {"reward": EndlessList([0.0]), "kl_high": EndlessDict()},
    "endless iterator": itertools.count(),
    "itself": _itself(),
    "deep": _deep(),
    "deep inside": {"reward": _deep(), "kl_high": _deep()},
    "10^400": 10**400,
    "a text of it": "1" + "0" * 400,
    "many digits": "9" * 5000,
    "a list of 10^400": {"reward": [10**400], "kl_high": 10**400},
    "infinite": float("inf"),
    "NaN": float("nan"),
    "a complex number": 1j,
    "bytes": b"x",
    "zero byte": "a\0b",
    "half a pair": "a\ud800b",
    "a class": dict,
    "an object": object(),
}
PARSED = (
    *("port", "linger", "labels", "max_keys", "thresholds", "buckets", "map", "ranks", "notify", "rank"),
    *("keep_good", "report", "completions", "token_file", "record"),
)
MEMBERS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "tls_cert_file": ("tls, cert_file", lambda value: TLS(value)),
    "discovery_dir": ("discovery, folder", lambda value: Discovery(value)),
    "notify": ("notify, addresses", lambda value: Notify(value)),
    "on_critical_for": ("on_critical, only", lambda value: OnCritical(only=value)),
    "on_critical_patience": ("on_critical, patience", lambda value: OnCritical(patience=value)),
    "state_interval": ("state_file, interval", lambda value: StateFile(interval=value)),
    "world_size": ("rank, world_size", lambda value: Rank(world_size=value)),
}
"""Settings in a group: what an error calls them, and how they are given."""


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_argument(value: Any) -> None:
    """It is a SetupError of few words, or a value that the setting may have: a name may look like anything."""
    given = [(name, name, name, value) for name in PARSED]
    given += [(name, said.partition(",")[0], said, group(value)) for name, (said, group) in MEMBERS.items()]
    for name, argument, called, each in given:
        try:
            found, said = getattr(Settings.load({argument: each}, {}), name), ""
        except SetupError as error:
            found, said = None, str(error)
        assert len(said) < 2000
        assert said.startswith(f"argument {called}") or isinstance(found, (str, int, float, tuple, dict)), name


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_group(value: Any) -> None:
    """What is no group is refused where only a group will do."""
    with pytest.raises(
        SetupError, match=r"^argument tls=.* is not usable: must be rlexporter.TLS\(cert_file, key_file, "
    ):
        Settings.load({"tls": value}, {})


def test_a_text_with_a_mind_of_its_own_is_a_text() -> None:
    """As those of an enum are."""
    assert Settings.load({"run": Text(" a "), "ranks": Text("all")}, {}).run == "a"
    with pytest.raises(SetupError, match="must be one of"):
        Settings.load({"ranks": Text("none")}, {})


@pytest.mark.parametrize("planted", UNREADABLE)
@pytest.mark.parametrize("setting", ["thresholds", "map", "compare", "token_file", "tls"])
def test_a_file_that_is_none(tmp_path: Path, planted: str, setting: str) -> None:
    """It is said what it is, at once: also of a pipe to which nobody writes."""
    path = tmp_path / "given.toml"
    UNREADABLE[planted][1](path)
    with pytest.raises(SetupError, match="not a regular file"):
        Exporter(run="r", port=0, **{setting: TLS(path) if setting == "tls" else path}).start()  # type: ignore[arg-type]
    variable = {"thresholds": "RLEXPORTER_THRESHOLDS", "map": "RLEXPORTER_MAP"}.get(setting)
    if variable:
        with pytest.raises(SetupError, match=f"environment variable {variable}=.* not a regular file"):
            Settings.load({}, {variable: str(path)})


@pytest.mark.parametrize(
    "text",
    [
        "[thresholds]\nkl_high = " + "[" * 100_000,
        "[thresholds]\n" + "a." * 5000 + "b = 1",
        "[thresholds]\nkl_high = " + "9" * 5000,
        "[thresholds]\nkl_high = 1" + "0" * 400,
        "[thresholds]\nkl_high = 1979-99-27",
        "[thresholds]\nkl_high = nan",
        "[thresholds]\nkl_high = [1.0]",
        "[thresholds]\nkl_high = 1e308",
        "[[thresholds]]\nkl_high = 1",
        "thresholds = 3",
        "\0",
        "x" * 2_000_000,
        "",
    ],
    ids=lambda text: text[:40],
)
def test_a_hostile_file(tmp_path: Path, text: str) -> None:
    """Of thresholds, in TOML or not."""
    path = tmp_path / "limits.toml"
    path.write_text(text)
    with pytest.raises(SetupError, match=r"argument thresholds=.* is not usable: "):
        Settings.load({"thresholds": str(path)}, {})
    path.write_bytes(b"\xff" + text.encode())
    with pytest.raises(SetupError, match=r"argument thresholds=.* is not usable: "):
        Settings.load({"thresholds": path}, {})


@pytest.mark.parametrize("host", ["a\0b", "x" * 300, "\udcff", "a..b", "[::1]", "é" * 70, "999.1.1.1", "%"])
def test_a_host_that_is_none(host: str) -> None:
    """It is said which setting is wrong."""
    with pytest.raises(SetupError, match="RLEXPORTER_LISTEN_HOST"):
        Exporter(run="r", port=0, host=host).start()


def test_a_port_above_the_last_one() -> None:
    """That of the second rank on a machine, where the first has the last."""
    with pytest.raises(SetupError, match="there is no port 65536"):
        Exporter(run="r", port=65535, rank=Rank(1, local=1), ranks="all").start()


@pytest.mark.parametrize("limit", [float("inf"), 1e300, float("nan"), -1.0])
def test_a_limit_of_a_trainer_that_is_none(limit: float) -> None:
    """No buckets fit it."""
    assert fitted({"run": "r"}, {"max_completion_length": limit, "response_length": limit}) == {"run": "r"}


def test_a_map_of_many_keys() -> None:
    """As many as may be given take little time; more are refused."""
    given = {f"train/key {number} {{x}}": "reward" for number in range(20_000)}
    began = time.process_time()
    parsed = mapping.parse(Settings.load({"map": given}, {}).map)
    with Exporter(run="r", port=0, map=given) as exporter:
        exporter.log({"train/key 7 {x}": 2.5, "train/key 7 y": 3.5})
        assert exporter.snapshot.value("rl_reward_mean") == 2.5
    assert len(parsed) == 20_000
    assert time.process_time() - began < 10
    with pytest.raises(SetupError, match="has more than 20,000 members"):
        Settings.load({"map": {f"k{number}": "reward" for number in range(100_000)}}, {})
    with pytest.raises(SetupError, match="has more than 20,000 members"):
        Settings.load({"map": ",".join(f"k{number}=reward" for number in range(100_000))}, {})


@pytest.mark.parametrize("run", ["na\udcffme", "\ud800", "x" * 100_000, "\0"])
def test_a_name_of_any_kind_has_a_target_file(tmp_path: Path, run: str) -> None:
    """And a state."""
    settings = {"discovery": tmp_path / "targets", "state_file": tmp_path / "state.json"}
    with Exporter(run=run, port=0, linger=0, **settings) as exporter:  # type: ignore[arg-type]
        exporter.log({"reward": 1.0})
        assert len([*(tmp_path / "targets").iterdir()]) == 1
    assert exporter.snapshot.value("rlexporter_errors_total", where="discovery") is None
