"""Evaluates conditions in the process, step by step, against fixed limits and the run's own past."""
