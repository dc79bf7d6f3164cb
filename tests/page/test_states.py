"""The page in a real Chromium, of runs in every state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, expect

from tests.page.browser import SIZES, Served, chromium, opened
from tests.page.documents import RUNS

EACH_RUN = [pytest.param(name, marks=() if name in ("broken", "empty") else pytest.mark.slow) for name in RUNS]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all runs."""
    with chromium() as started:
        yield started


@pytest.mark.parametrize("run", EACH_RUN)
def test_a_run_in_any_state_is_shown(browser: Browser, run: str) -> None:
    """The page has its verdict and its links, and is sound on each screen."""
    data = RUNS[run]()
    verdict = data["status"]["verdict"]
    with Served(data) as served:
        for width, scheme in SIZES:
            with opened(browser, served.url, width=width, scheme=scheme) as found:
                expect(found.page.locator("html")).to_have_attribute("data-word", verdict["word"])
                expect(found.page.locator("#links a").first).to_be_visible()
                if run != "hostile":
                    assert found.page.locator("#verdict-text").inner_text() == verdict["text"]
                found.assert_sound()
