"""Committed documents: generated ones are up to date, and they cover what the project was asked for."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

import rlexporter
from rlexporter.catalog.metrics import CATALOG
from rlexporter.config.settings import Settings, argument
from scripts import generate
from scripts.pack.dashboards import dashboards
from tests.tools import ROOT

pytestmark = pytest.mark.slow
SEEDS = {
    "ppo-healthy-ranges.md": (r"`([a-z]+/[a-z_/]+)`", 27),
    "trl-logging-legacy.txt": (r"((?:env|objective|ppo|tokens)/[a-z_]+(?:/[a-z_]+)?)", 37),
    "trl-logging-modern.md": (r"^ *(?:\*|\d+\.) +`([a-z_/{}]+)", 36),
}
"""How each document writes the name of a metric, and how many it names."""
_NEVER_LOGGED = {"tokens/responses_len_dist"}  # the legacy guide says that tokens/responses_dist should be called so


def test_every_metric_of_the_seeds_is_documented(data: Path) -> None:
    """docs/metrics.md has each metric that the documents name, by the name that they use."""
    page = (ROOT / "docs/metrics.md").read_text()
    for seed, (pattern, count) in SEEDS.items():
        found = re.findall(pattern, (data / "seeds" / seed).read_text(), re.MULTILINE)
        names = {name.strip("_").rstrip("/").replace("{reward_func_name}", "{reward_function}") for name in found}
        names -= _NEVER_LOGGED
        assert [name for name in sorted(names) if f"`{name}`" not in page] == []
        assert len(names) == count, seed


def test_generated_files_are_up_to_date() -> None:
    """What is committed is what the catalog says, byte for byte."""
    pytest.importorskip("transformers")  # docs/python.md describes the callback as well
    assert generate.stale(ROOT) == []


def test_a_stale_file_is_found_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`make check` sees a missing and a changed file; `make generate` mends both, and leaves what others wrote."""
    pytest.importorskip("transformers")  # docs/python.md describes the callback as well
    assert generate.stale(tmp_path) == list(generate.files())
    assert generate.main([], tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == [f"wrote {path}" for path in generate.files()]
    assert generate.main(["--check"], tmp_path) == 0

    page = tmp_path / "docs/metrics.md"
    page.write_text(page.read_text().replace("rl_kl_per_token", "rl_kl", 1))
    (tmp_path / "alerts/runbooks/RLMine.md").write_text("of an alert of theirs")
    assert generate.main(["--check"], tmp_path) == 1
    changed = ["docs/metrics.md"]
    assert [line.split(" ")[0] for line in capsys.readouterr().err.splitlines()] == changed
    assert generate.write(tmp_path) == changed
    assert generate.stale(tmp_path) == []
    assert (tmp_path / "alerts/runbooks/RLMine.md").exists()


def test_every_setting_command_and_public_name_is_described() -> None:
    """The pages that are made from the code have whatever it has, and nothing that is hidden in `--help`."""
    settings, commands, python = ((ROOT / f"docs/{name}.md").read_text() for name in ("settings", "cli", "python"))
    described = re.findall(r"^\| `(\w+)` \| (?:`\w+\.(\w+)`)? \| `([A-Z_]+)` \| .* \| .+ \|$", settings, re.MULTILINE)
    assert described == [(argument(each), each.metadata["member"], each.metadata["env"]) for each in fields(Settings)]
    words = "demo run status top notify metrics check report replay tail generate discovery".split()
    assert re.findall(r"^## (.+)$", commands, re.MULTILINE) == words
    assert "SUPPRESS" not in commands
    names, shown = ({name for name in of if name[0] != "_"} for of in (rlexporter.__all__, dir(rlexporter.Exporter)))
    assert set(re.findall(r"^## (.+)$", python, re.MULTILINE)) == names
    assert set(re.findall(r"^### (.+)$", python, re.MULTILINE)) == shown


def test_panels_and_dashboards_that_are_named_are_there() -> None:
    """Whatever the tables side by side of docs/dashboards.md call a dashboard, a row or a panel is one."""
    made = [json.loads(text) for text in dashboards(CATALOG).values()]
    known = {each["uid"].removeprefix("rlexporter-") for each in made} | {"run of PPO"}
    rows = [row for each in made for row in each["panels"]]
    known |= {each["title"] for row in rows for each in (row, *row.get("panels", ()))}
    tables = (ROOT / "docs/dashboards.md").read_text().partition("## Side by side")[2]
    cells = [row.strip("|").split(" | ")[-1] for row in re.findall(r"^\| .*$", tables, re.MULTILINE)]
    called = [name for cell in cells for name in re.findall(r"\*([^*]+)\*", re.sub(r"`[^`]*`", "", cell))]

    assert len(called) > 50
    assert set(called) - known == set()


@pytest.mark.parametrize(
    ("language", "words"),
    [("vi", ["Ổn", "Cần xem", "Cần xử lý"]), ("zh", ["正常", "需关注", "需处理"])],
)
def test_the_first_pages_in_other_languages(language: str, words: list[str]) -> None:
    """They have the blocks of the English page, and the verdicts as the status page of that language says them."""
    page = (ROOT / f"docs/start.{language}.md").read_text()
    english = (ROOT / "docs/start.md").read_text()
    fenced = re.compile(r"```.*?```", re.DOTALL)
    assert fenced.findall(page) == fenced.findall(english)
    assert len(fenced.findall(page)) == 10
    texts = json.loads((ROOT / f"rlexporter/catalog/languages/{language}.json").read_text())
    assert [texts[word] for word in ("Fine", "Look", "Act")] == words
    assert re.findall(r"^\| \*\*(.+?)\*\* \|", page, re.MULTILINE) == words
    questions = ("Is it learning?", "Is it stable?", "Is it fast?", "Is anything hidden?")
    said = " ".join(page.split()).replace(" ", "")
    assert [texts[each] for each in questions if texts[each].replace(" ", "") not in said] == []
    assert re.findall(r"^## (\d)", page, re.MULTILINE) == ["1", "2", "3", "4", "5"]
