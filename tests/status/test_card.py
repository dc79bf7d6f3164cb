"""The card of a run, for a notebook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlexporter import Exporter
from rlexporter.model.snapshot import RunState
from rlexporter.status import document
from rlexporter.status.card import card
from rlexporter.status.history import History
from tests.status.runs import NOW, judged, recorded


def _seen(html: str) -> str:
    """What a person reads: the text without its tags."""
    return re.sub(r"<[^>]*>", " ", html)


@pytest.mark.parametrize(
    ("file", "word", "cause"),
    [("grpo-healthy_multi-0", "fine", "The run has finished"), ("ppo-value_nan-0", "act", "NaN or infinite")],
)
def test_it_says_how_the_run_is(data: Path, file: str, word: str, cause: str) -> None:
    """With its name, its step, and its numbers as the document has them."""
    found: dict[str, Any] = document.status(*recorded(data / "runs" / f"{file}.jsonl"))
    html = card(found, "http://127.0.0.1:9750")
    text = _seen(html)

    assert text.split()[0] == word
    assert cause in text
    assert f"{found['run']['name']} · {found['run']['algorithm']} · {found['run']['state']} · step" in text
    reward = next(each["value"] for each in found["cards"][0]["main"] if each["name"] == "reward")
    assert f"reward {reward if isinstance(reward, str) else format(reward, '.3g')}" in text
    assert 'href="http://127.0.0.1:9750/"' in html


def test_a_run_that_has_just_begun() -> None:
    """It has no step, no numbers and no page, and its card says nothing of them."""
    store = judged()
    store.enter(RunState.RUNNING)
    html = card(document.status(store.snapshot, History(), NOW), None)

    assert "test · grpo · running · step 0" in html
    assert "None" not in html
    assert "href" not in html


def test_names_are_text() -> None:
    """Whatever they are."""
    with Exporter(run="<script>alert(1)</script>", port=0) as exporter:
        exporter.log({"reward": float("nan")}, step=3)
        html = exporter._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "reward NaN" in html
    assert _seen(html).split()[0] == "act"
    assert repr(exporter).startswith("<Exporter of run <script>")
