"""A start on a system that lacks what Unix has: the modules, signals and flags are taken away, and a run is served."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ELSEWHERE = """
import os, signal, socket, sys, urllib.request

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("resource", "fcntl", "pwd", "grp", "termios"):
            raise ImportError(f"no {name} on this system")

for name in ("resource", "fcntl", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
for name in ("SIGPIPE", "SIGXFSZ", "SIGHUP", "SIGQUIT", "SIGKILL", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD"):
    delattr(signal, name)
for name in ("pthread_sigmask", "setitimer", "alarm"):
    delattr(signal, name)
for name in ("O_NONBLOCK", "register_at_fork", "fork", "forkpty", "getuid", "geteuid", "getppid", "uname", "getpgid"):
    delattr(os, name)
del socket.SO_REUSEPORT
"""
STARTS = """
import threading
from rlexporter import Exporter
from rlexporter.endpoint.connections import Connections
with Exporter(run="test", port=0, linger=0, token_file=sys.argv[1], record=sys.argv[2]) as exporter:
    exporter.log({"reward": 1.5}, step=1)
    exporter.log({"reward": 2.5}, step=2)
    wanted = urllib.request.Request(exporter.url + "/metrics", headers={"Authorization": "Bearer word"})
    with urllib.request.urlopen(wanted, timeout=20) as answer:
        text = answer.read().decode()
    assert 'rl_reward_mean{rank="0",run="test"} 2.5' in text, text
    assert "rlexporter_errors_total{" not in text, text
    port = exporter.port
socket.create_server(("127.0.0.1", port)).close()
assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
print("served", flush=True)
from rlexporter.commands.main import main
sys.exit(main(["run", "-c", "print('started')"]))
"""


def test_it_starts_where_unix_is_not(tmp_path: Path) -> None:
    """An exporter is started, scraped and closed; then a command is started."""
    token = tmp_path / "token"
    token.write_text("word")
    token.chmod(0o600)
    script = tmp_path / "script.py"
    script.write_text(ELSEWHERE + STARTS)
    command = [sys.executable, str(script), str(token), str(tmp_path / "log.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.split()) == (0, ["served", "started"]), done.stderr
