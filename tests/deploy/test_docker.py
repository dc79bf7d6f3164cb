"""What is deployed with Docker: docker-compose.yml, all that it mounts, the image of the demo, the files of Grafana."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from rlexporter.commands import main
from rlexporter.config.settings import DEFAULT_PORT
from rlexporter.version import __version__
from tests.tools import (
    ROOT,
    alertmanager,
    eventually,
    free_port,
    require_alertmanager,
    require_tool,
    require_tools,
    running,
)

PROVISIONING = ROOT / "grafana/provisioning"
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+\.\d+(-[\w-]+)?")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services as Docker Compose reads them, by name; it needs no engine for that."""
    file = str(ROOT / "docker-compose.yml")
    command = [str(require_tool("docker-compose")), "--file", file, "--profile", "broken", "config"]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    assert set(found) == {"demo", "broken", "messages", "prometheus", "alertmanager", "grafana"}
    return found


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """What of this repository a container sees, by where it sees it."""
    return {each["target"]: Path(each["source"]) for each in service.get("volumes", ()) if each["type"] == "bind"}


def test_what_is_mounted_is_there_and_stays_as_it_is(services: dict[str, Any]) -> None:
    """Every file and folder is in this repository, and no container may write to it."""
    for service in services.values():
        for source in mounts(service).values():
            assert source.exists(), source
            assert ROOT in source.parents
        for each in service.get("volumes", ()):
            assert each["type"] == "volume" or each["read_only"], each
    assert (services["alertmanager"]["volumes"][2]["type"], len(mounts(services["alertmanager"]))) == ("volume", 2)


def test_only_loopback_is_open(services: dict[str, Any]) -> None:
    """Each service has one port, for this machine alone, and nothing else of the host's network."""
    ports = {name: service["ports"] for name, service in services.items() if name != "messages"}
    assert {port["host_ip"] for each in ports.values() for port in each} == {"127.0.0.1"}
    assert {name: [port["target"] for port in each] for name, each in ports.items()} == {
        "demo": [DEFAULT_PORT],
        "broken": [DEFAULT_PORT],
        "prometheus": [9090],
        "alertmanager": [9093],
        "grafana": [3000],
    }
    odd = {name: {"network_mode", "privileged", "pid", "cap_add"} & set(each) for name, each in services.items()}
    assert {name: keys for name, keys in odd.items() if keys} == {"messages": {"network_mode"}}
    assert services["messages"]["network_mode"] == "service:alertmanager"
    assert "ports" not in services["messages"]


def test_images_are_pinned_and_watched(services: dict[str, Any]) -> None:
    """Of each image the whole version is named; each service says when it is well, and has limits."""
    for name, service in services.items():
        assert PINNED.fullmatch(service["image"]), name
        assert service["healthcheck"]["test"][0] == "CMD"
        assert service["mem_limit"]
        assert service["restart"] == ("no" if name == "broken" else "unless-stopped")
        assert service["cap_drop"] == ["ALL"]
    assert services["grafana"]["depends_on"]["prometheus"]["condition"] == "service_healthy"
    assert services["prometheus"]["depends_on"]["alertmanager"]["condition"] == "service_healthy"


def test_nobody_can_log_in(services: dict[str, Any]) -> None:
    """Grafana shows, and has no account: so there is no password, neither a default one nor one in a file."""
    grafana = services["grafana"]["environment"]
    assert grafana["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert grafana["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert (grafana["GF_AUTH_BASIC_ENABLED"], grafana["GF_AUTH_DISABLE_LOGIN_FORM"]) == ("false", "true")
    names = [name for service in services.values() for name in service.get("environment") or ()]
    assert [name for name in names if re.search("PASSWORD|SECRET|TOKEN|KEY", name)] == []


def test_prometheus_takes_its_command(services: dict[str, Any], tmp_path: Path) -> None:
    """A real one starts with the flags and files of its service, and has found rules, the demo and Alertmanager."""
    service = services["prometheus"]
    (rules,) = (target for target in mounts(service) if target.endswith(".rules.yml"))
    text = mounts(service)["/etc/prometheus/prometheus.yml"].read_text()
    assert rules in text
    (tmp_path / "prometheus.yml").write_text(text.replace(rules, str(mounts(service)[rules])))
    port = free_port()
    local = {"/etc/prometheus/prometheus.yml": tmp_path / "prometheus.yml", "=/prometheus": f"={tmp_path}/data"}
    command = [str(require_tools("3") / "prometheus"), *localised(service["command"], local)]
    with running([*command, f"--web.listen-address=127.0.0.1:{port}"], tmp_path, port):
        pass
    config = yaml.safe_load(text)
    (targets,) = (each["static_configs"][0]["targets"] for each in config["scrape_configs"])
    (alertmanagers,) = (each["static_configs"][0]["targets"] for each in config["alerting"]["alertmanagers"])
    opened = {f"{name}:{each['ports'][0]['target']}" for name, each in services.items() if "ports" in each}
    (found,) = (each["dns_sd_configs"][0] for each in config["scrape_configs"])
    assert {f"{name}:{found['port']}" for name in found["names"]} == {"broken:9750"} <= opened
    assert opened >= {*targets, *alertmanagers}


def test_alertmanager_takes_its_command(services: dict[str, Any], tmp_path: Path) -> None:
    """A real one starts with the flags and files of its service."""
    service, tools, port = services["alertmanager"], require_alertmanager("new"), free_port()
    for target, source in mounts(service).items():
        (tmp_path / Path(target).name).write_text(source.read_text())
    local = {"/etc/alertmanager": tmp_path, "=/alertmanager": f"={tmp_path}/data"}
    command = [str(tools / "prometheus-alertmanager"), *localised(service["command"], local)]
    with running([*command, f"--web.listen-address=127.0.0.1:{port}"], tmp_path, port, cwd=tools):
        pass


def test_messages_are_shown(services: dict[str, Any], tmp_path: Path) -> None:
    """A real Alertmanager, configured as it is delivered, calls what prints them; the heartbeat is left out."""
    port = free_port()
    (script,) = (source for target, source in mounts(services["messages"]).items() if target == "/messages.py")
    text = (ROOT / "alerts/alertmanager.yml").read_text()
    for old, new in {"http://127.0.0.1:9099": f"http://127.0.0.1:{port}", "group_wait: 30s": "group_wait: 0s"}.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "rlexporter.tmpl").write_text((ROOT / "alerts/rlexporter.tmpl").read_text())
    shown = tmp_path / "shown.txt"
    with (
        shown.open("w") as out,
        subprocess.Popen([sys.executable, str(script), str(port)], stdout=out, stderr=subprocess.STDOUT) as process,
    ):
        try:
            eventually(lambda: _listens(port))
            with alertmanager("new", tmp_path, text) as server:
                labels = {"severity": "critical", "run": "broken", "job": "rlexporter"}
                told = {"summary": "Run broken: the rate has jumped.", "description": "Step 200."}
                server.post({"labels": {"alertname": "RLExporterWatchdog"}, "annotations": {}})
                server.post({"labels": {"alertname": "RLUpdateTooLarge", **labels}, "annotations": told})
                expected = (
                    "page, firing: RLUpdateTooLarge of broken\n  Run broken: the rate has jumped.\n  Step 200.\n\n"
                )
                eventually(lambda: expected in shown.read_text())
        finally:
            process.kill()
    assert shown.read_text() == expected


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def localised(command: list[str], local: dict[str, Any]) -> list[str]:
    """A command with paths of this machine, each of which it must have."""
    text = "\n".join(command)
    for old, new in local.items():
        assert old in text, old
        text = text.replace(old, str(new))
    return text.split("\n")


def test_grafana_is_provisioned(services: dict[str, Any]) -> None:
    """Its files are where it looks, and name the folder and the server that are there."""
    service = services["grafana"]
    seen = mounts(service)
    assert seen["/etc/grafana/provisioning"] == PROVISIONING
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards/rlexporter.yml").read_text())["providers"]
    assert seen[provider["options"]["path"]] == ROOT / "grafana/dashboards"
    assert (provider["type"], provider["allowUiUpdates"], provider["folder"]) == ("file", False, "RL training")
    home = urlsplit(service["environment"]["GF_USERS_HOME_PAGE"])
    fleet = json.loads((ROOT / f"grafana/dashboards/{Path(home.path).name}.json").read_text())
    assert (home.path, home.query) == (f"/d/{fleet['uid']}", "from=now-15m&to=now")

    (source,) = yaml.safe_load((PROVISIONING / "datasources/prometheus.yml").read_text())["datasources"]
    assert (source["uid"], source["url"]) == ("prometheus", "http://prometheus:9090")
    interval = yaml.safe_load((ROOT / "deploy/compose/prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile in their order, as word and rest: lines that go on are one; no comments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line]
    return [(word, rest) for word, rest in lines]


def test_the_image_of_the_demo() -> None:
    """A pinned base, another user than root in the end, and a command that there is."""
    words = [word for word, _ in instructions()]
    said = {word: [rest for each, rest in instructions() if each == word] for word in words}
    assert set(words) == set("FROM LABEL ARG RUN WORKDIR COPY USER ENV EXPOSE ENTRYPOINT CMD".split())
    assert all(PINNED.fullmatch(image) for image in said["FROM"])
    assert said["USER"] == ["10001:10001"]
    assert any("useradd" in each and "--uid 10001" in each for each in said["RUN"])
    assert words.index("USER") > max(i for i, word in enumerate(words) if word in ("RUN", "COPY"))
    assert said["EXPOSE"] == [str(DEFAULT_PORT)]
    assert json.loads(said["ENTRYPOINT"][0]) == ["rlexporter"]
    assert main.parser({"demo"}).parse_args(json.loads(said["CMD"][0])).steps == 1_000_000
    assert f"TORCH={re.findall(r'TORCH:-(.*)}', (ROOT / 'scripts/setup').read_text())[0]}" in said["ARG"]
    assert "RLEXPORTER_LISTEN_HOST=0.0.0.0" in said["ENV"][0]


def test_the_image_says_what_it_is() -> None:
    """By the labels of the Open Containers Initiative: version, licence and address are those of the package."""
    (said,) = (rest for word, rest in instructions() if word == "LABEL")
    labels = dict(each.split("=", 1) for each in shlex.split(said))
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"]
    image = "org.opencontainers.image"
    assert labels == {
        f"{image}.title": "rlexporter-demo",
        f"{image}.description": labels[f"{image}.description"],
        f"{image}.version": __version__,
        f"{image}.source": project["urls"]["Repository"],
        f"{image}.licenses": project["license"],
    }


def test_the_image_can_be_built_from_its_context() -> None:
    """All that is copied is let through, and all that the package is built from is copied; nothing else goes along."""
    copied = {name for word, rest in instructions() if word == "COPY" for name in rest.split()[:-1]}
    everything, *allowed = (line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in "#")
    assert everything == "*"
    assert {each[1:] for each in allowed if each[0] == "!"} == copied
    assert all((ROOT / name).exists() for name in copied)
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())
    hatch = project["tool"]["hatch"]
    needed = {"pyproject.toml", *project["project"]["license-files"], *hatch["build"]["targets"]["wheel"]["packages"]}
    needed.update(each["path"] for each in hatch["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"])
    assert needed == copied
