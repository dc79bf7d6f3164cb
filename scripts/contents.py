"""Check what is in a wheel and an sdist: `git ls-files | python -m scripts.contents WHEEL SDIST`; faults exit with 1.

Nothing is forgotten and nothing lay about: the sdist is what git has, the wheel the package of it; and the page on PyPI
leads nowhere but to addresses. Standard library only.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Set
from pathlib import PurePath

PACK = ("alerts/", "grafana/", "deploy/kubernetes/")
"""The folders that `rlexporter generate` takes its files from; in the wheel they are below rlexporter/pack."""
_RELATIVE = re.compile(r'(?:\]\(|(?:src|srcset|href)=")((?!https?:|mailto:|#)[^)"]*)')


def faults(tracked: Set[str], wheel: str, sdist: str) -> dict[str, set[str]]:
    """Return the names that are wrong, by what is wrong with them; ``tracked``: the files that git has."""
    with tarfile.open(sdist) as archive:
        unpacked = {each.name.partition("/")[2] for each in archive if not each.isdir()}
    with zipfile.ZipFile(wheel) as zipped:
        names = zipped.namelist()
        (metadata,) = (zipped.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    packed = {name for name in names if ".dist-info/" not in name}
    package = {name for name in tracked if name.startswith("rlexporter/")}
    package |= {f"rlexporter/pack/{name}" for name in tracked if name.startswith(PACK)}
    found = {
        "in git, and not in the sdist": set(tracked - unpacked),
        "in the sdist, and not in git": unpacked - tracked - {"PKG-INFO"},
        "in git, and not in the wheel": package - packed,
        "in the wheel, and not in git": packed - package,
        "not in the wheel": {"LICENSE"} - {PurePath(name).name for name in names},
        "links of the page on PyPI that lead nowhere": set(_RELATIVE.findall(metadata)),
    }
    return {what: which for what, which in found.items() if which}


if __name__ == "__main__":
    found = faults(set(sys.stdin.read().splitlines()), *sys.argv[1:])
    for what, which in found.items():
        print(f"contents: {what}: {', '.join(sorted(which))}", file=sys.stderr)
    sys.exit(bool(found))
