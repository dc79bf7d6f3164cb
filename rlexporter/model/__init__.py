"""The values that the rest of the project is about, mostly frozen. Uses the standard library only."""
