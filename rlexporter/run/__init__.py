"""One run in this process: its name, its state, what is fed into it, and how it ends."""
