"""Settings: who wins, and what a mistake is answered with."""

from __future__ import annotations

import math
import re

import pytest

from rlexporter.config import settings
from rlexporter.config.arguments import SettingArguments
from rlexporter.config.settings import DEFAULT_PORT, Settings, fitted
from rlexporter.model.errors import SetupError


def test_defaults_are_safe() -> None:
    """Only this machine can reach it."""
    found = Settings.load({}, {})

    assert (found.host, found.port, found.rank, found.world_size) == ("127.0.0.1", DEFAULT_PORT, 0, 1)
    assert (found.run, found.algorithm, found.labels) == (None, None, {})


def test_an_argument_wins_over_the_environment() -> None:
    """And the environment over the default; None and an empty variable are not given."""
    environ = {"RLEXPORTER_LISTEN_PORT": "1234", "RLEXPORTER_LISTEN_HOST": " 0.0.0.0 ", "RLEXPORTER_RUN": ""}

    assert Settings.load({"port": 5}, environ).port == 5
    assert Settings.load({"port": None}, environ).port == 1234
    assert Settings.load({}, environ).host == "0.0.0.0"
    assert Settings.load({}, environ).run is None


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What a process is warned of that was not warned yet."""
    monkeypatch.setattr(settings, "_warned", set())
    return caplog


def test_what_kubernetes_injects_for_a_service_is_not_ours(warnings: pytest.LogCaptureFixture) -> None:
    """A Service called rlexporter sets RLEXPORTER_PORT to an address, and more; so does one called rlexporter-eval."""
    environ = {
        "RLEXPORTER_SERVICE_HOST": "10.0.0.1",
        "RLEXPORTER_SERVICE_PORT": "9750",
        "RLEXPORTER_SERVICE_PORT_METRICS": "9750",
        "RLEXPORTER_PORT": "tcp://10.0.0.1:9750",
        "RLEXPORTER_PORT_9750_TCP": "tcp://10.0.0.1:9750",
        "RLEXPORTER_PORT_9750_TCP_PROTO": "tcp",
        "RLEXPORTER_PORT_9750_TCP_PORT": "9750",
        "RLEXPORTER_PORT_9750_TCP_ADDR": "10.0.0.1",
        "RLEXPORTER_EVAL_SERVICE_HOST": "10.0.0.2",
        "RLEXPORTER_EVAL_PORT": "tcp://10.0.0.2:9750",
        "RLEXPORTER_EVAL_PORT_9750_TCP_ADDR": "10.0.0.2",
    }

    assert Settings.load({}, environ).port == DEFAULT_PORT
    assert warnings.messages == []


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("RLEXPORTER_PORT", "9999", "did you mean RLEXPORTER_LISTEN_PORT?"),
        ("RLEXPORTER_HOST", "0.0.0.0", "did you mean RLEXPORTER_LISTEN_HOST?"),
        ("RLEXPORTER_MAX_KEYS", "10", "did you mean RLEXPORTER_MAX_LOGGED_KEYS?"),
        ("RLEXPORTER_LISTEN_PROT", "9999", "did you mean RLEXPORTER_LISTEN_PORT?"),
        ("RLEXPORTER_TRESHOLDS", "kl_high=1", "did you mean RLEXPORTER_THRESHOLDS?"),
        ("RLEXPORTER_VERBOSE", "1", "there are RLEXPORTER_RUN, RLEXPORTER_ALGORITHM, RLEXPORTER_LISTEN_HOST,"),
    ],
)
def test_a_variable_that_is_no_setting_is_told_once(
    warnings: pytest.LogCaptureFixture, name: str, value: str, meant: str
) -> None:
    """With the one that was meant; it changes nothing."""
    for _ in range(3):
        assert Settings.load({}, {name: value}) == Settings.load({}, {})

    (said,) = warnings.messages
    assert said.startswith(f"{name} is no setting of rlexporter, and is ignored; {meant}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("json://a json://b/", ["json://a", "json://b/"]),
        ("json://a/,json://b/?x=1,ntfys://t", ["json://a/", "json://b/?x=1", "ntfys://t"]),
        (" json://a, \n json://b,,slack://c , ", ["json://a", "json://b", "slack://c"]),
        ("mailto://host/a@x.org,b@x.org", ["mailto://host/a@x.org,b@x.org"]),
        ("slack,json://a", ["slack", "json://a"]),
        (" , ", []),
    ],
)
def test_addresses_have_blanks_or_commas_between_them(text: str, found: list[str]) -> None:
    """As in other lists; a comma in an address is part of it."""
    assert Settings.load({}, {"RLEXPORTER_NOTIFY": text}).notify == tuple(found)


def test_labels_from_the_environment() -> None:
    """Written as pairs."""
    assert Settings.load({}, {"RLEXPORTER_LABELS": "team=llm, project=a=b,"}).labels == {
        "team": "llm",
        "project": "a=b",
    }


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        ({"prot": 1}, {}, "rlexporter has no setting 'prot'; did you mean 'port'?"),
        ({"zzz": 1}, {}, "rlexporter has no setting 'zzz'; there are: run, algorithm,"),
        ({"sources": ["wandb"]}, {}, "rlexporter has no setting 'sources'"),
        (
            {},
            {"RLEXPORTER_FROM": "wand"},
            "environment variable RLEXPORTER_FROM='wand' is not usable: 'wand' is none of",
        ),
        ({"notify": {"slack://s3cr3t"}}, {}, "argument notify is not usable: must be addresses"),
        ({"port": 70000}, {}, "argument port=70000 is not usable: must be between 0 and 65535"),
        ({"port": "http"}, {}, "argument port='http' is not usable: invalid literal"),
        ({"run": " "}, {}, "argument run=' ' is not usable: must be a text that is not empty"),
        ({"linger": -1}, {}, "argument linger=-1 is not usable: must be between 0 and 3600"),
        ({"linger": float("nan")}, {}, "argument linger=nan is not usable"),
        ({"labels": {"a-b": "c"}}, {}, "'a-b' is no label name"),
        ({"labels": {"__x": "c"}}, {}, "'__x' is no label name"),
        ({"labels": {"run": "c"}}, {}, "'run' is taken: rlexporter or Prometheus sets it"),
        ({"labels": {"state": "c"}}, {}, "'state' is taken: rlexporter or Prometheus sets it"),
        ({"labels": {f"l{i}": "" for i in range(9)}}, {}, "has 9 labels: at most 8"),
        ({"labels": 3}, {}, "must be a mapping"),
        (
            {},
            {"RLEXPORTER_LISTEN_PORT": "x"},
            "environment variable RLEXPORTER_LISTEN_PORT='x' is not usable: invalid literal",
        ),
        ({"buckets": 3}, {}, "must look like reward=0,0.5,1;"),
        (
            {"buckets": {"rewards": [0.0, 1.0]}},
            {},
            "'rewards' is no histogram whose buckets can be set; did you mean reward",
        ),
        ({"buckets": "policy_ratio=0,1"}, {}, "'policy_ratio' is no histogram whose buckets can be set"),
        ({"buckets": "reward=1,0"}, {}, "reward needs numbers that ascend"),
        ({"buckets": "reward=a"}, {}, "reward needs numbers that ascend"),
        ({"buckets": {"reward": [0.0, float("inf")]}}, {}, "reward needs numbers that ascend"),
        ({"buckets": "completion_length=-1,5"}, {}, "completion_length is never negative"),
        ({"buckets": {"completion_length": list(range(25))}}, {}, "has 25 bounds: at most 24"),
        ({}, {"RLEXPORTER_BUCKETS": "reward"}, "RLEXPORTER_BUCKETS='reward' is not usable: reward needs numbers"),
        ({}, {"RLEXPORTER_LABELS": "team"}, "RLEXPORTER_LABELS='team' is not usable: must look like team=llm"),
    ],
    ids=str,
)
def test_a_mistake_is_named(arguments: dict[str, object], environ: dict[str, str], message: str) -> None:
    """What was wrong, where, and what is expected."""
    with pytest.raises(SetupError, match=re.escape(message)):
        Settings.load(arguments, environ)


@pytest.mark.parametrize(
    ("longest", "bounds"),
    [
        (256, [16.0 * part for part in range(1, 17)]),
        (1000, [50.0 * part for part in range(1, 21)]),
        (24, [float(part) for part in range(1, 25)]),
        (5, [1.0, 2.0, 3.0, 4.0, 5.0]),
        (997, [float(math.ceil(997 * part / 24)) for part in range(1, 25)]),
    ],
)
def test_lengths_have_buckets_up_to_the_longest(longest: int, bounds: list[float]) -> None:
    """In even parts, round where there is a number of parts that makes them so."""
    for name in ("max_completion_length", "response_length"):
        found = fitted({"run": "r"}, {name: float(longest)})
        assert Settings.load(found).buckets == {"completion_length": tuple(bounds)}


def test_buckets_that_are_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """By argument or environment; others go with those that fit; a trainer without such a limit changes nothing."""
    limit = {"max_completion_length": 256.0}
    own: SettingArguments = {"buckets": {"completion_length": [1.0, 2.0]}}
    assert fitted(own, limit) == own
    assert set(Settings.load(fitted({"buckets": "reward=0,1"}, limit)).buckets) == {"reward", "completion_length"}
    monkeypatch.setenv("RLEXPORTER_BUCKETS", "completion_length=1,2;reward=0,1")
    assert fitted({}, limit) == {}
    assert fitted({"run": "r"}, {"learning_rate": 1e-6, "max_completion_length": 0.0}) == {"run": "r"}
