"""The page as text: one file, its policy, its words."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

from rlexporter.status.page import POLICY, STRINGS, page
from tests.page import documents

PARTS = {each.name: each.read_text() for each in files("rlexporter.status.page").iterdir() if each.name.endswith(".js")}
SCRIPT = "\n".join(PARTS.values())


def _inside(text: str, tag: str) -> list[str]:
    """The text of all scripts or styles, which end at the first thing that looks like their end."""
    return re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}", text, re.DOTALL | re.IGNORECASE)


def _elements(text: str) -> list[tuple[str, dict[str, str | None]]]:
    """All elements of a page with their attributes."""
    found: list[tuple[str, dict[str, str | None]]] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, dict(attrs)))

    Parser().feed(text)
    return found


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_fits_the_page() -> None:
    """What a browser finds between the tags is what may run, and the page says so itself where no server does."""
    [script], [style] = _inside(page(), "script"), _inside(page(), "style")
    inside = next(own["content"] for tag, own in _elements(page()) if "http-equiv" in own and tag == "meta")

    assert f"script-src {_hash(script)};" in POLICY
    assert f"style-src {_hash(style)};" in POLICY
    assert f"{inside}; frame-ancestors 'none'" == POLICY
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none';")


def test_the_page_needs_nothing_else() -> None:
    """No address of another host, no file beside it, no handler or style in an attribute, and it is small."""
    text = page()
    for tag, attributes in _elements(text):
        assert not {each for each in attributes if each.startswith("on") or each in ("style", "src", "srcset")}, tag
        assert not re.match(r"https?:|//", attributes.get("href") or ""), tag
    assert set(re.findall(r"https?://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import", text)
    assert len(text) < 135_000


def test_data_never_becomes_markup() -> None:
    """What would make it so is not used."""
    words = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")

    assert [word for word in words if word in page()] == []


def test_data_stays_in_its_place() -> None:
    """A recorded run comes back as it was put in, whatever names it has."""
    data = documents.hostile()
    text = page(data)
    scripts = _inside(text, "script")

    assert len(scripts) == 2
    assert json.loads(scripts[0]) == data
    assert text.count("</script") == 2


def test_each_text_has_an_id_and_each_id_a_use() -> None:
    """So that what is translated is what is shown."""
    used = set(re.findall(r'\bt\(\s*"([\w.]+)"', SCRIPT)) | set(re.findall(r'data-t="([\w.]+)"', page()))
    used |= {each for pair in re.findall(r'\? "([\w.]+)" : "([\w.]+)"', SCRIPT) for each in pair if "." in each}
    used |= set(re.findall(r'\["(bad\.\w+)"', SCRIPT))
    used |= set(re.findall(r"\bstrings\.(\w+)", SCRIPT))
    families = set(re.findall(r"`([\w.]+\.)\$\{", SCRIPT))
    plain = {re.sub(r"\.(one|other)$", "", each) for each in STRINGS}

    assert {each for each in used if each not in STRINGS and each not in plain} == set()
    assert {each for each in plain if each not in used and not each.startswith(tuple(families))} == set()
