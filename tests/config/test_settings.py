"""Settings: who wins, and what a mistake is answered with."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from typing import Any

import pytest

from rlexporter import TLS, Discovery, Notify, OnCritical, Rank, StateFile
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


@pytest.mark.parametrize(
    ("plain", "group"),
    [
        ({"discovery": "/targets"}, {"discovery": Discovery("/targets")}),
        ({"notify": "json://a"}, {"notify": Notify("json://a")}),
        ({"on_critical": "save,stop"}, {"on_critical": OnCritical(["save", "stop"])}),
        ({"state_file": True}, {"state_file": StateFile("on")}),
        ({"rank": 3}, {"rank": Rank(3)}),
    ],
    ids=str,
)
def test_a_plain_value_is_the_first_member(plain: dict[str, object], group: dict[str, object]) -> None:
    """It gives the same settings, and others than without it, whatever the environment says of the other members."""
    environ = {
        "RLEXPORTER_ADVERTISE": "gpu-1",
        "RLEXPORTER_NOTIFY_WARNINGS": "1",
        "RLEXPORTER_ON_CRITICAL_PATIENCE": "5",
        "RLEXPORTER_STATE_INTERVAL_SECONDS": "60",
        "LOCAL_RANK": "1",
    }
    assert Settings.load(plain, environ) == Settings.load(group, environ) != Settings.load({}, environ)


MEMBERS = [
    (TLS("own", "key", "ca"), "tls", {"tls_cert_file": "own", "tls_key_file": "key", "tls_client_ca_file": "ca"}),
    (Discovery("/own", advertise="own"), "discovery", {"discovery_dir": "/own", "advertise": "own"}),
    (Notify("json://own", warnings=False), "notify", {"notify": ("json://own",), "notify_warnings": False}),
    (
        OnCritical("stop", only=("kl_high",), patience=0),
        "on_critical",
        {"on_critical": ("stop",), "on_critical_for": ("kl_high",), "on_critical_patience": 0},
    ),
    (StateFile("/own", interval=10), "state_file", {"state_file": "/own", "state_interval": 10.0}),
    (Rank(0, local=0, world_size=1), "rank", {"rank": 0, "local_rank": 0, "world_size": 1}),
]
"""Groups with all members, the argument of each, and the settings that they are. Some are what is the default too."""
ENVIRON = {
    "RLEXPORTER_TLS_CERT_FILE": "cert",
    "RLEXPORTER_TLS_KEY_FILE": "its",
    "RLEXPORTER_TLS_CLIENT_CA_FILE": "clients",
    "RLEXPORTER_DISCOVERY_DIR": "/theirs",
    "RLEXPORTER_ADVERTISE": "theirs",
    "RLEXPORTER_NOTIFY": "json://theirs",
    "RLEXPORTER_NOTIFY_WARNINGS": "1",
    "RLEXPORTER_ON_CRITICAL": "save",
    "RLEXPORTER_ON_CRITICAL_FOR": "kl_negative",
    "RLEXPORTER_ON_CRITICAL_PATIENCE": "7",
    "RLEXPORTER_STATE_FILE": "/theirs",
    "RLEXPORTER_STATE_INTERVAL_SECONDS": "99",
    "RANK": "5",
    "LOCAL_RANK": "6",
    "WORLD_SIZE": "8",
}
"""Other values of all of them."""


@pytest.mark.parametrize(("group", "argument", "own"), MEMBERS, ids=str)
def test_each_member_wins_by_itself(group: Any, argument: str, own: dict[str, Any]) -> None:
    """The members that are given over their variables, those over defaults; a member of None is not given."""
    theirs, default = Settings.load({}, ENVIRON), Settings.load({}, {})
    names = dict(zip((each.name for each in fields(group)), own, strict=True))
    for member, setting in names.items():
        alone = type(group)(**{member: getattr(group, member)})
        found = Settings.load({argument: alone}, ENVIRON)
        assert found == replace(theirs, **{setting: own[setting]}) != theirs
        assert Settings.load({argument: alone}, {}) == replace(default, **{setting: own[setting]})
    assert Settings.load({argument: group}, ENVIRON) == replace(theirs, **own)
    assert Settings.load({argument: type(group)()}, ENVIRON) == theirs


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("on_critical_for", "OnCritical(only=...)"),
        ("on_critical_patience", "OnCritical(patience=...)"),
        ("tls_cert_file", "TLS(cert_file=...)"),
        ("tls_key_file", "TLS(key_file=...)"),
        ("tls_client_ca_file", "TLS(client_ca_file=...)"),
        ("notify_warnings", "Notify(warnings=...)"),
        ("state_interval", "StateFile(interval=...)"),
        ("discovery_dir", "discovery=..."),
        ("advertise", "Discovery(advertise=...)"),
        ("local_rank", "Rank(local=...)"),
        ("world_size", "Rank(world_size=...)"),
    ],
)
def test_an_old_name_leads_to_the_new_form(old: str, new: str) -> None:
    """Also where it is given as None."""
    for value in (3, None):
        with pytest.raises(SetupError) as raised:
            Settings.load({old: value}, {})
        assert str(raised.value) == f"rlexporter has no setting {old!r}; it is {new} now"


def test_addresses_stay_out_of_what_is_printed() -> None:
    """They hold secrets: of the settings, of the group, and of what is said of a mistake beside them."""
    group = Notify("slack://s3cret", warnings="perhaps")  # type: ignore[arg-type]
    with pytest.raises(SetupError) as raised:
        Settings.load({"notify": group}, {})
    assert str(raised.value).startswith("argument notify, warnings='perhaps' is not usable: must be 1 or 0")
    with pytest.raises(SetupError) as elsewhere:
        Settings.load({"state_file": group}, {})
    loaded = Settings.load({"notify": Notify("slack://s3cret")}, {})
    assert loaded.notify == ("slack://s3cret",)
    assert "s3cret" not in f"{group} {raised.value} {elsewhere.value} {loaded}"


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
        ({"notify": Notify({"slack://s3cr3t"})}, {}, "argument notify, addresses is not usable: must be addresses"),  # type: ignore[arg-type]
        (
            {"on_critical": OnCritical(patience=-1)},
            {},
            "argument on_critical, patience=-1 is not usable: must be between",
        ),
        (
            {"on_critical": OnCritical("halt")},
            {},
            "argument on_critical, orders='halt' is not usable: 'halt' is none of",
        ),
        (
            {"on_critical": StateFile("on")},
            {},
            "argument on_critical=StateFile(path='on', interval=None) is not usable",
        ),
        (
            {"tls": "x"},
            {},
            "argument tls='x' is not usable: must be rlexporter.TLS(cert_file, key_file, client_ca_file)",
        ),
        ({"tls": TLS}, {}, "is not usable: must be rlexporter.TLS(cert_file, key_file, client_ca_file)"),
        ({"rank": TLS("x")}, {}, "argument rank=TLS(cert_file='x', key_file=None, client_ca_file=None) is not usable"),
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
