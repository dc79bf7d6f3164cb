"""Every route, asked for with what nobody means: no answer says that something broke, and nothing is logged."""

from __future__ import annotations

import itertools
import logging
from random import Random
from urllib.parse import quote

import pytest

from rlexporter import Exporter
from rlexporter.catalog.alerts import PACK
from rlexporter.catalog.runbooks import page
from rlexporter.endpoint import turns
from tests.endpoint.test_fuzz import exchanged
from tests.endpoint.wire import ask
from tests.served import errors

ODD = [
    *("a" * 300, "A" * 5000, "RLRunFailed" + "a" * 250, "RLRunFailed.md.md", "rlrunfailed", "README", "..", ".", ""),
    *("../../../etc/passwd", "%2e%2e%2f%2e%2e", "RLRunFailed%00", "%00", "\0", "é" * 100, "%ff%fe", "%ed%a0%80", "a/b"),
    *("RLRunFailed/", "/RLRunFailed", "RLRunFailed\n", "con", "*", "?", "#", "-1", "1e999", "NaN", "9" * 4000, "nan"),
    *("\U0001f600" * 80, " ", "%20", "a" * 12000, "[" * 4000, "{}", "${jndi:x}", "__class__", "true", "null", "٣٤"),
]
PARAMETERS = ("name[]", "series", "points", "lang", "heat_maps", "earlier", "x")
ROUTES = (
    "/",
    "/livez",
    "/readyz",
    "/metrics",
    "/api/status",
    "/api/history",
    "/api/completions",
    "/runbooks/RLRunFailed",
)
HEADERS = (
    *(
        "Accept",
        "Accept-Encoding",
        "Accept-Language",
        "Authorization",
        "Cookie",
        "If-None-Match",
        "Range",
        "User-Agent",
    ),
)


@pytest.fixture
def watched(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> Exporter:
    """An exporter with something to serve, at once to whoever asks for how much."""
    monkeypatch.setattr(turns, "SHARE", 100.0)
    for step in range(5):
        exporter.log({"reward": step + 0.5, "kl": 0.1, "mine": 1.0, "rewards/f/mean": 1.0}, step=step)
    return exporter


def _requests() -> list[str]:
    paths = [f"/runbooks/{odd}" for odd in ODD] + [f"/{odd}" for odd in ODD]
    paths += [f"{route}?{parameter}={odd}" for route in ROUTES for parameter in PARAMETERS for odd in ODD]
    return paths


@pytest.mark.slow
def test_no_request_breaks_anything(watched: Exporter, caplog: pytest.LogCaptureFixture) -> None:
    """Raw and quoted, in path, query and headers."""
    with caplog.at_level(logging.INFO):
        for number, path in enumerate(_requests()):
            asked = quote(path, safe="/?=&[]") if number % 2 else path
            text = f"GET {asked} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            assert b"HTTP/1.1 5" not in exchanged(watched, text.encode("utf-8", "replace")), asked
        rng = Random(0)
        for route, header in itertools.product(ROUTES, HEADERS):
            for odd in (*ODD, "gzip;q=nan", "gzip;q=inf", "gzip;q=1_0", ";q=,;", "en;q=1e999", "zh;q=-0"):
                line = f"{header}: {odd}".encode("utf-8", "replace").replace(b"\n", b"")
                begun = f"GET {route}?{rng.choice(PARAMETERS)}=1 HTTP/1.1\r\nHost: localhost\r\n".encode()
                assert b"HTTP/1.1 5" not in exchanged(watched, begun + line + b"\r\nConnection: close\r\n\r\n")
    assert errors(watched) == 0
    assert [each for each in caplog.records if each.name.startswith(("rlexporter", "uvicorn", "asyncio"))] == []


def test_a_runbook_is_found_by_its_name_alone(watched: Exporter) -> None:
    """With or without its ending; anything else is 404, however it looks."""
    names = [file.stem for file in (PACK / "alerts/runbooks").glob("*.md")]
    assert "RLRunFailed" in names
    for name in names:
        assert ask(watched, "GET", f"/runbooks/{name}").status == 200
        assert ask(watched, "GET", f"/runbooks/{name}.md").status == 200
    for odd in ODD:
        if odd not in ("README",):
            assert page(odd) is None
    assert ask(watched, "GET", f"/runbooks/{'a' * 300}").status == 404
    assert ask(watched, "GET", "/runbooks/..%2f..%2fpyproject").status == 404


def test_a_runbook_that_is_gone(watched: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not there, and no error of ours: whoever asks cannot help it."""

    def gone(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.read_text", gone)
    assert ask(watched, "GET", "/runbooks/RLRunFailed").status == 404
    assert errors(watched) == 0
