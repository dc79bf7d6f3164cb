"""Who may come in, with what, and what they learn: over real sockets."""

from __future__ import annotations

import base64
import hmac
import os
import re
import socket
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rlexporter import TLS, Discovery, Exporter
from rlexporter.config.settings import Settings
from rlexporter.endpoint import auth
from rlexporter.model.errors import SetupError
from rlexporter.model.step import RunFacts
from rlexporter.status.page import POLICY
from tests.endpoint.wire import Answer, ask, connect, ended, read, request

TOKEN = "s3cret-Token_1.~+/="
RIGHT = f"Authorization: Bearer {TOKEN}"
PATHS = (
    "/",
    "/metrics",
    "/readyz",
    "/api/status",
    "/api/history",
    "/nothing",
    "/livez/",
    "//livez",
    "/livezz",
    "/docs",
    "/openapi.json",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PROPFIND")


def put(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    """A file in one piece, as those who rotate do it."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(text.encode() if isinstance(text, str) else text)
    new.chmod(mode)
    return new.replace(path)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """A file with a token."""
    return put(tmp_path / "token", f"{TOKEN}\n")


@pytest.fixture
def guarded(token: Path) -> Iterator[Exporter]:
    """An exporter that asks for the token."""
    with Exporter(run="test", port=0, linger=0, token_file=token) as exporter:
        yield exporter


def test_without_the_token_everything_looks_the_same(guarded: Exporter) -> None:
    """401 on every path and for every method, whether there is something or not."""
    expected = _undated(ask(guarded))
    for method, path in product(METHODS, PATHS):
        found = ask(guarded, method, path)
        assert found.status == 401
        assert found.headers["www-authenticate"].startswith("Bearer, Basic realm=")
        assert found.body == (b"" if method == "HEAD" else b"unauthorized\n")
        assert _undated(found) == expected


@pytest.mark.parametrize(
    ("settings", "host", "status"),
    [
        ({}, "localhost:9750", 200),
        ({}, "127.0.0.1", 200),
        ({}, "[::1]:9750", 200),
        ({}, "rebound.example:9750", 421),
        ({}, "localhost.rebound.example", 421),
        ({}, "192.0.2.7:9750", 421),
        ({"discovery": Discovery(advertise="gpu-7.cluster:9750")}, "GPU-7.cluster:443", 200),
        ({"discovery": Discovery(advertise="gpu-7.cluster:9750")}, "gpu-8.cluster:9750", 421),
        ({"host": "0.0.0.0"}, "gpu-7.cluster:9750", 200),
    ],
)
def test_on_loopback_only_names_of_this_machine_are_answered(settings: dict[str, Any], host: str, status: int) -> None:
    """A page of any site whose name was made to mean 127.0.0.1 gets nothing (DNS rebinding), not even `/livez`."""
    with Exporter(run="r", port=0, linger=0, **settings) as exporter:
        for path in ("/", "/metrics", "/api/status", "/livez"):
            with connect(exporter) as sock:
                sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                found = read(sock)
            assert found is not None
            assert found.status == status
            assert (b"RLEXPORTER_ADVERTISE" in found.body) is (status == 421)


def test_livez_needs_no_token(guarded: Exporter) -> None:
    """For reading alone."""
    assert ask(guarded, "GET", "/livez").body == b"ok\n"
    assert [ask(guarded, method, "/livez").status for method in ("HEAD", "POST")] == [200, 401]


def _basic(credentials: str) -> str:
    return f"Authorization: Basic {base64.b64encode(credentials.encode()).decode()}"


def test_with_the_token_all_is_there(guarded: Exporter) -> None:
    """Whatever the letters of the scheme; a browser brings it as a password, with any name."""
    paths = ("/", "/metrics", "/readyz", "/api/status", "/nothing")
    brought = [f"Authorization: {scheme} {TOKEN}" for scheme in ("Bearer", "bearer", "BEARER")]
    for header in (*brought, *(_basic(f"{name}:{TOKEN}") for name in ("", "ada", "\u00e4da"))):
        assert [ask(guarded, "GET", path, header).status for path in paths] == [200, 200, 200, 200, 404]


def test_a_wrong_token_is_refused(guarded: Exporter) -> None:
    """Nearly right is wrong, and so are two."""
    wrong = [
        [f"Authorization: Bearer {TOKEN[:-1]}"],
        [f"Authorization: Bearer {TOKEN}x"],
        [f"Authorization: Bearer {TOKEN.upper()}"],
        ["Authorization: Bearer"],
        ["Authorization: Bearer "],
        ["Authorization:"],
        [f"Authorization: {TOKEN}"],
        [f"Authorization: Basic {TOKEN}"],
        [_basic(TOKEN)],
        [_basic(f"{TOKEN}:")],
        [_basic(f"ada:{TOKEN}:")],
        [_basic(f"ada:{TOKEN[:-1]}")],
        [f"{_basic(f'ada:{TOKEN}')}*"],
        ["Authorization: Basic"],
        [f"Authorization: Bearer {TOKEN} {TOKEN}"],
        ["Authorization: Bearer \xff\xfe"],
        [RIGHT, RIGHT],
        ["Authorization: Bearer wrong", RIGHT],
        [f"Proxy-Authorization: Bearer {TOKEN}"],
        [f"Cookie: token={TOKEN}"],
    ]
    assert [ask(guarded, "GET", "/metrics", *headers).status for headers in wrong] == [401] * len(wrong)


def test_tokens_are_compared_in_constant_time(guarded: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a whole, by what Python has for it."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert ask(guarded, "GET", "/", "Authorization: Bearer nearly").status == 401
    assert compared == [(b"nearly", TOKEN.encode())]


def test_a_rotated_token_counts_at_once(guarded: Exporter, token: Path) -> None:
    """The new one is right, the old one wrong; written in place or replaced."""
    put(token, "second")
    assert _statuses(guarded, "second", TOKEN) == [200, 401]
    token.write_text("third")
    assert _statuses(guarded, "third", "second") == [200, 401]


def test_a_token_is_rotated_as_kubernetes_does_it(tmp_path: Path) -> None:
    """The file is a link to a link to a folder, and that is what changes."""
    for name, text in (("first", "one"), ("second", "two")):
        (tmp_path / name).mkdir()
        put(tmp_path / name / "token", text, 0o440)
    (tmp_path / "data").symlink_to("first")
    (tmp_path / "token").symlink_to("data/token")
    with Exporter(run="test", port=0, linger=0, token_file=tmp_path / "token") as exporter:
        assert _statuses(exporter, "one", "two") == [200, 401]
        (tmp_path / "new").symlink_to("second")
        (tmp_path / "new").replace(tmp_path / "data")
        assert _statuses(exporter, "one", "two") == [401, 200]


@pytest.mark.parametrize("bad", ["", "two words", "t\u00f6ken", None])
def test_a_bad_rotation_leaves_the_last_token(guarded: Exporter, token: Path, bad: str | None) -> None:
    """It is counted once, however many ask, and what comes after it counts again."""
    if bad is None:
        token.unlink()
    else:
        put(token, bad)
    assert _statuses(guarded, TOKEN, bad or "x", TOKEN) == [200, 401, 200]
    assert guarded.snapshot.value("rlexporter_errors_total", where="auth") == 1

    put(token, "open to all", 0o644)
    assert _statuses(guarded, TOKEN, TOKEN) == [200, 200]
    assert guarded.snapshot.value("rlexporter_errors_total", where="auth") == 2

    put(token, "good")
    assert _statuses(guarded, "good", TOKEN) == [200, 401]
    assert guarded.snapshot.value("rlexporter_errors_total", where="auth") == 2


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("good", 0o644, "everybody on this machine may read it: chmod 600 .*token .Kubernetes: defaultMode: 0440."),
        ("good", 0o604, "everybody"),
        ("", 0o600, "it is empty"),
        (" \n", 0o600, "it is empty"),
        ("two words", 0o600, "one word of ASCII"),
        ("two\nlines", 0o600, "one word of ASCII"),
        ("t\u00f6ken", 0o600, "one word of ASCII"),
        ("\ufefftoken", 0o600, "one word of ASCII"),
        ("x" * 4097, 0o600, "at most 4096"),
    ],
)
def test_an_unusable_token_file_is_a_setup_error(tmp_path: Path, text: str, mode: int, reason: str) -> None:
    """It says which file, what is wrong and where it was named."""
    path = put(tmp_path / "token", text, mode)
    with pytest.raises(SetupError, match=f"{re.escape(str(path))}: .*{reason}.*argument token_file, RLEXPORTER_TOKEN"):
        _guards(token_file=path)


@pytest.mark.parametrize(
    ("named", "settings"),
    [("token_file", lambda path: {"token_file": path}), ("TLS(cert_file=...)", lambda path: {"tls": TLS(path)})],
    ids=["token", "certificate"],
)
def test_a_file_that_is_not_there_is_a_setup_error(
    tmp_path: Path, named: str, settings: Callable[[Path], dict[str, Any]]
) -> None:
    """Nor is a folder or a pipe a file."""
    with pytest.raises(SetupError, match=f"No such file or directory .argument {re.escape(named)}, "):
        _guards(**settings(tmp_path / "missing"))
    with pytest.raises(SetupError, match="it is a folder, not a regular file"):
        _guards(**settings(tmp_path))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(SetupError, match="it is a pipe, not a regular file"):
        _guards(**settings(tmp_path / "pipe"))


@pytest.mark.parametrize("fallback", [False, True])
def test_an_exporter_does_not_start_unguarded(token: Path, fallback: bool) -> None:
    """Not inside a trainer either; and the port stays free."""
    token.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    exporter = Exporter(run="test", port=port, token_file=token)
    with pytest.raises(SetupError, match="chmod 600"):
        exporter.start(fallback=fallback)
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_path_stays_what_it_was(token: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A training may change its working directory."""
    monkeypatch.chdir(tmp_path)
    with Exporter(run="test", port=0, linger=0, token_file="token") as exporter:
        monkeypatch.chdir("/")
        put(token, "second")
        assert _statuses(exporter, "second", TOKEN) == [200, 401]


def test_no_body_is_read(guarded: Exporter) -> None:
    """The answer does not wait for it, and the connection ends."""
    bodies = (
        "Content-Length: 1000000000000",
        "Transfer-Encoding: chunked",
        "Content-Length: 5\r\nExpect: 100-continue",
    )
    credentials: list[list[str]] = [[], [RIGHT]]
    for header, method, sent in product(bodies, ("GET", "POST"), credentials):
        with connect(guarded) as sock:
            sock.sendall(request(method, "/metrics", header, *sent))
            found = read(sock)
            assert found
            assert found.status == (413 if sent else 401)
            assert found.headers["connection"] == "close"
            assert ended(sock)


def test_a_head_is_bounded(guarded: Exporter) -> None:
    """In one piece too, with the token and without."""
    for header in ("X-Long: " + "x" * 100_000, "\r\n".join(f"X-{i}: {i}" for i in range(10_000))):
        for credentials in ([], [RIGHT]):
            with connect(guarded) as sock:
                sock.sendall(request("GET", "/metrics", *credentials, header))
                found = read(sock)
                assert found is None or found.status == 400
    assert ask(guarded, "GET", "/metrics", RIGHT, "X-Long: " + "x" * 10_000).status == 200


def test_every_answer_carries_the_headers(guarded: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that keep a browser from doing more than showing it; and nothing names the server."""
    found = [ask(guarded), ask(guarded, "POST", "/", RIGHT), ask(guarded, "GET", "/", RIGHT, "Content-Length: 5")]
    found += [ask(guarded, "GET", path, RIGHT) for path in ("/", "/metrics", "/livez", "/nothing")]
    monkeypatch.setattr("rlexporter.endpoint.app.takes_gzip", lambda _: 1 / 0)
    found.append(ask(guarded, "GET", "/", RIGHT))

    assert [answer.status for answer in found] == [401, 405, 413, 200, 200, 200, 404, 500]
    for answer in found:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


MARK = "M4rker"


def test_nothing_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer has a word of the environment, of paths, of prompts and completions, or of an error's text."""
    monkeypatch.setenv("HF_TOKEN", f"{MARK}-environment")
    folder = tmp_path / f"{MARK}-folder"
    folder.mkdir()
    token = put(folder / "token", "right")
    files: dict[str, Any] = {"token_file": token, "record": folder / "log.jsonl", "state_file": str(folder / "state")}
    with Exporter(port=0, linger=0, discovery=folder, **files) as exporter:
        exporter.run.begin(RunFacts(run_name="test", output_dir=f"{folder}/out", resumed_from=f"{folder}/c-1"))
        exporter.log({"reward": 1.0, "prompt": f"{MARK} prompt", "completions": [f"{MARK} completion"]}, step=1)
        with exporter.run.sink.observing("kl"):
            _fail(f"{MARK}: a reward function failed in {folder}")
        put(token, f"two {MARK}")
        answers = _every_answer(exporter)
        exporter.end(RuntimeError(f"{MARK} {folder}"))
        answers += _every_answer(exporter)
        monkeypatch.setattr("rlexporter.endpoint.app.takes_gzip", lambda _: int(f"{MARK} {folder}"))
        monkeypatch.setattr("rlexporter.outputs.prometheus.encode", lambda *_: int(f"{MARK} {folder}"))
        answers += _every_answer(exporter)

    assert {answer.status for answer in answers} == {200, 401, 404, 500}
    for answer in answers:
        text = str(answer.headers) + answer.body.decode()
        assert MARK not in text
        assert "Traceback" not in text
        assert str(Path.home()) not in text
        assert os.fspath(tmp_path) not in text


def _every_answer(exporter: Exporter) -> list[Answer]:
    right = "Authorization: Bearer right"
    found = [
        ask(exporter, "GET", path, right)
        for path in ("/", "/metrics", "/livez", "/readyz", "/api/status", f"/x{MARK[0]}")
    ]
    return [*found, ask(exporter), ask(exporter, "GET", "/metrics", right, "Accept: application/openmetrics-text")]


def _fail(text: str) -> None:
    raise RuntimeError(text)


def _undated(answer: Answer) -> dict[str, str]:
    return {name: text for name, text in answer.headers.items() if name != "date"}


def _statuses(exporter: Exporter, *tokens: str) -> list[int]:
    headers = [f"Authorization: Bearer {token}".encode().decode("latin-1") for token in tokens]
    return [ask(exporter, "GET", "/metrics", header).status for header in headers]


def _guards(**files: object) -> auth.Guards:
    return auth.guards(Settings.load(files, {}), lambda error: None)
