"""The step clock: what makes a run sick, judged in the process, step by step, against limits and its own past."""
