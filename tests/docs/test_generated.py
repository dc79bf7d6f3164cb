"""Committed documents: generated ones are up to date, and they cover what the project was asked for."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

import rlexporter
from rlexporter.catalog import CATALOG
from rlexporter.config.settings import Settings
from scripts import generate
from tests.conftest import SURPRISE
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
    """What is committed is what the catalogue says, byte for byte."""
    pytest.importorskip("transformers")  # docs/python.md describes the callback as well
    assert generate.stale(ROOT) == []


def test_a_stale_file_is_found_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`make check` sees a missing and a changed file, and one too many; `make generate` mends all three."""
    pytest.importorskip("transformers")  # docs/python.md describes the callback as well
    assert generate.stale(tmp_path) == list(generate.files())
    assert generate.main([], tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == [f"wrote {path}" for path in generate.files()]
    assert generate.main(["--check"], tmp_path) == 0

    page = tmp_path / "docs/metrics.md"
    page.write_text(page.read_text().replace("rl_kl_per_token", "rl_kl", 1))
    (tmp_path / "alerts/runbooks/RLGone.md").write_text("of an alert that was")
    assert generate.main(["--check"], tmp_path) == 1
    changed = ["docs/metrics.md", "alerts/runbooks/RLGone.md"]
    assert [line.split(" ")[0] for line in capsys.readouterr().err.splitlines()] == changed
    assert generate.write(tmp_path) == changed
    assert generate.stale(tmp_path) == []


def test_a_new_metric_appears_in_the_docs() -> None:
    """To add a metric is to add one entry."""
    from rlexporter.generate import docs

    page = docs.metrics((*CATALOG, SURPRISE))

    assert "| `rl_surprise` | nats | - | `surprise/mean` | A new one. |" in page
    assert "| `surprise/mean` | `rl_surprise` |" in page


def test_every_setting_is_described() -> None:
    """docs/settings.md names each argument with its variable, and nothing that does not exist."""
    page = (ROOT / "docs/settings.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    described = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    variables = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row[1])}

    assert described == [name for name in described if name in {each.name for each in fields(Settings)}]
    assert sorted(described) == sorted(each.name for each in fields(Settings))
    assert variables == {each.metadata["env"] for each in fields(Settings)}
    defaults = {each.name: str(each.default) for each in fields(Settings) if isinstance(each.default, int)}
    assert {row[0].strip("|` "): row[2] for row in rows if row[0].strip("|` ") in defaults} == defaults


def test_every_command_is_described() -> None:
    """docs/cli.md has a section for each, with its options, and nothing that is hidden in `--help`."""
    page = (ROOT / "docs/cli.md").read_text()
    words = "demo run status top metrics check report replay tail generate discovery".split()
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == words
    assert "| `--fault KIND@STEP` | a real fault in this step, of those below |" in page
    assert "rlexporter check [OPTIONS] FILE [FILE ...]" in page
    assert "SUPPRESS" not in page


def test_every_public_name_is_described() -> None:
    """docs/python.md has each name of the package, and each that an exporter shows."""
    page = (ROOT / "docs/python.md").read_text()
    names = {name for name in rlexporter.__all__ if not name.startswith("_")}
    shown = {name for name in dir(rlexporter.Exporter) if not name.startswith("_")}
    assert set(re.findall(r"^## (.+)$", page, re.MULTILINE)) == names
    assert set(re.findall(r"^### (.+)$", page, re.MULTILINE)) == shown
    assert "exporter.log(stats: Mapping[str, object], *, step: int | None = None)\n" in page
    assert "exporter.start(*, fallback: bool = False) -> Exporter\n" in page


_TOOLS = ["rlexporter", "W&B", "TensorBoard", "Trackio", "RL-Insight", "prime-rl", "NeMo-RL", "rlwatch"]


def test_every_claim_about_others_has_a_source() -> None:
    """Each cell of docs/comparison.md is links, or a dash for what nobody looked at; each link leads somewhere."""
    page = (ROOT / "docs/comparison.md").read_text()
    sources = dict(re.findall(r"^\[([a-z-]+)\]: (https://\S+)$", page, re.MULTILINE))
    head, _, *rows = [[each.strip() for each in row[1:-1].split("|")] for row in page.splitlines() if row[:1] == "|"]
    assert head[1:] == _TOOLS
    assert len(rows) == 14
    for name, *cells in rows:
        assert len(cells) == len(_TOOLS), name
        for tool, cell in zip(_TOOLS, cells, strict=True):
            assert cell == "-" or _sourced(cell, sources), (name, tool, cell)
    points = page.split("## What each does better")[1].split("\n\n[")[0].split("\n* ")[1:]
    assert len(points) == 7 + 4
    assert [point for point in points if not re.search(r"\]\[|\]\(", point)] == []
    used = set(re.findall(r"\]\[([a-z-]+)\]", page))
    assert used == set(sources)
    fixed = [url for url in sources.values() if "/blob/" in url]
    assert [url for url in fixed if not re.search(r"/blob/([0-9a-f]{7,40}|v[0-9.]+)/", url)] == []


def _sourced(cell: str, sources: dict[str, str]) -> bool:
    """Whether each part of ``cell``, between commas and semicolons outside of links, is one link."""
    claim = r"(?:[a-z0-9 ]+ )?\[[^\]]+\](?:\[([a-z-]+)\]|\([a-z#./-]+\))"
    if not re.fullmatch(rf"{claim}(?:[,;] (?:and )?{claim})*", cell):
        return False
    return set(re.findall(r"\]\[([a-z-]+)\]", cell)) <= set(sources)


def test_a_claim_without_a_source_is_found() -> None:
    """A bare word, a second claim without a link, and a link to nothing."""
    sources = {"w-hf": "https://docs.wandb.ai"}
    unsourced = ["yes", "[yes][w-hf], no", "[yes][nowhere]", "[yes] (a)", ""]
    assert [cell for cell in unsourced if _sourced(cell, sources)] == []
    assert _sourced("[yes][w-hf], and [more](scale.md#pushed)", sources)


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


def test_the_readme_is_short_and_leads_on() -> None:
    """Pictures first; the first page in three languages, and how to run the tests."""
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 250
    assert text.index("page-broken.png") < text.index("```python")
    for link in ("docs/start.md", "docs/start.vi.md", "docs/start.zh.md", "docs/comparison.md", "docs/limitations.md"):
        assert f"]({link})" in text
    assert "make test " in text
    assert "make test-all " in text
