"""What one client that floods the endpoint costs a training beside it."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.pages import Loop, loop, running, spread

_ROUNDS = 3
_BURST_SECONDS = 4.0
_FLOODER = """
import socket, sys
port, path, header = int(sys.argv[1]), *sys.argv[2:]
asked = f"GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\n{header}\\r\\n".encode()
print("flooding", flush=True)
while True:
    try:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            while True:
                sock.sendall(asked * 4)
                if not sock.recv(1 << 20):
                    break
    except OSError:
        pass
"""
_NAMES = "&".join(f"name[]=rl_reward_mean{number}" for number in range(100))
_FLOODS = {
    "`/livez`": ("/livez", "", False),
    "`/metrics` without the token": ("/metrics", "", True),
    "`/metrics`": ("/metrics", "", False),
    "100 times `name[]`": (f"/metrics?{_NAMES}", "", False),
    "a connection for each request": ("/livez", "Connection: close\r\n", False),
}
"""What is asked for: a path, a header, and whether the endpoint has a token."""


def rows() -> Iterator[str]:
    """The lines of a Markdown table."""
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.touch(0o600)
        token.write_text("secret")
        rounds = [_round(str(token)) for _ in range(_ROUNDS)]
    alone = spread([each.step for each, _ in rounds])
    yield f"| one client floods | a step: ms; {alone} alone | more | endpoint's threads: CPU ms a second |"
    yield "|---|---|---|---|"
    for what in _FLOODS:
        found = [(alone, beside[what]) for alone, beside in rounds]
        more = median(100 * (beside.step / alone.step - 1) for alone, beside in found)
        steps, cpu = (spread([getattr(beside, name) for _, beside in found]) for name in ("step", "endpoint"))
        yield f"| {what} | {steps} | {more:+.1f} % | {cpu} |"


def _round(token: str) -> tuple[Loop, dict[str, Loop]]:
    beside = {
        what: loop(partial(flood, path, header), **({"token_file": token} if guarded else {}))
        for what, (path, header, guarded) in _FLOODS.items()
    }
    return loop(), beside


@contextlib.contextmanager
def flood(path: str, header: str, port: int) -> Iterator[None]:
    """Let one client ask for this as fast as it is answered, from when what may be used at once is used up."""
    with running(_FLOODER, str(port), path, header):
        time.sleep(_BURST_SECONDS)
        yield
