"""Real attacks by strangers, in processes of their own: who brings the token is answered, new connections or kept."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from benchmarks.measure import cpu_of
from benchmarks.strangers import attacked, scraper, secured
from rlexporter import Exporter
from rlexporter.endpoint import turns
from rlexporter.endpoint.connections import Connection, Listener
from rlexporter.endpoint.reception import Reception
from tests.served import errors

SCRAPES = 12


@pytest.mark.parametrize(
    ("attack", "address"),
    [
        pytest.param("half", "127.0.0.1", id="half handshakes and slow ones, from the address of the scraper"),
        pytest.param("half", "127.0.0.2", id="the same from another address"),
        pytest.param("halves", "127.0.0.2", id="ten times as many"),
        pytest.param("wrong", "127.0.0.1", id="wrong tokens"),
        pytest.param("knock", "127.0.0.2", id="new connections without a pause", marks=pytest.mark.slow),
    ],
)
def test_no_scrape_is_lost(monkeypatch: pytest.MonkeyPatch, attack: str, address: str) -> None:
    """With ten seconds each, as Prometheus has; nothing counts as an error, and strangers are kept to their tenth."""
    monkeypatch.setattr(turns, "BURST_SECONDS", 0.1)
    with secured() as (settings, authority), Exporter(run="r", port=0, linger=0, **settings) as exporter:
        exporter.log({"reward": 1.0}, step=1)
        port = exporter.port or 0
        with scraper(port, authority, SCRAPES) as scrape, attacked(port, attack, address):
            time.sleep(2)
            began, used = time.monotonic(), cpu_of("rlexporter-http")
            found = scrape()
            share = (cpu_of("rlexporter-http") - used) / (time.monotonic() - began)
    assert [len(found.new), len(found.kept)] == [SCRAPES] * 2
    assert None not in found.new
    assert None not in found.kept
    assert errors(exporter) == 0
    assert share < 2.5 * turns.SHARE  # theirs and ours, each with a tenth, and what the kernel counts in ticks


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="this kernel does not tell how many wait")
@pytest.mark.parametrize(("others", "looked_at"), [(40, False), (100, True)])
def test_a_queue_in_front_of_who_is_known_is_never_long(others: int, looked_at: bool) -> None:
    """While strangers wait for turns others wait in the kernel; but 64 that come a second must not cost a scrape 8."""
    asked: list[Connection] = []
    waiting = SimpleNamespace(
        charge=lambda client: None,
        clock=time.monotonic,
        hosts=turns.Hosts(),
        strangers=SimpleNamespace(waiting=99, left=-1.0),
        ask=lambda connection, work: asked.append(connection),
    )
    loop = SimpleNamespace(add_reader=lambda *_: None, remove_reader=lambda *_: None, call_later=lambda *_: None)
    with ExitStack() as stack:
        listener = stack.enter_context(Listener(socket.create_server(("127.0.0.1", 0))))
        reception = Reception(listener, waiting, lambda connection: None, lambda error: None)  # type: ignore[arg-type]
        reception.open(loop)  # type: ignore[arg-type]
        for _ in range(others):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        reception._accept()
        listener.connections.close()

    assert bool(asked) == looked_at
