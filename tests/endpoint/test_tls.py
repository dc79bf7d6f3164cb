"""TLS and client certificates, from files that are rotated while the endpoint serves."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from rlexporter import TLS, Exporter
from rlexporter.config.settings import Settings
from rlexporter.endpoint import auth
from rlexporter.model.errors import SetupError
from tests.endpoint.test_auth import put
from tests.endpoint.wire import connect, read, request
from tests.tools import GENERATIONS, eventually, prometheus


@dataclass
class Files:
    """The endpoint's files, and those who signed what is in them."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)
    clients: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.rotate_server(self.authority)
        self.rotate_clients(self.clients)

    def rotate_server(self, authority: trustme.CA) -> None:
        """Another certificate and key."""
        self.authority, issued = authority, authority.issue_cert("127.0.0.1", "localhost")
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        put(self.folder / "cert", chain, 0o644)
        put(self.folder / "key", issued.private_key_pem.bytes())
        put(self.folder / "both", issued.private_key_pem.bytes() + chain)

    def rotate_clients(self, clients: trustme.CA) -> None:
        """Somebody else signs clients now."""
        self.clients = clients
        put(self.folder / "clients", clients.cert_pem.bytes(), 0o644)

    def settings(self, *, mutual: bool = False) -> dict[str, Any]:
        """Of an exporter that uses them."""
        return {"tls": TLS(self.folder / "cert", self.folder / "key", self.folder / "clients" if mutual else None)}

    def context(self, *, client: bool = False) -> ssl.SSLContext:
        """A client that trusts the server, with a certificate of its own or without one."""
        found = ssl.create_default_context()
        self.authority.configure_trust(found)
        if client:
            self.clients.issue_cert("prometheus").configure_cert(found)
        return found


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Good ones."""
    return Files(tmp_path)


@pytest.fixture
def served(files: Files) -> Iterator[Exporter]:
    """An exporter with TLS."""
    with Exporter(run="test", port=0, linger=0, **files.settings()) as exporter:
        yield exporter


@pytest.fixture
def mutual(files: Files) -> Iterator[Exporter]:
    """An exporter that wants to see a certificate."""
    with Exporter(run="test", port=0, linger=0, **files.settings(mutual=True)) as exporter:
        yield exporter


def attempt(exporter: Exporter, context: ssl.SSLContext, name: str | None = "127.0.0.1") -> str:
    """What comes of a scrape: its status, or `refused` by one of the two."""
    try:
        with connect(exporter) as raw, context.wrap_socket(raw, server_hostname=name) as sock:
            sock.sendall(request())
            found = read(sock)
    except (ssl.SSLError, ConnectionError):
        return "refused"
    return str(found.status) if found else "refused"


def test_tls(served: Exporter, files: Files) -> None:
    """The certificate is the file's, with its key in one file too; who speaks plain HTTP learns nothing."""
    assert served.url == f"https://127.0.0.1:{served.port}"
    assert attempt(served, files.context()) == "200"
    assert attempt(served, ssl.create_default_context()) == "refused"
    with connect(served) as sock:
        sock.sendall(request())
        assert sock.recv(100)[:4] != b"HTTP"
    assert served.snapshot.value("rlexporter_errors_total", where="scrape") is None
    with Exporter(run="test", port=0, linger=0, tls=TLS(files.folder / "both")) as exporter:
        assert attempt(exporter, files.context()) == "200"


def test_old_protocols_are_refused(served: Exporter, mutual: Exporter, files: Files) -> None:
    """TLS 1.2 is the oldest; with client certificates 1.3, since a session of before cannot be looked at again."""
    context = files.context(client=True)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert attempt(served, context) == "200"
    assert attempt(mutual, context) == "refused"
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    assert attempt(served, context) == "refused"


def test_who_has_no_certificate_is_refused(mutual: Exporter, files: Files) -> None:
    """Nor is one that somebody else has signed any good."""
    assert attempt(mutual, files.context(client=True)) == "200"
    assert attempt(mutual, files.context()) == "refused"
    stranger = files.context()
    trustme.CA().issue_cert("prometheus").configure_cert(stranger)
    assert attempt(mutual, stranger) == "refused"
    with (
        connect(mutual) as raw,
        files.context().wrap_socket(raw, server_hostname="127.0.0.1") as sock,
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
    ):
        sock.recv(1)


@pytest.mark.parametrize("name", ["localhost", None])
def test_a_rotated_certificate_counts_at_once(served: Exporter, files: Files, name: str | None) -> None:
    """Whether the client says which name it wants or not; a connection that is there stays."""
    old = files.context()
    old.check_hostname = name is not None
    with connect(served) as raw, old.wrap_socket(raw, server_hostname=name) as kept:
        files.rotate_server(trustme.CA())
        new = files.context()
        new.check_hostname = name is not None
        assert attempt(served, new, name) == "200"
        assert attempt(served, old, name) == "refused"
        kept.sendall(request())
        assert read(kept)
    assert served.snapshot.value("rlexporter_errors_total", where="auth") is None


def test_rotated_client_authorities_count_at_once(mutual: Exporter, files: Files) -> None:
    """The new one's clients come in, the old one's do not, not even by a session that they had."""
    old = files.context(client=True)
    assert _session(mutual, old) == (False, False)
    files.rotate_clients(trustme.CA())
    assert attempt(mutual, files.context(client=True)) == "200"
    assert attempt(mutual, old) == "refused"


def test_a_bad_rotation_leaves_what_was_there(mutual: Exporter, files: Files) -> None:
    """Each is counted once, and the next good one counts again."""
    contents: list[bytes | None] = [b"rubbish", b"", None]
    for count, (bad, content) in enumerate(product(("cert", "key", "clients"), contents), 1):
        if content is None:
            (files.folder / bad).unlink()
        else:
            put(files.folder / bad, content)
        before = files.context(client=True)
        assert [attempt(mutual, before) for _ in range(2)] == ["200"] * 2
        assert mutual.snapshot.value("rlexporter_errors_total", where="auth") == count

        files.rotate_server(trustme.CA())
        files.rotate_clients(trustme.CA())
        assert attempt(mutual, before) == "refused"
        assert attempt(mutual, files.context(client=True)) == "200"
        assert mutual.snapshot.value("rlexporter_errors_total", where="auth") == count


def test_unusable_files_are_setup_errors(files: Files) -> None:
    """Each says which file, what is wrong, and what to do."""
    folder, tls = files.folder, files.settings(mutual=True)["tls"]
    other = trustme.CA().issue_cert("127.0.0.1").private_key_pem.bytes()
    put(folder / "other", other)
    put(folder / "locked", _locked(other))
    put(folder / "rubbish", "rubbish")
    put(folder / "broken", (folder / "cert").read_bytes()[:300])
    put(folder / "open", (folder / "both").read_bytes(), 0o644)

    _refuses("cert: the key in [^ ]*/other is not its own", replace(tls, key_file=folder / "other"))
    _refuses("locked: .* nobody can be asked for its passphrase", replace(tls, key_file=folder / "locked"))
    _refuses("rubbish: there is no private key", replace(tls, key_file=folder / "rubbish"))
    _refuses("broken: there is no certificate", replace(tls, cert_file=folder / "broken"))
    _refuses("rubbish: there is no certificate", replace(tls, cert_file=folder / "rubbish"))
    _refuses("rubbish: there is no certificate", replace(tls, client_ca_file=folder / "rubbish"))
    _refuses("missing: No such file", replace(tls, client_ca_file=folder / "missing"))
    _refuses("cert: there is no private key", TLS(cert_file=folder / "cert"))
    _refuses("open: everybody .* chmod 600", TLS(cert_file=folder / "open"))
    _refuses("open: everybody .* chmod 600", TLS(cert_file=folder / "open", key_file=folder / "key"))
    _refuses("/key is of no use without a certificate", TLS(key_file=folder / "key"))
    _refuses("/clients is of no use without a certificate", TLS(client_ca_file=folder / "clients"))
    (folder / "key").chmod(0o604)
    _refuses("key: everybody on this machine may read it: chmod 600 .*/key", tls)
    (folder / "key").chmod(0o440)
    auth.guards(Settings.load({"tls": tls}, {}), lambda error: None)


@pytest.mark.slow
@pytest.mark.waits
def test_prometheus_scrapes_with_everything(files: Files, tmp_path: Path) -> None:
    """Token, TLS and a certificate of its own."""
    token = put(tmp_path / "token", "s3cret")
    issued = files.clients.issue_cert("prometheus")
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    tls = {
        "ca_file": put(tmp_path / "authority", files.authority.cert_pem.bytes()),
        "cert_file": put(tmp_path / "own-cert", chain),
        "key_file": put(tmp_path / "own-key", issued.private_key_pem.bytes()),
    }
    scrape = {
        "scheme": "https",
        "authorization": {"credentials_file": str(token)},
        "tls_config": {name: str(path) for name, path in tls.items()},
    }
    with Exporter(run="test", port=0, linger=0, token_file=token, **files.settings(mutual=True)) as exporter:
        exporter.log({"reward": 1.5}, step=1)
        with prometheus(GENERATIONS[-1], tmp_path, [f"127.0.0.1:{exporter.port}"], scrape=scrape) as server:
            eventually(lambda: server.value("rl_reward_mean") == 1.5)
            exporter.log({"reward": 2.5}, step=2)
            eventually(lambda: server.value("rl_reward_mean") == 2.5)


def _session(exporter: Exporter, context: ssl.SSLContext) -> tuple[bool, bool]:
    """Whether a second connection resumes the first one's session, and whether that had a ticket."""
    session: ssl.SSLSession | None = None
    found = []
    for _ in range(2):
        with connect(exporter) as raw, context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as sock:
            sock.sendall(request())
            assert read(sock)
            session = sock.session
            found.append(bool(sock.session_reused))
    return found[1], bool(session and session.has_ticket)


def _refuses(reason: str, tls: TLS) -> None:
    with pytest.raises(SetupError, match=reason):
        auth.guards(Settings.load({"tls": tls}, {}), lambda error: None)


def _locked(key: bytes) -> bytes:
    kept = serialization.load_pem_private_key(key, None)
    form, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return kept.private_bytes(form, plain, serialization.BestAvailableEncryption(b"secret"))
