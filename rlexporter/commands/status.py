"""`rlexporter status`: prints the verdict on a run that is being served, and says it by the exit status too.

The exporter is asked over HTTP, by the standard library alone; `rlexporter top` asks in the same way.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlexporter.atomic_file import read_regular
from rlexporter.config.settings import DEFAULT_PORT
from rlexporter.model.errors import SetupError
from rlexporter.model.incident import WORDS
from rlexporter.status.samples import COUNTED, quantity
from rlexporter.status.steps import ADDRESS
from rlexporter.terminal import shown, wrapped

HERE = f"http://127.0.0.1:{DEFAULT_PORT}"
URL_HELP = f"an address, a host (port {DEFAULT_PORT}), or a port of this machine (default: {HERE})"
"""What the help says of the argument for an exporter."""
_MOST_BYTES = 1 << 26
_MOST_FILE_BYTES = 1_000_000
_UNREACHABLE = 3
_WIDEST = 100
_ADVICE = {
    401: ": it asks for a token (--token-file, RLEXPORTER_TOKEN_FILE)",
    404: ": is this an rlexporter, and one that has this page?",
}
"""By status of HTTP, what the message adds."""
_EPILOG = """\
exit status:
  0 fine, 1 look: a warning, 2 act: something critical, or the run has failed or hangs, 3 there is no verdict:
  nobody answers, or the answer cannot be used. A mistake in the arguments is 2, as in any command.
"""


class UnreachableError(Exception):
    """An exporter gave no usable answer; the message says why, in one line."""


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command."""
    parser.epilog = _EPILOG
    parser.add_argument("url", nargs="?", default=HERE, metavar="URL", help=f"its exporter: {URL_HELP}")
    parser.add_argument("--json", action="store_true", help="print the whole answer, as docs/api.md describes it")
    add_access_to(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Print the verdict; return the exit status."""
    try:
        document = asked(options.url, options)
        with reading(options.url):
            text = json.dumps(document, indent=1) if options.json else "\n".join(lines(document, base(options.url)))
    except (UnreachableError, SetupError) as error:
        print(f"rlexporter: {shown(error)}", file=sys.stderr)
        return _UNREACHABLE
    print(text)
    word = document["verdict"].get("word")
    return WORDS.index(word) if word in WORDS else _UNREACHABLE


def lines(document: Mapping[str, Any], address: str) -> Iterator[str]:
    """Yield the lines of the ``document`` from this address for a person, without control characters."""
    verdict, run = document["verdict"], document["run"]
    yield from _wrapped(f"{verdict['word']:5} {verdict['text']}")
    planned = "" if run["steps_planned"] is None else f" of {run['steps_planned']}"
    step = "" if run["step"] is None else f", step {run['step']}{planned}"
    yield from _wrapped(f"  run {run['name']}: {run['algorithm'] or 'unknown'}, {run['state']}{step}")
    for name in verdict["conditions"]:
        for condition in document["conditions"]:
            if condition["name"] != name:
                continue
            value, limit, unit = condition["value"], condition["threshold"], condition["signal_unit"]
            of = f" of {condition['subject']}" if condition.get("subject") else ""
            text = f"  {condition['severity']}: {condition['alert']} ({name}){of}, step {condition['step']}"
            if isinstance(value, (int, float)) and isinstance(limit, (int, float)):
                text += f": {quantity(value, unit)}{' NaN or infinite' if unit == 'values' else ''}"
                text += "" if unit in COUNTED else f", limit {quantity(limit, unit)}"
            yield from _wrapped(text if condition["holds"] else f"{text}; {condition['standing']}")
    steps = verdict.get("steps") or [{"text": text} for text in verdict["actions"]]  # of an older exporter
    if steps:
        yield "  what to do:"
    for place, step in enumerate(steps, 1):
        yield from _wrapped(f"    {place}. {step['text']}")
        if step.get("command"):
            yield f"         {shown(step['command'].replace(ADDRESS, address))}"
    if verdict["runbook"]:
        yield f"  {shown(verdict['runbook'])}"


def _wrapped(text: str) -> list[str]:
    columns = shutil.get_terminal_size((_WIDEST, 24)).columns
    return wrapped(shown(text), min(columns, _WIDEST), later=" " * 6)


def add_access_to(parser: Any) -> None:
    """Add the options that say how to reach an exporter to a ``parser`` of arguments."""
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        default=os.environ.get("RLEXPORTER_TOKEN_FILE") or None,
        help="the token that the exporter asks for (default: RLEXPORTER_TOKEN_FILE)",
    )
    parser.add_argument(
        "--ca-file", metavar="FILE", help="who signed its certificate (default: those of the system; SSL_CERT_FILE)"
    )
    parser.add_argument("--cert-file", metavar="FILE", help="your own certificate, where it asks for one")
    parser.add_argument("--key-file", metavar="FILE", help="the key of that certificate")
    parser.add_argument(
        "--timeout", type=seconds, default=10.0, metavar="SECONDS", help="give up on an answer (default: 10)"
    )


def headers(options: argparse.Namespace) -> dict[str, str]:
    """Return the headers with the token. Raises SetupError if the file cannot be read."""
    if not options.token_file:
        return {}
    try:
        token = read_regular(Path(options.token_file).expanduser(), _MOST_FILE_BYTES).decode("ascii").strip()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a home that nobody knows
        raise SetupError(f"cannot use {options.token_file}: {getattr(error, 'strerror', '') or error}") from None
    return {"Authorization": f"Bearer {token}"}


def tls(options: argparse.Namespace) -> ssl.SSLContext:
    """Return the settings of TLS. Raises SetupError for unusable files."""
    try:
        for file in filter(None, (options.ca_file, options.cert_file, options.key_file)):
            read_regular(file, _MOST_FILE_BYTES)  # OpenSSL would wait for whoever writes to a pipe
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file:
            context.load_cert_chain(options.cert_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (options.ca_file, options.cert_file, options.key_file)))
        raise SetupError(f"cannot use {files}: {error.strerror or error}") from None
    return context


def seconds(text: str) -> float:
    """Return a time as an argument gives it. Raises argparse.ArgumentTypeError."""
    number = float(text)
    if not 0 < number <= 600:
        raise argparse.ArgumentTypeError("must be above 0, and at most 600")
    return number


def base(url: str) -> str:
    """Return the address of an exporter from that of any of its pages, a host with or without a port, or a port here.

    Raises SetupError for anything else.
    """
    here = f"127.0.0.1:{url}" if url.isdecimal() else url
    try:
        parts = urllib.parse.urlsplit(here if "://" in here else f"http://{here}")
        port = "" if parts.port is not None else f":{DEFAULT_PORT}"
    except ValueError:  # such as a port that is no number
        parts, port = urllib.parse.urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SetupError(f"{url!r} is no address of an exporter: it looks like {HERE}")
    return f"{parts.scheme}://{parts.netloc.removesuffix(':')}{port}"


def asked(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the answer of `/api/status` of the exporter at ``url``; ``options``: those that `add_access_to` adds.

    Raises:
        SetupError: the address or a file cannot be used.
        UnreachableError: there is no answer, or it is not that of an exporter.
    """
    exporter = base(url)
    address = f"{exporter}/api/status"
    handlers = (_NoRedirects(), urllib.request.HTTPSHandler(context=tls(options)))
    request = urllib.request.Request(address, headers={**headers(options), "User-Agent": "rlexporter"})  # noqa: S310
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=options.timeout) as answer:
            content = answer.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            raise UnreachableError(f"{address} answers {error.code}{_ADVICE.get(error.code, '')}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UnreachableError(f"{exporter} does not answer: {_why(reason)}") from None
    document = None
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(content)
    if not isinstance(document, dict) or not isinstance(document.get("verdict"), dict):
        raise UnreachableError(f"{address} gives an answer that is none of rlexporter")
    return document


@contextlib.contextmanager
def reading(url: str) -> Iterator[None]:
    """Raise UnreachableError if the block cannot read the answer of the exporter at ``url``.

    An exporter of another version may leave a field out, or give another kind of value.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else error
        raise UnreachableError(f"{base(url)}/api/status gives an answer of another version: {why}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would hand the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Return None: an error then says what was answered."""


def _why(reason: object) -> str:
    """Return the ``reason`` in words, without the number of the error."""
    if isinstance(reason, ConnectionRefusedError):
        return "connection refused. Is the run still training? Its page ends with it."
    words = reason.strerror if isinstance(reason, OSError) and not isinstance(reason, ssl.SSLError) else None
    return f"{words[:1].lower()}{words[1:]}" if words else str(reason)
