"""docs/compatibility.md, from what the tests of each TRL version saw: `python -m scripts.compatibility [--check]`.

`make versions` runs those tests; each version leaves a file in .work/versions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts import drift

ROOT = Path(__file__).parent.parent
SEEN = ROOT / ".work/versions"
PAGE = ROOT / "docs/compatibility.md"
BY_HAND = (ROOT / "scripts/texts/pythons.md", ROOT / "scripts/texts/stack.md")
"""What is told by hand: on which versions of Python, and with which parts around a trainer, something was run."""
VERSIONS = ("1.16.0", "1.12.0", "0.19.1", "0.11.4", "0.7.10")
"""Those that `make test-all` and `make versions` run."""
_TRANSFORMERS = ("epoch", "loss", "grad_norm", "learning_rate", "total_flos", "train_", "eval_")

_HEAD = """\
<!-- Written by `make versions`. Do not edit. -->

# Versions of TRL

A metric that a version does not have is no error: `rl_signal_available{signal}` is 0, with the reason on
the page at `/`.

## What was run

A short real run of each trainer, attached. Every key that it logged is in the catalog; each distribution was filled.
Keys are those of TRL, without those that every Trainer of transformers logs; distributions are `rl_..._dist`.

| trainer | trl | keys | distributions | not available |
|---|---|---|---|---|
"""
_BETWEEN = """
## The versions between

Read from the sources of the last patch release of each minor version, not run: whether what the taps look at is there.
What a method returns cannot be read so.

| trainer | trl | distributions | not available |
|---|---|---|---|
"""


def page(seen: dict[str, dict[str, Any]], between: Sequence[tuple[str, ...]]) -> str:
    """``seen``: by version and trainer; ``between``: rows of cells."""
    lines = [_HEAD.rstrip()]
    for each in VERSIONS:
        lines += [_row(trainer, each, found) for trainer, found in sorted(seen[each].items())]
    lines.append(_BETWEEN.rstrip())
    lines += [f"| {' | '.join(cells).removesuffix('-')} |" for cells in between]
    return "\n".join(lines) + "\n" + "".join(each.read_text() for each in BY_HAND)


def _row(trainer: str, trl: str, found: dict[str, Any]) -> str:
    keys = [key for key in found["keys"] if not key.startswith(_TRANSFORMERS)]
    shown = ", ".join(name.removeprefix("rl_").removesuffix("_dist") for name in found["distributions"])
    missing = "; ".join(f"{signal}: {reason}" for signal, reason in sorted(found["missing"].items()))
    return f"| {trainer} | {trl} | {len(keys)} | {shown} | {missing} |"


def _seen() -> Iterator[tuple[str, dict[str, Any]]]:
    for each in VERSIONS:
        path = SEEN / f"{each}.json"
        if not path.exists():
            raise SystemExit(f"compatibility: no run of trl {each} was seen; run: make versions")
        yield each, json.loads(path.read_text())


def _number(trl: str) -> tuple[int, ...]:
    return tuple(map(int, trl.split(".")[:2]))


def main() -> None:
    """Write the page, or see whether it says what was seen."""
    if "--check" in sys.argv and _number(version("trl")) > _number(VERSIONS[0]):
        print(f"compatibility: not checked, since trl {version('trl')} is newer than the page")
        return
    between = [each for each in drift.released() if _number(each) <= _number(VERSIONS[0])]
    made = page(dict(_seen()), drift.rows(drift.check(between)))
    if "--check" not in sys.argv:
        PAGE.write_text(made)
    elif not PAGE.exists() or PAGE.read_text() != made:
        raise SystemExit(
            f"compatibility: {PAGE.name} is not what was seen; run: make versions, and read the difference"
        )


if __name__ == "__main__":
    main()
