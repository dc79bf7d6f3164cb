"""Settings: what may be set, how it is read, and what it means where it is wrong."""
