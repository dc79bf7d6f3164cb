"""A rank that fails while others wait for it ends at once; another process serves what it saw last."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlexporter import Exporter
from tests.conftest import fetch
from tests.tools import ROOT, eventually, free_port, served

RANK = """
import sys, time
from pathlib import Path
from rlexporter import Exporter

with Exporter(run="r", port=int(sys.argv[1]), ranks="all", labels={"team": "llm"}) as exporter:
    exporter.observe("reward", [0.25, 0.75])
    exporter.log({}, step=3)
    print("ready", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.05)
    raise ValueError("dead")
"""


@contextmanager
def _rank(folder: Path, port: int, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Rank 1 of two, which fails once FOLDER/fail is there; its port is the one above."""
    told = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    command = [sys.executable, "-c", RANK, str(port - 1), str(folder / "fail")]
    with subprocess.Popen(
        command, env={**os.environ, **told, **environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "ready\n"
            yield started
        finally:
            started.kill()


def _fails(rank: subprocess.Popen[str], folder: Path) -> None:
    """And nobody has to wait for whoever serves it: its output, which others read to the end, is over too."""
    (folder / "fail").touch()
    errors = rank.communicate(timeout=600)[1]
    assert rank.returncode == 1
    assert "ValueError: dead" in errors


def _waiting(folder: Path, port: int) -> Path:
    """The socket at which who serves a failed rank hears that it shall leave."""
    return folder / f"rlexporter-{os.getuid()}" / f"{port}.sock"


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def test_what_it_saw_last_is_served_on_its_port_until_it_was_fetched(tmp_path: Path) -> None:
    """With its labels and its exception, to whoever brings the token. Then the port is free, and nothing is left."""
    port, token = free_port(), tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)

    def scrape(**credentials: str) -> tuple[int, str]:
        return fetch(f"http://127.0.0.1:{port}/metrics", **{"User-Agent": "Prometheus/3"}, **credentials)[:2]

    with _rank(tmp_path, port, RLEXPORTER_TOKEN_FILE=str(token)) as rank:
        assert scrape(Authorization="Bearer secret")[0] == 200
        _fails(rank, tmp_path)
    eventually(_waiting(tmp_path, port).exists)
    assert scrape()[0] == 401
    _, text = scrape(Authorization="Bearer secret")

    assert 'rl_run_state{rank="1",run="r",state="failed",team="llm"} 1.0' in text
    assert 'rl_run_exception_info{exception="ValueError",rank="1",run="r",team="llm"} 1.0' in text
    assert 'rl_reward_dist_bucket{le="+Inf",rank="1",run="r",team="llm"} 2.0' in text
    eventually(lambda: _is_free(port))
    eventually(lambda: not [*_waiting(tmp_path, port).parent.iterdir()])


def test_it_leaves_for_the_next_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which starts at once on the same port, as if nobody were there."""
    port = free_port()
    with _rank(tmp_path, port) as rank:
        assert served(port, "Prometheus/3")
        _fails(rank, tmp_path)
    eventually(_waiting(tmp_path, port).exists)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with Exporter(run="next", port=port, linger=0):
        assert 'run="next"' in served(port)


def test_without_a_scraper_nothing_is_started(tmp_path: Path) -> None:
    """Nobody would see it."""
    port = free_port()
    with _rank(tmp_path, port) as rank:
        _fails(rank, tmp_path)

    assert _is_free(port)
    assert not _waiting(tmp_path, port).parent.exists()
