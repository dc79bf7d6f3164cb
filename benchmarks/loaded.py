"""What of the package a process loads: its modules and their lines, by room.

`python -m benchmarks.loaded` prints it for a run that logs, for one that also serves and is scraped, and for commands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLAIN = """
from rlexporter import Exporter
exporter = Exporter(algorithm="grpo", run="loaded", port=0)
for i in range(30):
    exporter.log({"reward": float(i), "loss": 0.1, "kl": 0.01, "entropy": 1.0})
"""
"""An exporter that is not started."""
SERVING = f"""{PLAIN}
from urllib.request import urlopen
exporter.start()
for path in ("metrics", "api/status"):
    assert urlopen(f"{{exporter.url}}/{{path}}").read()
exporter.close()
"""
_COMMAND = """
import contextlib
from rlexporter.commands.main import main
with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
    main({words})
"""
_WORDS = ("--help", "status --help", "metrics kl", "run --help", "check tests/data/formats/trl_console.log")
_PRINT = """
print(json.dumps({name: module.__file__ for name, module in sys.modules.items() if getattr(module, "__file__", None)}))
"""


def loaded(code: str) -> dict[str, int]:
    """Return the lines of each module of ours that a process which runs ``code`` has loaded, by its name."""
    done = subprocess.run(  # noqa: S603 - the code is ours
        [sys.executable, "-c", f"import json, sys\n{code}\n{_PRINT}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    files = {name: file for name, file in json.loads(done.stdout).items() if name.split(".")[0] == "rlexporter"}
    return {name: len(Path(file).read_text(encoding="utf-8").splitlines()) for name, file in files.items()}


def _told(what: str, lines: dict[str, int], rooms: Iterable[str]) -> str:
    """Return a paragraph on what is loaded; with ``rooms``, their lines and modules, the largest first."""
    text = f"{what}: {len(lines)} modules, {sum(lines.values()):,} lines"
    modules, sizes = Counter(rooms), Counter[str]()
    for room, size in zip(rooms, lines.values(), strict=True):
        sizes[room] += size
    return "\n".join([text, *(f"  {room:12} {size:6,}  {modules[room]}" for room, size in sizes.most_common())])


if __name__ == "__main__":
    commands = {f"rlexporter {words}": _COMMAND.format(words=words.split()) for words in _WORDS}
    for what, code in {"a run that logs": PLAIN, "and serves": SERVING, **commands}.items():
        found = loaded(code)
        print(_told(what, found, [name.split(".")[1] if "." in name else "." for name in found]))
