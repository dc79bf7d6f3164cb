"""Measures what the limits of the conditions are worth, and writes it into docs/alerts.md.

    python -m scripts.limits --toys FOLDER --real FOLDER --planted "as they are met"=FOLDER --planted ...
    python -m scripts.limits --stops FOLDER=grpo --stops FOLDER ...

`scripts.limits.toys` and `scripts.limits.real` say what a folder has in it. Without an option its section stays. What
follows a folder of `--stops` is the algorithm of the files that do not say it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.limits import real, stops, toys

PAGE = Path(__file__).parents[2] / "docs/alerts.md"


def _write(mark: str, text: str) -> None:
    """Put ``text`` between the marks of its section."""
    before, _, rest = PAGE.read_text().partition(f"<!-- {mark} -->\n")
    _, _, after = rest.partition(f"<!-- end of {mark} -->\n")
    PAGE.write_text(f"{before}<!-- {mark} -->\n\n{text}\n\n<!-- end of {mark} -->\n{after}")


def main() -> None:
    """Measure, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toys", type=Path, metavar="FOLDER")
    parser.add_argument("--real", type=Path, metavar="FOLDER")
    parser.add_argument("--planted", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--stops", action="append", default=[], metavar="FOLDER[=ALGORITHM]")
    options = parser.parse_args()
    if options.toys:
        _write("figures", toys.page(toys.load(options.toys)))
    if options.real:
        runs = real.load(options.real)
        named = (each.partition("=")[::2] for each in options.planted)
        planted = {name: real.load_planted(Path(folder), runs) for name, folder in named}
        _write("real figures", real.page(runs, planted))
    if options.stops:
        pairs = (each.partition("=")[::2] for each in options.stops)
        _write("stops", stops.page([run for folder, algorithm in pairs for run in stops.load(Path(folder), algorithm)]))


if __name__ == "__main__":
    main()
