"""The pictures of the README: there, small, and of two runs that do not look the same."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.tools import ROOT

pytestmark = pytest.mark.slow
IMAGES = {each.stem: each for each in (ROOT / "docs/images").glob("*.png") if not each.stem.startswith("page")}


def test_pictures_are_there_and_small() -> None:
    """They are as wide as a page, and nothing that a clone would feel."""
    assert IMAGES.keys() == {"run-healthy", "run-broken", "run-broken-top", "fleet"}
    assert {name for name, file in IMAGES.items() if file.stat().st_size >= 150_000} == set()
    for name, file in IMAGES.items():
        with Image.open(file) as image:
            assert (image.format, image.width) == ("PNG", 1400), name


def test_healthy_and_broken_differ_in_red() -> None:
    """What is beyond its limit is red: there is far more of it in the picture of the broken run."""
    assert _reds("run-broken") > 1.5 * _reds("run-healthy") > 0


def _reds(name: str) -> int:
    """How many pixels have a colour that is a red."""
    with Image.open(IMAGES[name]) as image:
        colors = image.convert("RGB").getcolors(256) or []
    return sum(count for count, (red, *others) in colors if red > 60 and red > 1.5 * max(others))
