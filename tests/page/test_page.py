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


class Elements(HTMLParser):
    """All elements of a page with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.closed = False
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Note the text of the element that is open, if it is one of these."""
        if self.lasttag in self.texts and self.elements[-1][0] == self.lasttag and not self.closed:
            self.texts[self.lasttag].append(data)

    def handle_endtag(self, tag: str) -> None:
        """Note that an element ends."""
        self.closed = True


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_fits_the_page() -> None:
    """What a browser finds between the tags is what may run, and the page says so itself where no server does."""
    found = Elements(page())
    [script], [style] = found.texts["script"], found.texts["style"]
    inside = next(
        attributes["content"] for tag, attributes in found.elements if "http-equiv" in attributes and tag == "meta"
    )

    assert f"script-src {_hash(script)};" in POLICY
    assert f"style-src {_hash(style)};" in POLICY
    assert f"{inside}; frame-ancestors 'none'" == POLICY
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none';")


def test_the_page_needs_nothing_else() -> None:
    """No address of another host, no file beside it, no handler or style in an attribute, and it is small."""
    text = page()
    for tag, attributes in Elements(text).elements:
        assert not {each for each in attributes if each.startswith("on") or each in ("style", "src", "srcset")}, tag
        assert not re.match(r"https?:|//", attributes.get("href") or ""), tag
    assert set(re.findall(r"https?://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import", text)
    assert len(text) < 120_000


def test_data_never_becomes_markup() -> None:
    """What would make it so is not used."""
    words = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")

    assert [word for word in words if word in page()] == []


def test_data_stays_in_its_place() -> None:
    """A recorded run comes back as it was put in, whatever names it has."""
    data = documents.hostile()
    text = page(data)
    scripts = Elements(text).texts["script"]

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
