"""TLS, and client certificates, from files that are read again when they are rotated."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from rlexporter.endpoint.credentials import Reread, contents, is_key, unusable


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of certificate, key and client CAs. Without ``key`` the key is in the file of the certificate."""

    cert: str
    key: str | None = None
    client_ca: str | None = None

    @property
    def paths(self) -> list[str]:
        """Return all paths that are set."""
        return [path for path in (self.cert, self.key, self.client_ca) if path]


def context(files: Files, failed: Callable[[Exception], None]) -> ssl.SSLContext:
    """Return a server's context that follows its ``files``. Raises SetupError if they cannot be used.

    Each handshake checks whether they have changed. Existing connections stay as they are.
    """
    current = Reread(files.paths, lambda: _read(files), failed)

    def choose(connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        found = current.get()
        if found is not first:
            connection.context = found

    entrance = current.get()
    entrance.sni_callback = choose  # called without a server name too
    return entrance


def _read(files: Files) -> ssl.SSLContext:
    key, key_setting = (files.key, "tls_key_file") if files.key else (files.cert, "tls_cert_file")
    contents(files.cert, "tls_cert_file")
    if not is_key(contents(key, key_setting)):
        raise unusable(key, key_setting, "there is no private key in PEM form in it")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION

    def no_passphrase() -> str:
        raise unusable(key, key_setting, "it is encrypted, and nobody can be asked for its passphrase")

    try:
        made.load_cert_chain(files.cert, files.key, password=no_passphrase)
    except ssl.SSLError as error:
        mismatch = error.reason == "KEY_VALUES_MISMATCH"
        reason = f"the key in {key} is not its own" if mismatch else "there is no certificate in PEM form in it"
        raise unusable(files.cert, "tls_cert_file", reason) from None
    if files.client_ca:
        contents(files.client_ca, "tls_client_ca_file")
        try:
            made.load_verify_locations(files.client_ca)
        except ssl.SSLError:
            raise unusable(files.client_ca, "tls_client_ca_file", "there is no certificate in PEM form in it") from None
        made.verify_mode = ssl.CERT_REQUIRED
        # A resumed session could admit a client whose certificate is no longer accepted; only TLS 1.3 can refuse it.
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.num_tickets = 0
    return made
