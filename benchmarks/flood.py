"""What one client that floods the endpoint costs a training beside it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pages import loop, running, spread

_ROUNDS = 5
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
    yield "| one client floods | a step alone: ms | beside it: ms | more | endpoint's threads: CPU ms a second |"
    yield "|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.touch(0o600)
        token.write_text("secret")
        for what, (path, header, guarded) in _FLOODS.items():
            settings: dict[str, Any] = {"token_file": str(token)} if guarded else {}
            pairs = [(loop(), loop(partial(flood, path, header), **settings)) for _ in range(_ROUNDS)]
            more = median(100 * (beside.step / plain.step - 1) for plain, beside in pairs)
            steps = " | ".join(spread([pair[place].step for pair in pairs]) for place in (0, 1))
            yield f"| {what} | {steps} | {more:+.1f} % | {spread([beside.endpoint for _, beside in pairs])} |"


def flood(path: str, header: str, port: int) -> contextlib.AbstractContextManager[None]:
    """Let one client ask for this as fast as it is answered."""
    return running(_FLOODER, str(port), path, header)
