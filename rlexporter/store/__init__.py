"""Keeps the state of one run, as snapshots that never change."""
