"""Settings: who wins, and what a mistake is answered with."""

from __future__ import annotations

import re

import pytest

from rlexporter.config.settings import DEFAULT_PORT, Settings
from rlexporter.model.errors import SetupError


def test_defaults_are_safe() -> None:
    """Only this machine can reach it."""
    settings = Settings.load({}, {})

    assert (settings.host, settings.port, settings.rank, settings.world_size) == ("127.0.0.1", DEFAULT_PORT, 0, 1)
    assert (settings.run, settings.algorithm, settings.labels) == (None, None, {})


def test_an_argument_wins_over_the_environment() -> None:
    """And the environment over the default; None and an empty variable are not given."""
    environ = {"RLEXPORTER_LISTEN_PORT": "1234", "RLEXPORTER_LISTEN_HOST": " 0.0.0.0 ", "RLEXPORTER_RUN": ""}

    assert Settings.load({"port": 5}, environ).port == 5
    assert Settings.load({"port": None}, environ).port == 1234
    assert Settings.load({}, environ).host == "0.0.0.0"
    assert Settings.load({}, environ).run is None


def test_what_kubernetes_injects_for_a_service_is_not_ours() -> None:
    """A Service called rlexporter sets RLEXPORTER_PORT to an address."""
    assert Settings.load({}, {"RLEXPORTER_PORT": "tcp://10.0.0.1:9750"}).port == DEFAULT_PORT


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
        ({}, {"RLEXPORTER_LABELS": "team"}, "RLEXPORTER_LABELS='team' is not usable: must look like team=llm"),
    ],
    ids=str,
)
def test_a_mistake_is_named(arguments: dict[str, object], environ: dict[str, str], message: str) -> None:
    """What was wrong, where, and what is expected."""
    with pytest.raises(SetupError, match=re.escape(message)):
        Settings.load(arguments, environ)
