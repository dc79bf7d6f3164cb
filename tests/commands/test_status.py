"""`rlexporter status`: the verdict in words and as an exit status, over real sockets."""

from __future__ import annotations

import json
import math
import socket
import threading
from argparse import Namespace
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from rlexporter import TLS, Exporter
from rlexporter.commands import status, top
from rlexporter.commands.main import main
from rlexporter.conditions.table import CONDITION_NAMED
from tests.conftest import fetch
from tests.endpoint.test_auth import TOKEN, put
from tests.tools import eventually, free_port

REFUSED = "connection refused. Is the run still training? Its page ends with it.\n"


class _Elsewhere(BaseHTTPRequestHandler):
    """Of a server that is none of ours: the tokens that it got, and where it sends those who ask, if it does."""

    tokens: ClassVar[list[str]] = []
    location = ""
    answer = b'["hello"]'

    def do_GET(self) -> None:
        self.tokens.append(self.headers.get("Authorization", ""))
        self.send_response(302 if self.location else 200)
        self.send_header("Location", self.location)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The address of one that listens."""
    with HTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _settled(exporter: Exporter, step: int) -> None:
    """Wait until an answer is of this step: one may be shared for a moment."""
    eventually(lambda: json.loads(fetch(f"{exporter.url}/api/status")[1])["run"]["step"] == step)


def test_the_verdict_is_printed_and_is_the_exit_status(
    exporter: Exporter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With cause, step, value, limit, and what to do, all from the catalog."""
    monkeypatch.setenv("COLUMNS", "100")
    for step in range(1, 6):
        exporter.log({"reward": 0.5 + 0.1 * (step % 3), "kl": 0.01}, step=step)
    _settled(exporter, 5)
    capsys.readouterr()
    assert main(["status", exporter.url or ""]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("fine  All ")
    assert said[1:] == ["  run test: custom, running, step 5"]
    assert main(["status", "--json", f"127.0.0.1:{exporter.port}"]) == 0, "a host and port are enough of an address"
    assert json.loads(capsys.readouterr().out)["run"]["name"] == "test"

    for step in range(6, 16):
        exporter.log({"reward": 0.5, "kl": 3.5}, step=step)
    _settled(exporter, 15)
    assert main(["status", exporter.url or ""]) == 1
    said = capsys.readouterr().out.splitlines()
    kl = CONDITION_NAMED["kl_high"]
    assert said[0].startswith(f"look  {kl.summary} In step 9: 3.5 nats, limit 1.2 nats.")
    assert "  warning: RLKL (kl_high), step 9: 3.5 nats, limit 1.2 nats" in said
    assert "  what to do:" in said
    assert said[-1].endswith("/alerts/runbooks/RLKL.md")

    exporter.log({"reward": math.nan, "kl": 3.5}, step=16)
    _settled(exporter, 16)
    assert main(["status", f"{exporter.url}/metrics"]) == 2
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("act   A reward is NaN or infinite. It began in step 16.")
    assert "  critical: RLRewardLost (nonfinite_reward), step 16: 1 value NaN or infinite" in said


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("9811", "http://127.0.0.1:9811"),
        ("gpu-7", "http://gpu-7:9750"),
        ("gpu-7:80/metrics", "http://gpu-7:80"),
        ("http://gpu-7/", "http://gpu-7:9750"),
        ("https://gpu-7", "https://gpu-7:9750"),
        ("https://gpu-7:443/api/status", "https://gpu-7:443"),
        ("gpu-7:", "http://gpu-7:9750"),
        ("[::1]", "http://[::1]:9750"),
        ("[::1]:9811", "http://[::1]:9811"),
    ],
)
def test_what_is_enough_of_an_address(url: str, base: str) -> None:
    """A port of this machine, a host, or any page; the port is the usual one if none is given."""
    assert status.base(url) == base


def test_a_port_alone_is_asked(exporter: Exporter, capsys: pytest.CaptureFixture[str]) -> None:
    """As `rlexporter status 9811`."""
    capsys.readouterr()
    assert main(["status", str(exporter.port)]) == 0
    assert "  run test: " in capsys.readouterr().out


@pytest.mark.parametrize(("columns", "most"), [("50", 50), ("200", 100)])
def test_it_fits_the_terminal(
    columns: str, most: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for an address and a command, which are to be copied; a wide terminal has lines that one can read."""
    monkeypatch.setenv("COLUMNS", columns)
    with Exporter(run=" ".join(["long"] * 20), port=0, linger=0) as exporter:
        exporter.log({"reward": math.nan, "kl": 3.5}, step=1)
        _settled(exporter, 1)
        capsys.readouterr()
        assert main(["status", exporter.url or ""]) == 2
    lines = [line for line in capsys.readouterr().out.splitlines() if " " in line.strip() and " http" not in line]
    assert most - 15 < max(map(len, lines)) <= most


def test_names_do_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """No escape sequence, no line that reads backwards."""
    with Exporter(run="a\x1b[2Jb\u202ec", port=0, linger=0) as exporter:
        capsys.readouterr()
        assert main(["status", exporter.url or ""]) == 0
    assert "run a\\u001b[2Jb\\u202ec:" in capsys.readouterr().out


def test_the_token_is_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From an option, or from the variable that the exporter reads too."""
    token = put(tmp_path / "token", f"{TOKEN}\n")
    with Exporter(run="test", port=0, linger=0, token_file=token) as exporter:
        capsys.readouterr()
        assert main(["status", exporter.url or ""]) == 3
        assert "answers 401: it asks for a token (--token-file" in capsys.readouterr().err
        assert main(["status", "--token-file", str(token), exporter.url or ""]) == 0
        monkeypatch.setenv("RLEXPORTER_TOKEN_FILE", str(token))
        assert main(["status", exporter.url or ""]) == 0


def test_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With who signed the certificate, and a certificate of one's own where that is asked for."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    names = {"ca": authority.cert_pem, "cert": own.cert_chain_pems[0], "key": own.private_key_pem}
    files = {name: str(put(tmp_path / name, blob.bytes())) for name, blob in names.items()}
    tls = TLS(files["cert"], files["key"], files["ca"])
    with Exporter(run="test", port=0, linger=0, tls=tls) as exporter:
        url = exporter.url or ""
        capsys.readouterr()
        assert main(["status", url]) == 3
        assert main(["status", "--ca-file", files["ca"], url]) == 3
        own_files = ["--cert-file", files["cert"], "--key-file", files["key"]]
        assert main(["status", "--ca-file", files["ca"], *own_files, url]) == 0
        assert main(["status", "--ca-file", files["key"], url]) == 3
    assert capsys.readouterr().err.count("rlexporter: ") == 3


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/", "is no address of an exporter: it looks like http://127.0.0.1:9750"),
        ("http://", "is no address of an exporter"),
        ("host:port", "is no address of an exporter"),
        ("99999", "is no address of an exporter"),
        ("NOBODY", f"NOBODY does not answer: {REFUSED}"),
        ("127.0.0.256", "http://127.0.0.256:9750 does not answer: "),
        ("OTHER", "gives an answer that is none of rlexporter"),
    ],
)
def test_no_verdict(url: str, said: str, elsewhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 3, and one line that says why; never a traceback."""
    nobody = f"http://127.0.0.1:{free_port()}"
    assert main(["status", url.replace("NOBODY", nobody).replace("OTHER", elsewhere)]) == 3
    error = capsys.readouterr().err
    assert said.replace("NOBODY", nobody) in error
    assert "rrno" not in error, "words, no numbers"
    assert error.count("\n") == 1


@pytest.mark.parametrize("run", [{"name": "x"}, []])
def test_an_answer_of_another_version(
    run: object, elsewhere: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may lack a field: that is said in one line, here and in the row of `rlexporter top`."""
    monkeypatch.setattr(_Elsewhere, "answer", json.dumps({"run": run, "verdict": {"word": "act", "text": ""}}).encode())
    assert main(["status", elsewhere]) == 3
    assert "gives an answer of another version: " in capsys.readouterr().err
    options = Namespace(token_file=None, ca_file=None, cert_file=None, key_file=None, timeout=10.0)
    assert top.row(elsewhere, options)["why"].startswith("gives an answer of another version: ")


def test_who_does_not_answer_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    """After the time that was said."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert main(["status", "--timeout", "0.2", f"127.0.0.1:{port}"]) == 3
    assert "timed out" in capsys.readouterr().err


def test_a_redirect_is_not_followed(
    tmp_path: Path, elsewhere: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would bring the token to whatever host it names."""
    token = put(tmp_path / "token", f"{TOKEN}\n")
    monkeypatch.setattr(_Elsewhere, "location", f"{elsewhere}/api/status")
    monkeypatch.setattr(_Elsewhere, "tokens", [])
    assert main(["status", "--token-file", str(token), elsewhere]) == 3
    assert "answers 302" in capsys.readouterr().err
    assert _Elsewhere.tokens == [f"Bearer {TOKEN}"], "asked once"
