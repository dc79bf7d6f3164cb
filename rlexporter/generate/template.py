"""Texts with gaps, from the files in `templates`."""

from __future__ import annotations

from importlib.resources import files
from string import Template


def filled(name: str, **gaps: str) -> str:
    """Return the template called ``name``, each ``$gap`` of which is filled.

    Raises KeyError where a gap of the template is not among ``gaps``.
    """
    template = files("rlexporter.generate").joinpath("templates", name).read_text(encoding="utf-8")
    return Template(template).substitute(gaps)
