"""Committed documents: generated ones are up to date, and they cover what the project was asked for."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import rlexporter
from rlexporter.catalog import CATALOG
from rlexporter.config.settings import Settings
from scripts import generate
from tests.conftest import SURPRISE

ROOT = Path(__file__).parent.parent

# How each document writes the name of a metric, and how many it names.
_SEEDS = [
    ("ppo-healthy-ranges.md", r"`([a-z]+/[a-z_/]+)`", 27),
    ("trl-logging-legacy.txt", r"((?:env|objective|ppo|tokens)/[a-z_]+(?:/[a-z_]+)?)", 37),
    ("trl-logging-modern.md", r"^ *(?:\*|\d+\.) +`([a-z_/{}]+)", 36),
]
_NEVER_LOGGED = {"tokens/responses_len_dist"}  # the legacy guide says that tokens/responses_dist should be called so


@pytest.mark.parametrize(("seed", "pattern", "count"), _SEEDS, ids=lambda value: str(value)[:30])
def test_every_metric_of_the_seeds_is_documented(data: Path, seed: str, pattern: str, count: int) -> None:
    """docs/metrics.md has each metric that the documents name, by the name that they use."""
    page = (ROOT / "docs/metrics.md").read_text()
    text = (data / "seeds" / seed).read_text()
    names = {name.strip("_").rstrip("/") for name in re.findall(pattern, text, re.MULTILINE)} - _NEVER_LOGGED
    names = {name.replace("{reward_func_name}", "{reward_function}") for name in names}

    assert sorted(name for name in names if f"`{name}`" not in page) == []
    assert len(names) == count


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
