"""A real Chromium, and a server of the page whose answers a test chooses."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from rlexporter.status.page import POLICY, page
from tests.tools import answering, require_tool

Json = dict[str, Any]
SIZES = [(1400, "light"), (390, "dark")]
"""Screens that a page is tried on: their width, and their colors."""
_GRAVE = ("serious", "critical")
expect.set_options(timeout=600_000)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of `make tools`; the test is skipped where there is none."""
    binary = require_tool("chromium")
    environ: dict[str, str | float | bool] = {
        **os.environ,
        "LD_LIBRARY_PATH": str(binary.parent / "lib"),
        "FONTCONFIG_FILE": str(binary.parent / "fonts.conf"),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=binary, args=["--no-sandbox", "--disable-gpu"], env=environ, timeout=600_000
        )
        yield browser
        browser.close()


@dataclass
class Served:
    """The page and its two documents on a loopback port, with the policy of the endpoint."""

    data: Json
    status: int = 200
    port: int = 0
    asked: list[tuple[float, str]] = field(default_factory=list)
    """What it was asked for, and when."""
    _open: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.port}/"

    def times(self, path: str) -> list[float]:
        """When it was asked for what begins so."""
        return [at for at, asked in list(self.asked) if asked.startswith(path)]

    def answer(self, path: str) -> tuple[str, str]:
        """What is at a path, with its type."""
        if path == "/":
            return page(), "text/html; charset=utf-8"
        name = path.removeprefix("/api/")
        return json.dumps(self.data.get(name, {"most": 0, "best": [], "worst": [], "last": []})), "application/json"

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, on the same port as before if there was one."""

        def show(asked: BaseHTTPRequestHandler) -> None:
            self.asked.append((time.monotonic(), asked.path))
            body, kind = self.answer(asked.path.split("?")[0])
            asked.send_response(200 if asked.path == "/" else self.status)
            asked.send_header("Content-Type", kind)
            asked.send_header("Content-Security-Policy", POLICY)
            asked.end_headers()
            asked.wfile.write(body.encode())

        self.port = self._open.enter_context(answering(show, self.port))

    def stop(self) -> None:
        """Let go of the port: nobody answers there any more."""
        self._open.close()


@dataclass
class Watched:
    """A page, and what it should not have done."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def assert_sound(self) -> None:
        """No complaint of the browser or of axe-core, no request elsewhere, nothing wider than the screen."""
        found = [each for each in Axe().run(self.page).response["violations"] if each["impact"] in _GRAVE]
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert self.complaints == []


@contextmanager
def opened(
    browser: Browser, url: str, *, width: int = 1400, scheme: Any = "light", locale: str = "en", **options: Any
) -> Iterator[Watched]:
    """A page that is open. Errors, messages of the console, dialogs and requests to elsewhere are noted."""
    size: Any = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme, locale=locale, **options)
    context.set_default_timeout(600_000)
    watched = Watched(context.new_page())
    note = watched.complaints.append
    watched.page.on("console", lambda message: note(f"console: {message.text}"))
    watched.page.on("pageerror", lambda error: note(f"error: {error}"))

    def dismiss(dialog: Dialog) -> None:
        note("dialog")
        dialog.dismiss()

    watched.page.on("dialog", dismiss)
    watched.page.on(
        "request", lambda request: note(request.url) if not request.url.startswith((url, "data:")) else None
    )
    watched.page.goto(url)
    yield watched
    context.close()
