"""`rlexporter generate --out DIR`: what it writes, installed or not, that servers take it, where links lead."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.catalog.runbooks import runbook
from rlexporter.commands import generate, main
from rlexporter.commands.generate import base
from rlexporter.model.condition import Family
from scripts.pack.dashboards.linked import panel_id
from scripts.pack.links import VARIABLES
from scripts.pack.outside import WATCHDOG
from tests import wheels
from tests.programs import printed
from tests.tools import EACH_GENERATION, ROOT, require_alertmanager, require_tools, require_victoria

RUNBOOKS_URL, GRAFANA_URL = "https://wiki.example.org/rl/runbooks", "https://example.org:8443/grafana"
HEAD = RUNBOOKS.partition("/blob/")[0]
HIDDEN = 2


LINKS = ("--runbooks-url", f"{RUNBOOKS_URL}/", "--grafana-url", f"{GRAFANA_URL}/")
"""Both end in a slash."""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The pack that the command writes, and what it says."""
    out = tmp_path_factory.mktemp("site") / "pack"
    with contextlib.redirect_stdout(io.StringIO()) as told:
        assert main.main(["generate", "--out", str(out), *LINKS]) == 0
    return out, told.getvalue()


@pytest.fixture(scope="module")
def pack(said: tuple[Path, str]) -> Path:
    """The folder alone."""
    return said[0]


def files(folder: Path) -> dict[str, str]:
    """The texts in a folder, by path."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def alerts(folder: Path) -> list[dict[str, Any]]:
    """The alerts of a rules file, the watchdog aside."""
    groups = yaml.safe_load((folder / "alerts/rlexporter.rules.yml").read_text())["groups"]
    found = [rule for group in groups for rule in group["rules"] if rule.get("alert", WATCHDOG) != WATCHDOG]
    assert len(found) > 30
    return found


def dashboards(folder: Path) -> dict[str, Any]:
    """The dashboards of a pack, by uid."""
    found = (json.loads(path.read_text()) for path in (folder / "grafana/dashboards").glob("*.json"))
    return {each["uid"]: each for each in found}


@pytest.mark.slow
def test_a_wheel_writes_the_same(pack: Path, tmp_path: Path) -> None:
    """The command of an installed one, whose package is not that of this checkout, and which loads no torch."""
    wheel, site, out = wheels.build(tmp_path), tmp_path / "site", tmp_path / "pack"
    printed(sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--no-index", "--target", site, wheel)
    printed(site / "bin/rlexporter", "generate", "--out", out, *LINKS, cwd=tmp_path, PYTHONPATH=str(site))
    assert files(out) == files(pack)
    code = "import sys, rlexporter.catalog.runbooks as it; import rlexporter.commands.generate; "
    code += "print(it.__file__, 'torch' in sys.modules, len(it.runbook('RLKL').steps))"
    told = printed(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(site)).split()
    assert told == [str(site / "rlexporter/catalog/runbooks.py"), "False", str(len(runbook("RLKL").steps))]
    assert told[-1] != "0", "what a run is told to do is in the wheel"


def test_all_of_it_is_written(pack: Path) -> None:
    """The same paths as in the repository, without its documents; but for links, which that has not, the same text."""
    written = files(pack)
    assert set(written) > {
        *("alerts/rlexporter.rules.yml", "alerts/alertmanager.yml", "alerts/rlexporter.tmpl"),
        *("alerts/runbooks/README.md", "alerts/runbooks/RLRunFailed.md", f"alerts/runbooks/{WATCHDOG}.md"),
        *("grafana/dashboards/rlexporter-run.json", "grafana/kustomization.yaml"),
        *("deploy/kubernetes/kustomization.yaml", "deploy/kubernetes/podmonitor.yaml"),
        *("deploy/kubernetes/prometheusrule.yaml", "deploy/kubernetes/alertmanagerconfig.yaml"),
    }
    assert {name.split("/")[0] for name in written} == {"alerts", "grafana", "deploy"}
    for name, text in written.items():
        text = re.sub(r"^ *(dashboard|panel)_url: .*\n", "", text.replace(RUNBOOKS_URL, RUNBOOKS), flags=re.MULTILINE)
        assert text == (ROOT / name).read_text(), name


def test_what_to_do_next_works(said: tuple[Path, str]) -> None:
    """The commands that it prints name what is there, and run as they are printed."""
    out, told = said
    first, _, *commands = told.splitlines()
    assert first.startswith(f"wrote {len(files(out))} files to {out}: ")
    programs = {
        "promtool": require_tools("3") / "promtool",
        "amtool": require_alertmanager("new") / "amtool",
        "cp": "echo",
        "kubectl": "echo",
    }
    assert [line.split()[0] for line in commands] == ["promtool", "amtool", "cp", "cp", "kubectl"]
    for line in commands:
        name, rest = line.strip().split(" ", 1)
        assert str(out) in printed("/bin/sh", "-c", f"{shlex.quote(str(programs[name]))} {rest}")


@pytest.mark.slow
def test_other_servers_take_it(pack: Path) -> None:
    """Older ones, and vmalert: each annotation is a template that they can read; the newest do so above."""
    rules = pack / "alerts/rlexporter.rules.yml"
    assert "SUCCESS" in printed(require_tools("2") / "promtool", "check", "rules", rules)
    amtool = require_alertmanager("old") / "amtool"
    assert "1 templates" in printed(amtool, "check-config", pack / "alerts/alertmanager.yml")
    printed(require_victoria() / "vmalert", "-dryRun", f"-rule={rules}")


def test_links_lead_somewhere(pack: Path) -> None:
    """Each runbook is a page of the pack, and each dashboard one of the pack; nothing leads to the default any more."""
    shown = dashboards(pack)
    for each in alerts(pack):
        notes = each["annotations"]
        folder, _, page = notes["runbook_url"].rpartition("/")
        assert folder == RUNBOOKS_URL
        assert (pack / "alerts/runbooks" / page).is_file()
        where = notes["dashboard_url"].partition("?")[0]
        assert where.startswith(f"{GRAFANA_URL}/d/")
        named = set(re.findall(r"rlexporter-\w+", where))
        assert named in ({"rlexporter-run", "rlexporter-ppo"}, {"rlexporter-fleet"}), where
        assert named <= set(shown)
    of_all = {each["alert"] for each in alerts(pack) if "/d/rlexporter-fleet?" in each["annotations"]["dashboard_url"]}
    assert "RLManyRunsSick" in of_all
    assert "RLRunFailed" not in of_all
    for path in pack.rglob("*.*"):
        assert HEAD not in path.read_text(), path
    linked = [link["url"] for each in shown.values() for link in each["links"] if link["title"] == "Runbooks"]
    assert linked == [RUNBOOKS_URL] * len(shown)
    assert f'"{RUNBOOKS_URL}/${{__value.raw}}.md"' in (pack / "grafana/dashboards/rlexporter-run.json").read_text()


@pytest.mark.parametrize("uid", ["rlexporter-run", "rlexporter-fleet"])
def test_a_link_chooses_all_that_the_dashboard_can(pack: Path, uid: str) -> None:
    """Variables that a person sees are labels of the alert; Prometheus cannot know the data source."""
    shown = dashboards(pack)[uid]["templating"]["list"]
    seen = {each["name"] for each in shown if each.get("hide") != HIDDEN and each["type"] != "datasource"}
    assert {"run"} < seen - {"series", "team", "user"} <= {"run", *VARIABLES}


@pytest.mark.parametrize(("algorithm", "uid"), [("rloo", "rlexporter-run"), ("ppo-legacy", "rlexporter-ppo")])
@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_a_link_is_of_the_run(generation: str, algorithm: str, uid: str, tmp_path: Path) -> None:
    """Whatever its run and what it belongs to are called, and to its family; an alert of no run shows all runs."""
    labels = {"job": "rl", "namespace": "team a", "run": 'grpo "7b" & friends/100%+'}
    text = generate.pack(grafana_url="http://g")["alerts/rlexporter.rules.yml"]
    made = {rule.get("alert"): rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]}
    rules = [
        {"alert": alert, "expr": expr, "annotations": {k: v for k, v in notes.items() if k.endswith("_url")}}
        for alert, expr in (("RLKL", "rl_x > 0"), ("RLManyRunsSick", "count by (namespace) (rl_x)"))
        for notes in (made[alert]["annotations"],)
    ]

    def expected(of: dict[str, str], alert: str, link: str) -> dict[str, Any]:
        notes = {"runbook_url": f"{RUNBOOKS}/{alert}.md", "dashboard_url": link}
        if alert == "RLKL":
            notes["panel_url"] = f"{link}&viewPanel={panel_id(Family.KL_HIGH)}"
        return {"eval_time": "1m", "alertname": alert, "exp_alerts": [{"exp_labels": of, "exp_annotations": notes}]}

    one = urlencode({"var-run": labels["run"], "var-namespace": "team a", "var-job": "rl"})
    of_all = urlencode({"var-run": "$__all", "var-namespace": "team a"})
    series = f"rl_x{{{','.join(f'{name}={json.dumps(value)}' for name, value in labels.items())}}}"
    info = series.replace("rl_x{", f'rl_run_info{{algorithm="{algorithm}",')
    test = {
        "interval": "1m",
        "input_series": [{"series": each, "values": "1x5"} for each in (series, info)],
        "alert_rule_test": [
            expected(labels, "RLKL", f"http://g/d/{uid}?{one}"),
            expected({"namespace": "team a"}, "RLManyRunsSick", f"http://g/d/rlexporter-fleet?{of_all}"),
        ],
    }
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [test]}))
    printed(require_tools(generation) / "promtool", "test", "rules", tmp_path / "test.yml")


def test_an_alert_leads_to_its_panel(pack: Path) -> None:
    """The same panel in the dashboards of both families, and in no closed row: the panel has a link to its runbook.

    Those without a panel of their own lead to the dashboard alone.
    """
    titles = {
        "RLKL": ["KL"],
        "RLNoSignal": ["Gradient norm", "Reward"],
        "RLPolicyFrozen": ["Gradient norm", "Reward"],
        "RLKLCoefficient": ["KL", "Reward"],
        "RLReference": ["Reward", "KL"],
        "RLUpdateTooLarge": ["Reward", "Ratio"],
        "RLRewardLost": ["NaN and infinite values"],
        "RLRewardHacking": ["KL"],
        "RLRewardCollapse": ["Reward"],
        "RLLength": ["Completion length"],
        "RLRunStalled": ["Step time"],
        "RLValueLoss": ["Value loss"],
    }
    shown = {uid: {each["id"]: each for each in found["panels"]} for uid, found in dashboards(pack).items()}
    without, seen = set(), set()
    for each in alerts(pack):
        alert, notes = each["alert"], each["annotations"]
        head, _, number = notes.get("panel_url", "").rpartition("&viewPanel=")
        if not number:
            without.add(alert)
            continue
        assert head == notes["dashboard_url"]
        for uid in ("rlexporter-ppo", "rlexporter-run")[: 1 if each["labels"]["family"] == "value" else 2]:
            panels = [shown[uid][int(each)] for each in re.findall(r"(?:^|}})(\d+)", number)]
            seen.add(alert)
            assert [panel["title"] for panel in panels] == titles.get(alert, [panels[0]["title"]]), alert
            links = [link["url"] for panel in panels for link in panel["links"]]
            assert alert != "RLKL" or f"{RUNBOOKS_URL}/RLKL.md" in links
    assert without >= {"RLRunFailed", "RLManyRunsSick"}
    assert seen >= {"RLRatio", *titles}


def test_written_again_it_is_of_the_new_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it wrote itself it replaces, and leaves what lies beside it."""
    assert main.main(["generate", "--out", str(tmp_path), "--grafana-url", "http://one"]) == 0
    assert "--grafana-url" not in capsys.readouterr().out
    (tmp_path / "alerts/mine.yml").write_text("mine")
    assert main.main(["generate", "--out", str(tmp_path)]) == 0
    assert "alerts have no links to the dashboards: --grafana-url URL gives them" in capsys.readouterr().out
    assert main.main(["generate", "--out", str(tmp_path), "--job", "training"]) == 0
    for name in ("rlexporter.rules.yml", "runbooks/RLTargetSilent.md"):
        text = (tmp_path / "alerts" / name).read_text()
        assert 'up{job=~"training"}' in text
        assert "rlexporter.*" not in text.replace("The name is `.*rlexporter.*`", "")
    with pytest.raises(SystemExit):
        main.main(["generate", "--out", str(tmp_path), "--job", "training("])
    assert "'training(' is no regular expression: " in capsys.readouterr().err
    assert "http://one" not in (tmp_path / "alerts/rlexporter.rules.yml").read_text()
    assert (tmp_path / "alerts/mine.yml").read_text() == "mine"
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("name", ["alerts/alertmanager.yml", "grafana/dashboards/rlexporter-run.json"])
@pytest.mark.parametrize("folder", [False, True])
def test_what_is_not_ours_stays(name: str, folder: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file or folder of the same name is refused in one line, and nothing at all is written."""
    theirs = tmp_path / name
    (theirs if folder else theirs.parent).mkdir(parents=True)
    if not folder:
        theirs.write_text('{"uid": "mine"}')
    before = sorted(tmp_path.rglob("*"))
    assert main.main(["generate", "--out", str(tmp_path)]) == 2
    why = f"cannot write {theirs}: it is a folder, not a regular file;" if folder else f"{theirs} was not written by"
    said = capsys.readouterr().err
    assert said.startswith(f"rlexporter: {why}")
    assert said.endswith(" move it, or name another --out\n")
    assert sorted(tmp_path.rglob("*")) == before
    assert folder or theirs.read_text() == '{"uid": "mine"}'


def test_a_folder_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file, or where nothing can be written: one line each."""
    (file := tmp_path / "file").write_text("a text")
    for out, reason in (
        (file, f"{file} is no folder: move it, or name another --out"),
        (file / "below", f"cannot write {file / 'below/alerts/alertmanager.yml'}: Not a directory"),
        (Path("/proc/self/fdinfo/pack"), "cannot write /proc/self/fdinfo/pack: No such file or directory"),
    ):
        assert main.main(["generate", "--out", str(out)]) == 2
        assert capsys.readouterr().err == f"rlexporter: {reason}\n"
    assert file.read_text() == "a text"


NO_ADDRESS = ["", "grafana", "example.org/x", "ftp://x", "http://", "http:///x", "http://a b", "http://x/?a=1"]
NO_ADDRESS += [
    "http://x#a",
    "http://x:port",
    "http://[::1",
    "http://{{ x }}",
    'http://"x"',
    "http://x/$y",
    "http://x\n",
]


@pytest.mark.parametrize("option", ["--runbooks-url", "--grafana-url"])
def test_what_is_no_address_is_refused(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the option and an example, before anything is written; with or without a slash, port and path it is one."""
    for address in NO_ADDRESS:
        with pytest.raises(SystemExit, match="2"):
            main.main(["generate", "--out", str(tmp_path), option, address])
        said = f"argument {option}: {address!r} is no address such as https://example.org/folder\n"
        assert capsys.readouterr().err.endswith(said)
    assert list(tmp_path.iterdir()) == []
    for address in ("http://g", "https://example.org:3000/a/b", "http://[::1]:3000", "http://user@g/%20"):
        assert base(address) == base(f"{address}/") == address


SITE = ("--cluster-label", "region", "--namespace-label", "tenant", "--match", 'env="prod"', "--match", 'tier!~"a|b"')
OTHERS = re.compile(r'\bin cluster|own\\", \\"/\\", \\"namespace|^ *#.*', re.MULTILINE)
"""Prose, and the label of a pod that another exporter names."""


def test_a_site_has_labels_of_its_own(tmp_path: Path) -> None:
    """In rules, dashboards, routes, templates and Kubernetes objects; each series of runs is asked for with both."""
    assert main.main(["generate", "--out", str(tmp_path), *SITE]) == 0
    written = {name: text for name, text in files(tmp_path).items() if not name.endswith(".md")}
    named = {name for name, text in written.items() if re.search(r"\b(region|tenant)\b", text)}
    assert named > {
        *("alerts/rlexporter.rules.yml", "alerts/alertmanager.yml", "alerts/rlexporter.tmpl"),
        *("grafana/dashboards/rlexporter-run.json", "grafana/alerting/rules.yml", "grafana/alerting/policies.yml"),
        *("deploy/kubernetes/prometheusrule.yaml", "deploy/kubernetes/alertmanagerconfig.yaml"),
    }
    for name in named:
        assert not re.search(r"\b(cluster|namespace)\b(?!:)", OTHERS.sub("", written[name])), name
    for name in ("alerts/rlexporter.rules.yml", "deploy/kubernetes/prometheusrule.yaml"):
        read = yaml.safe_load(written[name])
        groups = read["groups"] if "groups" in read else read["spec"]["groups"]
        texts = [re.sub(r'"[^"]*"', '""', rule["expr"]) for group in groups for rule in group["rules"]]
        selectors = [found for text in texts for found in re.findall(r"\b(?:rl|rlexporter)_\w+(\{[^}]*)?", text)]
        assert len(selectors) > 20
        assert all(each.startswith('{env="",tier!~""') for each in selectors)
    shown = json.loads(written["grafana/dashboards/rlexporter-run.json"])
    asked = [target["expr"] for each in shown["panels"] for target in each.get("targets", ())]
    assert all(text.count("job=~") == text.count('job=~"$job",env="prod",tier!~"a|b"') for text in asked)
    printed(require_tools("2") / "promtool", "check", "rules", tmp_path / "alerts/rlexporter.rules.yml")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (("--match", "prod"), "'prod' is no matcher such as"),
        (("--match", 'env="a'), "is no matcher such as"),
        (("--match", 'env="a"} or up{b="'), "is no matcher such as"),
        (("--cluster-label", "k8s-cluster"), "'k8s-cluster' is no name of a label"),
        (("--cluster-label", "__name__"), "'__name__' is no name of a label"),
        (("--cluster-label", "run"), "must differ from each other, and from run and job"),
        (("--cluster-label", "x", "--namespace-label", "x"), "must differ from each other, and from run and job"),
    ],
)
def test_what_no_server_would_take_is_refused(
    said: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what would do instead; nothing is written."""
    with contextlib.suppress(SystemExit):
        assert main.main(["generate", "--out", str(tmp_path / "pack"), *said]) != 0
    assert told in capsys.readouterr().err
    assert not (tmp_path / "pack").exists()
