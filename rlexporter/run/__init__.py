"""The run in this process: its name, its state, its input, and its end."""
