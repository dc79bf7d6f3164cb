"""The state of one run, as snapshots that are never changed."""
