"""Errors that a person can do something about."""

from __future__ import annotations


class SetupError(Exception):
    """Something a person has to change before the exporter can start: says what, where, and how."""
