"""The runbooks: each alert has one, in a form to be read at night; a broken mark is found with its line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlexporter.catalog import runbooks
from rlexporter.catalog.metrics import NAMED
from rlexporter.catalog.runbooks import FOLDER, LABELS, Item, Runbook, RunbookError, parse
from rlexporter.conditions.table import BY_ALERT
from rlexporter.model.metric import Kind
from scripts.pack.outside import PROMETHEUS_ALERTS
from scripts.pack.runbooks import ALERTS
from tests.programs import printed
from tests.tools import require_tools

TEXTS = {file.stem: file.read_text() for file in FOLDER.glob("RL*.md")}
BOOKS = {name: parse(text, f"{name}.md") for name, text in TEXTS.items()}
CONDITIONS = {alert: {each.name for each in conditions} for alert, conditions in BY_ALERT.items()} | {
    alert: {each.condition for each in PROMETHEUS_ALERTS if each.alert == alert and each.condition}
    for alert in {each.alert for each in PROMETHEUS_ALERTS}
}
SERVED = {f"{each.series}_bucket" if each.kind is Kind.HISTOGRAM else each.series for each in NAMED.values()}


def _queries(text: str) -> list[str]:
    (block,) = re.findall(r"^## Look\n\n```promql\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    return str(block).splitlines()


def test_each_alert_has_a_runbook_and_no_runbook_is_without_an_alert() -> None:
    """By the rules, which promtool has read."""
    assert set(BOOKS) == set(ALERTS)


@pytest.mark.parametrize("alert", sorted(BOOKS))
def test_what_to_do_comes_first(alert: str) -> None:
    """The name, what it is in one sentence, one to three steps and how sure it is, on the first lines."""
    head = [line for line in TEXTS[alert].splitlines()[:10] if line and "evidence -->" not in line]
    name, summary, *steps, sure = head[: 3 + BOOKS[alert].first]
    assert name == f"# {alert}"
    assert summary == BOOKS[alert].summary
    assert summary.endswith(".")
    assert len(steps) in (1, 2, 3)
    assert [step[:3] for step in steps] == [f"{number}. " for number in range(1, len(steps) + 1)]
    assert sure.startswith("How sure: ")


@pytest.mark.parametrize("alert", sorted(BOOKS))
def test_a_runbook_says_all_of_its_conditions(alert: str) -> None:
    """Each has a meaning, a cause and a step; marks name no other."""
    book, conditions = BOOKS[alert], CONDITIONS.get(alert, set())
    assert set(book.meaning) == conditions
    assert book.causes
    for condition in conditions:
        assert book.causes_of(condition), condition
        assert book.steps_of(condition), condition
    assert {each for item in (*book.causes, *book.steps) for each in item.conditions} <= conditions


def test_queries_are_of_series_that_there_are(tmp_path: Path) -> None:
    """One to three each; promtool reads all of them, and each asks for a series that a run serves."""
    queries = [(alert, query) for alert, text in TEXTS.items() for query in _queries(text)]
    assert {alert: 1 <= len(_queries(text)) <= 3 for alert, text in TEXTS.items()} == dict.fromkeys(TEXTS, True)
    for alert, query in queries:
        names = set(re.findall(r"\brl(?:exporter)?_\w+", query))
        assert names <= SERVED, (alert, query)
        assert names or re.search(r"\bup\b", query)
    rules = [{"record": f"query:{number}", "expr": query} for number, (_, query) in enumerate(queries)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(queries)} rules found" in printed(require_tools("3") / "promtool", "check", "rules", file)


def _terms(text: str) -> list[str]:
    return sorted(re.findall(r"`[^`]+`", text))


@pytest.mark.parametrize("code", ["vi", "zh"])
@pytest.mark.parametrize("alert", sorted(BOOKS))
def test_each_step_is_translated_and_no_other(alert: str, code: str) -> None:
    """By its id; code that is typed stays as it is, and the rest is in that language."""
    book = BOOKS[alert]
    translated = book.translations[code]
    assert set(translated) == {step.id for step in book.steps}
    for step in book.steps:
        assert _terms(translated[step.id]) == _terms(step.text), step.id
        assert translated[step.id] != step.text
    signs = "[\u4e00-\u9fff]" if code == "zh" else "[\u00c0-\u024f\u1e00-\u1eff]"
    assert [text for text in translated.values() if not re.search(signs, text)] == []


PAGE = """\
# RLX

It is so.

1. Do this. <!-- this -->

## Meaning

`x_high`: It is high.

## Causes

* *`x_high`:* A fault. <!-- fault: x_high -->

## More to try

* *GRPO, RLOO, `x_high`:* Raise `beta`. <!-- raise-beta: grpo rloo x_high -->

## 简体中文

* *GRPO, RLOO, `x_high`:* 调大 `beta`。 <!-- raise-beta -->
"""


def test_a_page_is_read() -> None:
    """The steps at its beginning, then more of them; whom they are for; translations by id."""
    book = parse(PAGE, "RLX.md")
    raise_beta = Item("raise-beta", "Raise `beta`.", ("grpo", "rloo"), ("x_high",))
    assert (book.summary, book.first, book.meaning) == ("It is so.", 1, {"x_high": "It is high."})
    assert book.steps == (Item("this", "Do this."), raise_beta)
    assert book.causes_of("x_high") == ["A fault."]
    assert book.causes_of("y_low") == []
    assert raise_beta.named(raise_beta.text) == "GRPO, RLOO: Raise `beta`."
    assert book.told(raise_beta, "zh") == "调大 `beta`。"
    assert book.told(raise_beta, "vi") == "Raise `beta`."


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (" <!-- this -->", "", "RLX.md, line 5: an item is one line that ends in its mark"),
        ("<!-- this -->", "<!-- This one -->", "RLX.md, line 5: an item is one line that ends in its mark"),
        ("<!-- this -->", "<!-- this:grpo -->", "RLX.md, line 5: an item is one line that ends in its mark"),
        (": x_high -->", ": x_hihg -->", "RLX.md, line 13: x_hihg is neither one of grpo, rloo"),
        ("<!-- this -->", "<!-- raise-beta -->", "RLX.md, line 17: raise-beta stands twice"),
        (
            "*GRPO, RLOO, `x_high`:* Raise",
            "Raise",
            "RLX.md, line 17: the mark is for GRPO, RLOO, `x_high`, the text for all",
        ),
        ("1. Do", "1. *PPO:* Do", "RLX.md, line 5: the mark is for all, the text for PPO"),
    ],
)
def test_a_broken_mark_is_found(right: str, wrong: str, said: str) -> None:
    """The message says file, line and what is wrong."""
    assert right in PAGE
    with pytest.raises(RunbookError, match=re.escape(said)):
        parse(PAGE.replace(right, wrong, 1), "RLX.md")


@pytest.mark.parametrize("text", [None, "# RLKL\n\nIt is so.\n\n1. Do this.\n"])
def test_what_cannot_be_read_is_empty(text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a run is shown without steps; nothing raises where somebody has taken the files away or broken them."""
    if text is not None:
        (tmp_path / "RLKL.md").write_text(text)
    monkeypatch.setattr(runbooks, "FOLDER", tmp_path)
    for cached in (runbooks.runbook, runbooks._files):
        cached.cache_clear()
    try:
        assert runbooks.runbook("RLKL") == Runbook()
    finally:
        for cached in (runbooks.runbook, runbooks._files):
            cached.cache_clear()


def test_a_page_is_shown_without_marks() -> None:
    """Whoever reads it need not know of them."""
    shown = runbooks.page("RLKL")
    assert shown is not None
    assert "<!--" not in shown
    assert "1. *GRPO, RLOO:* Raise `beta`.\n" in shown
    assert set(LABELS) == {"grpo", "rloo", "ppo", "ppo-legacy"}
