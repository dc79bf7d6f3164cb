"""Snapshot -> the outside. Each third-party library is imported in exactly one file."""
