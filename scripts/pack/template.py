"""The files in `templates`: texts, some of them with gaps."""

from __future__ import annotations

from importlib.resources import files
from string import Template


def template(name: str) -> str:
    """Return the text of a template as it is."""
    return (files("scripts.pack") / "templates" / name).read_text(encoding="utf-8")


def filled(name: str, **gaps: str) -> str:
    """Return the text of a template, each ``$gap`` of which is filled.

    Raises KeyError where a gap of the template is not among ``gaps``.
    """
    return Template(template(name)).substitute(gaps)
