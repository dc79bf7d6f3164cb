"""Keeps the state of one run, as snapshots that never change, and takes all that changes it."""
