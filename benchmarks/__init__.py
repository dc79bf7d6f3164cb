"""Figures as ratios, measured side by side in one run. `make bench` writes them to docs/benchmarks.md."""
