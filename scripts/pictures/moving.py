"""The page of a run that breaks, as a moving picture and as a still one: in a real browser, at some of its steps."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from rlexporter.logs import playback, reader
from rlexporter.run.run import Run
from rlexporter.status import document
from rlexporter.status.history import History
from rlexporter.status.page import page
from scripts.pictures.runs import IMAGES
from tests.page.browser import chromium, opened

STEPS = (*range(60, 150, 15), *range(150, 170, 2), *range(170, 221, 10))
"""The fault is in step 150."""
_SIZE = (1280, 860)
_SHOWN = (960, 645)
_MILLISECONDS, _LAST = 300, 4000
_MOST_BYTES = 900_000


def draw(file: Path) -> None:
    """Draw the run that ``file`` recorded into docs/images."""
    frames = [Image.open(io.BytesIO(each)).convert("RGB") for each in _frames(file)]
    small = [each.resize(_SHOWN, Image.Resampling.LANCZOS) for each in frames]
    both = Image.new("RGB", (_SHOWN[0], 2 * _SHOWN[1]))  # for a picture of the run while it is fine, and of its end
    for place, frame in enumerate((small[0], small[-1])):
        both.paste(frame, (0, place * _SHOWN[1]))
    colors = both.quantize(112)
    drawn = [each.quantize(palette=colors, dither=Image.Dither.NONE) for each in small]
    durations = [*[_MILLISECONDS] * (len(drawn) - 1), _LAST]
    out = IMAGES / "page.gif"
    drawn[0].save(out, save_all=True, append_images=drawn[1:], duration=durations, loop=0, optimize=True)
    assert out.stat().st_size < _MOST_BYTES


def _frames(file: Path) -> Iterator[bytes]:
    """Take a picture of the top of the page at each of the `STEPS`."""
    with chromium() as browser:
        for data in _documents(file):
            out = file.with_suffix(".html")
            out.write_text(page(data))
            with opened(browser, out.as_uri(), width=_SIZE[0]) as watched:
                watched.page.set_viewport_size({"width": _SIZE[0], "height": _SIZE[1]})
                watched.page.wait_for_timeout(300)
                yield watched.page.screenshot()


def _documents(file: Path) -> list[dict[str, Any]]:
    """Return what the page showed at each of the `STEPS`."""
    history, found, left = History(), [], [*STEPS]

    def see(run: Run) -> None:
        history.see(run.feed.snapshot)
        step = run.feed.snapshot.value("rl_step")
        if left and step is not None and step >= left[0] and not run.state.over:
            left.pop(0)
            found.append(document.kept(run.feed.snapshot, history, run.clock()))

    playback.played(reader.read(str(file), ""), {}, see)
    return found
