"""Errors that the user can fix."""

from __future__ import annotations


class SetupError(Exception):
    """An error that the user must fix before the exporter can start; the message says what, where and how."""
