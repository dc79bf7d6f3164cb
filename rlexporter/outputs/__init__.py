"""Outputs of snapshots. Each third-party library is imported in exactly one file."""
