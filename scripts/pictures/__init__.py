"""Draws the dashboards from what a real Prometheus answers, to look at them: docs/images, and all of it in .work.

    python -m scripts.pictures

Real runs: three demos are trained, two of them with a fault, and their recordings are put on the clock of a larger
model, a step every half a minute or so; recorded runs of other trainers stand beside them.
"""
